"""Databases that keep what is committed, for tests of all stores over them alike."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from mail.db.postgres.driver import PostgresStore
from mail.db.sqlite.driver import SQLiteStore
from mail.db.store import Store
from tests.support.postgres import query


class Database(Protocol):
    """An empty database, any number of stores over it, and a look into it from outside."""

    def store(self) -> Store:
        """Make a store, not open yet."""

    def query(self, text: str) -> list[Any]:
        """Run a statement beside the stores."""


class SQLiteDatabase:
    """A file."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self.path = folder / "mail.db"

    def store(self) -> SQLiteStore:
        return SQLiteStore(self.path)

    def query(self, text: str) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(text).fetchall()


class PostgresDatabase:
    """A schema of the test's own."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self.url = request.getfixturevalue("cluster").schema()

    def store(self) -> PostgresStore:
        return PostgresStore(self.url, exclusive=False)  # with few connections

    def query(self, text: str) -> list[Any]:
        return query(self.url, text)


DATABASES: Final[Mapping[str, Callable[[pytest.FixtureRequest, Path], Database]]] = {
    "sqlite": SQLiteDatabase,
    "postgres": PostgresDatabase,
}


class Hold:
    """A unit of work that keeps a store's writer busy, in a transaction, until it is released."""

    def __init__(self, store: Any) -> None:
        self._busy, self._go = threading.Event(), threading.Event()
        in_thread = isinstance(store, SQLiteStore)
        work = self._wait_in_thread if in_thread else self._wait_in_loop
        self._task = asyncio.ensure_future(store.driver._session.writer.run(work))

    def _wait_in_thread(self, cursor: Any) -> None:
        self._busy.set()
        assert self._go.wait(10)

    async def _wait_in_loop(self, connection: Any) -> None:
        self._busy.set()
        while not self._go.is_set():
            await asyncio.sleep(0.001)

    async def until_busy(self) -> None:
        assert await asyncio.to_thread(self._busy.wait, 10)

    async def release(self) -> None:
        self._go.set()
        await self._task
