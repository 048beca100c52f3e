"""The Python blocks of CLAUDE_MAIL_PRIMER.md's chapter on common patterns and gotchas."""

import asyncio
import json
import logging
import sys
from functools import partial
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from mail import MAILAction, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.errors import ConfigError
from mail.factories import LiteLLMSupervisorFunction
from mail.llm import call, otherwise, when
from tests.documents.conftest import Keep
from tests.documents.primer_swarms import CLAUDE, SCRIPT, solo_template, stage_template
from tests.documents.support import missing_tests, tool_results
from tests.support.provider import FakeProvider

BLOCKS = {
    "1. `tool_format` Location": "test_tool_format_location",
    "2. Solo Agent Swarm": "test_solo_agent_swarm",
    "3. Action Must Return String": "test_action_must_return_string",
    "4. Closing Over State with `functools.partial`": "test_closing_over_state",
    "6. Waiting for Queue to Empty": "test_waiting_for_queue_to_empty",
    "7. Dynamic Context Ratio": "test_dynamic_context_ratio",
}
"""The chapter's headings with Python blocks, in its order, and the tests that cover them."""


@pytest.fixture(autouse=True)
def script(provider: FakeProvider) -> None:
    provider.script = SCRIPT


def test_table_names_every_test() -> None:
    assert missing_tests(BLOCKS, sys.modules[__name__]) == set()


async def test_tool_format_location(caplog: pytest.LogCaptureFixture) -> None:
    rest = {"name": "any", "factory": LiteLLMSupervisorFunction, "comm_targets": [], "actions": []}
    rights = {"enable_entrypoint": True, "can_complete_tasks": True}
    caplog.set_level(logging.WARNING)

    preferred = MAILAgentTemplate(
        **rest,
        **rights,
        tool_format="completions",
        agent_params=CLAUDE,
    )
    preferred.instantiate({})
    assert caplog.records == []

    inside = MAILAgentTemplate(
        **rest,
        **rights,
        tool_format="completions",
        agent_params=CLAUDE | {"tool_format": "responses"},
    )
    agent = inside.instantiate({})
    [warning] = [record.getMessage() for record in caplog.records]
    assert "'tool_format'" in warning
    assert "is ignored" in warning
    assert agent.tool_format == agent.function.tool_format == "completions"


async def test_solo_agent_swarm(keep: Keep) -> None:
    solo = MAILAgentTemplate(
        name="solo",
        factory=LiteLLMSupervisorFunction,
        comm_targets=[],
        actions=[],
        agent_params=CLAUDE,
        enable_entrypoint=True,
        can_complete_tasks=True,
    )
    template = MAILSwarmTemplate("alone", "1.0.0", [solo], [], "solo")
    swarm = keep(template.instantiate({"user_token": "dummy"}))
    response, _ = await swarm.post_message_and_run(body="Hello")
    assert response["message"]["body"] == "Hello to you, too."

    for missing in ("enable_entrypoint", "can_complete_tasks"):
        setattr(solo, missing, False)
        with pytest.raises(ConfigError):
            MAILSwarmTemplate("alone", "1.0.0", [solo], [], "solo")
        setattr(solo, missing, True)


async def test_action_must_return_string(provider: FakeProvider, keep: Keep) -> None:
    async def wrong(args: dict) -> dict:
        return {"result": 123}

    async def correct(args: dict) -> str:
        return json.dumps({"result": 123})

    parameters = {"type": "object", "properties": {}}
    actions = [
        MAILAction("wrong", "Returns no text", parameters, wrong),
        MAILAction("correct", "Returns text", parameters, correct),
    ]
    provider.script = [
        when(tool_result="correct").then(call("task_complete", finish_message="Both called.")),
        otherwise(call("wrong"), call("correct")),
    ]
    swarm: MAILSwarm = keep(solo_template(*actions).instantiate({"user_token": "dummy"}))
    response, _ = await swarm.post_message_and_run(body="Call both")
    assert response["message"]["body"] == "Both called."
    refused, given = tool_results(provider.requests[-1])
    assert "Action 'wrong' returned dict, expected str" in refused
    assert '{"result": 123}' in given


async def test_closing_over_state() -> None:
    class DoThingArgs(BaseModel):
        """Count a thing that was done."""

    async def do_thing(state: SimpleNamespace, args: dict) -> str:
        state.counter += 1
        return f"Count: {state.counter}"

    my_state_object = SimpleNamespace(counter=0)
    action = MAILAction.from_pydantic_model(
        model=DoThingArgs,
        function=partial(do_thing, my_state_object),
        name="do_thing",
    )
    assert [await action.function({}) for _ in range(2)] == ["Count: 1", "Count: 2"]
    assert my_state_object.counter == 2


@pytest.fixture
async def stage(keep: Keep) -> MAILSwarm:
    """A swarm in manual mode."""
    swarm = keep(stage_template().instantiate({"user_token": "dummy"}, "game_session"))
    asyncio.create_task(swarm.run_continuous(mode="manual"))  # noqa: RUF006 - as documented
    return swarm


async def test_waiting_for_queue_to_empty(provider: FakeProvider, stage: MAILSwarm) -> None:
    swarm, task_id = stage, "waiting"
    mail = swarm.build_message("::init::", "Begin", ["all"], type="broadcast", task_id=task_id)
    await swarm.submit_message_nowait(mail)

    await swarm.await_queue_empty()
    assert provider.requests == []
    response = await swarm.manual_step(task_id, "narrator", payload="Describe the scene.")
    assert response["message"]["body"] == "Rain over the harbour."


@pytest.mark.parametrize("wrong", [1.5, -0.1])
async def test_dynamic_context_ratio(
    provider: FakeProvider, stage: MAILSwarm, wrong: float
) -> None:
    swarm, task_id = stage, "ratio"
    response = await swarm.manual_step(
        task_id=task_id,
        target="narrator",
        dynamic_ctx_ratio=0.75,
        payload="Describe the scene.",
    )
    assert response["message"]["body"] == "Rain over the harbour."
    with pytest.raises(ConfigError, match="dynamic_ctx_ratio"):
        await swarm.manual_step(task_id=task_id, target="narrator", dynamic_ctx_ratio=wrong)
    assert len(provider.requests) == 1
