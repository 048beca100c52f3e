"""Whose end is it: whoever waits is told what a repeat of the request finds in the log."""

import asyncio
from typing import Any

import pytest

from mail.core.runtime import MAILRuntime, RunRequest
from mail.db.commit import Commit
from mail.db.records import IdempotencyRow
from mail.db.store import Store
from mail.errors import ShuttingDown, StoreError
from mail.testing import tool_calls
from tests.support.stores import HookedStore
from tests.support.swarm import runtime_of, supervisor, user_message

KNOWN = IdempotencyRow("k", "fingerprint", "2026-01-01T00:00:00+00:00")


def says(name: str, gate: asyncio.Event | None = None):
    """Return an agent that ends the task in its name and with the number of its call."""
    calls: list[None] = []

    async def agent(messages, choice):
        if gate is not None:
            await gate.wait()
        calls.append(None)
        done = ("task_complete", {"finish_message": f"{name} {len(calls)}"})
        return None, tool_calls(done, prefix=f"{name}{len(calls)}")

    return agent


def ends(post: Commit) -> bool:
    return any(event.kind == "task_complete" for event in post.events)


async def repeated(runtime: MAILRuntime, store: Any) -> str:
    """Return the body that a repeat of the request with the key gets."""
    known = await store.find_key(runtime._context.owner, KNOWN.key)
    return (await (await runtime.follow_run(known)).end(5)).body


async def test_a_message_waits_for_an_end_that_has_to_be_tried_again(store: Store) -> None:
    second: list[Any] = []

    async def hiccup(post: Commit) -> None:
        if ends(post) and not second:
            request = RunRequest(message=user_message("two"), once=KNOWN)
            second.append(asyncio.ensure_future(runtime.open_run(request)))
            for _ in range(50):
                await asyncio.sleep(0)  # it waits for what comes of the end
            raise StoreError("the disk hiccups")

    hooked = HookedStore(store, before=hiccup)
    runtime = runtime_of({"supervisor": supervisor(says("end"), ())}, store=hooked)
    first = await runtime.open_run(RunRequest(message=user_message("one")))
    assert (await first.end(5)).body == "end 1"
    assert (await (await second[0]).end(5)).body == "end 2"
    assert await repeated(runtime, store) == "end 2"
    await runtime.shutdown()


async def test_a_message_is_taken_while_an_end_that_left_it_unread_is_stored(store: Store) -> None:
    gate = asyncio.Event()

    async def take_other(post: Commit) -> None:
        if ends(post) and not gate.is_set():
            gate.set()
            for _ in range(50):
                await asyncio.sleep(0)

    agents = {
        "supervisor": supervisor(says("one"), ()),
        "other": supervisor(says("other", gate), ()),
    }
    runtime = runtime_of(agents, store=HookedStore(store, after=take_other))
    message = user_message("two", to="other")
    second = await runtime.open_run(RunRequest(message=message, once=KNOWN))
    first = await runtime.open_run(RunRequest(message=user_message("one")))
    assert (await first.end(5)).body == "one 1"
    assert (await second.end(5)).body == "other 1"
    assert await repeated(runtime, store) == "other 1"
    await runtime.shutdown()


class StopsAtALook(HookedStore):
    """Stops the runtime while it looks for a task."""

    runtime: MAILRuntime

    async def claim_task(self, *args: Any) -> Any:
        await self.runtime.shutdown(0)
        return await self._store.claim_task(*args)


async def test_nobody_begins_to_wait_when_the_waiting_have_been_told(store: Store) -> None:
    agents = {"supervisor": supervisor(says("end"), ())}
    before = runtime_of(agents, store=store)
    await (await before.open_run(RunRequest(message=user_message()))).end(5)
    await before.shutdown()
    stopping = StopsAtALook(store)
    stopping.runtime = runtime_of(agents, store=stopping)
    with pytest.raises(ShuttingDown):
        run = await stopping.runtime.open_run(RunRequest(message=user_message("again")))
        await run.end(5)
