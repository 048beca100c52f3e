"""Work on an SQLite file in a process of its own, which can be killed."""

import asyncio
import fcntl
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def beside(path: Path, work: str, swarm: str = "", name: str = "w") -> "subprocess.Popen[str]":
    """Start a process; but for ``look`` its first line is "open".

    Args:
        path: The database.
        work: ``own`` has it until its input ends, ``own-by-process`` where locks of open files are
            unknown; ``write`` makes tasks and letters without end, and names each task that is
            stored; ``delete`` deletes a task with 20,000 events; ``hold`` writes without a pause;
            ``look`` opens and closes the file.
        swarm: Whose it is; the whole file's without one.
        name: What the names of tasks begin with.
    """
    return subprocess.Popen(
        [sys.executable, __file__, str(path), work, swarm, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(path: str, work: str, swarm: str, name: str) -> None:
    if work == "look":
        connection = sqlite3.connect(path)
        connection.execute("SELECT count(*) FROM tasks")
        connection.close()
        return
    if work == "own-by-process":
        del fcntl.F_OFD_SETLK, fcntl.F_OFD_GETLK
    from mail.db.sqlite.driver import SQLiteStore

    store = SQLiteStore(path, swarm=swarm or None)
    await store.open()
    if work == "delete":
        await deletable(store)
    say("open")
    if work == "write":
        swarm = swarm or "example"
        await asyncio.gather(*(keep_writing(store, swarm, f"{name}-{n}") for n in range(4)))
    elif work == "delete":
        while await store.purge():
            say("purged")
    elif work == "hold":
        writer = store.driver._session.writer  # type: ignore[union-attr]
        await asyncio.gather(*(writer.run(hold) for _ in range(10_000)))
    else:
        sys.stdin.readline()
        await store.close()


def hold(cursor: sqlite3.Cursor) -> None:
    cursor.execute("INSERT INTO sweeps VALUES ('x', 'y') ON CONFLICT DO NOTHING")
    time.sleep(0.01)


def begun(owner: Any, task_id: str, **more: Any) -> Any:
    """Return the commit that begins a task."""
    from mail.core.tasks import TaskState
    from mail.db.commit import Commit
    from mail.db.records import EventRow, TaskRow

    state, count = more.pop("state", TaskState.RUNNING), more.pop("events", 2)
    task = TaskRow(task_id, "o", (), "s", "e", state)
    events = (EventRow(kind="new_message", timestamp="t"),) * count
    return Commit(owner=owner, task=task, events=events, new=True, **more)


async def keep_writing(store: Any, swarm: str, worker: str) -> None:
    from mail.db.desk import DeskPost, LetterRow
    from mail.db.records import Owner

    def letter(letter_id: str) -> DeskPost:
        to = ("bob", "cyd")
        row = LetterRow(letter_id, "ann", to, "broadcast", "x", "2026", wants_ack=True)
        return DeskPost(swarm=swarm, letters=(row,))

    for n in range(1_000_000):
        task_id = f"{worker}-{n}"
        await store.commit(begun(Owner(swarm, "user", "alice"), task_id, desk=letter(task_id)))
        await store.post_letters(letter(f"{task_id}-alone"))
        say(task_id)


async def deletable(store: Any) -> None:
    from mail.core.tasks import TaskState
    from mail.db.records import Owner

    owner = Owner("example", "user", "alice")
    await store.commit(begun(owner, "t1", state=TaskState.COMPLETED, events=20_000))
    await store.delete_task(owner, "t1")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
