"""Bytes that are no HTTP, or nearly so: never a 500, never a hang, never a dead server."""

import re
import select
import socket
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.effort import bounded
from tests.fuzz.target import Target
from tests.server.kit import TOKENS

pytestmark = pytest.mark.e2e

ALICE = f"Authorization: Bearer {TOKENS['alice']}\r\n".encode()
HOST = b"Host: localhost\r\n"
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def posted(body: bytes, *headers: bytes, path: bytes = b"/message") -> bytes:
    """Return a request of Alice's."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + ALICE + lines + b"\r\n" + body


def shoot(shot: Target, data: bytes, *, ends: bool, patience: float = 0.0) -> bytes:
    """Send bytes and return all that the server answers until it hangs up.

    Args:
        shot: The server.
        data: What to send.
        ends: Say that no more will come; the server then drops a request that it works on.
        patience: Seconds to wait for an answer before that.

    Raises:
        TimeoutError: the server does not hang up.
    """
    with socket.create_connection(("127.0.0.1", shot.port), timeout=10) as line:
        with suppress(OSError):  # it may hang up on us while we send
            line.sendall(data)
            if patience:
                select.select([line], [], [], patience)
            if ends:
                line.shutdown(socket.SHUT_WR)
        answer = b""
        with suppress(ConnectionError):
            while piece := line.recv(65536):
                answer += piece
        return answer


def statuses(answer: bytes) -> list[int]:
    """Return the statuses of the answers."""
    return [int(found) for found in STATUS.findall(answer)]


HELLO = b'{"body": "hello"}'
LENGTH = b"Content-Length: %d" % len(HELLO)
CHUNKED = b"Transfer-Encoding: chunked"
GET = b"GET / HTTP/1.1\r\n" + HOST
REFUSED: dict[str, bytes] = {
    "zeroes": b"\x00" * 1000,
    "random bytes": bytes(range(256)) * 40,
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x55" * 500 + b"\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a method alone": b"GET\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"Host: y\r\n\r\n",
    "a NUL in the path": b"GET /\x00 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space in the path": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a NUL in a header": GET + b"X: a\x00b\r\n\r\n",
    "a header without colon": GET + b"nonsense\r\n\r\n",
    "a header without name": GET + b": x\r\n\r\n",
    "a space before the colon": GET + b"X : x\r\n\r\n",
    "a very long path": b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "a very long header": GET + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
    "very many headers": GET + b"".join(b"X-%d: y\r\n" % n for n in range(20_000)) + b"\r\n",
    "different lengths": posted(HELLO, LENGTH, b"Content-Length: 3"),
    "a negative length": posted(HELLO, b"Content-Length: -5"),
    "a signed length": posted(HELLO, b"Content-Length: +17"),
    "a length in hex": posted(HELLO, b"Content-Length: 0x11"),
    "an endless length": posted(HELLO, b"Content-Length: " + b"9" * 5000),
    "a length that is text": posted(HELLO, b"Content-Length: many"),
    "an unknown transfer encoding": posted(HELLO, b"Transfer-Encoding: gzip, chunked"),
    "a chunk of no size": posted(b"zz\r\nhello\r\n0\r\n\r\n", CHUNKED),
    "a chunk of negative size": posted(b"-5\r\nhello\r\n0\r\n\r\n", CHUNKED),
    "an endless chunk size": posted(b"f" * 5000 + b"\r\nhello", CHUNKED),
    "an endless chunk extension": posted(b"5;" + b"x" * 200_000 + b"\r\nhello\r\n", CHUNKED),
    "a chunk that is too long": posted(b"3\r\nhello\r\n0\r\n\r\n", CHUNKED),
    "a trailer without colon": posted(b"11\r\n" + HELLO + b"\r\n0\r\nnonsense\r\n\r\n", CHUNKED),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_http_is_refused_or_hung_up_on(shot: Target, name: str) -> None:
    answer = shoot(shot, REFUSED[name], ends=True)
    assert all(400 <= status < 500 for status in statuses(answer)), answer
    assert statuses(shoot(shot, GET + b"Connection: close\r\n\r\n", ends=False)) == [200]


CLOSE = b"Connection: close"
ODD: dict[str, tuple[bytes, list[int]]] = {
    "nothing": (b"", []),
    "half a request": (b"GET / HT", []),
    "half a header": (GET + b"X: ", []),
    "half a body": (posted(HELLO[:5], LENGTH), []),
    "a form with the whole address": (
        b"GET http://elsewhere.example/health HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n\r\n",
        [200],
    ),
    "a version to come": (b"GET / HTTP/9.9\r\n" + HOST + CLOSE + b"\r\n\r\n", [400]),
    "an old version": (b"GET / HTTP/1.0\r\n\r\n", [200]),
    "the asterisk form": (b"OPTIONS * HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n\r\n", [404]),
    "a tunnel": (b"CONNECT elsewhere:443 HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n\r\n", [400]),
    "a trace": (b"TRACE / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n\r\n", [405]),
    "a method in small letters": (b"get / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n\r\n", [400]),
    "a path of dots": (b"GET /../../etc/passwd HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n\r\n", [404]),
    "two slashes": (b"GET //health HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n\r\n", [404]),
    "no UTF-8 in the path": (
        b"GET /tasks/%ff%fe%00 HTTP/1.1\r\n" + HOST + ALICE + CLOSE + b"\r\n\r\n",
        [400],
    ),
    "no ASCII in the token": (
        b"GET /whoami HTTP/1.1\r\n"
        + HOST
        + b"Authorization: Bearer \xff\xfe\r\n"
        + CLOSE
        + b"\r\n\r\n",
        [401],
    ),
    "no number as the last event": (
        b"GET /tasks/x/events HTTP/1.1\r\n"
        + HOST
        + ALICE
        + b"Last-Event-ID: \xb2\r\n"
        + CLOSE
        + b"\r\n\r\n",
        [400],
    ),
    "a line folded as of old": (GET + b"X: a\r\n b\r\n" + CLOSE + b"\r\n\r\n", [400]),
    "an upgrade to a web socket, which is passed over": (
        GET + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + GET + CLOSE + b"\r\n\r\n",
        [200, 200],
    ),
    "the same length twice": (posted(HELLO, LENGTH, LENGTH, CLOSE), [400]),
    "chunks with a trailer": (
        posted(b"11;a=b\r\n" + HELLO + b"\r\n0\r\nX-Sum: 1\r\n\r\n", CHUNKED, CLOSE),
        [200],
    ),
    "a length beside chunks": (
        posted(b"11\r\n" + HELLO + b"\r\n0\r\n\r\n", CHUNKED, b"Content-Length: 3", CLOSE),
        [400],
    ),
    "a body where none belongs": (GET + LENGTH + b"\r\n" + CLOSE + b"\r\n\r\n" + HELLO, [200]),
    "a wait for the go-ahead": (posted(HELLO, LENGTH, b"Expect: 100-continue", CLOSE), [100, 200]),
    "an announced giant": (posted(b"{", b"Content-Length: 999999999999"), [413]),
    "forty requests at once": (
        GET + b"\r\n" + (GET + b"\r\n") * 38 + GET + CLOSE + b"\r\n\r\n",
        [200] * 40,
    ),
    "nonsense after a request": (GET + b"\r\n" + b"nonsense\r\n\r\n", [400]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_requests_get_their_due(shot: Target, name: str) -> None:
    data, expected = ODD[name]
    assert statuses(shoot(shot, data, ends=not expected)) == expected


SEEDS = [
    GET + b"\r\n",
    posted(HELLO, LENGTH),
    posted(b"11\r\n" + HELLO + b"\r\n0\r\nX-Sum: 1\r\n\r\n", CHUNKED),
    b"GET /tasks?limit=5&cursor=x HTTP/1.1\r\n" + HOST + ALICE + b"\r\n",
    b"GET /tasks/t/events HTTP/1.1\r\n" + HOST + ALICE + b"Last-Event-ID: 3\r\n\r\n",
    posted(b'{"input": "hi"}', b"Content-Length: 15", path=b"/v1/responses"),
]
EDITS = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 12),
        st.binary(max_size=8) | st.sampled_from([b"\r\n", b"\x00", b"\r\n\r\n", b" ", b":", b"%"]),
    ),
    min_size=1,
    max_size=4,
)


@bounded(150)
@given(st.sampled_from(SEEDS), EDITS)
def test_damaged_requests_do_no_harm(
    shot: Target, data: bytes, edits: list[tuple[float, int, bytes]]
) -> None:
    for where, cut, put in edits:
        at = int(where * len(data))
        data = data[:at] + put + data[at + cut :]
    answer = shoot(shot, data, ends=True, patience=0.03)
    assert all(status < 500 for status in statuses(answer)), data


def test_the_server_came_through(shot: Target) -> None:
    shot.check_alive()
