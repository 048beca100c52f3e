"""Hints between the processes that share a database: "look at this again". They may be lost.

They are sent beside commits, never in them, because a NOTIFY in a transaction makes all commits of
the server wait for one another. What is told within `_GATHER_SECONDS` goes together. A process that
is alone tells nobody. Where notifications do not arrive, as behind PgBouncer in transaction mode,
everybody looks by themselves from time to time.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import asyncpg

from mail.db.postgres.connect import CONNECT_SECONDS, as_store_error
from mail.db.postgres.dialect import Connection
from mail.db.postgres.nodes import Membership

_GATHER_SECONDS: Final = 0.01
_TEST_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 1.0
_MOST_BYTES: Final = 7000
"""Of one notification; PostgreSQL takes 8,000."""
_SCHEMA: Final = "SELECT current_database() || '.' || coalesce(current_schema(), '')"

logger = logging.getLogger(__name__)

Heard = Callable[[list[str]], None]


class Hints:
    """The hints of this process to others, and of others to it. All but `tell` happens in one loop.

    Attributes:
        arrive: Whether notifications arrive.
    """

    def __init__(
        self,
        dsn: str,
        node: str,
        loop: asyncio.AbstractEventLoop,
        heard: Heard,
        membership: Membership,
    ) -> None:
        """Take the database, the process's own name and row, and what is called with hints.

        No text stands for "anything": hints may have been lost.
        """
        self._dsn, self._node, self._loop = dsn, node, loop
        self._heard, self._membership = heard, membership
        self._told: dict[str, None] = {}
        self._channel = ""
        self._listening: asyncio.Task[None] | None = None
        self._own = asyncio.Event()
        self._due = asyncio.Event()
        self.arrive = False

    def tell(self, topic: str) -> None:
        """Tell the others, from any thread; it is nobody's business whether they hear it."""
        if not self._membership.alone:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._note, topic)

    def start(self) -> None:
        """Begin to listen."""
        self._listening = asyncio.create_task(self._listen_for_ever(), name="hints")

    async def stop(self) -> None:
        """Listen no more."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    def _note(self, topic: str) -> None:
        self._told[topic] = None
        self._due.set()

    async def _listen_for_ever(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001 - everybody looks by themselves meanwhile
                logger.info("no hints of other servers: %s", as_store_error(error))
            self.arrive = False
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _listen(self) -> None:
        """Listen and tell until the connection breaks, or notifications do not arrive at all."""
        connection: Connection = await asyncpg.connect(
            self._dsn,
            timeout=CONNECT_SECONDS,
            server_settings={"application_name": "mail-hints"},
            statement_cache_size=0,  # behind a pooler the next statement may meet another server
        )
        broken = asyncio.Event()
        connection.add_termination_listener(lambda _: broken.set())
        try:
            name = await connection.fetchval(_SCHEMA)
            self._channel = f"mail_{hashlib.sha256(name.encode()).hexdigest()[:32]}"
            await connection.add_listener(self._channel, self._take)
            if not await self._arrives(connection):
                logger.info("notifications do not arrive; looking for changes every moment instead")
                await broken.wait()
            self.arrive = True
            self._heard([])
            while not broken.is_set():
                await self._pass_on(connection, broken)
        finally:
            connection.terminate()

    async def _arrives(self, connection: Connection) -> bool:
        self._own.clear()
        await self._notify(connection, [])
        try:
            async with asyncio.timeout(_TEST_SECONDS):
                await self._own.wait()
        except TimeoutError:
            return False
        return True

    async def _pass_on(self, connection: Connection, broken: asyncio.Event) -> None:
        """Wait for something to tell, gather what follows, and tell it."""
        waiting = [asyncio.create_task(each.wait()) for each in (self._due, broken)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        await asyncio.sleep(_GATHER_SECONDS)
        self._due.clear()
        topics, self._told = list(self._told), {}
        while topics and not broken.is_set():
            some: list[str] = []
            size = 0
            while topics and size + len(topics[-1].encode()) < _MOST_BYTES:
                some.append(topics.pop())
                size += len(some[-1].encode()) + 1
            await self._notify(connection, some or [topics.pop()[: _MOST_BYTES // 4]])

    async def _notify(self, connection: Connection, topics: list[str]) -> None:
        payload = "\n".join([self._node, *topics])
        await connection.execute("SELECT pg_notify($1, $2)", self._channel, payload)

    def _take(self, _: object, __: int, ___: str, payload: str) -> None:
        node, *topics = payload.split("\n")
        if node == self._node:
            self._own.set()
            return
        self._membership.alone = False  # as the next heartbeat would find
        if topics:
            self._heard(topics)
