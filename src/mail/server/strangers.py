"""Requests without a valid token: so many a second are answered for one address."""

import asyncio
import time
from ipaddress import IPv6Address
from typing import Final

from starlette.types import Scope

from mail.server.quotas import Rate

ALWAYS_ANSWERED: Final = frozenset({"/", "/health"})
"""Answered however busy the server is: who looks after it must not take it for dead.

Nobody needs a token for them, so they take no place of others' either.
"""
_ANONYMOUS_BURST: Final = 500
"""A console is 20 requests without a token, and many of its users may be behind one address."""
_ANONYMOUS_WAIT: Final = 10.0
_HEALTH_WAIT: Final = 0.5
_APART_SECONDS: Final = 0.001


class Strangers:
    """Who sends requests without a valid token: so many a second are answered for each address.

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
