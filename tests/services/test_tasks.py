"""Reading tasks needs a store and an owner, and no engine."""

import asyncio

import pytest

from mail.clock import SystemClock
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import EventRow, Owner, TaskRow
from mail.errors import UnknownTask
from mail.services import tasks as service
from mail.services.event_log import EventLog
from mail.services.tasks import TaskReader

OWNER = Owner("office", "user", "alice")
STAMP = "2026-01-01T00:00:00+00:00"


class Engines:
    """Whatever runs the owner's tasks at the moment."""

    def __init__(self) -> None:
        self.log: EventLog | None = None
        self.closing = False


@pytest.fixture
def engines() -> Engines:
    return Engines()


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    await store.open()
    await store.commit(Commit(owner=OWNER, task=row(), new=True, events=(event("new_message"),)))
    return store


@pytest.fixture
def reader(store: MemoryStore, engines: Engines, monkeypatch: pytest.MonkeyPatch) -> TaskReader:
    monkeypatch.setattr(service, "_POLL_SECONDS", 0.01)
    return TaskReader(store, OWNER, SystemClock(), engines)


def row(state: TaskState = TaskState.RUNNING) -> TaskRow:
    owner = "user:alice@office"
    return TaskRow("t", owner, (owner,), STAMP, "clerk", state)


def event(kind: str) -> EventRow:
    return EventRow(kind=kind, timestamp=STAMP, description=kind, extra="{}")


async def test_a_running_task_is_read_as_the_store_has_it(reader: TaskReader) -> None:
    task = await reader.task("t")
    assert task is not None
    assert (task.is_running, [one.kind for one in task.events]) == (True, ["new_message"])
    assert [one.task_id for one in await reader.tasks(None, None)] == ["t"]
    assert await reader.task("nobody's") is None


async def test_a_replay_without_an_engine_follows_the_store(
    reader: TaskReader, store: MemoryStore
) -> None:
    async def end_soon() -> None:
        """End the task, as another process or a later engine does."""
        await asyncio.sleep(0.05)
        done = row(TaskState.COMPLETED)
        await store.commit(Commit(owner=OWNER, task=done, events=(event("task_complete"),)))

    ending = asyncio.create_task(end_soon())
    kinds = [found.kind async for found in reader.replay("t", 0, 60.0)]
    await ending
    assert kinds == ["new_message", "task_complete"]


async def test_a_replay_joins_an_engine_that_starts_meanwhile_and_misses_nothing(
    reader: TaskReader, store: MemoryStore, engines: Engines
) -> None:
    kinds = []
    async for found in reader.replay("t", 0, 60.0):
        kinds.append(found.kind)
        if found.kind == "new_message":
            await store.commit(Commit(owner=OWNER, task=row(), events=(event("action_call"),)))
            engines.log = EventLog(recent=8, buffer=8)
        if found.kind == "action_call":
            rows = (event("task_complete"),)
            done = row(TaskState.COMPLETED)
            receipt = await store.commit(Commit(owner=OWNER, task=done, events=rows))
            assert engines.log is not None
            engines.log.publish("t", receipt.first_event, rows)
    assert kinds == ["new_message", "action_call", "task_complete"]
    assert engines.log is not None
    assert not engines.log.has_readers


async def test_silence_is_broken_by_pings_and_a_stop_by_a_drain(
    reader: TaskReader, engines: Engines
) -> None:
    kinds = []
    async for found in reader.replay("t", 1, 0.02):
        kinds.append(found.kind)
        engines.closing = len(kinds) == 2
    assert kinds == ["ping", "ping", "server_drain"]


async def test_a_replay_of_a_task_that_is_not_there_is_an_error(reader: TaskReader) -> None:
    with pytest.raises(UnknownTask):
        await anext(reader.replay("nobody's", 0, 1.0))


async def test_a_replay_begins_after_the_given_event(
    reader: TaskReader, store: MemoryStore
) -> None:
    done = row(TaskState.COMPLETED)
    await store.commit(Commit(owner=OWNER, task=done, events=(event("task_complete"),)))
    assert [found.seq async for found in reader.replay("t", 1, 1.0)] == [2]
