"""The requests that are at work, and those that wait for their turn.

Of each caller's a few are at work; requests without a valid token are so many a second for each
address.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Hashable
from ipaddress import IPv6Address
from typing import Final, Protocol

from starlette.types import Scope

from mail.server.errors import RETRY_AFTER, QuotaExceeded
from mail.server.quotas import Rate

AT_ONCE: Final = 8
"""Requests of one caller that are at work at a time.

One that only waits, for the rest of its body or for a run, is not. More would be no faster, and
whoever else asks would wait for all of them at each step.
"""
MAX_WAITING: Final = 1000
"""Further requests of the caller that wait for their turn."""

ALWAYS_ANSWERED: Final = frozenset({"/", "/health", "/metrics"})
"""Answered however busy the server is: who looks after it must not take it for dead."""
_ANONYMOUS_BURST: Final = 500
"""A console is 20 requests without a token, and many of its users may be behind one address."""
_ANONYMOUS_WAIT: Final = 10.0
_HEALTH_WAIT: Final = 0.5
_APART_SECONDS: Final = 0.001


class HasCaller(Protocol):
    """A request."""

    @property
    def caller(self) -> Hashable:
        """The caller; None until that is known."""


class AtWork:
    """The requests at work. Of one caller's, `AT_ONCE` are, and others wait in their order.

    Args:
        limit: The largest number for all callers together; 0 for any number.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        share = limit - limit // 4  # one caller leaves a quarter to others
        self._share = min(share, AT_ONCE) if limit else AT_ONCE
        self._whose: dict[HasCaller, Hashable] = {}
        self._each: Counter[Hashable] = Counter()
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @property
    def is_full(self) -> bool:
        """Tell whether no more may begin."""
        return 0 < self.limit <= len(self._whose)

    def add(self, exchange: HasCaller) -> None:
        """Count a request, for its caller if that is known."""
        caller = self._whose[exchange] = exchange.caller
        self._each[caller] += 1

    def discard(self, exchange: HasCaller) -> None:
        """Count a request no more; the next of its caller's begins."""
        if exchange not in self._whose:
            return
        caller = self._whose.pop(exchange)
        self._each[caller] -= 1
        if not self._each[caller]:
            del self._each[caller]
        self._let_begin(caller)

    async def begin(self, exchange: HasCaller) -> None:
        """Count a request once it is its turn among those of its caller, if that is known.

        Raises:
            QuotaExceeded: too many of the caller's wait already.
        """
        caller = exchange.caller
        if caller is not None and (caller in self._queues or self._each[caller] >= self._share):
            await self._wait(caller)
        self.add(exchange)

    async def _wait(self, caller: Hashable) -> None:
        queue = self._queues.setdefault(caller, deque())
        if len(queue) >= MAX_WAITING:
            raise QuotaExceeded(
                f"{MAX_WAITING} of your requests wait for {self._share} that are at work, which is "
                "the limit; wait for some, or send fewer at a time",
                int(RETRY_AFTER),
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was its turn already
                self._let_begin(caller)
            raise

    def _let_begin(self, caller: Hashable) -> None:
        queue = self._queues.get(caller)
        while queue and self._each[caller] < self._share:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if not queue:
            self._queues.pop(caller, None)


class Strangers:
    """Clients without a valid token: so many requests a second are answered for each address.

    Those beyond the rate wait, for a bounded time: many may be behind one address. Addresses of
    IPv6 count by their network, because a host has all of it.

    Args:
        rate: Answers a second, after a burst; 0 for any number.
    """

    def __init__(self, rate: float) -> None:
        self._rate = Rate(rate, _ANONYMOUS_BURST, time.monotonic)
        self._next = asyncio.Lock() if rate else None

    def delay(self, scope: Scope) -> float:
        """Count one more answer; return how many seconds it waits."""
        address = _network(scope)
        seconds = self._rate.wait(address)
        if seconds < _ANONYMOUS_WAIT:  # else it would be longer than that for whoever comes later
            self._rate.take(address, 1)
        most = _HEALTH_WAIT if scope["path"] in ALWAYS_ANSWERED else _ANONYMOUS_WAIT
        return min(seconds, most)

    async def one_after_another(self) -> None:
        """Wait until the last one is a moment ago.

        In between the loop serves others, and threads that commit get the interpreter.
        """
        if self._next is None:
            return
        await self._next.acquire()
        asyncio.get_running_loop().call_later(_APART_SECONDS, self._next.release)


def _network(scope: Scope) -> str:
    """Return the address that a request came from, or the network of one of IPv6."""
    host: str = (scope.get("client") or ("",))[0]
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address.packed[:8].hex())
