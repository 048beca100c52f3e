"""What one caller may take at once: requests in a short time, running tasks, open streams; and how
many streams all callers have together.

The library knows no such limits; they act at the HTTP edge only (ruling 40).
"""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Set
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

from mail.auth.callers import Caller
from mail.config.server import LimitsConfig
from mail.server.errors import RETRY_AFTER, QuotaExceeded, ServerBusy

__all__ = ["MAX_BUCKETS", "Quotas"]

MAX_BUCKETS: Final = 10_000
"""Callers whose request rate is remembered; the one that was quiet for longest is forgotten."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class Quotas:
    """The callers' shares. Everything raises `QuotaExceeded` before anything is begun.

    Args:
        limits: ``request_rate`` and ``request_burst``, ``max_running_tasks``, ``max_streams`` and
            ``max_open_streams``; 0 lifts a limit.
        now: A monotonic clock in seconds.
    """

    def __init__(self, limits: LimitsConfig, now: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._now = now
        self._buckets: OrderedDict[Caller, _Bucket] = OrderedDict()
        self._messages: dict[Caller, list[str]] = {}
        self._streams: Counter[Caller] = Counter()
        self._repeats: Counter[Caller] = Counter()
        self._bodies: Counter[Caller] = Counter()

    def request(self, caller: Caller) -> None:
        """Count a request against the caller's rate."""
        rate, burst = self._limits.request_rate, self._limits.request_burst
        if not rate:
            return
        now = self._now()
        bucket = self._buckets.setdefault(caller, _Bucket(burst, now))
        self._buckets.move_to_end(caller)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(burst, bucket.tokens + (now - bucket.filled_at) * rate)
        bucket.filled_at = now
        if bucket.tokens < 1:
            wait = math.ceil((1 - bucket.tokens) / rate)
            raise QuotaExceeded(f"more than {rate:g} requests a second; slow down", wait)
        bucket.tokens -= 1

    @contextmanager
    def body(self, caller: Caller) -> Iterator[None]:
        """Hold one of the caller's places for a request whose body is still coming.

        There are as many as requests in a burst: bodies that trickle in keep none from others.
        """
        limit = self._limits.request_burst if self._limits.request_rate else 0
        what = f"{limit} requests whose bodies are still coming"
        with _counted(self._bodies, caller, limit, what, "send them whole"):
            yield

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
        if 0 < self._limits.max_open_streams <= self.open_streams:
            raise ServerBusy("the server has as many open streams as it takes; try again later")
        limit = self._limits.max_streams
        with _counted(self._streams, caller, limit, f"{limit} streams open", "close one"):
            yield

    @contextmanager
    def repeat(self, caller: Caller) -> Iterator[None]:
        """Hold one of the caller's places for a repeated message until its answer is complete.

        There are as many as for messages, and they are others: whoever lost all of its answers can
        ask for all of them again at once. Without a limit one caller's repeats of one message that
        takes long could take every request that the server serves at a time.
        """
        limit = self._limits.max_running_tasks
        with _counted(self._repeats, caller, limit, f"{limit} repeats waiting", "wait for one"):
            yield

    @asynccontextmanager
    async def message(
        self, caller: Caller, task_id: str, running: Callable[[], Awaitable[Set[str]]]
    ) -> AsyncIterator[None]:
        """Hold one of the caller's places for a message until its answer is complete.

        A task that runs without anybody waiting for it takes a place, too.

        Args:
            caller: Who sends the message.
            task_id: The task that it belongs to.
            running: Reads which tasks of the caller are running.
        """
        limit = self._limits.max_running_tasks
        tasks = await running() if limit else set()
        waiting = self._messages.get(caller, [])
        taken = tasks | set(waiting)
        if limit and (len(waiting) >= limit or (task_id not in taken and len(taken) >= limit)):
            raise _at_once(f"{limit} tasks running", "wait for one")
        held = self._messages.setdefault(caller, [])
        held.append(task_id)
        try:
            yield
        finally:
            held.remove(task_id)
            if not held:
                del self._messages[caller]


@contextmanager
def _counted(
    held: Counter[Caller], caller: Caller, limit: int, what: str, instead: str
) -> Iterator[None]:
    if 0 < limit <= held[caller]:
        raise _at_once(what, instead)
    held[caller] += 1
    try:
        yield
    finally:
        held[caller] -= 1
        if not held[caller]:
            del held[caller]


def _at_once(what: str, instead: str) -> QuotaExceeded:
    return QuotaExceeded(
        f"you have {what}, which is the most at a time; {instead}", int(RETRY_AFTER)
    )
