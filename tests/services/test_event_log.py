"""Streams keep little in memory: pages, buffers, and what one caller's readers have together."""

import asyncio
import gc
import json
import weakref
from typing import Any

import pytest

from mail.clock import SystemClock
from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import Delivery, EventRow, Owner, TaskRow
from mail.services.event_log import EventLog, EventPages, Room
from mail.services.tasks import TaskReader
from tests.support.times import a_while

OWNER = Owner("office", "user", "alice")
NOW = "2026-01-01T00:00:00+00:00"
KIB = 1024
MB = KIB * KIB


def event(size: int, kind: str = "action_call") -> EventRow:
    return EventRow(kind, NOW, extra=json.dumps({"text": "x" * size}))


async def stored(*rows: EventRow, state: TaskState = TaskState.RUNNING) -> MemoryStore:
    store = MemoryStore()
    task = TaskRow("t", "user:alice@office", (), NOW, "clerk", state)
    await store.commit(Commit(owner=OWNER, task=task, new=True, events=rows))
    return store


class Spy:
    """A store that notes what is read of its events."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.pages: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def events(self, *given: Any) -> list[TaskEvent]:
        page = await self._store.events(*given)
        self.pages.append(sum(found.size for found in page))
        return page


class Nothing:
    """No engine is at work."""

    log = None
    closing = False


def reader(store: Any, room: Room | None = None) -> TaskReader:
    return TaskReader(store, OWNER, SystemClock(), Nothing(), room or Room())


async def test_pages_of_a_stream_are_bounded_by_bytes() -> None:
    sizes = [10] * 600 + [20 * KIB] * 10 + [300 * KIB] * 3 + [10] * 5
    spy = Spy(await stored(*map(event, sizes), state=TaskState.COMPLETED))
    seen = [(found.seq, len(found.extra["text"])) async for found in reader(spy).replay("t", 0, 9)]
    assert seen == list(enumerate(sizes, 1))
    assert sorted(spy.pages)[-4] <= 64 * KIB < sorted(spy.pages)[-3]
    assert len(spy.pages) < 20


async def test_large_events_of_one_caller_wait_for_room_and_keep_nothing_meanwhile() -> None:
    store = await stored(*[event(400 * KIB)] * 2, state=TaskState.COMPLETED)
    room = Room(1000 * KIB)
    streams = [reader(store, room).replay("t", 0, 9) for _ in range(5)]
    firsts = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await a_while(0.05)
    assert [first.done() for first in firsts] == [True, True, False, False, False]
    assert room.taken < room.size
    assert (await anext(streams[0])).seq == 2  # its first one was sent: the room is free
    await streams[1].aclose()
    await a_while(0.05)
    assert sum(first.done() for first in firsts) == 3
    for stream, first in zip(streams, firsts, strict=True):
        await stream.aclose() if first.done() else first.cancel()
    await asyncio.gather(*firsts, return_exceptions=True)
    assert room.taken == 0


async def test_an_event_that_is_larger_than_the_room_has_it_for_itself() -> None:
    store = await stored(*[event(400 * KIB)] * 2)
    room = Room(KIB)
    first, second = EventPages(room), EventPages(room)
    assert len(await first.read(store, (OWNER, "t", 0))) == 1
    waiting = asyncio.ensure_future(second.read(store, (OWNER, "t", 1)))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    first.leave()
    assert [found.seq for found in await waiting] == [2]
    second.leave()
    assert room.taken == 0


async def test_a_reader_that_gives_up_waiting_takes_no_room() -> None:
    store = await stored(event(400 * KIB))
    room = Room(KIB)
    first = EventPages(room)
    await first.read(store, (OWNER, "t", 0))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await EventPages(room).read(store, (OWNER, "t", 0))
    first.leave()
    assert room.taken == 0


async def test_live_events_in_a_buffer_are_bounded_by_bytes_whatever_holds_them() -> None:
    store = await stored(event(10))
    log = EventLog(store, OWNER, recent=8, buffer=100_000)
    place = log.subscribe("t", after=0, deltas=True)
    assert len(await place.take(store, OWNER)) == 1
    assert not await place.take(store, OWNER)
    for number in range(1000):
        delta = TaskEvent(task_id="t", kind="model_delta", timestamp=NOW, extra={"d": "x" * 1000})
        log.delta(delta)
        log.publish("t", 2 + number, (event(100),))
    assert sum(len(json.dumps(found.extra)) for found in place._buffer) < 64 * KIB
    log.publish("t", 2000, (event(10_000_000),))
    assert place.pending and not place._buffer


async def test_the_newest_events_in_memory_are_bounded_by_bytes_over_all_tasks() -> None:
    log = EventLog(await stored(), OWNER, recent=1000, buffer=10)
    for task in range(20):
        for number in range(1, 5):
            log.publish(f"t-{task}", number, (event(MB),))
    kept = [task for task in range(20) if log.recent(f"t-{task}")]
    assert kept == [18, 19]
    assert [found.seq for found in log.recent("t-19")] == [1, 2, 3, 4]
    log.publish("large", 1, (event(20 * MB),))
    assert [found.seq for found in log.recent("large")] == [1]
    assert not log.recent("t-19")
    log.forget("large")
    assert log._recent_bytes == 0


async def test_a_stream_that_waits_keeps_no_event() -> None:
    store = await stored(event(10))
    log = EventLog(store, OWNER, recent=8, buffer=8)
    seen: list[weakref.ref[Any]] = []

    class Text(dict[str, str]):
        """What an event has, watched."""

    place = log.subscribe("t", after=0)
    stream = log.read(place, 0.01)
    first = await anext(stream)
    assert first is not None
    watched = Text(first.extra)
    seen.append(weakref.ref(watched))
    place._buffer.append(TaskEvent(task_id="t", kind="x", timestamp=NOW, seq=2, extra=watched))
    place._lagging = False
    assert (await anext(stream)) is not None
    del watched, first
    assert await anext(stream) is None  # a pause
    gc.collect()
    assert seen[0]() is None
    await stream.aclose()


async def test_pages_are_smaller_where_room_is_short() -> None:
    store = await stored(*[event(1000)] * 2000)
    room = Room(3 * MB)
    pages = [EventPages(room) for _ in range(5)]
    place = (OWNER, "t", 0)
    sizes = [sum(e.size for e in await some.read(store, place, 9999, MB)) for some in pages]
    assert [size > 64 * KIB for size in sizes] == [True, True, True, False, False]
    for some in pages:
        some.leave()
    assert room.taken == 0


async def test_no_large_event_is_read_before_there_is_room_for_it() -> None:
    spy = Spy(await stored(*[event(400 * KIB)] * 2, state=TaskState.COMPLETED))
    room = Room(900 * KIB)
    streams = [reader(spy, room).replay("t", 0, 9) for _ in range(20)]
    firsts = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await a_while(0.05)
    assert sum(first.done() for first in firsts) == len(spy.pages) == 2
    for first in firsts:
        first.cancel()
    await asyncio.gather(*firsts, return_exceptions=True)


async def test_every_stream_gets_all_of_the_large_events_in_the_end() -> None:
    store = await stored(*[event(300 * KIB)] * 4, state=TaskState.COMPLETED)
    room = Room(400 * KIB)

    async def read() -> list[int]:
        seen = []
        async for found in reader(store, room).replay("t", 0, 9):
            seen.append(found.seq)
            await asyncio.sleep(0)
        return seen

    assert await asyncio.gather(*(read() for _ in range(30))) == [[1, 2, 3, 4]] * 30
    assert room.taken == 0


async def test_lists_of_tasks_neither_read_nor_hold_long_arguments_of_open_calls() -> None:
    store = await stored(event(10), state=TaskState.PAUSED)
    task = await store.load_task(OWNER, "t")
    assert task is not None
    kept = json.dumps({"tool_name": "send"})
    sizes = {"a": MB, "b": 10, **{f"c{number}": 4000 for number in range(9)}}
    shown = {name: {"id": name, "arguments": "x" * size} for name, size in sizes.items()}
    calls = [CallRow("clerk", name, kept, json.dumps(call)) for name, call in shown.items()]
    await store.commit(Commit(owner=OWNER, task=task, calls=tuple(calls)))
    room = Room(MB)
    overviews = reader(store, room).overviews()
    [listed] = await anext(overviews)
    long, short, *others = listed.breakpoints
    assert room.taken < 20 * KIB
    assert (long["id"], long["name"], long["arguments"]) == ("a", "send", "")
    assert long["arguments_left_out"] is True
    assert short == shown["b"]
    assert [len(call["arguments"]) for call in others] == [4000] * 4 + [0] * 5
    await overviews.aclose()
    assert room.taken == 0
    pages = EventPages(room)
    _, whole, _ = await reader(store, room).page("t", 0, 9, pages)
    assert [json.loads(call) for call in whole] == list(shown.values())
    assert room.taken > MB
    pages.leave()


async def test_texts_with_wide_characters_count_as_what_they_take_in_memory() -> None:
    store = await stored(event(10), state=TaskState.PAUSED)
    task = await store.load_task(OWNER, "t")
    assert task is not None
    text = json.dumps({"id": "\N{OPEN BOOK}", "arguments": "x" * MB}, ensure_ascii=False)
    call = CallRow("clerk", "c", "{}", text)
    wide = [
        json.dumps(f"{number}\N{OPEN BOOK}" * 50_000, ensure_ascii=False) for number in range(9)
    ]
    mail = tuple(Delivery("t", "clerk", 3, False, text) for text in wide)
    await store.commit(Commit(owner=OWNER, task=task, calls=(call,), deliveries=mail))
    room = Room(32 * MB)
    pages = EventPages(room)
    view, *_ = await reader(store, room).page("t", 0, 9, pages)
    assert len(view.task_message_queue) == 2
    assert room.taken > 4 * MB + 800_000
    pages.leave()
    log = EventLog(store, OWNER, recent=8, buffer=8)
    log.publish("t", 1, [EventRow("action_call", NOW, extra=wide[8])])
    assert log._recent_bytes > 400_000


async def test_a_stream_of_events_to_come_reads_the_store_only_where_some_are_missing() -> None:
    rows = [event(size) for size in (1, 2, 3)]
    spy = Spy(await stored(*rows))
    log = EventLog(spy, OWNER, recent=0, buffer=9)
    place = log.subscribe("t")
    log.publish("t", 1, rows[:1])
    log.publish("t", 2, rows[1:])
    assert [found.seq for found in await place.take(spy, OWNER)] == [1, 2, 3]
    assert not spy.pages
    later = log.subscribe("t")
    for number in (2, 1, 3):  # two that wrote at the same time
        log.publish("t", number, rows[number - 1 : number])
    assert [found.seq for found in await later.take(spy, OWNER)] == [1, 2, 3]
    assert len(spy.pages) == 1
