"""Read an answer's body up to a limit, also when it was compressed."""

import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from mail.egress.rules import FetchError

if TYPE_CHECKING:
    import httpx

_GZIP: Final = zlib.MAX_WBITS | 16
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_MEMBER: Final = b"\x1f\x8b"
# Compressed data is hardly ever longer than what it holds; this leaves room for the exceptions.
_PACKED_PER_BYTE: Final = 4
_PACKED_AT_LEAST: Final = 64 * 1024


@dataclass(frozen=True)
class LimitedBody:
    """The beginning of a body; ``complete`` when that is all of it."""

    data: bytes
    complete: bool


async def read_body(response: "httpx.Response", max_bytes: int) -> LimitedBody:
    """Read at most ``max_bytes`` of a streamed answer and no more than that into memory.

    What follows the end of compressed data is not read.

    Raises:
        FetchError: the body is compressed in a way that was not asked for, or broken.
    """
    if response.is_stream_consumed:  # an answer made in memory, by a test
        return LimitedBody(response.content[:max_bytes], len(response.content) <= max_bytes)
    encoding = response.headers.get("content-encoding", "identity")
    raw = cast("AsyncGenerator[bytes, None]", response.aiter_raw())
    return await read_limited(encoding, raw, max_bytes)


async def read_limited(
    encoding: str, raw: AsyncGenerator[bytes, None], max_bytes: int
) -> LimitedBody:
    """Read at most ``max_bytes`` of an answer in pieces, as `read_body` does.

    Args:
        encoding: The value of the header ``Content-Encoding``.
        raw: The bytes that arrive.
        max_bytes: The part that is read, once expanded.

    Raises:
        FetchError: see `read_body`.
    """
    received, encoding = bytearray(), encoding.strip().lower()
    async with aclosing(raw):
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise FetchError("the answer uses a compression that was not requested")
        plain = encoding in ("", "identity")
        async with aclosing(raw if plain else _unpacked(raw, max_bytes + 1)) as pieces:
            async for piece in pieces:
                received += piece
                if len(received) > max_bytes:
                    return LimitedBody(bytes(received[:max_bytes]), complete=False)
    return LimitedBody(bytes(received), complete=True)


async def _unpacked(
    packed: AsyncGenerator[bytes, None], at_most: int
) -> AsyncGenerator[bytes, None]:
    """Yield what compressed data holds, member by member.

    httpx would expand a whole piece at once; this stops at the limit, whatever the ratio.
    """
    unpack, left, begun = zlib.decompressobj(_GZIP_OR_ZLIB), b"", False
    may_read = at_most * _PACKED_PER_BYTE + _PACKED_AT_LEAST
    async for piece in packed:
        begun = True
        may_read -= len(piece)
        if may_read < 0:
            raise FetchError("the compressed answer is much longer than what it holds")
        left += piece
        while left:
            if unpack.eof:
                if left == _MEMBER[:1]:  # one byte does not tell
                    break
                if not left.startswith(_MEMBER):
                    return  # what follows is something else
                unpack = zlib.decompressobj(_GZIP)
            try:
                unpacked = unpack.decompress(left, at_most)
            except zlib.error:
                raise FetchError("the compressed answer is invalid") from None
            yield unpacked
            left = unpack.unused_data
    if begun and not unpack.eof:
        raise FetchError("the compressed answer is incomplete")
