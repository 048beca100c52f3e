"""Streams keep little in memory: pages, buffers, and what one caller's readers have together."""

import asyncio
import gc
import json
import math
import weakref
from types import SimpleNamespace
from typing import Any

from mail.clock import SystemClock
from mail.core.events import TaskEvent
from mail.core.runtime.runs import _followed
from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import Delivery, EventRow, Owner, TaskRow
from mail.services.event_log import EventLog
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


def reader(store: Any, places: asyncio.Semaphore | None = None) -> TaskReader:
    return TaskReader(store, OWNER, SystemClock(), Nothing(), places or asyncio.Semaphore(4))


async def test_pages_of_a_stream_are_bounded_by_bytes() -> None:
    sizes = [10] * 600 + [20 * KIB] * 10 + [300 * KIB] * 3 + [10] * 5
    spy = Spy(await stored(*map(event, sizes), state=TaskState.COMPLETED))
    seen = [(found.seq, len(found.extra["text"])) async for found in reader(spy).replay("t", 0, 9)]
    assert seen == list(enumerate(sizes, 1))
    assert sorted(spy.pages)[-4] <= 64 * KIB < sorted(spy.pages)[-3]
    assert len(spy.pages) < 20


async def test_large_events_of_one_caller_wait_for_a_place_and_are_not_read_meanwhile() -> None:
    spy = Spy(await stored(*[event(400 * KIB)] * 2, state=TaskState.COMPLETED))
    places = asyncio.Semaphore(2)
    streams = [reader(spy, places).replay("t", 0, 9) for _ in range(5)]
    firsts = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await a_while(0.05)
    assert [first.done() for first in firsts] == [True, True, False, False, False]
    assert len(spy.pages) == 2
    following = asyncio.ensure_future(anext(streams[0]))  # its first one was sent
    await streams[1].aclose()
    await a_while(0.05)
    assert [first.done() for first in firsts] == [True] * 4 + [False]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    for stream, first in zip(streams, firsts, strict=True):
        await stream.aclose() if first.done() else first.cancel()
    await asyncio.gather(*firsts, return_exceptions=True)
    assert places._value == 2


async def test_pages_of_several_callers_are_read_one_after_the_other() -> None:
    store = await stored(event(KIB))
    read, at_work, most = store.events, [0], list[int]()

    async def slowly(*given: Any) -> list[TaskEvent]:
        at_work[0] += 1
        most.append(at_work[0])
        await a_while(0.01)
        at_work[0] -= 1
        return await read(*given)

    spy: Any = SimpleNamespace(events=slowly)
    places = [EventLog(recent=8, buffer=8).subscribe("t", after=0) for _ in range(5)]
    pages = await asyncio.gather(*(place.take(spy, OWNER) for place in places))
    assert [len(page) for page in pages] == [1] * 5 and most == [1] * 5


async def test_small_pages_keep_no_place() -> None:
    store = await stored(*[event(KIB)] * 2, state=TaskState.COMPLETED)
    places = asyncio.Semaphore(1)
    streams = [reader(store, places).replay("t", 0, 9) for _ in range(5)]
    assert [(await anext(stream)).seq for stream in streams] == [1] * 5
    for stream in streams:
        await stream.aclose()
    assert places._value == 1


async def test_live_events_in_a_buffer_are_bounded_by_bytes_whatever_holds_them() -> None:
    store = await stored(event(10))
    log = EventLog(recent=8, buffer=100_000)
    place = log.subscribe("t", after=0, deltas=True)
    assert len(await place.take(store, OWNER)) == 1
    assert not await place.take(store, OWNER)
    for number in range(1000):
        delta = TaskEvent(task_id="t", kind="model_delta", timestamp=NOW, extra={"d": "x" * 1000})
        log.delta(delta)
        log.publish("t", 2 + number, (event(100),))
    assert sum(len(json.dumps(found.extra)) for found in place._buffer) < 64 * KIB
    log.publish("t", 2000, (event(10_000_000),))
    assert place._lagging and not place._buffer


async def test_the_newest_events_in_memory_are_bounded_by_bytes_over_all_tasks() -> None:
    log = EventLog(recent=1000, buffer=10)
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
    log = EventLog(recent=8, buffer=8)
    seen: list[weakref.ref[Any]] = []

    class Text(dict[str, str]):
        """What an event has, watched."""

    place = log.subscribe("t", after=0)
    parts: Any = SimpleNamespace(
        follow_seconds=lambda task_id: math.inf,
        store=store,
        owner=OWNER,
        clock=SystemClock(),
        events=log,
    )
    stream = _followed(parts, place, 0.01, lambda _: False)
    first = await anext(stream)
    watched = Text(first.extra)
    seen.append(weakref.ref(watched))
    place._buffer.append(TaskEvent(task_id="t", kind="x", timestamp=NOW, seq=2, extra=watched))
    place._lagging = False
    assert (await anext(stream)).seq == 2
    del watched, first
    assert (await anext(stream)).kind == "ping"  # a pause
    gc.collect()
    assert seen[0]() is None
    await stream.aclose()


async def test_every_stream_gets_all_of_the_large_events_in_the_end() -> None:
    store = await stored(*[event(300 * KIB)] * 4, state=TaskState.COMPLETED)
    places = asyncio.Semaphore(2)

    async def read() -> list[int]:
        seen = []
        async for found in reader(store, places).replay("t", 0, 9):
            seen.append(found.seq)
            await asyncio.sleep(0)
        return seen

    assert await asyncio.gather(*(read() for _ in range(30))) == [[1, 2, 3, 4]] * 30
    assert places._value == 2


async def test_lists_of_tasks_neither_read_nor_hold_long_arguments_of_open_calls() -> None:
    store = await stored(event(10), state=TaskState.PAUSED)
    task = await store.load_task(OWNER, "t")
    assert task is not None
    kept = json.dumps({"tool_name": "send"})
    sizes = {"a": MB, "b": 10, **{f"c{number}": 4000 for number in range(9)}}
    shown = {name: {"id": name, "arguments": "x" * size} for name, size in sizes.items()}
    calls = [CallRow("clerk", name, kept, json.dumps(call)) for name, call in shown.items()]
    await store.commit(Commit(owner=OWNER, task=task, calls=tuple(calls)))
    overviews = reader(store).overviews()
    [listed] = await anext(overviews)
    long, short, *others = listed.breakpoints
    assert (long["id"], long["name"], long["arguments"]) == ("a", "send", "")
    assert long["arguments_left_out"] is True
    assert short == shown["b"]
    assert [len(call["arguments"]) for call in others] == [4000] * 4 + [0] * 5
    await overviews.aclose()
    _, whole, _ = await reader(store).page("t", 0, 9)
    assert [json.loads(call) for call in whole] == list(shown.values())


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
    view, *_ = await reader(store).page("t", 0, 9)
    assert len(view.task_message_queue) == 2
    log = EventLog(recent=8, buffer=8)
    log.publish("t", 1, [EventRow("action_call", NOW, extra=wide[8])])
    assert log._recent_bytes > 400_000


async def test_a_stream_of_events_to_come_reads_the_store_only_where_some_are_missing() -> None:
    rows = [event(size) for size in (1, 2, 3)]
    spy = Spy(await stored(*rows))
    log = EventLog(recent=0, buffer=9)
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
