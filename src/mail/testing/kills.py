"""A store that ends the process at a chosen commit, to see what survives."""

import os
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from mail.db.commit import Commit, Receipt
from mail.db.store import Store

KillWhen = Literal["before", "after"]


class KillPoint:
    """Where a process dies: before or after the n-th commit that a test singles out.

    Args:
        when: Before the commit is made, or after it is made and before anybody hears of it.
        matches: Tells whether a commit is one of those counted.
        nth: Which of them, counting from 1.
        die: What happens; by default the process ends at once, as after ``kill -9``.
    """

    def __init__(
        self,
        when: KillWhen,
        matches: Callable[[Commit], bool],
        nth: int = 1,
        die: Callable[[], object] = lambda: os._exit(9),
    ) -> None:
        self._when = when
        self._matches = matches
        self._left = nth
        self._die = die

    async def around(self, commit: Commit, make: Callable[[], Awaitable[Receipt]]) -> Receipt:
        """Make a commit, and die before or after it when its turn has come."""
        if not self._matches(commit):
            return await make()
        self._left -= 1
        if self._left == 0 and self._when == "before":
            self._die()
        receipt = await make()
        if self._left == 0 and self._when == "after":
            self._die()
        return receipt


class KillingStore:
    """A store that hands everything on to another one and dies at a `KillPoint`."""

    def __init__(self, store: Store, point: KillPoint) -> None:
        self._store = store
        self._point = point

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, commit: Commit) -> Receipt:
        """See `mail.db.store.Store.commit`."""
        return await self._point.around(commit, lambda: self._store.commit(commit))
