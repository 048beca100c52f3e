"""A store that is slow and fails at random, and that dies with its process."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from mail.db.store import Store
from mail.errors import StoreError

_WRITES = ("commit",)


class UnsteadyStore:
    """Hands everything on to another store, one verb at a time, as a writer thread does.

    What is under way cannot be called back. ``failing`` is the chance that a write fails; reads
    fail less often. Once ``dead`` it answers nothing any more, not even what is under way.
    """

    durable = True

    def __init__(self, store: Store, dice: Random, failing: float) -> None:
        self._store = store
        self._dice = dice
        self._alone = asyncio.Lock()
        self._never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failing = failing
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(verb):
            return verb
        chance = 1.0 if name in _WRITES else 0.25

        async def call(*arguments: Any, **options: Any) -> Any:
            work = asyncio.ensure_future(
                self._work(lambda: verb(*arguments, **options), self.failing * chance)
            )
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            return await asyncio.shield(work)

        return call

    async def _work(self, verb: Callable[[], Awaitable[Any]], failing: float) -> Any:
        async with self._alone:
            await self._pause(0, 0, 0, 1, 2, 6)
            if self._dice.random() < failing:
                raise StoreError("the store fails at random")
            found = await verb()
            await self._pause(0, 0, 1, 4)
            return found

    async def _pause(self, *rounds: int) -> None:
        for _ in range(self._dice.choice(rounds)):
            await asyncio.sleep(0)
        if self.dead:
            await self._never
