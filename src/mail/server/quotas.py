"""Limits on a caller's work at a time: bodies, queued tasks, streams, large answers, a lock.

And how many streams all callers have together.
The library knows no such limits; they act in the server only.
"""

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Set
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from mail.auth.callers import Caller
from mail.config.server import LimitsConfig
from mail.core.large import LARGE, LARGE_AT_ONCE
from mail.server.errors import RETRY_AFTER, QuotaExceeded, ServerBusy

PATIENCE_SECONDS: Final = 1.0
"""The longest wait of a body that comes too fast."""
MAX_UPLOADS: Final = 4
"""Files of one caller that may be arriving at a time."""
MAX_DOWNLOADS: Final = 16
"""Files that one caller may be reading at a time."""
MAX_OPEN_STREAMS: Final = 5000
"""Open streams of all callers."""
MAX_INFLIGHT: Final = 4 * 1024 * 1024
"""Bytes of one caller's bodies over 64 KiB in progress, and of its long messages that wait."""
BODY_BURST: Final = 32 * 1024 * 1024
"""Bytes of bodies of one caller that may come at once after a pause."""
_BODIES: Final = 64
"""Bodies of one caller that may be arriving at a time."""
MAX_BUCKETS: Final = 10_000
"""Callers whose request rate is remembered; the one that was quiet for longest is forgotten."""

_Places = WeakValueDictionary[Caller, asyncio.Semaphore]
K = TypeVar("K", bound=Hashable)


