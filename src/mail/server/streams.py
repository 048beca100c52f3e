"""Requests that last: streams that outlive their request function, and waiting for a run."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final, TypeVar

from starlette.requests import Request

from mail.core.events import TaskEvent
from mail.errors import AuthUnavailable, RoutingError, StoreError, Unauthenticated
from mail.net.sse import RETRY_MS, SSEEvent, frame
from mail.server.connections import Client, client_of
from mail.server.exchange import exchange_of

_log = logging.getLogger(__name__)

RECHECK_SECONDS: Final = 60.0
"""How often a long stream asks whether its reader's token still holds."""


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
                del event  # while the next one is awaited, nothing keeps this one
        except StoreError as error:
            _log.warning("a stream ends early: %s", error)
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()


async def relayed(
    events: AsyncGenerator[SSEEvent, None],
    held: AsyncExitStack,
    recheck: Callable[[], Awaitable[object]],
    *,
    pings: bool = True,
    every: float = RECHECK_SECONDS,
) -> AsyncGenerator[bytes, None]:
    """Yield the events of another server as this server's, framed; else as `streamed`.

    Args:
        events: The events, with the numbers that they have there.
        held: Closed with the stream.
        recheck: Raises `Unauthenticated` when the reader's token holds no more.
        pings: Whether heartbeats are events; if not, a comment keeps the connection alive.
        every: Seconds between two checks.
    """
    retry: int | None = RETRY_MS
    async with held, aclosing(events):
        checked = time.monotonic()
        try:
            async for event in events:
                if time.monotonic() - checked >= every:
                    if not await _still_allowed(recheck):
                        return
                    checked = time.monotonic()
                if event.event == "ping" and not pings:
                    yield b":\r\n\r\n"
                    continue
                # In JSON a line end is white space; here it would end the event.
                data = (event.data or "{}").replace("\n", " ")
                yield frame(event.event, data, number=event.id, retry=retry)
                retry = None
        except RoutingError as error:
            _log.warning("a stream of another swarm ends early: %s", error)


async def _still_allowed(recheck: Callable[[], Awaitable[object]]) -> bool:
    try:
        await recheck()
    except Unauthenticated:
        return False
    except AuthUnavailable:
        return True
    return True


CLIENT_GONE = 499
"""The status in the log of a request whose client left before its answer."""

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what ``work`` returns, or None when the client left first; then it is cancelled.

    The request is not counted as one at work any more: waiting is none.
    """
    exchange_of(request).waits()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a request is served in one
    client = client_of(request.scope)
    if client.gone:
        work.close()  # cancelling would meet whatever waits next, if the work is done already
        return None
    watch = None
    if client.cut is None:
        watch = asyncio.create_task(_watch(request, client), name="client watch")
    client.on_leaving = task.cancel  # as `asyncio.timeout` does; taken back below
    try:
        return await work
    except asyncio.CancelledError:
        if client.gone and task.uncancel() == 0:
            return None
        raise
    finally:
        client.on_leaving = None
        if watch is not None:
            watch.cancel()


async def _watch(request: Request, client: Client) -> None:
    """Find out that a client leaves where only receiving tells."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    client.leave()
