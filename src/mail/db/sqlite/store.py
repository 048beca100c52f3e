"""The embedded durable store: one SQLite file, one writing thread, readers beside it.

Writes go to `mail.db.sqlite.writer.Writer` and share commits; reads see a snapshot of everything
that was committed before they began, and never wait for the writer.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Literal, NamedTuple, TypeVar

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.base import (
    CallRow,
    Delivery,
    IdempotencyRow,
    JournalRow,
    MemoryRow,
    Owner,
    Post,
    Receipt,
    TaskRow,
    TokenRow,
    TurnCommit,
)
from mail.db.migrate import migrate, packaged_migrations
from mail.db.sqlite import idempotency as keys
from mail.db.sqlite import reads, writes
from mail.db.sqlite.connect import (
    as_store_error,
    check_integrity,
    connect_reader,
    connect_writer,
    create_file,
)
from mail.db.sqlite.lock import LockFile
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


class SQLiteStore:
    """A `mail.db.base.Store` in one file. Any number of event loops may share it."""

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Literal["full", "normal"] = "full",
        exclusive: bool = True,
    ) -> None:
        """Name the file; nothing is touched before `open`.

        Args:
            path: The database file. Its folder must exist.
            durability: ``"full"`` syncs every commit to the disk; ``"normal"`` survives the death
                of the process, but not a power loss.
            exclusive: Take the lock file and check the whole file on open. Short-lived commands
                beside a running server pass False.
        """
        self.path = Path(path).resolve()
        self._durability = durability
        self._lock = LockFile(self.path) if exclusive else None
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
            StoreError: the file is damaged, newer than this program, or cannot be used.
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
                self._session = self._connect()
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
            migrate(connection, packaged_migrations())
            for _ in range(_READERS):
                readers.put(connect_reader(self.path))
        except BaseException:
            connection.close()
            raise
        threads = ThreadPoolExecutor(_READERS, thread_name_prefix="mail-sqlite-reader")
        return _Session(connection, Writer(connection), readers, threads)

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

    async def _write(self, work: Work[T]) -> T:
        return await self._opened().writer.run(work)

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        session = self._opened()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(session.threads, _run_query, session.readers, query)

    async def post(self, post: Post) -> Receipt:
        """See `mail.db.base.Store.post`."""
        return await self._write(lambda cursor: writes.apply_post(cursor, post))

    async def commit_turn(self, turn: TurnCommit) -> Receipt:
        """See `mail.db.base.Store.commit_turn`."""
        return await self._write(lambda cursor: writes.apply_turn(cursor, turn))

    async def claim(self, owner: Owner, seq: int) -> int:
        """See `mail.db.base.Store.claim`."""
        return await self._write(lambda cursor: writes.change_attempts(cursor, owner, seq, 1))

    async def release(self, owner: Owner, seq: int) -> None:
        """See `mail.db.base.Store.release`."""
        await self._write(lambda cursor: writes.change_attempts(cursor, owner, seq, -1))

    async def load_task(self, owner: Owner, task_id: str) -> TaskRow | None:
        """See `mail.db.base.Store.load_task`."""
        return await self._read(lambda db: reads.load_task(db, owner, task_id))

    async def list_tasks(
        self,
        owner: Owner,
        *,
        states: Sequence[TaskState] = (),
        limit: int | None = None,
        before: str | None = None,
    ) -> list[TaskRow]:
        """See `mail.db.base.Store.list_tasks`."""
        return await self._read(lambda db: reads.list_tasks(db, owner, states, limit, before))

    async def owners(self, swarm: str) -> list[Owner]:
        """See `mail.db.base.Store.owners`."""
        return await self._read(lambda db: reads.owners(db, swarm))

    async def open_owners(self, swarm: str) -> list[Owner]:
        """See `mail.db.base.Store.open_owners`."""
        return await self._read(lambda db: reads.open_owners(db, swarm))

    async def waiting_mail(self, owner: Owner, task_id: str) -> list[Delivery]:
        """See `mail.db.base.Store.waiting_mail`."""
        return await self._read(lambda db: reads.waiting_mail(db, owner, task_id))

    async def all_mail(self, owner: Owner, task_id: str) -> list[Delivery]:
        """See `mail.db.base.Store.all_mail`."""
        return await self._read(lambda db: reads.all_mail(db, owner, task_id))

    async def history(self, owner: Owner, task_id: str, agent: str) -> list[str]:
        """See `mail.db.base.Store.history`."""
        return await self._read(lambda db: reads.history(db, owner, task_id, agent))

    async def journal(self, owner: Owner, seq: int) -> list[JournalRow]:
        """See `mail.db.base.Store.journal`."""
        return await self._read(lambda db: reads.journal(db, owner, seq))

    async def begun(self, owner: Owner, task_id: str) -> list[int]:
        """See `mail.db.base.Store.begun`."""
        return await self._read(lambda db: reads.begun(db, owner, task_id))

    async def events(
        self, owner: Owner, task_id: str, after: int = 0, limit: int | None = None
    ) -> list[TaskEvent]:
        """See `mail.db.base.Store.events`."""
        return await self._read(lambda db: reads.events(db, owner, task_id, after, limit))

    async def latest_time(self, owner: Owner, task_id: str) -> str:
        """See `mail.db.base.Store.latest_time`."""
        return await self._read(lambda db: reads.latest_time(db, owner, task_id))

    async def calls(self, owner: Owner, task_id: str) -> list[CallRow]:
        """See `mail.db.base.Store.calls`."""
        return await self._read(lambda db: reads.calls(db, owner, task_id))

    async def response(self, owner: Owner, task_id: str) -> str | None:
        """See `mail.db.base.Store.response`."""
        return await self._read(lambda db: reads.response(db, owner, task_id))

    async def find_key(self, owner: Owner, key: str) -> IdempotencyRow | None:
        """See `mail.db.base.Store.find_key`."""
        return await self._read(lambda db: keys.find_key(db, owner, key))

    async def put_key(self, owner: Owner, row: IdempotencyRow) -> None:
        """See `mail.db.base.Store.put_key`."""
        await self._write(lambda cursor: keys.put_key(cursor, owner, row))

    async def drop_keys(self, before: str, limit: int) -> int:
        """See `mail.db.base.Store.drop_keys`."""
        return await self._write(lambda cursor: keys.drop_keys(cursor, before, limit))

    async def put_memories(self, owner: Owner, rows: Sequence[MemoryRow]) -> None:
        """See `mail.db.base.Store.put_memories`."""
        kept = tuple(rows)
        await self._write(lambda cursor: writes.put_memories(cursor, owner, kept))

    async def delete_memory(self, owner: Owner, namespace: tuple[str, ...], key: str) -> None:
        """See `mail.db.base.Store.delete_memory`."""
        await self._write(lambda cursor: writes.delete_memory(cursor, owner, namespace, key))

    async def get_memory(
        self, owner: Owner, namespace: tuple[str, ...], key: str
    ) -> MemoryRow | None:
        """See `mail.db.base.Store.get_memory`."""
        return await self._read(lambda db: reads.get_memory(db, owner, namespace, key))

    async def search_memories(
        self,
        owner: Owner,
        prefix: tuple[str, ...],
        query: str = "",
        *,
        limit: int = 10,
        offset: int = 0,
    ) -> list[MemoryRow]:
        """See `mail.db.base.Store.search_memories`."""
        return await self._read(
            lambda db: reads.search_memories(db, owner, prefix, query, limit, offset)
        )

    async def memory_namespaces(self, owner: Owner) -> list[tuple[str, ...]]:
        """See `mail.db.base.Store.memory_namespaces`."""
        return await self._read(lambda db: reads.memory_namespaces(db, owner))

    async def put_token(self, token: TokenRow) -> None:
        """See `mail.db.base.Store.put_token`."""
        await self._write(lambda cursor: writes.put_token(cursor, token))

    async def find_token(self, token_hash: str) -> TokenRow | None:
        """See `mail.db.base.Store.find_token`."""
        return await self._read(lambda db: reads.find_token(db, token_hash))

    async def list_tokens(self) -> list[TokenRow]:
        """See `mail.db.base.Store.list_tokens`."""
        return await self._read(reads.list_tokens)


def _run_query(
    readers: SimpleQueue[sqlite3.Connection], query: Callable[[sqlite3.Connection], T]
) -> T:
    """Borrow a connection for one query (runs in a reader thread)."""
    connection = readers.get()
    try:
        return query(connection)
    except (sqlite3.Error, UnicodeEncodeError, OverflowError) as exc:
        raise as_store_error(exc) from exc
    finally:
        readers.put(connection)
