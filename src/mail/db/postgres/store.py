"""The PostgreSQL store: a pool for reading, one connection that writes, a loop of their own.

The loop runs in a thread of the store, so that callers of any number of event loops may share it,
as they may with SQLite. Writes go to `mail.db.postgres.writer.Writer` and share commits. Reads are
single statements, run by `mail.db.postgres.reader.Reader`; like writes they are tried again when
they fail for a passing reason. Closing finishes what was asked for, within `_CLOSE_SECONDS`.
"""

import asyncio
import threading
from collections.abc import Sequence
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
from mail.db.migrate import packaged_migrations
from mail.db.postgres import idempotency as keys
from mail.db.postgres import reads, writes
from mail.db.postgres.connect import check_dsn, in_store_terms, make_pool, with_retries
from mail.db.postgres.migrate import check_encoding, migrate, missing_tables
from mail.db.postgres.reader import Query, Reader
from mail.db.postgres.swarm_lock import ClaimKeeper
from mail.db.postgres.values import Pool
from mail.db.postgres.writer import Work, Writer
from mail.db.swarm_lock import SwarmClaim
from mail.errors import StoreError

__all__ = ["PostgresStore"]

T = TypeVar("T")

_CLOSE_SECONDS: Final = 5.0
_BREAK_OFF_SECONDS: Final = 1.0


class _Session(NamedTuple):
    """What an open store holds."""

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    pool: Pool
    writer: Writer
    reader: Reader
    serving: asyncio.Task[None]
    keeper: ClaimKeeper | None


