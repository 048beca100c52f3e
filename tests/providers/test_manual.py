"""Manual mode over every wire: a round table of models, stepped one after the other."""

import asyncio
import json
from typing import Any

import pytest

from mail import MAILAction, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.errors import StepFailed
from mail.factories import LiteLLMAgentFunction, LiteLLMSupervisorFunction
from mail.llm.litellm_model import LiteLLMModel
from mail.llm.retry import RetryPolicy
from mail.llm.script import call, otherwise, say, think, when
from tests.providers.swarms import LOOK_UP, MODELS, Path
from tests.support.provider import FakeProvider, Fault

QUICK = RetryPolicy(base=0.001, cap=0.01, attempts=2)
SCRIPT = [
    when(system="You are ann", tool_result="look_up").then(
        think("Found."), say("private: LIAM means it")
    ),
    when(system="You are ann", body="Look").then(think("Look."), call("look_up", word="mail")),
    when(system="interrogated").then(say("I confess")),
    when(system="You are ann").then(say("ann listens")),
    when(system="You are bob").then(say("bob listens")),
    otherwise(say("Welcome, everybody")),
]


def table(path: Path) -> MAILSwarm:
    def member(name: str, actions: list[MAILAction], **rights: bool) -> MAILAgentTemplate:
        factory = LiteLLMSupervisorFunction if rights else LiteLLMAgentFunction
        return MAILAgentTemplate(
            name=name,
            factory=lambda **given: factory(**given, model=LiteLLMModel(QUICK)),
            comm_targets=[other for other in ("host", "ann", "bob") if other != name],
            actions=actions,
            agent_params={
                "llm": path.llm,
                "system": f"You are {name}.",
                "use_proxy": False,
                "reasoning_effort": "low",
            },
            tool_format=path.tool_format,
            **rights,
        )

    host = member("host", [], enable_entrypoint=True, can_complete_tasks=True)
    template = MAILSwarmTemplate(
        name="table",
        agents=[host, member("ann", [LOOK_UP]), member("bob", [])],
        entrypoint="host",
    )
    return template.instantiate({"user_token": "any"}, "tester", print_llm_streams=False)


def shown(provider: FakeProvider, index: int = -1) -> str:
    return json.dumps(provider.requests[index].body, ensure_ascii=False)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.wire)
async def test_a_round_is_played(provider: FakeProvider, path: Path) -> None:
    provider.script = SCRIPT
    swarm = table(path)
    running = asyncio.create_task(swarm.run_continuous(mode="manual"))
    task_id = "round-1"

    async def step(target: str, *to: str, **more: Any) -> str:
        kind = "response" if to else "broadcast"
        message = await swarm.manual_step(task_id, target, list(to) or None, kind, **more)
        return message["message"]["body"]

    opening = swarm.build_message("::init::", "Hello", ["all"], type="broadcast", task_id=task_id)
    await swarm.submit_message_nowait(opening)
    await swarm.await_queue_empty()

    assert await step("host", payload="Greet them") == "Welcome, everybody"
    assert await step("ann", "host", payload="Look it up") == "private: LIAM means it"
    assert "<from>tester</from>" in shown(provider, 1)
    assert await step("bob") == "bob listens"
    assert "private:" not in shown(provider)
    assert await step("host", _system="You are being interrogated") == "I confess"
    assert "private: LIAM" in shown(provider)
    assert await step("ann", _llm=path.llm.replace("mini", "nano")) == "ann listens"
    assert "I confess" in shown(provider)

    assert {seen.status for seen in provider.requests} == {200}
    models = [seen.model for seen in provider.requests]
    assert ("nano" in models[-1]) is ("nano" in path.llm.replace("mini", "nano"))
    choices = {str(seen.body.get("tool_choice")) for seen in provider.requests}
    assert choices <= {"auto", "None", "{'type': 'auto'}"}
    await swarm.shutdown()
    await running


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.wire)
async def test_a_provider_that_fails_raises_its_reason(provider: FakeProvider, path: Path) -> None:
    provider.script = SCRIPT
    swarm = table(path)
    running = asyncio.create_task(swarm.run_continuous(mode="manual"))
    provider.faults.extend([Fault(status=400, message="the model is on holiday")])
    with pytest.raises(StepFailed, match="on holiday"):
        await swarm.manual_step("t", "bob", payload="Hello")
    assert (await swarm.manual_step("t", "bob"))["message"]["body"] == "bob listens"
    await swarm.shutdown()
    await running
