"""What an administrator tells one server holds for all servers of the swarm that share a store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from mail.db.store import Store
from mail.errors import MAILError, StoreError

_EVERY_SECONDS: Final = 1.0

_log = logging.getLogger("mail.server")


class Announcements:
    """Tells other servers, and does what they tell.

    Args:
        store: The store that they may share.
        swarm: The swarm that all of them were started with.
        follow: By the name of an announcement, what does what it says.
    """

    def __init__(
        self, store: Store, swarm: str, follow: Mapping[str, Callable[[str], Awaitable[object]]]
    ) -> None:
        self._store = store
        self._swarm = swarm
        self._follow = follow
        self._known: dict[str, int] = {}
        self._told = asyncio.Event()

    async def tell(self, name: str, value: str) -> None:
        """Tell the others.

        Raises:
            StoreError: they were not told.
        """
        self._known[name] = await self._store.announce(self._swarm, name, value)

    async def open(self) -> None:
        """Do what holds already, unless all servers that were told are gone."""
        await self._store.begin_announcements(self._swarm)
        await self._look()

    async def run(self) -> None:
        """Do what others tell, until it is cancelled."""
        stop = self._store.driver.on_hint(self._hear)
        try:
            while self._store.shared:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY_SECONDS):
                        await self._told.wait()
                self._told.clear()
                with suppress(StoreError):  # it is asked again in a moment
                    await self._look()
        finally:
            stop()

    def _hear(self, topics: list[str]) -> None:
        if not topics or "announcements" in topics:
            self._told.set()

    async def _look(self) -> None:
        for news in await self._store.announcements(self._swarm):
            if news.number > self._known.get(news.name, 0) and news.name in self._follow:
                self._known[news.name] = news.number
                try:
                    await self._follow[news.name](news.value)
                except MAILError as error:
                    _log.error("what another server was told fails here: %s: %s", news.name, error)
