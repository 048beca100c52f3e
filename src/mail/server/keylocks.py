"""A lock for each key in use, and for no other: keys come from outside, so none may be kept."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Lock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    holders: int = 0


class KeyLocks(Generic[K]):
    """Locks by key. ``key in locks`` tells whether somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[K, _Lock] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._locks

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold the key's lock for the length of the block, once it is free."""
        entry = self._locks.setdefault(key, _Lock())
        entry.holders += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.holders -= 1
            if not entry.holders:
                del self._locks[key]
