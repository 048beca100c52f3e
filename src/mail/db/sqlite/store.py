"""The embedded durable store: one SQLite file, one writing thread, readers beside it.

Writes go to `mail.db.sqlite.writer.Writer` and share commits; reads see a snapshot of everything
that was committed before they began, and never wait for the writer.
"""

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Literal, NamedTuple, TypeVar

from mail.db.migrate import check_current, migrate, packaged_migrations, schema_version
from mail.db.sqlite.connect import (
    as_store_error,
    check_integrity,
    connect_read_only,
    connect_reader,
    connect_writer,
    create_file,
)
from mail.db.sqlite.lock import LockFile
from mail.db.sqlite.statements import SQLiteStatements
from mail.db.sqlite.writer import Work, Writer
from mail.errors import StoreError

__all__ = ["SQLiteStore"]

T = TypeVar("T")

_READERS: Final = 2


class _Session(NamedTuple):
    """What an open store holds."""

    connection: sqlite3.Connection
    writer: Writer
    readers: SimpleQueue[sqlite3.Connection]
    threads: ThreadPoolExecutor


class SQLiteStore(SQLiteStatements):
    """A `mail.db.base.Store` in one file. Any number of event loops may share it."""

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Literal["full", "normal"] = "full",
        exclusive: bool = True,
        read_only: bool = False,
    ) -> None:
        """Name the file; nothing is touched before `open`.

        Args:
            path: The database file. Its folder must exist.
            durability: ``"full"`` syncs every commit to the disk; ``"normal"`` survives the death
                of the process, but not a power loss.
            exclusive: Own the file: lock it, check all of it on open, and upgrade its schema.
                Short-lived commands beside a running server pass False.
            read_only: Open the file for reading; for commands that need no more. Such a store owns
                nothing.
        """
        self.path = Path(path).resolve()
        self._durability = durability
        self._read_only = read_only
        self._lock = LockFile(self.path) if exclusive and not read_only else None
        self._gate = threading.Lock()
        self._session: _Session | None = None

    @property
    def durable(self) -> bool:
        """True: committed state survives the process."""
        return True

    async def open(self) -> None:
        """Create or check the file, migrate it, start the threads. See `Store.open`.

        Raises:
            StoreLocked: another process owns the file.
            StoreError: the file is damaged, newer than this program, older and not ours to
                upgrade, or cannot be used.
        """
        if self._session is None:
            await asyncio.to_thread(self._open)

    async def close(self) -> None:
        """Commit what is queued, move the write-ahead log into the file, release the lock."""
        await asyncio.to_thread(self._close)

    async def claim_swarm(self, swarm: str) -> None:
        """Do nothing: the whole file belongs to one server."""

    def _open(self) -> None:
        with self._gate:
            if self._session is not None:
                return
            if self._lock:
                self._lock.acquire()
            try:
                self._session = self._connect_reading() if self._read_only else self._connect()
            except Exception as exc:
                if self._lock:
                    self._lock.release()
                if isinstance(exc, sqlite3.Error):
                    raise StoreError(f"cannot use the database {self.path}: {exc}") from exc
                raise

    def _connect(self) -> _Session:
        create_file(self.path)
        connection = connect_writer(self.path, self._durability)
        readers: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        try:
            if self._lock:
                check_integrity(connection, self.path)
            migrate(connection, packaged_migrations(), upgrade=self._lock is not None)
            for _ in range(_READERS):
                readers.put(connect_reader(self.path))
        except BaseException:
            connection.close()
            raise
        return _session(connection, readers)

    def _connect_reading(self) -> _Session:
        connection = connect_read_only(self.path)
        readers: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        try:
            check_current(schema_version(connection), packaged_migrations(), "mail server")
            for _ in range(_READERS):
                readers.put(connect_read_only(self.path))
        except BaseException:
            connection.close()
            raise
        return _session(connection, readers)

    def _close(self) -> None:
        with self._gate:
            session, self._session = self._session, None
            if session is None:
                return
            session.writer.close()
            session.threads.shutdown()
            for _ in range(_READERS):
                session.readers.get().close()
            # Only the owner: a guest's checkpoint would hold up the server's commits.
            if self._lock:
                # If a guest is reading, the log stays, and nothing is lost.
                with suppress(sqlite3.Error):
                    session.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            session.connection.close()
            if self._lock:
                self._lock.release()

    def _opened(self) -> _Session:
        if self._session is None:
            raise StoreError("the store is not open")
        return self._session

    def _write(self, work: Work[T]) -> asyncio.Future[T]:
        return self._opened().writer.run(work)

    async def _read(self, work: Work[T]) -> T:
        session = self._opened()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(session.threads, _run, session.readers, work)


def _session(connection: sqlite3.Connection, readers: SimpleQueue[sqlite3.Connection]) -> _Session:
    threads = ThreadPoolExecutor(_READERS, thread_name_prefix="mail-sqlite-reader")
    return _Session(connection, Writer(connection), readers, threads)


def _run(readers: SimpleQueue[sqlite3.Connection], work: Work[T]) -> T:
    """Borrow a connection for one read (runs in a reader thread)."""
    connection = readers.get()
    try:
        # A cursor left open would keep the connection at what it saw.
        with closing(connection.cursor()) as cursor:
            return work(cursor)
    except (sqlite3.Error, UnicodeEncodeError, OverflowError) as exc:
        raise as_store_error(exc) from exc
    finally:
        readers.put(connection)
