"""What each caller may store: bytes, and tasks that are open. The truth is in the store.

It is read now and then; between two reads, what the engine commits is added up here. Nobody is
refused by a sum, only by what the store says after everything that is known to have changed.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Final

from mail.config.server import LimitsConfig
from mail.db.records import Owner, StoredUse
from mail.db.store import Store
from mail.db.sweep import SweepVerbs
from mail.server.errors import RETRY_AFTER, QuotaExceeded, StorageFull

_FRESH_SECONDS: Final = 10.0
_LEAST_SECONDS: Final = 1.0
_LITTLE: Final = 4 * 1024 * 1024
"""Bytes that are soon summed up."""
_PAUSES: Final = (0.0, 0.01, 0.03, 0.1, 0.3)
"""Before each time that the store is asked whether somebody is to be refused."""
_MOST_OWNERS: Final = 10_000
_RESERVE: Final = 2
"""So many times their share is what callers may reach with tasks that run, or wait for them."""


@dataclass(slots=True, eq=False)
class _Account:
    """What an owner had, when that was read, and what has changed since the read began.

    Attributes:
        use: What the store said.
        read_at: When it said so.
        wrote: Bytes that commits have added since.
        opened: Tasks that were opened since.
        arriving: Tasks that are about to be opened.
        arriving_bytes: Bytes of the messages that are about to be stored.
        changes: Counts what is known to have changed.
        seen: What ``changes`` was when the newest read began.
        reading: The read that runs.
    """

    use: StoredUse = field(default_factory=lambda: StoredUse(0, 0, 0))
    read_at: float = -math.inf
    wrote: int = 0
    opened: int = 0
    arriving: int = 0
    arriving_bytes: int = 0
    changes: int = 0
    seen: int = -1
    reading: "asyncio.Task[None] | None" = None

    @property
    def bytes(self) -> int:
        """What the owner stores by now, or a little more."""
        return self.use.bytes + self.wrote + self.arriving_bytes

    @property
    def counted(self) -> StoredUse:
        """What the owner has by now, or a little more."""
        return StoredUse(
            self.bytes,
            self.use.tasks,
            self.use.open_tasks + self.opened + self.arriving,
        )


@dataclass(slots=True, eq=False)
class Admission:
    """A message that has been let in; it counts until what stores it has told of that."""

    account: _Account
    size: int
    opens: bool

    def __enter__(self) -> None:
        self.account.arriving += self.opens
        self.account.arriving_bytes += self.size

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.account.arriving -= self.opens
        self.account.arriving_bytes -= self.size
        self.account.opened += self.opens and kind is None
        self.account.changes += 1


def _have_read(account: _Account, reading: "asyncio.Task[None]") -> None:
    account.reading = None
    if not reading.cancelled():
        reading.exception()  # every request may have gone: no "never retrieved" warning


class StorageShares:
    """The shares of all callers.

    Args:
        store: Where their tasks, memories and idempotency keys are.
        limits: ``max_stored_bytes`` and ``max_open_tasks``; 0 lifts a limit.
        now: A monotonic clock in seconds.
    """

    def __init__(
        self,
        store: SweepVerbs,
        limits: LimitsConfig,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._limits = limits
        self._now = now
        self._accounts: OrderedDict[Owner, _Account] = OrderedDict()

    async def admit(
        self, owner: Owner, size: int, *, opens: bool, resumes: bool = False
    ) -> Admission:
        """Let a message in, or refuse it. It is stored in a ``with`` block of what is returned.

        Args:
            owner: Whose task it is for.
            size: Its bytes.
            opens: Its task is not open yet.
            resumes: It answers a task that waits for it, which has a reserve.

        Raises:
            StorageFull: the owner stores as much as one may.
            QuotaExceeded: the owner has as many open tasks as one may.
        """
        opens = opens and not resumes  # a task that waits is open
        if not (self._limits.max_stored_bytes or self._limits.max_open_tasks):
            return Admission(_Account(), size, opens)
        account = await self._recent(owner)
        if self._problem(account.counted, opens=opens, reserve=resumes) is not None:
            problem = await self._confirmed(owner, account, opens=opens, reserve=resumes)
            if problem is not None:
                raise problem
        return Admission(account, size, opens)

    async def use(self, owner: Owner) -> StoredUse:
        """Return what an owner has; to read that of one with much takes long, so it may be old."""
        account = await self._recent(owner)
        is_due = account.bytes < _LITTLE or self._now() - account.read_at > _LEAST_SECONDS
        if is_due and account.seen != account.changes:
            await self._read(owner, account)
        return account.use

    def wrote(self, owner: Owner, size: int) -> None:
        """Count what a commit has added to what an owner stores."""
        account = self._accounts.get(owner)
        if account is not None:
            account.wrote += size
            account.changes += 1

    def is_full(self, owner: Owner) -> bool:
        """Tell whether an owner's tasks seem to have used their reserve, too."""
        most, account = self._limits.max_stored_bytes * _RESERVE, self._accounts.get(owner)
        return account is not None and 0 < most <= account.bytes

    async def refusal(self, owner: Owner) -> str | None:
        """Return why no task of an owner goes on, because of what they all store; None if it may.

        Raises:
            StoreError: the store fails.
        """
        account = self._accounts.get(owner) or await self._recent(owner)
        problem = await self._confirmed(owner, account, opens=False, reserve=True)
        return None if problem is None else str(problem)

    def forget(self, owner: Owner) -> None:
        """Read anew what an owner has: something was deleted."""
        account = self._accounts.get(owner)
        if account is not None:
            account.read_at = -math.inf
            account.changes += 1

    async def _recent(self, owner: Owner) -> _Account:
        """Return what the store said not long ago, or says now."""
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = _Account()
            if len(self._accounts) > _MOST_OWNERS:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(owner)
        if self._now() - account.read_at > _FRESH_SECONDS:
            await self._read(owner, account)
        return account

    async def _confirmed(
        self, owner: Owner, account: _Account, *, opens: bool, reserve: bool
    ) -> StorageFull | QuotaExceeded | None:
        """Return what is wrong according to the store, when nothing has changed since it said so.

        While other messages arrive, they may be in what it says or not: it is asked again.
        """
        problem = None
        for pause in _PAUSES:
            if pause:
                await asyncio.sleep(pause)
            old = self._now() - account.read_at > _LEAST_SECONDS
            if old or account.seen != account.changes:
                await self._read(owner, account)
            problem = self._problem(account.counted, opens=opens, reserve=reserve)
            stored = self._problem(account.use, opens=opens, reserve=reserve)
            if problem is None or (stored is not None and account.seen == account.changes):
                break
        return problem

    async def _read(self, owner: Owner, account: _Account) -> None:
        """Ask the store. Whoever comes meanwhile gets the same answer, or the same failure.

        A task of its own asks, because the request that began it may go away.
        """
        if account.reading is None:
            account.reading = asyncio.create_task(self._ask(owner, account), name="storage look-up")
            account.reading.add_done_callback(partial(_have_read, account))
        await asyncio.shield(account.reading)

    async def _ask(self, owner: Owner, account: _Account) -> None:
        seen, wrote, opened = account.changes, account.wrote, account.opened
        account.use = await self._stored(owner)
        account.read_at, account.seen = self._now(), seen
        account.wrote -= wrote
        account.opened -= opened

    async def _stored(self, owner: Owner) -> StoredUse:
        return await self._store.stored_use(owner)

    def _problem(
        self, use: StoredUse, *, opens: bool, reserve: bool
    ) -> StorageFull | QuotaExceeded | None:
        most = self._limits.max_stored_bytes
        if 0 < most * (_RESERVE if reserve else 1) <= use.bytes:
            return StorageFull(self._full(use.bytes, most))
        most = self._limits.max_open_tasks
        if opens and 0 < most <= use.open_tasks:
            return QuotaExceeded(
                f"you have {use.open_tasks:,} running, queued and paused tasks, and the limit is "
                f"{most:,}; answer, cancel or delete some, or raise [server.limits] max_open_tasks",
                int(RETRY_AFTER),
            )
        return None

    def _full(self, taken: int, most: int) -> str:
        return (
            "your tasks, memories and idempotency keys (which go after a week) "
            f"take {taken:,} bytes, and the limit is {most:,}; delete what "
            "you do not need (DELETE /tasks/{task_id}, "
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
        owner = Owner(swarm, "", name)
        with await self.admit(owner, size, opens=False):
            self.wrote(owner, size)

    def forget_letters(self, swarm: str, name: str) -> None:
        """Read anew what a mailbox has: something was deleted."""
        self.forget(Owner(swarm, "", name))

    async def _stored(self, owner: Owner) -> StoredUse:
        taken = await self._letters.letter_bytes(owner.swarm, owner.id)
        return StoredUse(bytes=taken, tasks=0, open_tasks=0)

    def _full(self, taken: int, most: int) -> str:
        return (
            f"your messages, threads and files take {taken:,} bytes, and the limit is {most:,}; "
            "delete files (DELETE /files/{file_id}), or let an operator have old messages go "
            "([server.retention] letters_days) or raise [server.limits] max_stored_bytes"
        )
