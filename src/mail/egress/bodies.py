"""Read an answer's body up to a limit, also when it was compressed."""

import zlib
from collections.abc import AsyncGenerator, Iterator
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
        raw: What arrives.
        max_bytes: How much of it is read, once expanded.

    Raises:
        FetchError: see `read_body`.
    """
    received = bytearray()
    async with aclosing(_plain(encoding, raw, max_bytes + 1)) as pieces:
        async for piece in pieces:
            received += piece
            if len(received) > max_bytes:
                return LimitedBody(bytes(received[:max_bytes]), complete=False)
    return LimitedBody(bytes(received), complete=True)


async def _plain(
    encoding: str, raw: AsyncGenerator[bytes, None], at_most: int
) -> AsyncGenerator[bytes, None]:
    encoding = encoding.strip().lower()
    is_plain = encoding in ("", "identity")
    if not is_plain and encoding not in ("gzip", "x-gzip", "deflate"):
        raise FetchError("the answer uses a compression that was not requested")
    unpacker = _Unpacker(at_most)
    async with aclosing(raw) as pieces:
        async for piece in pieces:
            if is_plain:
                yield piece
                continue
            for unpacked in unpacker.feed(piece):
                yield unpacked
            if unpacker.is_over:
                return
    unpacker.check_end()


class _Unpacker:
    """Expands compressed data, member by member.

    httpx would expand a whole piece at once; this stops at the limit, whatever the ratio.

    Attributes:
        is_over: The data has ended; what follows is something else.
    """

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._may_read = at_most * _PACKED_PER_BYTE + _PACKED_AT_LEAST
        self._unpack = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._begun = False
        self._rest = b""
        self.is_over = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Expand the next piece.

        Raises:
            FetchError: it is broken, or much longer than what it holds.
        """
        self._begun = True
        self._may_read -= len(piece)
        if self._may_read < 0:
            raise FetchError("the compressed answer is much longer than what it holds")
        left = self._rest + piece
        while left and self._goes_on(left):
            try:
                yield self._unpack.decompress(left, self._at_most)
            except zlib.error:
                raise FetchError("the compressed answer is invalid") from None
            left = self._unpack.unused_data

    def check_end(self) -> None:
        """Check that nothing is missing at the end.

        Raises:
            FetchError: the data ends too early.
        """
        if self._begun and not self._unpack.eof:
            raise FetchError("the compressed answer is incomplete")

    def _goes_on(self, left: bytes) -> bool:
        """Tell whether to expand what is left, which may begin another member."""
        self._rest = b""
        if not self._unpack.eof:
            return True
        if left == _MEMBER[:1]:  # one byte does not tell
            self._rest = left
            return False
        if not left.startswith(_MEMBER):
            self.is_over = True
            return False
        self._unpack = zlib.decompressobj(_GZIP)
        return True
