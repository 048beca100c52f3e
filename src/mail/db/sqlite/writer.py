"""The thread that writes, with group commit.

While a commit waits for the disk, units of work collect in a queue; the next commit takes them
all, at most `BATCH_LIMIT`. What one pass of an event loop hands in is queued at its end: else the
thread would begin with the first unit, and commit it alone. If a unit fails, the batch is rolled
back and its units are committed one by one, so that no other unit fails with it.

Other processes may write to the file. SQLite itself would look rarely whether it is free, and
hardly ever between two commits of a process that writes all the time. So we look often, and one
that has written for a while lets go whoever waits (`mail.db.sqlite.lock.WriteQueue`).
"""

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from mail.db.driver import BATCH_LIMIT, hand_back
from mail.db.sqlite.connect import as_store_error
from mail.db.sqlite.lock import WriteQueue
from mail.errors import StoreError

T = TypeVar("T")
Work = Callable[[sqlite3.Cursor], T]
"""A unit of work: runs inside a transaction that somebody else begins and commits."""

WAIT_SECONDS: Final = 5.0
"""The longest wait of a commit for other processes."""

_TURN_SECONDS: Final = 0.01
"""For how long a process commits before it looks whether others wait."""
_LONGEST_PAUSE: Final = 0.002
_COURTESY_SECONDS: Final = 0.02
"""The longest time that it lets them go first: they look more often than that, if they live."""
_PRIMARY: Final = 0xFF
"""The mask of an SQLite error code without its details."""


class _Unit(NamedTuple):
    work: Work[Any]
    future: asyncio.Future[Any]


class Writer:
    """Runs units of work on one connection, in the order in which they were handed in."""

    def __init__(self, connection: sqlite3.Connection, others: WriteQueue) -> None:
        connection.execute("PRAGMA busy_timeout = 0")  # `_begin` waits
        self._connection = connection
        self._cursor = connection.cursor()
        self._others = others
        self._turn_ends = 0.0
        self._queue: SimpleQueue[_Unit | None] = SimpleQueue()
        self._gate = threading.RLock()
        self._collected: dict[asyncio.AbstractEventLoop, list[_Unit]] = {}
        self._open = True
        # Daemon: a store that was never closed must not keep the interpreter alive.
        self._thread = threading.Thread(target=self._loop, name="mail-sqlite-writer", daemon=True)
        self._thread.start()

    def run(self, work: Work[T]) -> asyncio.Future[T]:
        """Hand in a unit of work; the future has its result once it is committed.

        When the caller is cancelled the unit is committed all the same.

        Raises:
            StoreError: the unit failed and left nothing behind, or the writer is closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._gate:
            if not self._open:
                raise StoreError("the store is closed")
            collected = self._collected.get(loop)
            if collected is None:
                self._collected[loop] = collected = []
                loop.call_soon(self._enqueue, loop)
            collected.append(_Unit(work, future))
        return future

    def _enqueue(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._gate:
            for unit in self._collected.pop(loop, ()):
                self._queue.put(unit)

    def close(self) -> None:
        """Commit what is queued and end the thread; blocks until that is done."""
        with self._gate:
            if self._open:
                self._open = False
                for loop in [*self._collected]:
                    self._enqueue(loop)
                self._queue.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while self._round():
            pass

    def _round(self) -> bool:
        """Do one commit; a function of its own so that an idle writer holds on to no unit."""
        batch, more = self._take()
        if batch:
            hand_back([unit.future for unit in batch], self._commit(batch))
            batch.clear()  # a failure's traceback leads to this frame
        return more

    def _take(self) -> tuple[list[_Unit], bool]:
        """Wait for a unit, take what is queued behind it, and tell whether more may come."""
        batch: list[_Unit] = []
        unit = self._queue.get()
        while unit is not None:
            batch.append(unit)
            if len(batch) == BATCH_LIMIT:
                return batch, True
            try:
                unit = self._queue.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    def _commit(self, batch: Sequence[_Unit]) -> list[object]:
        """Return each unit's result, or the StoreError it failed with."""
        cursor = self._cursor
        try:
            self._begin()
        except sqlite3.Error as exc:
            return [as_store_error(exc) for _ in batch]
        try:
            results = [unit.work(cursor) for unit in batch]
            cursor.execute("COMMIT")
        # Whatever a unit raises is its caller's; the thread serves the others.
        except Exception as exc:  # noqa: BLE001
            # A full disk ends it by itself; and if this fails too, the next BEGIN says why.
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK")
            if len(batch) == 1:
                return [as_store_error(exc)]
            return [result for unit in batch for result in self._commit([unit])]
        return results

    def _begin(self) -> None:
        """Begin a transaction that nobody else can write beside; raises `sqlite3.Error`."""
        now = time.monotonic()
        if now >= self._turn_ends:
            while self._others.waiting() and time.monotonic() < now + _COURTESY_SECONDS:
                time.sleep(_LONGEST_PAUSE / 4)
            self._turn_ends = time.monotonic() + _TURN_SECONDS
        if not self._has_begun(now + WAIT_SECONDS):
            with self._others:
                while not self._has_begun(now + WAIT_SECONDS):
                    time.sleep(random.uniform(0, _LONGEST_PAUSE))  # noqa: S311 - no secret

    def _has_begun(self, deadline: float) -> bool:
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as exc:
            busy = exc.sqlite_errorcode & _PRIMARY == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= deadline:
                raise
            return False
        return True