class Room:
    """Room for the large bodies of one caller, in parts of 64 KiB."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._all = MAX_INFLIGHT // LARGE
        self._parts = asyncio.Semaphore(self._all)

    async def take(self, size: int, give_back: list[Callable[[], object]]) -> None:
        """Take room for a body, part by part, and add what gives each back."""
        async with self._turn:
            for _ in range(min(self._all, math.ceil(size / LARGE))):
                await self._parts.acquire()
                give_back.append(self._give_back)

    def _give_back(self) -> None:
        self._parts.release()  # of this room: it lasts until all have given back


@dataclass(slots=True, eq=False)
class _Lock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    holders: int = 0


class KeyLocks(Generic[K]):
    """A lock for each key in use, and for no other: keys come from outside, so none may be kept.

    ``key in locks`` tells whether somebody holds it or waits for it.
    """

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


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class Rate:
    """So many units a second for each caller or address, after a burst; no limit with a rate of 0.

    The ``MAX_BUCKETS`` that came last are remembered.
    """

    def __init__(self, rate: float, burst: float, now: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._now = now
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def wait(self, caller: Hashable) -> float:
        """Return after how many seconds the caller may take more."""
        if not self._rate:
            return 0.0
        now = self._now()
        bucket = self._buckets.get(caller)
        if bucket is None:
            bucket = self._buckets[caller] = _Bucket(self._burst, now)
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(caller)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.filled_at) * self._rate)
        bucket.filled_at = now
        return max(0.0, (1 - bucket.tokens) / self._rate)

    def take(self, caller: Hashable, units: float) -> None:
        """Take units, more than there are if need be."""
        if bucket := self._buckets.get(caller):
            bucket.tokens -= units


class Quotas:
    """The callers' shares. Everything raises `QuotaExceeded` before anything is begun.

    Args:
        limits: ``body_rate``, ``max_queued_tasks`` and ``max_streams``; 0 lifts a limit.
        now: A monotonic clock in seconds.
    """

    def __init__(self, limits: LimitsConfig, now: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._bytes = Rate(limits.body_rate, BODY_BURST, now)
        self._streams: Counter[Caller] = Counter()
        self._uploads: Counter[Caller] = Counter()
        self._downloads: Counter[Caller] = Counter()
        self._bodies: _Places = WeakValueDictionary()
        self._rooms: WeakValueDictionary[Caller, Room] = WeakValueDictionary()
        self._places: _Places = WeakValueDictionary()

    def body_bytes(self, caller: Caller, size: int) -> float:
        """Count a request's body against the caller's rate; return how long it has to wait.

        One body may be larger than what is left of the rate; those after it wait for that.
        """
        wait = self._bytes.wait(caller)
        if wait > PATIENCE_SECONDS:
            raise QuotaExceeded(
                f"more than {self._limits.body_rate:,.10g} bytes of request bodies a second; slow "
                "down, or raise [server.limits] body_rate",
                math.ceil(wait),
            )
        self._bytes.take(caller, size)
        return wait

    def owe_bytes(self, caller: Caller, size: int) -> None:
        """Count what a body had more than it was said to have."""
        self._bytes.take(caller, size)

    def file_bytes(self, caller: Caller, size: int) -> float:
        """Count a piece of a file against the same rate; return how long the next one waits."""
        wait = self._bytes.wait(caller)
        self._bytes.take(caller, size)
        return wait

    def upload(self, caller: Caller) -> AbstractContextManager[None]:
        """Hold one of the caller's places for files that are still coming."""
        what = f"{MAX_UPLOADS} files that are still arriving"
        return _counted(self._uploads, caller, MAX_UPLOADS, what, "wait for one")

    def download(self, caller: Caller) -> AbstractContextManager[None]:
        """Hold one of the caller's places for files that it is reading.

        What a socket takes and nobody reads, the system keeps: some megabytes for each.
        """
        what = f"{MAX_DOWNLOADS} files that are still on their way to you"
        return _counted(self._downloads, caller, MAX_DOWNLOADS, what, "read or close one")

    def bodies(self, caller: Caller) -> asyncio.Semaphore:
        """Return the places for bodies of a caller's that are still coming."""
        return _places(self._bodies, caller, _BODIES)

    def places(self, caller: Caller) -> asyncio.Semaphore:
        """Return the places for large answers, and pages of streams, that a caller reads."""
        return _places(self._places, caller, LARGE_AT_ONCE)

    def room(self, caller: Caller) -> Room:
        """Return the room for the large bodies of a caller; it lasts as long as somebody has it."""
        room = self._rooms.get(caller)
        if room is None:
            room = self._rooms[caller] = Room()
        return room

    def no_room(self) -> QuotaExceeded:
        """Return the refusal of a large body that has waited for room for long."""
        what = f"{MAX_INFLIGHT:,} bytes of large requests, and messages, that are still worked on"
        return _at_once(what, "wait for their answers")

    @property
    def open_streams(self) -> int:
        """Return how many streams are open."""
        return self._streams.total()

    @contextmanager
    def stream(self, caller: Caller) -> Iterator[None]:
        """Hold one of the caller's streams.

        Raises:
            ServerBusy: all callers together have as many as the server takes.
        """
        if self.open_streams >= MAX_OPEN_STREAMS:
            raise ServerBusy(
                f"the server has {MAX_OPEN_STREAMS} open streams, which is its limit; try again "
                "later"
            )
        limit = self._limits.max_streams
        what = f"{limit} open streams"
        with _counted(self._streams, caller, limit, what, "close one", "max_streams"):
            yield

    def message(
        self, caller: Caller, task_id: str, open_tasks: Set[str], elsewhere: int = 0
    ) -> None:
        """Refuse a message that would begin one more task than the caller may have open.

        Args:
            caller: The sender of the message.
            task_id: The task that it belongs to. One that is open already can be written to.
            open_tasks: The caller's tasks that are worked on here, or queued for that.
            elsewhere: The number of those at other servers.
        """
        running, queued = self._limits.max_running_tasks, self._limits.max_queued_tasks
        if 0 < queued <= len(open_tasks) + elsewhere - running and task_id not in open_tasks:
            raise _at_once(
                f"{running} running and {queued} queued tasks", "wait for one", "max_queued_tasks"
            )


def _places(held: _Places, caller: Caller, count: int) -> asyncio.Semaphore:
    """Return a caller's places, which last as long as somebody has them."""
    places = held.get(caller)
    if places is None:
        places = held[caller] = asyncio.Semaphore(count)
    return places


@contextmanager
def _counted(
    held: Counter[Caller], caller: Caller, limit: int, what: str, instead: str, setting: str = ""
) -> Iterator[None]:
    if 0 < limit <= held[caller]:
        raise _at_once(what, instead, setting)
    held[caller] += 1
    try:
        yield
    finally:
        held[caller] -= 1
        if not held[caller]:
            del held[caller]


def _at_once(what: str, instead: str, setting: str = "") -> QuotaExceeded:
    or_else = f", or raise [server.limits] {setting}" if setting else ""
    return QuotaExceeded(
        f"you have {what}, which is the limit; {instead}{or_else}", int(RETRY_AFTER)
    )
