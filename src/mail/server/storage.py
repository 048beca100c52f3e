"""What each caller may store: bytes, and tasks that are open. The truth is in the store.

It is read now and then, and what is accepted meanwhile is added up here; nobody is refused before
it has been read again.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from starlette.requests import Request

from mail.config.server import LimitsConfig
from mail.db.base import Owner, Store, StoredUse, SweepRecords
from mail.server.errors import RETRY_AFTER, QuotaExceeded, StorageFull

__all__ = ["LetterShares", "StorageShares", "declared_size"]

_FRESH_SECONDS: Final = 10.0
_LEAST_SECONDS: Final = 1.0
_MOST_OWNERS: Final = 10_000
_RESERVE: Final = 2
"""So many times their share is what callers may reach by answering tasks that wait for them."""


def declared_size(request: Request) -> int:
    """Return how many bytes a request says that its body has; 0 if it comes in chunks."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


@dataclass(slots=True)
class _Known:
    """What an owner had, when that was read, and what was accepted since."""

    use: StoredUse
    read_at: float
    bytes: int = 0
    tasks: int = 0


class StorageShares:
    """The shares of all callers.

    Args:
        store: Where their tasks and memories are.
        limits: ``max_stored_bytes`` and ``max_open_tasks``; 0 lifts a limit.
        now: A monotonic clock in seconds.
    """

    def __init__(
        self,
        store: SweepRecords,
        limits: LimitsConfig,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._limits = limits
        self._now = now
        self._known: OrderedDict[Owner, _Known] = OrderedDict()
        self._reading: dict[Owner, asyncio.Task[_Known]] = {}

    async def admit(self, owner: Owner, size: int, *, opens: bool, resumes: bool = False) -> None:
        """Take a message into account, or refuse it.

        Args:
            owner: Whose task it is for.
            size: Its bytes.
            opens: Its task is not open yet.
            resumes: It answers a task that waits for it, which has a reserve.

        Raises:
            StorageFull: the owner stores as much as one may.
            QuotaExceeded: the owner has as many open tasks as one may.
        """
        if not (self._limits.max_stored_bytes or self._limits.max_open_tasks):
            return
        known = await self._recent(owner, _FRESH_SECONDS)
        if self._problem(known, opens=opens, resumes=resumes):
            known = await self._recent(owner, _LEAST_SECONDS)
        problem = self._problem(known, opens=opens, resumes=resumes)
        if problem is not None:
            raise problem
        known.bytes += size
        known.tasks += opens

    def forget(self, owner: Owner) -> None:
        """Read anew what an owner has: something was deleted."""
        self._known.pop(owner, None)
        self._reading.pop(owner, None)

    async def _recent(self, owner: Owner, seconds: float) -> _Known:
        """Return what the store said so many seconds ago, or says now."""
        known = self._known.get(owner)
        if known is None or self._now() - known.read_at > seconds:
            known = await self._read(owner)
        self._known[owner] = known
        self._known.move_to_end(owner)
        if len(self._known) > _MOST_OWNERS:
            self._known.popitem(last=False)
        return known

    async def _read(self, owner: Owner) -> _Known:
        """Ask the store. Whoever comes meanwhile gets the same answer, or the same failure.

        A task of its own asks, because the request that began it may go away.
        """
        reading = self._reading.get(owner)
        if reading is None:
            reading = asyncio.create_task(self._ask(owner), name="storage look-up")
            self._reading[owner] = reading
            reading.add_done_callback(partial(self._have_read, owner))
        return await asyncio.shield(reading)

    async def _ask(self, owner: Owner) -> _Known:
        return _Known(await self._store.stored_use(owner), self._now())

    def _have_read(self, owner: Owner, reading: "asyncio.Task[_Known]") -> None:
        if self._reading.get(owner) is reading:
            del self._reading[owner]
        if not reading.cancelled():
            reading.exception()  # every request may have gone: no "never retrieved" warning

    def _problem(
        self, known: _Known, *, opens: bool, resumes: bool
    ) -> StorageFull | QuotaExceeded | None:
        most = self._limits.max_stored_bytes
        taken = known.use.bytes + known.bytes
        if 0 < most * (_RESERVE if resumes else 1) <= taken:
            return StorageFull(self._full(taken, most))
        most, there = self._limits.max_open_tasks, known.use.open_tasks + known.tasks
        if opens and not resumes and 0 < most <= there:
            return QuotaExceeded(
                f"you have {there:,} running, queued and paused tasks, and the limit is {most:,}; "
                "answer, cancel or delete some, or raise [server.limits] max_open_tasks",
                int(RETRY_AFTER),
            )
        return None

    def _full(self, taken: int, most: int) -> str:
        return (
            f"your tasks and memories take {taken:,} bytes, and the limit is {most:,}; delete "
            "what you do not need (DELETE /tasks/{task_id}, "
            "DELETE /v1/responses/{response_id}), or raise [server.limits] max_stored_bytes"
        )


class LetterShares(StorageShares):
    """What each participant may store of letters, threads and files.

    Args:
        store: Where they are.
        limits: ``max_stored_bytes``; 0 lifts it.
        now: A monotonic clock in seconds.
    """

    def __init__(
        self, store: Store, limits: LimitsConfig, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(store, limits, now)
        self._letters = store

    async def admit_letters(self, swarm: str, name: str, size: int) -> None:
        """Take what a mailbox stores into account, or refuse it.

        Raises:
            StorageFull: it stores as much as one may.
        """
        await self.admit(Owner(swarm, "", name), size, opens=False)

    def forget_letters(self, swarm: str, name: str) -> None:
        """Read anew what a mailbox has: something was deleted."""
        self.forget(Owner(swarm, "", name))

    async def _ask(self, owner: Owner) -> _Known:
        taken = await self._letters.letter_bytes(owner.swarm, owner.id)
        return _Known(StoredUse(bytes=taken, tasks=0, open_tasks=0), self._now())

    def _full(self, taken: int, most: int) -> str:
        return (
            f"your messages, threads and files take {taken:,} bytes, and the limit is {most:,}; "
            "delete files (DELETE /files/{file_id}), or let an operator have old messages go "
            "([server.retention] letters_days) or raise [server.limits] max_stored_bytes"
        )
