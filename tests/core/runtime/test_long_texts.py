"""A turn with a long text is no reason for others to wait until it is over."""

import asyncio
import operator

import pytest
from pydantic_core import to_json

from mail.core.runtime import RunRequest
from mail.core.runtime.turn_result import Reply, TurnResult
from mail.db import open_store
from mail.db.commit import TurnCommit
from mail.errors import AgentError
from mail.testing import tool_calls
from tests.support.swarm import runtime_of, supervisor, user_message, worker


@pytest.mark.parametrize("sent", [20, 200_000])
async def test_others_are_served_while_a_long_text_goes_through_a_turn(monkeypatch, sent) -> None:
    store = open_store("memory://")
    await store.open()
    seen: list[str] = []
    loop = asyncio.get_running_loop()
    commit = store.commit

    async def answer(messages, choice):
        seen.append("agent")
        loop.call_soon(seen.append, "somebody else")
        return None, tool_calls(("task_complete", {"finish_message": "y" * sent}))

    async def noted(change):
        if isinstance(change, TurnCommit):
            seen.append("commit")
            return await commit(change)
        receipt = await commit(change)
        loop.call_soon(loop.call_soon, seen.append, "somebody before")
        return receipt

    monkeypatch.setattr(store, "commit", noted)
    agents = {"supervisor": supervisor(answer), "worker": worker(answer)}
    runtime = runtime_of(agents, store=store)
    run = await runtime.open_run(RunRequest(message=user_message("x" * sent)))
    end = await run.end(10)
    await runtime.shutdown()
    await store.close()
    assert end.body == "y" * sent
    if sent > 20:
        assert seen == ["somebody before", "agent", "somebody else", "commit"]
    else:  # nobody pays for it who says little
        assert seen.index("commit") == seen.index("agent") + 1


def test_a_reply_that_json_cannot_hold_is_refused() -> None:
    circle: dict[str, object] = {"x": "y" * 100_000}
    circle["self"] = circle
    [made] = tool_calls(("think", {"x": "y" * 100_000}))
    reply = Reply(None, [made.model_copy(update={"tool_args": circle})])
    with pytest.raises(ValueError, match=r"[Cc]ircular"):
        reply.storable(None, None)


def test_the_arguments_of_a_reply_are_written_once() -> None:
    made = tool_calls(("think", {"é": "x"}), ("think", {}), ("await_message", {"reason": "x"}))
    reply = Reply(None, made).storable(None, None)
    turn_result = TurnResult(lambda: "now")
    turn_result.history.add_reply(reply)
    written = [turn_result.history.arguments_of(call) for call in reply.calls]
    assert written == ['{"é":"x"}', "{}", '{"reason":"x"}']
    assert all(map(operator.is_, written, (arguments for _, _, arguments in reply.said)))
    edited = reply.calls[0].model_copy(update={"tool_args": {"y": 1}})
    assert turn_result.history.arguments_of(edited) == '{"y":1}'


def test_a_reply_is_as_long_as_its_calls_in_json() -> None:
    made = tool_calls(("think", {"é": "x" * 5000}), ("think", {}))
    said = [[call.tool_name, call.tool_call_id, call.tool_args] for call in made]
    size = max(len(to_json(said)), sum(len(to_json(entry)) for entry in Reply(None, made).entries))
    assert Reply(None, made).storable(size, None).calls == made
    with pytest.raises(AgentError, match=f"has {size:,} bytes"):
        Reply(None, made).storable(size - 1, None)
