"""Compressed bodies: every member is read, what follows is not, and nothing goes on for ever."""

import gzip
import zlib
from collections.abc import AsyncIterator, Iterable

import httpx
import pytest

from mail.egress.bodies import LimitedBody, read_body
from mail.egress.rules import FetchError

LIMIT = 10_000


class Pieces(httpx.AsyncByteStream):
    """A body that counts the pieces that were taken from it."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.taken += 1
            yield piece


async def read(pieces: Pieces, encoding: str = "gzip") -> LimitedBody:
    """Read a body as it comes from a server."""
    headers = {"Content-Encoding": encoding}
    return await read_body(httpx.Response(200, headers=headers, stream=pieces), LIMIT)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_all_members_are_read_however_they_are_cut(size: int) -> None:
    data = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    cut = [data[start : start + size] for start in range(0, len(data), size)]
    assert await read(Pieces(cut)) == LimitedBody(b"one two", complete=True)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize(
    "rest", [b"x" * 100, b"\0" * 100, b"\x1fx"], ids=["text", "zeros", "half a beginning"]
)
async def test_what_follows_the_end_is_not_read(encoding: str, rest: bytes) -> None:
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    body = Pieces([pack(b"hi"), *[rest] * 1000])
    assert await read(body, encoding) == LimitedBody(b"hi", complete=True)
    assert body.taken == 2


async def test_one_byte_that_could_begin_a_member_is_no_member() -> None:
    assert await read(Pieces([gzip.compress(b"hi") + b"\x1f"])) == LimitedBody(b"hi", complete=True)


async def test_a_second_member_is_limited_like_the_first() -> None:
    body = Pieces([gzip.compress(b"a") + gzip.compress(b"b" * 1_000_000), b"more"])
    assert await read(body) == LimitedBody(b"a" + b"b" * (LIMIT - 1), complete=False)
    assert body.taken == 1


@pytest.mark.parametrize(
    ("second", "problem"),
    [(gzip.compress(b"b" * 100)[:-4], "incomplete"), (b"\x1f\x8bnonsense", "invalid")],
    ids=["incomplete", "invalid"],
)
async def test_a_second_member_that_is_broken_is_told(second: bytes, problem: str) -> None:
    with pytest.raises(FetchError, match=problem):
        await read(Pieces([gzip.compress(b"a") + second]))


async def test_members_without_content_do_not_go_on_for_ever() -> None:
    body = Pieces([gzip.compress(b"") * 500] * 100_000)
    with pytest.raises(FetchError, match="much longer than what it holds"):
        await read(body)
    assert body.taken < 20