class PostgresStore:
    """A `mail.db.base.Store` in a PostgreSQL database. Any number of event loops may share it."""

    def __init__(
        self,
        dsn: str,
        *,
        durability: Literal["full", "normal"] = "full",
        exclusive: bool = True,
        claim: SwarmClaim | None = None,
    ) -> None:
        """Name the database; nothing is connected before `open`.

        Args:
            dsn: ``postgresql://user:password@host:port/database``.
            durability: ``"full"`` waits until a commit is on the server's disk; ``"normal"``
                does not (``synchronous_commit = off``).
            exclusive: Use the whole pool of 5 to 20 connections. Short-lived commands pass False.
            claim: The swarm that no other server may serve meanwhile.

        Raises:
            ConfigError: the URL cannot be right.
        """
        check_dsn(dsn)
        self._dsn = dsn
        self._durability = durability
        self._exclusive = exclusive
        self._claim = claim
        self._gate = threading.Lock()
        self._session: _Session | None = None

    @property
    def durable(self) -> bool:
        """True: committed state survives the process."""
        return True

    async def open(self) -> None:
        """Connect and migrate. See `Store.open`.

        Raises:
            StoreLocked: another server has the claimed swarm.
            StoreError: the database cannot be reached or used, or is newer than this program.
        """
        if self._session is None:
            await asyncio.to_thread(self._open)

    async def close(self) -> None:
        """Commit and read what is asked for, then disconnect.

        After 5 seconds the rest fails with a StoreError.
        """
        await asyncio.to_thread(self._close)

    async def claim_swarm(self, swarm: str) -> None:
        """See `mail.db.base.Store.claim_swarm`. Without a claim at the start there is none now."""
        session = self._opened()
        if session.keeper is None:
            return
        with in_store_terms("cannot take the swarm's lock"):
            work = asyncio.run_coroutine_threadsafe(session.keeper.take_also(swarm), session.loop)
            await asyncio.wrap_future(work)

    async def missing_tables(self) -> list[str]:
        """Return which of the documented tables are not there, for ``mail db-init``."""
        return await self._read(missing_tables)

    def _open(self) -> None:
        with self._gate:
            if self._session is not None:
                return
            loop = asyncio.new_event_loop()
            # Daemon: a store that was never closed must not keep the interpreter alive.
            thread = threading.Thread(
                target=_run_loop, args=(loop,), name="mail-postgres", daemon=True
            )
            thread.start()
            try:
                begun = self._begin(loop, thread)
                self._session = asyncio.run_coroutine_threadsafe(begun, loop).result()
            except BaseException:
                _end_loop(loop, thread)
                raise

    async def _begin(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> _Session:
        keeper = await self._take_swarm()
        try:
            pool = await self._connect()
        except BaseException:
            await keeper.close() if keeper else None
            raise
        writer = Writer(pool, loop, keeper.check if keeper else lambda: None)
        serving = asyncio.create_task(writer.serve())
        return _Session(loop, thread, pool, writer, Reader(pool, loop), serving, keeper)

    async def _take_swarm(self) -> ClaimKeeper | None:
        if self._claim is None:
            return None
        keeper = ClaimKeeper(self._dsn, self._claim)
        with in_store_terms("cannot connect to the database"):
            try:
                await with_retries(keeper.take)
            except ValueError:  # asyncpg's own about the URL quote it
                raise StoreError("the database URL is invalid") from None
        return keeper

    async def _connect(self) -> Pool:
        pool = await make_pool(self._dsn, durability=self._durability, exclusive=self._exclusive)

        async def prepare() -> None:
            async with pool.acquire() as connection:
                await check_encoding(connection)
                await migrate(connection, packaged_migrations("postgresql"))

        try:
            with in_store_terms("cannot prepare the database"):
                await with_retries(prepare)
        except BaseException:
            pool.terminate()
            raise
        return pool

    def _close(self) -> None:
        with self._gate:
            session, self._session = self._session, None
            if session is None:
                return
            session.writer.close()
            session.reader.close()
            try:
                asyncio.run_coroutine_threadsafe(_finish(session), session.loop).result()
            finally:
                _end_loop(session.loop, session.thread)

    def _opened(self) -> _Session:
        if self._session is None:
            raise StoreError("the store is not open")
        return self._session

    async def _write(self, work: Work[T]) -> T:
        return await self._opened().writer.run(work)

    async def _read(self, query: Query[T]) -> T:
        return await self._opened().reader.run(query)

    async def post(self, post: Post) -> Receipt:
        """See `mail.db.base.Store.post`."""
        return await self._write(lambda db: writes.apply_post(db, post))

    async def commit_turn(self, turn: TurnCommit) -> Receipt:
        """See `mail.db.base.Store.commit_turn`."""
        return await self._write(lambda db: writes.apply_turn(db, turn))

    async def claim(self, owner: Owner, seq: int) -> int:
        """See `mail.db.base.Store.claim`."""
        return await self._write(lambda db: writes.change_attempts(db, owner, seq, 1))

    async def release(self, owner: Owner, seq: int) -> None:
        """See `mail.db.base.Store.release`."""
        await self._write(lambda db: writes.change_attempts(db, owner, seq, -1))

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
        await self._write(lambda db: keys.put_key(db, owner, row))

    async def drop_keys(self, before: str, limit: int) -> int:
        """See `mail.db.base.Store.drop_keys`."""
        return await self._write(lambda db: keys.drop_keys(db, before, limit))

    async def put_memories(self, owner: Owner, rows: Sequence[MemoryRow]) -> None:
        """See `mail.db.base.Store.put_memories`."""
        kept = tuple(rows)
        await self._write(lambda db: writes.put_memories(db, owner, kept))

    async def delete_memory(self, owner: Owner, namespace: tuple[str, ...], key: str) -> None:
        """See `mail.db.base.Store.delete_memory`."""
        await self._write(lambda db: writes.delete_memory(db, owner, namespace, key))

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
        await self._write(lambda db: writes.put_token(db, token))

    async def find_token(self, token_hash: str) -> TokenRow | None:
        """See `mail.db.base.Store.find_token`."""
        return await self._read(lambda db: reads.find_token(db, token_hash))

    async def list_tokens(self) -> list[TokenRow]:
        """See `mail.db.base.Store.list_tokens`."""
        return await self._read(reads.list_tokens)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def _end_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _finish(session: _Session) -> None:
    """Wait for what is under way, but not for long, and leave nothing of it in the loop."""
    ends = session.loop.time() + _CLOSE_SECONDS
    tasks = {session.serving, *session.reader.under_way()}
    _, late = await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
    if not late:
        tasks = {asyncio.create_task(session.pool.close())}
        _, late = await asyncio.wait(tasks, timeout=ends - session.loop.time())
    session.writer.expire()
    session.reader.expire()
    session.pool.terminate()  # first, so that nothing broken off waits for the server
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=_BREAK_OFF_SECONDS)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # what went wrong was told to those who asked
    if session.keeper is not None:
        await session.keeper.close()  # last: until now there were things to write
