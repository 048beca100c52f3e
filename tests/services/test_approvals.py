"""Approvals as callers see them: pages, the stream, and deadlines."""

import asyncio
import gc
import json
from typing import Any

import pytest

from mail.clock import SystemClock
from mail.core.approvals import ALLOWS, Answerer
from mail.db.calls import StoredCall
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.errors import UnknownAgent
from mail.services.approvals import ApprovalDesk, Deadlines
from tests.support.sql import held_call, put_held


def deadlines(store: MemoryStore, act: Any) -> Deadlines:
    return Deadlines(store=store, act=act, swarm=lambda: "s", clock=SystemClock())


async def test_deadlines_that_cannot_be_kept_stop_no_other_and_are_looked_at_now_and_then() -> None:
    store, owner = MemoryStore(), Owner("s", "user", "u")
    gone, broken = 70, 2  # more than are read at once
    for number in range(gone + broken + 1):
        await put_held(store, owner, "t", held_call(f"a{number:03}", expires_at="2020"))
    tried: list[str] = []
    ended = asyncio.Event()

    async def act(found: StoredCall) -> None:
        tried.append(found.row.approval_id)
        if found.number <= gone:
            raise UnknownAgent("it has gone")
        if found.number <= gone + broken:
            raise KeyError("a factory of one's own")
        await put_held(store, owner, "t", found.row._replace(status="expired"))
        ended.set()

    timing = asyncio.create_task(deadlines(store, act).keep())
    await asyncio.wait_for(ended.wait(), 20)
    await asyncio.sleep(0.1)
    assert not timing.done() and len(tried) == gone + broken + 1
    timing.cancel()


async def test_a_deadline_that_nobody_can_keep_now_is_not_asked_for_all_the_time() -> None:
    class Counting(MemoryStore):
        asked = 0

        async def held_calls(self, *args, **options):
            self.asked += 1
            return await super().held_calls(*args, **options)

    async def act(found: StoredCall) -> None:
        """Leave it to its owner."""

    store = Counting()
    await put_held(store, Owner("s", "user", "u"), "t", held_call("a", expires_at="2020"))
    timing = asyncio.create_task(deadlines(store, act).keep())
    await asyncio.sleep(0.15)
    assert not timing.done() and store.asked <= 3
    timing.cancel()


async def test_without_deadlines_nobody_looks_on() -> None:
    store, owner = MemoryStore(), Owner("s", "user", "u")
    ended: list[str] = []

    async def act(found: StoredCall) -> None:
        ended.append(found.row.approval_id)
        await put_held(store, owner, "t", found.row._replace(status="expired"))

    await put_held(store, owner, "t", held_call("due", expires_at="2020"), held_call("none"))
    await asyncio.wait_for(deadlines(store, act).keep(for_ever=False), 20)
    assert ended == ["due"]
    await put_held(store, owner, "t", held_call("far", expires_at="2999-01-01T00:00:00+00:00"))
    waiting_for = asyncio.create_task(deadlines(store, act).keep(for_ever=False))
    await asyncio.sleep(0.05)
    assert not waiting_for.done() and ended == ["due"]
    waiting_for.cancel()
    await store.close()


async def _decide(*_: object) -> None:
    raise AssertionError


async def waiting(*sizes: int) -> tuple[MemoryStore, ApprovalDesk]:
    """Return a store and the desk of open approvals whose arguments have these sizes."""
    store, owner = MemoryStore(), Owner("s", "user", "u")
    config = json.dumps(dict.fromkeys(ALLOWS.values(), True))
    for number, size in enumerate(sizes):
        text = "x" * size
        call = held_call(f"{number}", {"text": text}, config=config, approvers="\nowner\n")
        await put_held(store, owner, "t", call)
    return store, ApprovalDesk(store, "s", _decide)


@pytest.mark.parametrize(
    ("sizes", "limit", "pages"),
    [
        ([2**18] * 25, 200, 7),
        ([10] * 25, 9, 3),
        ([10] * 25, 25, 1),
        ([2**18, 2**18, 10], 200, 1),  # newest first, so the large ones are the last
        ([2**20] * 2 + [10] * 3, 200, 2),
    ],
)
async def test_pages_of_large_calls_are_short_and_leave_none_out(sizes, limit, pages) -> None:
    store, desk = await waiting(*sizes)
    told: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await desk.page(Answerer("user", "u"), "open", "", limit, cursor)
        told.append([record["approval_id"] for record in page[0]])
        cursor = page[1]
    newest_first = [str(number) for number in reversed(range(len(sizes)))]
    assert [name for page in told for name in page] == newest_first
    assert len(told) == pages
    await store.close()


def stored_calls() -> list[StoredCall]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is StoredCall]


@pytest.mark.parametrize("known", [None, 0])
async def test_large_calls_that_nobody_reads_wait_for_a_place(known: int | None) -> None:
    store, desk = await waiting(400_000, 400_000)
    places = asyncio.Semaphore(3)
    others = stored_calls()  # of tests before, which may have failed
    before = set(map(id, others))
    who = Answerer("user", "u")
    streams = [desk.events(who, known, lambda: False, places) for _ in range(20)]
    firsts = [asyncio.ensure_future(anext(stream)) for stream in streams]
    for _ in range(100):
        await asyncio.sleep(0)
    done = [stream for stream, first in zip(streams, firsts, strict=True) if first.done()]
    assert len(done) == 3
    # Beside the record that is sent, nothing holds what was read.
    assert not [each for each in stored_calls() if id(each) not in before]
    await done[0].aclose()
    for _ in range(100):
        await asyncio.sleep(0)
    assert sum(first.done() for first in firsts) == 4
    for first in firsts:
        first.cancel()
    await asyncio.gather(*firsts, return_exceptions=True)
    for stream in streams:
        await stream.aclose()
    assert places._value == 3
    await store.close()


async def test_a_call_that_is_answered_keeps_no_long_text_meanwhile() -> None:
    store, desk = await waiting(400_000)
    decided: list[StoredCall] = []

    async def decide(found: StoredCall, *_: object) -> None:
        decided.append(found)

    desk.decide = decide
    await desk.answer(Answerer("user", "u"), "0", {"type": "accept"})
    assert [(found.row.approval_id, found.row.size) for found in decided] == [("0", 0)]
    await store.close()
