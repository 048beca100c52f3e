"""Servers of a swarm that share a store: their part for one another.

What an administrator tells one of them holds for all; one does what need not be done by all; and
each makes the calls that others ask for about the tasks that it has.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from mail.auth.callers import Caller
from mail.core.runtime.relay import told
from mail.db.relay import RelayedCall
from mail.db.store import Store
from mail.errors import MAILError, StoreError
from mail.server.instances import InstancePool

_EVERY_SECONDS: Final = 1.0
_DUTY_SECONDS: Final = 2.0
"""Between two looks whether a server does what one does for all."""
_RELAY_SECONDS: Final = 0.2

_log = logging.getLogger("mail.server")


class Announcements:
    """Tells other servers, and does what they tell.

    Args:
        store: The store that they may share.
        swarm: The swarm that all of them were started with; can be read.
        follow: By the name of an announcement, what does what it says.
    """

    def __init__(
        self, store: Store, swarm: str, follow: Mapping[str, Callable[[str], Awaitable[object]]]
    ) -> None:
        self._store = store
        self.swarm = swarm
        self._follow = follow
        self._known: dict[str, int] = {}

    async def tell(self, name: str, value: str) -> None:
        """Tell the others.

        Raises:
            StoreError: they were not told.
        """
        self._known[name] = await self._store.announce(self.swarm, name, value)

    async def open(self) -> None:
        """Do what holds already, unless all servers that were told are gone."""
        await self._store.begin_announcements(self.swarm)
        await self._look()

    async def run(self) -> None:
        """Do what others tell, until it is cancelled."""
        with self._store.hints("announcements") as hint:
            while self._store.shared:
                await hint.wait(_EVERY_SECONDS)
                with suppress(StoreError):  # it is asked again in a moment
                    await self._look()

    async def _look(self) -> None:
        for news in await self._store.announcements(self.swarm):
            if news.number > self._known.get(news.name, 0) and news.name in self._follow:
                self._known[news.name] = news.number
                try:
                    await self._follow[news.name](news.value)
                except MAILError as error:
                    _log.error("what another server was told fails here: %s: %s", news.name, error)


async def on_duty(store: Store, duty: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run what one server of the swarm does for all, whenever that is this one."""
    doing = None
    try:
        while store.shared:
            try:
                mine = await store.on_duty(duty)
            except StoreError:
                mine = doing is not None
            if mine and doing is None:
                doing = asyncio.create_task(run(), name=duty)
            elif doing is not None and not mine:
                await cancelled(doing)
                doing = None
            await asyncio.sleep(_DUTY_SECONDS)
        await run()
    finally:
        if doing is not None:
            await cancelled(doing)


async def cancelled(*tasks: "asyncio.Task[None]") -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def make_relayed_calls(store: Store, pool: InstancePool) -> None:
    """Make the calls that other processes ask for, because this one has the tasks."""
    under_way: set[asyncio.Task[None]] = set()
    with store.hints("relay") as hint:
        while store.shared:
            await hint.wait(_RELAY_SECONDS)
            try:
                for call in await store.relayed_calls(str(pool.served.template.name)):
                    if await store.make_relayed(call.number):
                        making = asyncio.create_task(_make_relayed(store, pool, call))
                        under_way.add(making)
                        making.add_done_callback(under_way.discard)
            except StoreError as error:
                _log.warning("calls of other servers cannot be read: %s", error)
                await asyncio.sleep(_EVERY_SECONDS)


async def _make_relayed(store: Store, pool: InstancePool, call: RelayedCall) -> None:
    try:
        async with pool.lease(Caller(call.owner.role, call.owner.id)) as swarm:
            answer = await swarm.runtime.relayed(call.kind, call.arguments)
    except MAILError as error:
        answer = told(error)
    except Exception:  # noqa: BLE001 - whoever asked gives up after a while
        _log.exception("a call of another server failed")
        return
    with suppress(StoreError):  # whoever asked finds out what it did by asking again
        await store.answer_relayed(call.number, answer)
