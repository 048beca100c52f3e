"""Trying a request with an ``Idempotency-Key`` again: the server carries it out once anyway."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from mail.errors import ClientHTTPError

__all__ = ["Reconnect", "repeated"]

T = TypeVar("T")

_UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True)
class Reconnect:
    """How often to try in a row without a sign of life; first and longest wait in seconds."""

    tries: int = 10
    first_wait: float = 0.2
    longest_wait: float = 5.0

    def wait(self, attempt: int, asked: float = 0.0) -> float:
        """Return the wait before the attempt (from 0).

        Args:
            attempt: How many failed before.
            asked: What the server asked for (its ``retry:``); the first attempt does not wait for
                it, because most breaks are over at once, and `longest_wait` bounds it.
        """
        own = self.first_wait * 2.0**attempt
        return min(max(own, asked if attempt else 0.0), self.longest_wait)


async def repeated(send: Callable[[], Awaitable[T]], seconds: float, reconnect: Reconnect) -> T:
    """Send a request until it is answered, while a repeat can help and there is time.

    It helps after a lost connection, and after a 503 that says when to come back.

    Args:
        send: Sends the request, with its key.
        seconds: How long all of it may take.
        reconnect: How often to try.

    Raises:
        ClientHTTPError: what the last attempt raised, or that the time is up.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    attempt = 0
    while True:
        try:
            async with asyncio.timeout_at(ends):
                return await send()
        except TimeoutError as error:
            raise ClientHTTPError("MAIL client request failed: no answer in time") from error
        except ClientHTTPError as error:
            wait = _wait_after(error, attempt, reconnect)
            if wait is None or attempt >= reconnect.tries or loop.time() + wait >= ends:
                raise
        attempt += 1
        await asyncio.sleep(wait)


def _wait_after(error: ClientHTTPError, attempt: int, reconnect: Reconnect) -> float | None:
    """Return how long to wait before a repeat; None when it would not help."""
    import aiohttp

    if error.status == _UNAVAILABLE:
        return error.retry_after
    if isinstance(error.__cause__, TimeoutError | aiohttp.ClientSSLError):
        return None
    lost = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)
    return reconnect.wait(attempt) if isinstance(error.__cause__, lost) else None
