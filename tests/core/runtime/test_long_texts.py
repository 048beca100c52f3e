"""A turn with a long text is no reason for others to wait until it is over."""

import asyncio

import pytest

from mail.core.runtime import RunRequest
from mail.db import open_store
from mail.testing import tool_calls
from tests.support.swarm import runtime_of, supervisor, user_message, worker


@pytest.mark.parametrize("sent", [20, 200_000])
async def test_others_are_served_while_a_long_text_goes_through_a_turn(monkeypatch, sent) -> None:
    store = open_store("memory://")
    await store.open()
    seen: list[str] = []
    loop = asyncio.get_running_loop()
    commit_turn = store.commit_turn

    async def answer(messages, choice):
        seen.append("agent")
        loop.call_soon(seen.append, "somebody else")
        return None, tool_calls(("task_complete", {"finish_message": "y" * sent}))

    async def noted(commit):
        seen.append("commit")
        return await commit_turn(commit)

    post = store.post

    async def stored(commit):
        receipt = await post(commit)
        loop.call_soon(loop.call_soon, seen.append, "somebody before")
        return receipt

    monkeypatch.setattr(store, "commit_turn", noted)
    monkeypatch.setattr(store, "post", stored)
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
