"""Actions, agents and overrides that fail in odd ways: the swarm lives on and says what came."""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mail import MAILAction, MAILSwarmTemplate, action
from mail.core.actions import ActionFailure
from mail.core.agents import AgentOutput
from mail.core.call_context import current_call
from mail.errors import ToolError
from mail.llm import call, when
from mail.testing import Outcome, scripted_swarm
from tests.api.support import completer, newest, template_of

BOSS = [
    when(sender_type="user").then(call("act")),
    when(tool_result="act").then(
        lambda view: call("task_complete", finish_message=view.result_of("act") or "")
    ),
]


async def _run(function: Callable[..., Any]) -> Outcome:
    """Let an agent call an action with this function; the answer is what the agent was told."""
    made = MAILAction("act", "Act.", {}, function)
    async with scripted_swarm({"boss": BOSS}, actions={"boss": [made]}) as swarm:
        return await swarm.run("Go.", timeout=10)


def _raising(error: BaseException) -> list[Callable[..., Any]]:
    def plain(args: dict[str, Any]) -> str:
        raise error

    async def coroutine(args: dict[str, Any]) -> str:
        raise error

    return [plain, coroutine]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_an_iterator_that_ran_out_is_a_failure_and_no_hang(kind: str) -> None:
    def plain(args: dict[str, Any]) -> str:
        return next(iter([]))

    async def coroutine(args: dict[str, Any]) -> str:
        return next(iter([]))

    outcome = await _run(plain if kind == "plain" else coroutine)
    assert outcome.completed
    assert outcome.body.startswith("ERROR: failed to execute action tool: ")
    assert "raised StopIteration" in outcome.body


@pytest.mark.parametrize("kind", [0, 1])
async def test_an_action_cannot_end_the_program(kind: int) -> None:
    outcome = await _run(_raising(SystemExit(3))[kind])
    assert outcome.completed
    assert "it tried to exit the program (SystemExit: 3)" in outcome.body


async def test_of_what_it_exits_with_the_agent_sees_no_password() -> None:
    error = SystemExit("no way into postgresql://app:hunter2-hunter2@db/x")
    outcome = await _run(_raising(error)[1])
    assert "(SystemExit: no way into postgresql://[redacted]@db/x)" in outcome.body


async def test_neither_can_an_override() -> None:
    async def leave(made: Any) -> str:
        sys.exit("bye")

    act = MAILAction("act", "Act.", {}, _raising(AssertionError())[1])
    async with scripted_swarm({"boss": BOSS}, actions={"boss": [act]}) as swarm:
        running = asyncio.create_task(swarm.swarm.run_continuous(leave))
        outcome = await swarm.run("Go.", timeout=10)
        assert "override tool: it tried to exit the program (SystemExit: bye)" in outcome.body
        await swarm.swarm.shutdown()
        await running


async def test_neither_can_an_agent() -> None:
    async def boss(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
        if newest(messages)["body"] == "leave":
            sys.exit(4)
        return await completer(messages, tool_choice)

    template = MAILSwarmTemplate("one", agents=[template_of(boss)], entrypoint="boss")
    swarm = template.instantiate({}, print_llm_streams=False)
    answer, _ = await swarm.post_message("leave")
    assert answer["message"]["subject"] == "::task_error::"
    told = "agent 'boss' failed: it tried to exit the program: SystemExit (see the log, reference "
    assert told in answer["message"]["body"]
    answer, _ = await swarm.post_message("stay")
    assert answer["message"]["subject"] == "::task_complete::"
    await swarm.shutdown()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("too deep"), "failed to execute action tool: too deep"),
        (ValueError(), "failed to execute action tool: ValueError"),
        (KeyError("missing"), "failed to execute action tool: KeyError: 'missing'"),
    ],
)
async def test_an_exception_is_told_to_the_agent_and_logged_for_its_author(
    error: Exception, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="mail.core.actions"):
        outcome = await _run(_raising(error)[1])
    [record] = [record for record in caplog.records if record.name == "mail.core.actions"]
    assert record.getMessage() == "action tool 'act' of agent 'boss' failed"
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert outcome.body == f"ERROR: {text} (see the log, reference {vars(record)['reference']})"


@pytest.mark.parametrize(
    ("error", "most"), [(ValueError("a word " * 5000), 4000), (ToolError("a word " * 5000), 16_000)]
)
async def test_of_a_long_error_the_agent_sees_the_beginning(error: Exception, most: int) -> None:
    outcome = await _run(_raising(error)[1])
    assert most - 100 < len(outcome.body) < most + 100


async def test_what_an_action_tells_the_agent_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="mail.core.actions"):
        outcome = await _run(_raising(ToolError("there is no such hole; dig one"))[1])
    assert outcome.body == "ERROR: there is no such hole; dig one"
    assert [event.event for event in outcome.events].count("action_error") == 1
    assert not [record for record in caplog.records if record.name == "mail.core.actions"]


@pytest.mark.parametrize("text", ["Error: the hole is full", "the hole is full"])
async def test_a_failure_may_be_returned(text: str) -> None:
    async def act(args: dict[str, Any]) -> str:
        return ActionFailure(text)

    outcome = await _run(act)
    assert outcome.body == "ERROR: the hole is full"
    kinds = [event.event for event in outcome.events]
    assert "action_error" in kinds
    assert "action_complete" not in kinds


async def test_an_action_knows_its_task_and_its_agent() -> None:
    seen = []

    @action(parameters={})
    def act(args: dict[str, Any]) -> str:
        """Act in a thread."""
        seen.append((current_call().task_id, current_call().agent))
        return "done"

    @action(name="act", parameters={})
    async def act_here(args: dict[str, Any]) -> str:
        """Act on the loop."""
        seen.append((current_call().task_id, current_call().agent))
        return "done"

    for made in (act, act_here):
        async with scripted_swarm({"boss": BOSS}, actions={"boss": [made]}) as swarm:
            assert (await swarm.run("Go.", task_id="dig-1")).completed
    assert seen == [("dig-1", "boss")] * 2
    assert await act.function({}) == "done"  # by hand, in no task
    assert seen[-1] == ("", "")
