"""Microseconds per durable message at several concurrencies, beside bare SQLite commits."""

import asyncio
import os
import sqlite3
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.swarm import MESSAGES_PER_TASK, make_runtime, run_tasks, sqlite_store

CONCURRENCIES = (1, 10, 100, 1000)
_DURABLE_TASKS = {1: 100, 10: 400, 100: 1500, 1000: 2000}
_COMMITS_PER_TASK = 4  # accept, two turns that go on, one that ends


async def commit_floor(tasks: int) -> float:
    """Make the bare commits of a sequential run: as many rows and bytes, a thread hop each."""
    row = os.urandom(350).hex()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "floor.db"
        connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        connection.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE floor (id INTEGER PRIMARY KEY, kind TEXT, data TEXT);"
        )
        began = time.perf_counter()
        for _ in range(tasks * _COMMITS_PER_TASK):
            await asyncio.to_thread(_bare_commit, connection, row)
        spent = time.perf_counter() - began
        connection.close()
    return spent / (tasks * MESSAGES_PER_TASK) * 1e6


def _bare_commit(connection: sqlite3.Connection, row: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for kind in ("mail", "event", "event", "history", "task"):
        connection.execute("INSERT INTO floor (kind, data) VALUES (?, ?)", (kind, row))
    connection.execute("UPDATE floor SET kind = 'done' WHERE id = last_insert_rowid()")
    connection.execute("COMMIT")


async def durable(concurrent: int) -> float:
    """Return the best of three runs on SQLite with every commit synced."""
    async with sqlite_store() as store:
        runtime = make_runtime(store)
        figures = [
            await run_tasks(runtime, _DURABLE_TASKS[concurrent], concurrent) for _ in range(3)
        ]
        await runtime.shutdown()
    return min(figures)


async def report() -> None:
    """Print the table."""
    bare = await commit_floor(_DURABLE_TASKS[1])
    print(f"bare SQLite commits of a sequential run    {bare:8.1f} us/message")
    for count in CONCURRENCIES:
        figure = await durable(count)
        print(
            f"SQLite   {count:5d} concurrent tasks          {figure:8.1f} us/message"
            f"  {1e6 / figure:9,.0f} messages/s"
        )
        if count == 1:
            print(f"SQLite   sequential over bare commits       {figure / bare:8.2f}x (aim 1.5)")
