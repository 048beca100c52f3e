"""The embedded durable store: one SQLite file, one writing thread, readers beside it.

Writes go to `mail.db.sqlite.writer.Writer` and share commits; reads see a snapshot of everything
that was committed before they began, and never wait for the writer.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import ClassVar, Final, Literal, NamedTuple, TypeVar
from uuid import uuid4

from mail.db.driver import Verb
from mail.db.migrate import (
    check_current,
    migrate,
    packaged_migrations,
    pending_migrations,
    schema_version,
)
from mail.db.sqlite.connect import (
    REFUSALS,
    as_store_error,
    check_integrity,
    connect_read_only,
    connect_reader,
    connect_writer,
    create_file,
    run_verb,
)
from mail.db.sqlite.dialect import SQLiteDialect
from mail.db.sqlite.lock import DatabaseLock, WriteQueue
from mail.db.sqlite.writer import Writer
from mail.db.store import Store
from mail.errors import StoreError, StoreLocked

T = TypeVar("T")

_READERS: Final = 2


class _Session(NamedTuple):
    """The resources of an open store."""

    connection: sqlite3.Connection
    writer: Writer
    others: WriteQueue
    readers: SimpleQueue[sqlite3.Connection]
    threads: ThreadPoolExecutor


class SQLiteDriver:
    """A `mail.db.driver.Driver` of one file. Any number of event loops may share it."""

    durable: ClassVar = True
    shared: ClassVar = False
    hears: ClassVar = False
    lapses: ClassVar = 0
    dialect: ClassVar = SQLiteDialect()

    def __init__(
        self, path: Path, durability: str, lock: DatabaseLock | None, *, read_only: bool
    ) -> None:
        """Take what `SQLiteStore` was given; nothing is touched before `open`."""
        self.path, self.node = path, uuid4().hex
        self._durability = durability
        self._read_only = read_only
        self._lock = lock
        self._gate = threading.Lock()
        self._session: _Session | None = None

    async def open(self) -> None:
        """Create or check the file, migrate it, start the threads. See `Driver.open`.

        Raises:
            StoreLocked: somebody else owns the file, or the swarm in it; or the schema is to be
                upgraded while owners of other swarms have it open.
            StoreError: the file is damaged, newer than this program, older and not ours to
                upgrade, or cannot be used.
        """
        if self._session is None:
            await asyncio.to_thread(self._open)

    async def close(self) -> None:
        """Commit what is queued, move the write-ahead log into the file, release the lock."""
        await asyncio.to_thread(self._close)

    def tell(self, topic: str) -> None:
        """Do nothing: nobody else is at work."""

    def on_hint(self, heard: Callable[[list[str]], None]) -> Callable[[], None]:
        """Hear nothing."""
        return lambda: None

    async def claim_swarm(self, swarm: str) -> None:
        """Claim as `Driver.claim_swarm` says. An owner of the whole file has every swarm in it."""
        if self._lock:
            await asyncio.to_thread(self._lock.claim, swarm)

    def _open(self) -> None:
        with self._gate:
            if self._session is not None:
                return
            if self._lock:
                self._lock.acquire()
            try:
                self._session = self._connect()
            except Exception as exc:
                if self._lock:
                    self._lock.release()
                if isinstance(exc, sqlite3.Error):
                    raise StoreError(f"cannot use the database {self.path}: {exc}") from exc
                raise

    def _connect(self) -> _Session:
        if self._read_only:
            connection = connect_read_only(self.path)
        else:
            create_file(self.path)
            connection = connect_writer(self.path, self._durability)
        readers: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        try:
            if self._read_only:
                check_current(schema_version(connection), packaged_migrations(), "mail server")
            elif self._lock:
                self._upgrade(connection, self._lock)
            else:
                migrate(connection, packaged_migrations(), upgrade=False)
            for _ in range(_READERS):
                connect = connect_read_only if self._read_only else connect_reader
                readers.put(connect(self.path))
        except BaseException:
            connection.close()
            raise
        threads = ThreadPoolExecutor(_READERS, thread_name_prefix="mail-sqlite-reader")
        others = WriteQueue(self.path)
        return _Session(connection, Writer(connection, others), others, readers, threads)

    def _upgrade(self, connection: sqlite3.Connection, lock: DatabaseLock) -> None:
        """Check all of the file, and change its schema if nobody else is at work on it."""
        migrations = packaged_migrations()
        version = schema_version(connection)
        pending = pending_migrations(version, migrations)
        if not pending:
            lock.share()  # before the check, which may take long
        elif version and not lock.alone:
            users = ", ".join(map(str, lock.others())) or "another process"
            raise StoreLocked(
                f"the database {self.path} has schema {version}, older than "
                f"{migrations[-1].version} of this version of MAIL, and is in use by {users}; "
                "stop every server of it, then start this one first"
            )
        check_integrity(connection, self.path)
        migrate(connection, migrations)
        lock.share()

    def _close(self) -> None:
        with self._gate:
            session, self._session = self._session, None
            if session is None:
                return
            session.writer.close()
            session.threads.shutdown()
            session.others.close()
            for _ in range(_READERS):
                session.readers.get().close()
            # Only the last owner: the checkpoint would hold up the commits of others.
            if self._lock and (self._lock.alone or not self._lock.others()):
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

    async def read(self, verb: Callable[[], Verb[T]]) -> T:
        """Read as `Driver.read` says. It sees one moment, whatever is committed meanwhile."""
        session = self._opened()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(session.threads, _read, session.readers, verb)

    async def snapshot(self, verb: Callable[[], Verb[T]]) -> T:
        return await self.read(verb)

    async def transaction(self, verb: Callable[[], Verb[T]]) -> T:
        return await self._opened().writer.run(partial(run_verb, verb))


def _read(readers: SimpleQueue[sqlite3.Connection], verb: Callable[[], Verb[T]]) -> T:
    """Borrow a connection for one read (runs in a reader thread)."""
    connection = readers.get()
    try:
        # A cursor left open would keep the connection at what it saw.
        with closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN")
            try:
                return run_verb(verb, cursor)
            finally:
                cursor.execute("COMMIT")
    except REFUSALS as exc:
        raise as_store_error(exc) from exc
    finally:
        readers.put(connection)


class SQLiteStore(Store):
    """A store in one file; see `SQLiteDriver`."""

    driver: SQLiteDriver

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Literal["full", "normal"] = "full",
        exclusive: bool = True,
        read_only: bool = False,
        swarm: str | None = None,
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
            swarm: With ``exclusive``, own only this swarm in the file; owners of other swarms may
                have it open, too. Without it the whole file is owned.
        """
        resolved = Path(path).resolve()
        lock = DatabaseLock(resolved, swarm) if exclusive and not read_only else None
        super().__init__(SQLiteDriver(resolved, durability, lock, read_only=read_only))
        self.path = resolved
