"""The PostgreSQL store: a pool for reading, one connection that writes, a loop of their own.

The loop runs in a thread of the store, so that callers of any number of event loops may share it,
as they may with SQLite. Writes go to `mail.db.postgres.writer.Writer` and share commits. Reads are
single statements, run by `Reader`, that leave the writer its place; like writes they are tried
again when they fail for a passing reason. Closing finishes what was asked for, within
`_CLOSE_SECONDS`.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from mail.db.driver import Verb
from mail.db.keys import RegistryVerbs
from mail.db.migrate import packaged_migrations
from mail.db.postgres.connect import (
    ANSWER_SECONDS,
    Retries,
    behind_pooler,
    borrowed,
    check_dsn,
    in_store_terms,
    make_pool,
    run_verb,
    with_retries,
)
from mail.db.postgres.dialect import Pool, PostgresDialect
from mail.db.postgres.hints import Hints
from mail.db.postgres.migrate import check_encoding, migrate, missing_tables
from mail.db.postgres.nodes import Membership
from mail.db.postgres.writer import Work, Writer
from mail.db.store import Store
from mail.errors import StoreError

T = TypeVar("T")

_CLOSE_SECONDS: Final = 5.0
_BREAK_OFF_SECONDS: Final = 1.0


class Reader:
    """Runs queries for callers of any event loop."""

    def __init__(
        self, pool: Pool, loop: asyncio.AbstractEventLoop, retries: Retries | None = None
    ) -> None:
        """Take the pool, its loop, and the retries that its users share."""
        self._retries = retries or Retries()
        self._pool = pool
        self._loop = loop
        # One connection is for the writer, which may have lost its own, and one for the heartbeat.
        self._places = asyncio.Semaphore(max(1, pool.get_max_size() - 2))
        self._under_way: set[asyncio.Task[Any]] = set()
        self._gate = threading.Lock()
        self._open = True
        self._expired = False

    async def run(self, query: Work[T]) -> T:
        """Run a query and return its result.

        Raises:
            StoreError: it failed, or the reader is closed.
        """
        return await asyncio.wrap_future(self._begin(self._read(query)))

    def close(self) -> None:
        """Take no more; what is under way goes on, without further attempts."""
        with self._gate:
            self._open = False

    def under_way(self) -> set[asyncio.Task[Any]]:
        """Return the reads that go on. Call it in the loop, after `close`."""
        return set(self._under_way)

    def expire(self) -> None:
        """From now on, what is broken off ends with a StoreError. Call it in the loop."""
        self._expired = True

    def _begin(self, reading: Coroutine[Any, Any, T]) -> Future[T]:
        with suppress(RuntimeError), self._gate:  # that one when the loop is closed
            if self._open:
                return asyncio.run_coroutine_threadsafe(reading, self._loop)
        reading.close()
        raise StoreError("the store is closed")

    async def _read(self, query: Work[T]) -> T:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._under_way.add(task)
        try:
            with in_store_terms():
                return await self._retries.run(lambda: self._once(query), lambda: self._open)
        except (StoreError, asyncio.CancelledError):
            if self._expired:
                raise StoreError("the store is closed") from None
            raise
        finally:
            self._under_way.discard(task)

    async def _once(self, query: Work[T]) -> T:
        async with (
            asyncio.timeout(ANSWER_SECONDS),
            self._places,
            borrowed(self._pool, ANSWER_SECONDS) as connection,
        ):
            return await query(connection)


class _Session(NamedTuple):
    """The resources of an open store."""

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    pool: Pool
    writer: Writer
    reader: Reader
    serving: asyncio.Task[None]
    membership: Membership
    hints: Hints


class PostgresDriver:
    """A `mail.db.driver.Driver` of PostgreSQL. Any number of event loops may share it."""

    durable: ClassVar = True
    shared: ClassVar = True
    dialect: ClassVar = PostgresDialect()

    def __init__(
        self, dsn: str, durability: str, swarm: str | None, *, exclusive: bool, upgrade: bool
    ) -> None:
        """Take what `PostgresStore` was given; nothing is connected before `open`."""
        self._dsn, self.node = dsn, uuid4().hex
        self._durability = durability
        self._exclusive = exclusive
        self._upgrade = upgrade
        self._swarm = swarm or ""
        self._gate = threading.Lock()
        self._session: _Session | None = None
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Callable[[list[str]], None]]] = []

    async def open(self) -> None:
        """Connect and migrate. See `Driver.open`.

        Raises:
            StoreLocked: a server uses a schema that is to be upgraded.
            StoreError: the database cannot be reached or used, or is newer than this program, or
                older and not ours to upgrade.
        """
        if self._session is None:
            await asyncio.to_thread(self._open)

    async def close(self) -> None:
        """Commit and read what is asked for, then disconnect.

        After 5 seconds the rest fails with a StoreError.
        """
        await asyncio.to_thread(self._close)

    async def claim_swarm(self, swarm: str) -> None:
        """Do nothing: others may serve it, too."""

    async def missing_tables(self) -> list[str]:
        """Return which of the tables are not there, for ``mail db-init``."""
        migrations = packaged_migrations("postgresql")
        return await self._opened().reader.run(partial(missing_tables, migrations=migrations))

    def _open(self) -> None:
        with self._gate:
            if self._session is not None:
                return
            loop = asyncio.new_event_loop()
            # Daemon: a store that was never closed must not keep the interpreter alive.
            thread = threading.Thread(target=loop.run_forever, name="mail-postgres", daemon=True)
            thread.start()
            try:
                begun = self._begin(loop, thread)
                self._session = asyncio.run_coroutine_threadsafe(begun, loop).result()
            except BaseException:
                _end_loop(loop, thread)
                raise

    async def _begin(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> _Session:
        pool = await self._connect()
        retries = Retries()
        writer = Writer(pool, loop, retries)
        reader = Reader(pool, loop, retries)
        membership = Membership(pool, self.node, self._swarm)
        hints = Hints(self._dsn, self.node, loop, self._hear, membership)
        if self._exclusive:
            with in_store_terms("cannot use the database"):
                await with_retries(membership.join)
            if not behind_pooler(self._dsn)[1]:
                hints.start()
        serving = asyncio.create_task(writer.serve())
        return _Session(loop, thread, pool, writer, reader, serving, membership, hints)

    @property
    def lapses(self) -> int:
        return 0 if self._session is None else self._session.membership.lapses

    @property
    def hears(self) -> bool:
        return self._session is not None and self._session.hints.arrive

    def tell(self, topic: str) -> None:
        if self._session is not None:
            self._session.hints.tell(topic)

    def on_hint(self, heard: Callable[[list[str]], None]) -> Callable[[], None]:
        place = asyncio.get_running_loop(), heard
        self._listeners.append(place)

        def stop() -> None:
            with suppress(ValueError):  # it was called before
                self._listeners.remove(place)

        return stop

    def _hear(self, topics: list[str]) -> None:
        for loop, heard in list(self._listeners):
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(heard, topics)

    async def _connect(self) -> Pool:
        pool = await make_pool(self._dsn, durability=self._durability, exclusive=self._exclusive)

        async def prepare() -> None:
            async with pool.acquire() as connection:
                await check_encoding(connection)
                await migrate(connection, packaged_migrations("postgresql"), upgrade=self._upgrade)

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

    async def read(self, verb: Callable[[], Verb[T]]) -> T:
        """Read as `Driver.read` says. Each of its statements sees one moment."""
        return await self._opened().reader.run(partial(run_verb, verb))

    async def snapshot(self, verb: Callable[[], Verb[T]]) -> T:
        session = self._opened()

        async def run() -> T:
            async with (
                session.pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                return await run_verb(verb, connection)

        with in_store_terms():
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), session.loop))

    async def transaction(self, verb: Callable[[], Verb[T]]) -> T:
        return await self._opened().writer.run(partial(run_verb, verb))


class PostgresStore(RegistryVerbs, Store):
    """A store in a PostgreSQL database; see `PostgresDriver`."""

    driver: PostgresDriver

    def __init__(
        self,
        dsn: str,
        *,
        durability: Literal["full", "normal"] = "full",
        exclusive: bool = True,
        upgrade: bool | None = None,
        swarm: str | None = None,
    ) -> None:
        """Name the database; nothing is connected before `open`.

        Args:
            dsn: ``postgresql://user:password@host:port/database``.
            durability: ``"full"`` waits until a commit is on the server's disk; ``"normal"``
                does not (``synchronous_commit = off``).
            exclusive: Use the whole pool of 5 to 20 connections, and work on tasks beside others.
                Short-lived commands pass False.
            upgrade: Upgrade the schema of an earlier version; by default whoever is exclusive does.
                In an empty database everybody makes the tables.
            swarm: The swarm that is served.

        Raises:
            ConfigError: the URL cannot be right.
        """
        check_dsn(dsn)
        upgrade = exclusive if upgrade is None else upgrade
        super().__init__(
            PostgresDriver(dsn, durability, swarm, exclusive=exclusive, upgrade=upgrade)
        )
        self.name = re.sub(r"[^A-Za-z0-9_-]", "_", unquote(urlsplit(dsn).path[1:])) or "mail"
        """The database's name, as one of a file."""

    async def missing_tables(self) -> list[str]:
        """Return which of the tables are not there, for ``mail db-init``."""
        return await self.driver.missing_tables()


def _end_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _finish(session: _Session) -> None:
    """Wait for what is under way, but not for long, and leave nothing of it in the loop."""
    ends = session.loop.time() + _CLOSE_SECONDS
    tasks = {session.serving, *session.reader.under_way()}
    _, late = await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
    await session.hints.stop()
    await session.membership.leave()
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
