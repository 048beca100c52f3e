"""Stores that a test can slow down or make fail."""

from collections.abc import Awaitable, Callable
from typing import Any

from mail.db.post import Post, Receipt, TurnCommit
from mail.db.store import Store

Hook = Callable[[Post], Awaitable[None]]


class HookedStore:
    """Hands everything on to another store and calls hooks before and after each commit."""

    def __init__(self, store: Store, before: Hook | None = None, after: Hook | None = None) -> None:
        self._store = store
        self.before = before
        self.after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _around(self, post: Post, commit: Callable[[Any], Awaitable[Receipt]]) -> Receipt:
        if self.before is not None:
            await self.before(post)
        receipt = await commit(post)
        if self.after is not None:
            await self.after(post)
        return receipt

    async def post(self, post: Post) -> Receipt:
        """See `mail.db.store.Store.post`."""
        return await self._around(post, self._store.post)

    async def commit_turn(self, turn: TurnCommit) -> Receipt:
        """See `mail.db.store.Store.commit_turn`."""
        return await self._around(turn, self._store.commit_turn)
