"""Retrying requests with an ``Idempotency-Key``, which the server processes only once."""

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
    """Retry limits: attempts in a row without a response, first and longest wait in seconds."""

    tries: int = 10
    first_wait: float = 0.2
    longest_wait: float = 5.0

    def wait(self, attempt: int, asked: float = 0.0) -> float:
        """Return the seconds to wait before an attempt.

        Args:
            attempt: The number of failed attempts so far.
            asked: The wait requested by the server (``retry:``), limited by `longest_wait`. The
                first attempt ignores it, because most interruptions are brief.
        """
        own = self.first_wait * 2.0**attempt
        return min(max(own, asked if attempt else 0.0), self.longest_wait)


async def repeated(send: Callable[[], Awaitable[T]], seconds: float, reconnect: Reconnect) -> T:
    """Send a request until it gets a response, as long as a retry can help and there is time.

    A retry can help after a lost connection, and after a 503 with ``Retry-After``.

    Args:
        send: Sends the request with its key.
        seconds: Time limit for all attempts together.
        reconnect: The retry limits.

    Raises:
        ClientHTTPError: from the last attempt, or because the time is up.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    attempt = 0
    while True:
        try:
            async with asyncio.timeout_at(ends):
                return await send()
        except TimeoutError as error:
            raise ClientHTTPError("MAIL client request failed: no response in time") from error
        except ClientHTTPError as error:
            wait = _wait_after(error, attempt, reconnect)
            if wait is None or attempt >= reconnect.tries or loop.time() + wait >= ends:
                raise
        attempt += 1
        await asyncio.sleep(wait)


def _wait_after(error: ClientHTTPError, attempt: int, reconnect: Reconnect) -> float | None:
    """Return how long to wait before a retry; None if a retry would not help."""
    import aiohttp

    if error.status == _UNAVAILABLE:
        return error.retry_after
    if isinstance(error.__cause__, TimeoutError | aiohttp.ClientSSLError):
        return None
    lost = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)
    return reconnect.wait(attempt) if isinstance(error.__cause__, lost) else None
