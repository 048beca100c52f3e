"""Answers that may be large: encoded and sent piece by piece, so that they hold up nobody."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mail.core.pieces import PIECE, json_line, json_pieces
from mail.errors import StoreError
from mail.net.sse import PASS, Turn
from mail.server.middleware import CUT, WAITS

_JSON = "application/json"

_log = logging.getLogger("mail.server")


async def json_answer(content: object, status: int = 200) -> Response:
    """Return an answer of JSON, whatever its size."""
    return await piecewise(json_texts(content), status)


async def json_texts(content: object) -> AsyncGenerator[str, None]:
    """Yield a value as JSON."""
    for text in json_pieces(content):
        yield text


async def json_object(
    fields: Mapping[str, object] | AsyncGenerator[tuple[str, object], None],
) -> AsyncGenerator[str, None]:
    """Yield an object as JSON; a value may be an asynchronous generator of its JSON."""
    begun = False
    async with aclosing(_pairs(fields) if isinstance(fields, Mapping) else fields) as pairs:
        async for name, value in pairs:
            head = f"{',' if begun else '{'}{json_line(name)}:"
            begun = True
            if isinstance(value, AsyncGenerator):
                yield head
                async with aclosing(value):
                    async for text in value:
                        yield text
            else:
                for text in json_pieces(value):
                    yield head + text
                    head = ""
            del value  # the next one may be as large
    yield "}" if begun else "{}"


async def _pairs(fields: Mapping[str, object]) -> AsyncGenerator[tuple[str, object], None]:
    for pair in fields.items():
        yield pair


async def piecewise(
    texts: AsyncGenerator[str, None], status: int = 200, *, turn: Turn = PASS
) -> Response:
    """Return an answer of JSON whose text is made while it is sent.

    What fails before there are two pieces of it fails the request.

    Args:
        texts: The answer.
        status: Its status.
        turn: Awaited after each piece, before the next is made.
    """
    pieces = _joined(texts, turn)
    first = await anext(pieces)
    second = await anext(pieces, None)
    if second is None:
        return Response(first, status, media_type=_JSON)
    return _Piecewise(pieces, first, second, status=status)


async def _joined(texts: AsyncGenerator[str, None], turn: Turn) -> AsyncGenerator[bytes, None]:
    """Yield the texts as pieces; each took time, so others get their turn in between."""
    waiting: list[str] = []
    size = 0
    async with aclosing(texts):
        async for text in texts:
            waiting.append(text)
            size += len(text)
            if size >= PIECE:
                yield "".join(waiting).encode()
                waiting, size = [], 0
                await turn()
    if waiting:
        yield "".join(waiting).encode()


class _Piecewise(StreamingResponse):
    def __init__(self, pieces: AsyncGenerator[bytes, None], *begun: bytes, status: int) -> None:
        self._pieces = pieces
        super().__init__(self._all(list(begun)), status, media_type=_JSON)

    async def _all(self, begun: list[bytes]) -> AsyncIterator[bytes]:
        while begun:
            yield begun.pop(0)
        async for piece in self._pieces:
            yield piece

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer as fast as it is read; a request that only waits for that is no work."""
        scope["state"][WAITS]()
        async with aclosing(self._pieces):
            try:
                await super().__call__(scope, receive, send)
            except StoreError as error:
                _log.warning("an answer ends early: %s", error)
                cut = scope["state"].get(CUT)
                if cut is None:
                    raise
                cut()
