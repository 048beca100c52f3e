"""The state of a process: for tests, libraries and servers that may forget.

It is an SQLite database in memory, used in the thread of its caller.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import ClassVar, TypeVar
from uuid import uuid4

from mail.db.commit import Commit, Receipt
from mail.db.driver import Change, Query, Verb, write
from mail.db.migrate import migrate, packaged_migrations
from mail.db.records import Owner
from mail.db.rows import LAST_WORDS, OWNED
from mail.db.sqlite.connect import REFUSALS, as_store_error, run_verb
from mail.db.sqlite.dialect import SQLiteDialect
from mail.db.store import Store
from mail.db.sweep import BURIED_VALUES, ENDED, PARTS

T = TypeVar("T")


class MemoryDriver:
    """A `mail.db.driver.Driver` whose database lives and dies with it."""

    durable: ClassVar = False
    shared: ClassVar = False
    hears: ClassVar = False
    lapses: ClassVar = 0
    dialect: ClassVar = SQLiteDialect()

    def __init__(self) -> None:
        """Make the tables."""
        connection = _connect()
        _empty_database().backup(connection)
        self._cursor = connection.cursor()
        self.node = uuid4().hex
        self._gate = threading.Lock()

    async def open(self) -> None:
        """Do nothing: there is nothing to connect to."""

    async def close(self) -> None:
        """Do nothing: the content stays readable."""

    def tell(self, topic: str) -> None:
        """Do nothing: nobody else is at work."""

    def on_hint(self, heard: Callable[[list[str]], None]) -> Callable[[], None]:
        """Hear nothing."""
        return lambda: None

    async def claim_swarm(self, swarm: str) -> None:
        """Do nothing: no other process can see this."""

    async def read(self, verb: Callable[[], Verb[T]]) -> T:
        with self._gate:
            try:
                return run_verb(verb, self._cursor)
            except REFUSALS as exc:
                raise as_store_error(exc) from exc

    async def snapshot(self, verb: Callable[[], Verb[T]]) -> T:
        return await self.read(verb)

    async def transaction(self, verb: Callable[[], Verb[T]]) -> T:
        with self._gate:
            self._cursor.execute("BEGIN")
            try:
                result = run_verb(verb, self._cursor)
            except BaseException as exc:
                self._cursor.execute("ROLLBACK")
                if isinstance(exc, REFUSALS):
                    raise as_store_error(exc) from exc
                raise
            self._cursor.execute("COMMIT")
            return result


def _connect() -> sqlite3.Connection:
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute("PRAGMA page_size = 8192")  # a commit takes longer with more pages
    return connection


@lru_cache(maxsize=1)
def _empty_database() -> sqlite3.Connection:
    """Return a database with empty tables, to be copied."""
    connection = _connect()
    migrate(connection, packaged_migrations())
    return connection


class MemoryStore(Store):
    """A store that lives and dies with the process; it forgets tasks that ended long ago."""

    def __init__(self, *, keep_finished: int = 1000) -> None:
        """Make an empty store.

        Args:
            keep_finished: The number of an owner's ended tasks that is kept, or a twentieth more.
        """
        super().__init__(MemoryDriver())
        self._keep_finished = keep_finished
        self._at_once = max(1, keep_finished // 20)
        self._finished: dict[Owner, dict[str, None]] = {}

    async def commit(self, commit: Commit) -> Receipt:
        receipt = await super().commit(commit)
        finished = self._finished.setdefault(commit.owner, {})
        finished.pop(commit.task.task_id, None)
        if not commit.task.state.is_open:
            finished[commit.task.task_id] = None
        if len(finished) >= self._keep_finished + self._at_once:
            oldest = list(islice(finished, self._at_once))
            await self._forget_tasks(commit.owner, oldest)
            for task_id in oldest:
                del finished[task_id]
        return receipt

    async def delete_task(self, owner: Owner, task_id: str, *, ended: bool = False) -> None:
        """Delete as `Store.delete_task` says. It is not among those that are kept any more."""
        await super().delete_task(owner, task_id, ended=ended)
        self._finished.get(owner, {}).pop(task_id, None)

    @write
    def _forget_tasks(self, owner: Owner, task_ids: Sequence[str]) -> Verb[None]:
        """Remove ended tasks. Of their mail for peers what `delete_task` leaves stays."""
        among = self.sql.among("$4")
        values = (*owner, self.sql.list(task_ids))
        ended = f"SELECT key FROM tasks WHERE {OWNED} AND task_id {among} AND {ENDED}"
        keys = (self.sql.list([key for (key,) in (yield Query(ended, values))]),)
        these = self.sql.among("$1", "bigint")
        messages = f"SELECT seq FROM messages WHERE task {these}"
        yield Change(f"DELETE FROM journal WHERE message IN ({messages})", keys)
        for table in PARTS:
            but = f" AND NOT ({LAST_WORDS})" if table == "outbox" else ""
            yield Change(f"DELETE FROM {table} WHERE task {these}{but}", keys)
        for table in ("idempotency", "memory_feedback"):
            yield Change(f"DELETE FROM {table} WHERE {OWNED} AND task_id {among}", values)
        yield Change(f"UPDATE tasks SET {BURIED_VALUES} WHERE key {these}", keys)
        silent = "NOT EXISTS (SELECT 1 FROM outbox WHERE task = tasks.key)"
        yield Change(f"DELETE FROM tasks WHERE key {these} AND {silent}", keys)
