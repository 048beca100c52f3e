"""The storage of each caller, and its limit.

The store says it, now and then; what commits add until it is asked again is counted here. Whoever
has reached the limit may still answer tasks that wait for that, up to twice the limit.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from mail.db.records import Owner, StoredUse
from mail.server.errors import StorageFull

_FRESH_SECONDS: Final = 10.0
_LEAST_SECONDS: Final = 1.0
_MOST_OWNERS: Final = 10_000
_RESERVE: Final = 2
"""So many times the limit is what tasks may reach that run, or wait for an answer."""

TASKS: Final = (
    "your tasks, memories and idempotency keys (which go after a week) take {taken:,} bytes, and "
    "the limit is {most:,}; delete what you do not need (DELETE /tasks/{{task_id}}, "
    "DELETE /v1/responses/{{response_id}}), or raise [server.limits] max_stored_bytes"
)
LETTERS: Final = (
    "your messages, threads and files take {taken:,} bytes, and the limit is {most:,}; "
    "delete files (DELETE /files/{{file_id}}), or let an operator have old messages go "
    "([server.retention] letters_days) or raise [server.limits] max_stored_bytes"
)


@dataclass(slots=True, eq=False)
class _Account:
    """An owner's bytes when the store was asked, and those that commits have added since."""

    use: StoredUse | None = None
    asked_at: float = -math.inf
    wrote: int = 0
    asking: "asyncio.Task[StoredUse] | None" = None

    @property
    def bytes(self) -> int:
        return self.wrote + (self.use.bytes if self.use else 0)


def _heard(asking: "asyncio.Task[StoredUse]") -> None:
    if not asking.cancelled():
        asking.exception()  # every request may have gone: no "never retrieved" warning


class StorageShares:
    """The shares of all owners.

    Args:
        stored: Asks the store what an owner has.
        most: Bytes that an owner may store; 0 for no limit.
        told: The text of a refusal, with places for ``taken`` and ``most`` bytes.
        shared: Other processes write, too: the store is asked once a second.
        now: A monotonic clock in seconds.
    """

    def __init__(
        self,
        stored: Callable[[Owner], Awaitable[StoredUse]],
        most: int,
        told: str = TASKS,
        now: Callable[[], float] = time.monotonic,
        *,
        shared: bool = False,
    ) -> None:
        self._stored = stored
        self._most = most
        self._told = told
        self._now = now
        self._shared = shared
        self._fresh = _LEAST_SECONDS if shared else _FRESH_SECONDS
        self._accounts: OrderedDict[Owner, _Account] = OrderedDict()

    async def admit(self, owner: Owner, *, resumes: bool = False) -> None:
        """Refuse what an owner would store beyond its share.

        Args:
            owner: The owner of the share.
            resumes: Whether it answers a task that waits, for which there is a reserve.

        Raises:
            StorageFull: the owner stores as much as one may.
        """
        most = self._most * (_RESERVE if resumes else 1)
        if not (most or self._shared) or (await self._account(owner, self._fresh)).bytes < most:
            return
        if not most:
            return
        taken = (await self._latest(owner)).bytes
        if taken >= most:
            raise StorageFull(self._told.format(taken=taken, most=self._most))

    async def use(self, owner: Owner) -> StoredUse:
        """Return what an owner has; what other processes did a second ago may not count."""
        return (await self._latest(owner)).use or StoredUse(0, 0, 0)

    def elsewhere(self, owner: Owner) -> int:
        """Return how many tasks of an owner others work on, as of the last `admit`."""
        account = self._accounts.get(owner)
        return account.use.elsewhere if account and account.use else 0

    def wrote(self, owner: Owner, size: int) -> None:
        """Count what a commit has added to what an owner stores."""
        if account := self._accounts.get(owner):
            account.wrote += size

    def refusal(self, owner: Owner) -> str | None:
        """Return why no task of an owner goes on, because of what they all store; None if it may.

        Of an owner whose messages came to another process, or long ago, nothing is known here.
        """
        account = self._accounts.get(owner)
        if account is None or not 0 < self._most * _RESERVE <= account.bytes:
            return None
        return self._told.format(taken=account.bytes, most=self._most)

    async def open_tasks(self, owner: Owner) -> int | None:
        """Return how many tasks of an owner run, are queued or paused; None if nobody asks for it.

        What other processes did a second ago may not count.
        """
        return (await self.use(owner)).open_tasks if self._most or self._shared else None

    def forget(self, owner: Owner) -> None:
        """Have the store asked again what an owner has: something was deleted."""
        self._accounts.pop(owner, None)

    async def _latest(self, owner: Owner) -> _Account:
        known = self._accounts.get(owner)
        changed = known is not None and known.wrote
        return await self._account(owner, 0.0 if changed else _LEAST_SECONDS)

    async def _account(self, owner: Owner, seconds: float) -> _Account:
        """Return what an owner had not longer ago than that."""
        account = self._accounts.setdefault(owner, _Account())
        self._accounts.move_to_end(owner)
        if len(self._accounts) > _MOST_OWNERS:
            self._accounts.popitem(last=False)
        if self._now() - account.asked_at >= seconds:
            if account.asking is None:
                account.asking = asyncio.create_task(self._ask(owner, account))
                account.asking.add_done_callback(_heard)
            await asyncio.shield(account.asking)  # the request that asked first may go away
        return account

    async def _ask(self, owner: Owner, account: _Account) -> StoredUse:
        began, wrote = self._now(), account.wrote
        try:
            account.use = await self._stored(owner)
        finally:
            account.asking = None
        account.asked_at = began
        account.wrote -= wrote
        return account.use
