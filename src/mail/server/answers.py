"""Answers that may be large: made while they are sent, in one of the caller's places for them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mail.core.large import LARGE, in_turn, json_line, slices
from mail.errors import StoreError
from mail.server.connections import client_of
from mail.server.exchange import exchange_of
from mail.server.streams import CLIENT_GONE, while_connected

_JSON: Final = "application/json"

_log = logging.getLogger("mail.server")


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
