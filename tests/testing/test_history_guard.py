"""A guarded agent fails where it changes an entry of its history, and only there."""

import asyncio

import pytest

from mail.testing import HistoryGuard, tool_calls
from tests.support.swarm import runtime_of, supervisor, user_message

DONE = [("task_complete", {"finish_message": "done"})]


def agent(act):
    """Return an agent that asks for help first, does something in its second turn, and is done."""
    turns = []

    async def function(messages, choice):
        turns.append(messages)
        if len(turns) == 1:
            return None, tool_calls(("help", {}))
        act(messages)
        return None, tool_calls(*DONE)

    return HistoryGuard(function)


async def answer_of(guard: HistoryGuard) -> dict:
    runtime = runtime_of({"supervisor": supervisor(guard, ())})
    message = await runtime.submit_and_wait(user_message())
    await runtime.shutdown()
    return message["message"]


def deep(messages: list) -> None:
    messages[1]["tool_calls"][0]["function"]["name"] = "another"


@pytest.mark.parametrize(
    ("change", "number"),
    [
        (lambda messages: messages[0].update(content="vandalised"), 0),
        (lambda messages: messages[-1].pop("role"), 3),
        (lambda messages: messages[2].setdefault("cache_control", {}), 2),
        (deep, 1),
    ],
)
async def test_a_changed_entry_fails_the_run_and_is_named(change, number: int) -> None:
    answer = await answer_of(agent(change))
    assert answer["subject"] == "::task_error::"
    assert f"the agent changed entry {number} of its history" in answer["body"]


@pytest.mark.parametrize(
    "use",
    [
        lambda messages: messages.append({"role": "user", "content": "a note to myself"}),
        lambda messages: messages.clear(),
        lambda messages: messages.sort(key=str),
        lambda messages: [dict(entry, cache_control={}) for entry in messages],
    ],
)
async def test_what_an_agent_does_to_its_own_list_is_its_own_affair(use) -> None:
    guard = agent(use)
    assert (await answer_of(guard))["body"] == "done"
    guard.check()


async def test_a_change_after_the_call_is_found_by_a_check() -> None:
    def later(messages: list) -> None:
        asyncio.get_running_loop().call_soon(messages[0].clear)

    guard = agent(later)
    assert (await answer_of(guard))["body"] == "done"
    with pytest.raises(AssertionError, match="changed entry 0"):
        guard.check()
