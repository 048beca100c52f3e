"""Answers that take long: large ones, made while they are sent in one of the caller's places for
them; streams, which outlive their endpoint; and those that wait for a run.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mail.core.large import LARGE, in_turn, json_line, slices
from mail.errors import AuthUnavailable, RoutingError, StoreError, Unauthenticated
from mail.net.sse import RETRY_MS, SSEEvent, frame
from mail.server.connections import Client, client_of
from mail.server.exchange import exchange_of

_JSON: Final = "application/json"

_log = logging.getLogger(__name__)

E = TypeVar("E")

RECHECK_SECONDS: Final = 60.0
"""The interval at which a long stream checks its reader's token."""


async def streamed(
    events: AsyncGenerator[E, None],
    held: AsyncExitStack,
    recheck: Callable[[], Awaitable[object]],
    *,
    every: float = RECHECK_SECONDS,
) -> AsyncGenerator[E, None]:
    """Yield the events, and let go of what the stream holds when it ends or is left.

    A stream that cannot be read on, because the store or another swarm fails, ends without a last
    event: its reader comes back with ``Last-Event-ID``, and is told then when to try again.

    Args:
        events: The events, with a ``ping`` now and then.
        held: Closed with the stream.
        recheck: Raises `Unauthenticated` when the reader's token holds no more; that ends the
            stream. An authority that does not answer ends nothing.
        every: Seconds between two checks.
    """
    async with held, aclosing(events):
        checked = time.monotonic()
        try:
            async for event in events:
                if time.monotonic() - checked >= every:
                    with suppress(AuthUnavailable):
                        await recheck()
                    checked = time.monotonic()
                yield event
                del event  # while the next one is awaited, nothing keeps this one
        except Unauthenticated:
            return
        except (RoutingError, StoreError) as error:
            _log.warning("a stream ends early: %s", error)


async def relayed(
    events: AsyncGenerator[SSEEvent, None], *, pings: bool = True
) -> AsyncGenerator[bytes, None]:
    """Yield the events of another server as this server's, framed.

    Args:
        events: The events, with the numbers that they have there.
        pings: Whether heartbeats are events; if not, a comment keeps the connection alive.
    """
    retry: int | None = RETRY_MS
    async with aclosing(events):
        async for event in events:
            if event.event == "ping" and not pings:
                yield b":\r\n\r\n"
                continue
            # In JSON a line end is white space; here it would end the event.
            data = (event.data or "{}").replace("\n", " ")
            yield frame(event.event, data, number=event.id, retry=retry)
            retry = None


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


def as_response(answer: object) -> Response:
    """Return what an endpoint answers with as a response: JSON, unless it made one itself."""
    return answer if isinstance(answer, Response) else JSONResponse(answer)


async def json_answer(content: object, status: int = 200) -> Response:
    """Return an answer of JSON, whatever its size."""
    return Response(await json_text(content), status, media_type=_JSON)


async def json_text(value: object) -> str:
    """Return a value as JSON; a large one is made in its turn."""
    return await in_turn(_size(value), partial(json_line, value))


async def json_texts(value: object) -> AsyncGenerator[str, None]:
    """Yield a value as JSON."""
    for part in slices(await json_text(value)):
        yield part


async def json_list(items: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """Yield a list as JSON, of the JSON of its items."""
    begun = False
    async with aclosing(items):
        async for item in items:
            yield "," if begun else "["
            begun = True
            for part in slices(item):
                yield part
            del item  # the next one may be as large
    yield "]" if begun else "[]"


async def json_object(
    fields: Mapping[str, object] | AsyncGenerator[tuple[str, object], None],
) -> AsyncGenerator[str, None]:
    """Yield an object as JSON; a value may be an asynchronous generator of its JSON."""
    begun = False
    async with aclosing(_pairs(fields) if isinstance(fields, Mapping) else fields) as pairs:
        async for name, value in pairs:
            yield f"{',' if begun else '{'}{json_line(name)}:"
            begun = True
            texts = value if isinstance(value, AsyncGenerator) else json_texts(value)
            del value  # the next one may be as large
            async with aclosing(texts):
                async for text in texts:
                    yield text
    yield "}" if begun else "{}"


async def large_answer(
    request: Request, places: asyncio.Semaphore, texts: AsyncGenerator[str, None]
) -> Response:
    """Return an answer of JSON whose text is made while it is sent.

    What fails before there are two parts of it fails the request. One that waits for a place is not
    counted as a request at work any more, and is given up when the client leaves.

    Args:
        request: The request.
        places: One of these is held until the answer is sent.
        texts: The answer.
    """
    answer = _begun(_parts(places, texts))
    if not places.locked():
        return await answer
    response = await while_connected(request, answer)
    return Response(status_code=CLIENT_GONE) if response is None else response


@asynccontextmanager
async def in_place(request: Request, places: asyncio.Semaphore) -> AsyncGenerator[None, None]:
    """Hold one of the places while something large is read that is not answered with."""
    exchange = exchange_of(request)
    exchange.waits()
    async with places:
        await exchange.begins()
        yield


async def _begun(parts: AsyncGenerator[bytes, None]) -> Response:
    first = await anext(parts)
    second = await anext(parts, None)
    if second is None:
        return Response(first, media_type=_JSON)
    return _LargeAnswer(parts, first, second)


async def _parts(
    places: asyncio.Semaphore, texts: AsyncGenerator[str, None]
) -> AsyncGenerator[bytes, None]:
    """Yield the texts joined, but never many; others get their turn in between."""
    waiting: list[str] = []
    size = 0
    async with places, aclosing(texts):
        async for text in texts:
            waiting.append(text)
            size += len(text)
            if size >= LARGE:
                yield "".join(waiting).encode()
                waiting, size = [], 0
                await asyncio.sleep(0)
        if waiting:
            yield "".join(waiting).encode()


async def _pairs(fields: Mapping[str, object]) -> AsyncGenerator[tuple[str, object], None]:
    for pair in fields.items():
        yield pair


def _size(value: object) -> int:
    """Return about how many characters the texts of a value have."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 1


class _LargeAnswer(StreamingResponse):
    def __init__(self, parts: AsyncGenerator[bytes, None], *begun: bytes) -> None:
        self._parts = parts
        super().__init__(self._all(list(begun)), media_type=_JSON)

    async def _all(self, begun: list[bytes]) -> AsyncIterator[bytes]:
        while begun:
            yield begun.pop(0)
        async for part in self._parts:
            yield part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer as fast as it is read; a request that only waits for that is no work."""
        exchange_of(Request(scope)).waits()
        async with aclosing(self._parts):
            try:
                await super().__call__(scope, receive, send)
            except StoreError as error:
                _log.warning("an answer ends early: %s", error)
                cut = client_of(scope).cut
                if cut is None:
                    raise
                cut()
