"""Read an answer's body up to a limit, also when it was compressed."""

import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mail.utils.egress_rules import FetchError

if TYPE_CHECKING:
    import httpx

__all__ = ["LimitedBody", "read_body"]

_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32


@dataclass(frozen=True)
class LimitedBody:
    """The beginning of a body; ``complete`` when that is all of it."""

    data: bytes
    complete: bool


async def read_body(response: "httpx.Response", max_bytes: int) -> LimitedBody:
    """Read at most ``max_bytes`` of a streamed answer and no more than that into memory.

    Raises:
        FetchError: the body is compressed in a way that was not asked for, or broken.
    """
    if response.is_stream_consumed:  # an answer made in memory, by a test
        return LimitedBody(response.content[:max_bytes], len(response.content) <= max_bytes)
    pieces = _plain(response, max_bytes + 1)
    received = bytearray()
    async for piece in pieces:
        received += piece
        if len(received) > max_bytes:
            return LimitedBody(bytes(received[:max_bytes]), complete=False)
    return LimitedBody(bytes(received), complete=True)


async def _plain(response: "httpx.Response", at_most: int) -> AsyncIterator[bytes]:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        async for piece in response.aiter_raw():
            yield piece
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise FetchError("the answer is compressed in a way that was not asked for")
    # httpx would expand a whole piece at once; this stops at the limit, whatever the ratio.
    unpack = zlib.decompressobj(_GZIP_OR_ZLIB)
    begun = False
    try:
        async for piece in response.aiter_raw():
            begun = True
            yield unpack.decompress(piece, at_most)
    except zlib.error:
        raise FetchError("the compressed answer is broken") from None
    if begun and not unpack.eof:
        raise FetchError("the compressed answer is cut short")
