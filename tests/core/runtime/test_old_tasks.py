"""Tasks of an earlier version: whatever they wait for, they end as they would have."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mail.core.runtime import MAILRuntime, RunRequest
from mail.core.tasks import TaskState
from mail.db.desk import LetterFilter
from mail.db.migrate import migrate, packaged_migrations
from mail.db.records import Owner
from mail.db.store import Store
from mail.db.urls import open_store
from tests.core.runtime.old_tasks.agents import KINDS, Agents, options
from tests.core.runtime.test_letters import reply
from tests.support.federation import Network, question

HARBOUR = Owner("harbour", "user", "ines")
WEATHER = Owner("weather", "swarm", "harbour")
ROWS = Path(__file__).with_name("old_tasks")
VERSION = 19
"""The schema that the rows are of."""


async def opened(name: str, folder: Path) -> Store:
    """Return a store over an old database."""
    path = folder / f"{name}.db"
    rows = (ROWS / f"{name}.sql").read_text("utf-8")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        migrate(database, packaged_migrations()[:VERSION])
        database.executescript(rows.replace("INSERT INTO", "INSERT OR REPLACE INTO"))
    store = open_store(f"sqlite:///{path}")
    await store.open()
    return store


@pytest.mark.parametrize("kind", KINDS)
async def test_tasks_of_an_earlier_version_end_as_they_would_have(
    tmp_path: Path, kind: str
) -> None:
    stores = {name: await opened(name, tmp_path) for name in ("harbour", "weather")}
    store, agents = stores["harbour"], Agents(hanging=False)
    tasks = [row.task_id for row in await store.list_tasks(HARBOUR) if kind in row.task_id]
    assert len(tasks) == 2
    async with Network() as network:
        harbour = network.add("harbour", agents.harbour, store=store, **options())
        weather = network.add("weather", agents.weather, store=stores["weather"])
        runtime = harbour.runtime()
        await runtime.start()
        await weather.runtime("swarm", "harbour").start()
        network.wake()
        for task_id in tasks:
            await give(runtime, store, kind, task_id)
        async with asyncio.timeout(60):
            while {await answer_of(store, each) for each in tasks} != {f"done {kind}"}:
                await asyncio.sleep(0.01)
        for task_id in tasks:
            log = await store.events(HARBOUR, task_id)
            ledger = await store.ledger(HARBOUR, task_id)
            assert ledger is not None
            left = {(each.asker, each.asked, each.record) for each in ledger.questions}
            kept = [
                each.extra["full_message"]["id"]
                for each in log
                if each.kind == "new_message" and "keep" in str(each.extra["full_message"])
            ]
            assert left == {("lead", "worker", message_id) for message_id in kept}
        await runtime.await_queue_empty()
    for each in stores.values():
        await each.close()


async def give(runtime: MAILRuntime, store: Store, kind: str, task_id: str) -> None:
    """Give a task what it waits for from outside, if anything."""
    if kind == "breakpoint":
        task = await runtime.read_task(task_id)
        assert task is not None and task.status is TaskState.PAUSED
        [call] = task.breakpoints
        request = RunRequest(
            message=question("", task_id),
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result=[{"call_id": call["call_id"], "content": "answer"}],
        )
        await runtime.open_run(request)
    elif kind == "earlier":
        await runtime.submit(question("go on", task_id))
    elif kind == "person":
        letters = await store.letters("harbour", "ops", LetterFilter())
        [letter] = [row for row, _ in letters if row.task_id == task_id]
        await runtime.letters.take(reply(letter, "answer", "harbour"))


async def answer_of(store: Store, task_id: str) -> str:
    """Return the answer of a task's newest run that has ended."""
    log = await store.events(HARBOUR, task_id)
    ends = [each.extra["response"] for each in log if each.kind == "task_complete"]
    return str(ends[-1]) if ends else ""
