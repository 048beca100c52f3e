"""Streams that outlive the request function that began them."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from starlette.requests import Request

from mail.core.events import TaskEvent
from mail.errors import AuthUnavailable, ProtocolError, StoreError, Unauthenticated

__all__ = ["MAX_EVENT_ID_DIGITS", "RECHECK_SECONDS", "last_event_id", "streamed"]

MAX_EVENT_ID_DIGITS: Final = 18

_log = logging.getLogger(__name__)

RECHECK_SECONDS: Final = 60.0
"""How often a long stream asks whether its reader's token still holds."""


def last_event_id(request: Request) -> int:
    """Read where a reader stopped; the header of a reconnection outranks the first URL.

    Raises:
        ProtocolError: one of the two is not the number of an event.
    """
    said = (request.headers.get("last-event-id"), request.query_params.get("after"))
    numbers = [text for text in said if text]
    for text in numbers:
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_EVENT_ID_DIGITS):
            raise ProtocolError("Last-Event-ID and ?after= must be the number of an event")
    return int(numbers[0]) if numbers else 0


async def streamed(
    events: AsyncIterator[TaskEvent],
    held: AsyncExitStack,
    recheck: Callable[[], Awaitable[object]],
    *,
    every: float = RECHECK_SECONDS,
) -> AsyncIterator[TaskEvent]:
    """Yield the events, and let go of what the stream holds when it ends or is left.

    A stream that cannot be read on, because the store fails, ends without a last event: its reader
    comes back with ``Last-Event-ID``, and is told then when to try again.

    Args:
        events: The events, with a ``ping`` now and then.
        held: Closed with the stream.
        recheck: Raises `Unauthenticated` when the reader's token holds no more; that ends the
            stream. An authority that does not answer ends nothing.
        every: Seconds between two checks.
    """
    async with held:
        checked = time.monotonic()
        try:
            async for event in events:
                if time.monotonic() - checked >= every:
                    if not await _still_allowed(recheck):
                        return
                    checked = time.monotonic()
                yield event
        except StoreError as error:
            _log.warning("a stream ends early: %s", error)
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()


async def _still_allowed(recheck: Callable[[], Awaitable[object]]) -> bool:
    try:
        await recheck()
    except Unauthenticated:
        return False
    except AuthUnavailable:
        return True
    return True
