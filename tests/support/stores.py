"""Stores that a test can slow down or make fail."""

from collections.abc import Awaitable, Callable
from typing import Any

from mail.db.commit import Commit, Receipt
from mail.db.store import Store

Hook = Callable[[Commit], Awaitable[None]]


class HookedStore:
    """Hands everything on to another store and calls hooks before and after each commit."""

    def __init__(self, store: Store, before: Hook | None = None, after: Hook | None = None) -> None:
        self._store = store
        self.before = before
        self.after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, commit: Commit) -> Receipt:
        """See `mail.db.store.Store.commit`."""
        if self.before is not None:
            await self.before(commit)
        receipt = await self._store.commit(commit)
        if self.after is not None:
            await self.after(commit)
        return receipt
