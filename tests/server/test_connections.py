"""Connections of clients that are slow, silent, deaf or too many, over real sockets."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mail.db.memory import MemoryStore
from mail.server import at_work, middleware, quotas
from mail.server.app import create_app
from mail.server.connections import connections
from mail.server.deps import PUBLIC
from tests.server import kit
from tests.server.kit import Script, Server, Template, bearer, config, frames, running_server
from tests.support.waiting import until

SHORT = {"header": 0.2, "body": 0.3, "send": 0.3, "idle": 0.2}
"""Seconds that things may take in these tests."""
PLACES = {
    "header": "mail.server.connections.HEADER_SECONDS",
    "body": "mail.server.middleware.BODY_SECONDS",
    "send": "mail.net.sse.SEND_SECONDS",
}
BIG = 12_000_000
"""More than the buffers of the kernel take on both sides of a connection."""


@pytest.fixture(autouse=True, params=[HttpToolsProtocol, H11Protocol])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the connections of a test's servers use one parser of HTTP after the other."""
    monkeypatch.setattr(kit, "connections", partial(connections, protocol=request.param))
    return request.param


@contextlib.asynccontextmanager
async def served(
    store: MemoryStore, template: Template, seconds: Any = None, **limits: float
) -> AsyncIterator[tuple[Server, FastAPI]]:
    """Serve the swarm with little patience, unless ``seconds`` says otherwise."""
    settings = config(**limits)
    app = create_app(settings, template=template, store=store)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patience = SHORT | (seconds or {})
        for what, place in PLACES.items():
            patch.setattr(place, patience[what])
        async with running_server(app, settings.limits, idle=patience["idle"]) as server:
            yield server, app


@contextlib.asynccontextmanager
async def connected(
    server: Server, *, small: bool = False, limit: int = 1024
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a bare connection; a small one takes little before it is read."""
    plain = socket.socket()
    if small:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(
        plain, ("127.0.0.1", server.servers[0].sockets[0].getsockname()[1])
    )
    reader, writer = await asyncio.open_connection(sock=plain, limit=limit)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def head(method: str, path: str, *, who: str = "alice", **more: str) -> bytes:
    """Return the head of a request."""
    fields = {
        "Host": "localhost",
        **(bearer(who) if who else {}),
        **{k.replace("_", "-"): v for k, v in more.items()},
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def everything(reader: asyncio.StreamReader) -> bytes:
    """Read up to the end of a connection, however it ends."""
    got = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(10):
            while piece := await reader.read(65536):
                got += piece
    return got


async def drip(writer: asyncio.StreamWriter, text: bytes) -> None:
    """Send a byte now and then, for as long as the connection is open.

    Past the writer: the error of a send that came too late would hide the answer from its reader.
    """
    with writer.get_extra_info("socket").dup() as plain, contextlib.suppress(ConnectionError):
        while not writer.is_closing():
            with contextlib.suppress(BlockingIOError):
                plain.send(text)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("begun", [b"", b"GET /", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
async def test_headers_that_never_end_end_the_connection(
    store: MemoryStore, template: Template, begun: bytes
) -> None:
    async with (
        served(store, template) as (server, _),
        connected(server) as (reader, writer),
        asyncio.TaskGroup() as group,
    ):
        writer.write(begun)
        dripping = group.create_task(drip(writer, b"x" if begun else b""))
        assert await everything(reader) == b""
        dripping.cancel()
        await until(lambda: not server.server_state.connections)


async def test_a_connection_between_requests_idles_only_so_long(
    store: MemoryStore, template: Template
) -> None:
    async with served(store, template) as (server, _), connected(server) as (reader, writer):
        writer.write(head("GET", "/whoami"))
        assert (await everything(reader)).startswith(b"HTTP/1.1 200")


async def test_a_second_request_that_never_ends_ends_the_connection(
    store: MemoryStore, template: Template
) -> None:
    async with (
        served(store, template, {"idle": 60.0}) as (server, _),
        connected(server) as (reader, writer),
        asyncio.TaskGroup() as group,
    ):
        writer.write(head("GET", "/whoami"))
        await reader.readuntil(b"}")
        dripping = group.create_task(drip(writer, b"G"))
        await everything(reader)
        dripping.cancel()
        await until(lambda: not server.server_state.connections)


async def test_a_body_that_trickles_is_408(store: MemoryStore, template: Template) -> None:
    async with (
        served(store, template) as (server, _),
        connected(server) as (reader, writer),
        asyncio.TaskGroup() as group,
    ):
        writer.write(head("POST", "/message", Content_Length="100000"))
        dripping = group.create_task(drip(writer, b" "))
        answer = await everything(reader)
        dripping.cancel()
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive in time" in answer
    assert b"or send a large one as a file" in answer


async def test_bodies_that_trickle_keep_nobody_else_out(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = b'{"body": "Hello"}'

    async def post(server: Server, who: str) -> bytes:
        async with connected(server) as (reader, writer):
            fields = {"Content_Length": str(len(whole)), "Connection": "close"}
            writer.write(head("POST", "/message", who=who, **fields) + whole)
            return await everything(reader)

    monkeypatch.setattr("mail.server.at_work.AT_ONCE", 1)
    monkeypatch.setattr("mail.server.quotas._BODIES", 2)
    async with served(store, template, {"body": 30.0}) as (server, _):
        async with connected(server) as (_, first), connected(server) as (_, second):
            for writer in (first, second):
                writer.write(head("POST", "/message", Content_Length="100") + b" ")
            await asyncio.sleep(0.2)
            async with connected(server) as (reader, writer):  # what has no body does not wait
                writer.write(head("GET", "/whoami", Connection="close") + b"")
                assert (await everything(reader)).startswith(b"HTTP/1.1 200")
            waiting = asyncio.create_task(post(server, "alice"))
            assert (await post(server, "bob")).startswith(b"HTTP/1.1 200")
            assert not waiting.done()
        assert (await waiting).startswith(b"HTTP/1.1 200")


async def test_an_answer_that_nobody_reads_is_let_go_and_a_slow_reader_is_not(
    store: MemoryStore, template: Template
) -> None:
    async with served(store, template, {"header": 10.0, "send": 3.0}) as (server, app):

        async def big() -> str:
            return "x" * BIG

        app.get("/big", dependencies=[Depends(PUBLIC)])(big)
        async with (
            connected(server, small=True) as (_, deaf),
            connected(server, limit=100_000) as (slow, writer),
        ):
            deaf.write(head("GET", "/big"))
            await until(lambda: _waiting(server) > 0)
            writer.write(head("GET", "/big"))
            got = 0
            while got < BIG:  # takes longer than send_timeout, in good steps
                got += len(await slow.read(1_000_000))
                await asyncio.sleep(0.06)
            await until(lambda: _waiting(server) == 0)
            await until(lambda: not server.server_state.connections)


def _waiting(server: Server) -> int:
    found = list(server.server_state.connections)
    return sum(item.transport.get_write_buffer_size() for item in found)  # type: ignore[union-attr]


async def test_a_stalled_reader_of_a_stream_is_cut_off_and_can_resume(
    store: MemoryStore, template: Template, caplog: pytest.LogCaptureFixture
) -> None:
    body = json.dumps({"body": "x" * 1_000_000, "task_id": "t-1"}).encode()
    patience = {"idle": 60.0, "body": 20.0, "send": 1.0}
    async with served(store, template, patience) as (server, app):
        async with httpx.AsyncClient(base_url=server.url, headers=bearer("alice")) as client:
            for _ in range(2):
                assert (await client.post("/message", content=body)).status_code == 200
            async with connected(server, small=True) as (_, writer):
                writer.write(head("GET", "/tasks/t-1/events"))
                await until(lambda: app.state.mail.quotas.open_streams == 1)
                await until(lambda: app.state.mail.quotas.open_streams == 0)
            whole = frames((await client.get("/tasks/t-1/events")).text)
            rest = await client.get("/tasks/t-1/events", headers={"Last-Event-ID": "2"})
        await until(lambda: not server.server_state.connections)
    assert not [item for item in caplog.records if item.levelname == "ERROR"]
    assert frames(rest.text)[-1] == whole[-1]
    assert [event["id"] for event in frames(rest.text)] == [event["id"] for event in whole[2:]]


async def test_more_connections_than_allowed_are_503_and_a_flood_is_not_answered(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.server.connections._SPARE", 2)
    async with (
        served(store, template, {"header": 5.0}, max_connections=2) as (server, _),
        connected(server),
        connected(server) as (_, second),
        connected(server) as (refused, third),
        connected(server) as (lives, fourth),
        connected(server) as (flood, _),
    ):
        third.write(head("GET", "/whoami"))
        fourth.write(head("GET", "/health"))
        answer = await everything(refused)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 5" in answer
        assert (await everything(lives)).startswith(b"HTTP/1.1 200")
        assert await everything(flood) == b""
        second.transport.abort()
        await until(lambda: len(server.server_state.connections) == 1)
        async with connected(server) as (reader, writer):
            writer.write(head("GET", "/whoami"))
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_more_open_streams_than_the_server_takes_are_503(
    store: MemoryStore, template: Template, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.server.quotas.MAX_OPEN_STREAMS", 1)
    async with (
        served(store, template) as (server, _),
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        body = {"body": "hang", "task_id": "t-1", "stream": True}
        async with client.stream("POST", "/message", json=body, headers=bearer("bob")) as first:
            pieces = first.aiter_raw()
            await anext(pieces)
            answer = await client.post("/message", json=body, headers=bearer("alice"))
            assert answer.status_code == 503
            assert "open streams" in answer.json()["detail"]
            assert answer.headers["retry-after"] == "5"
            script.gate.set()
            async for _ in pieces:
                pass
        again = await client.get("/tasks/t-1/events", headers=bearer("bob"))
        assert again.status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        b"\x00\xff\r\n\r\n",
        head("POST", "/message", Transfer_Encoding="chunked") + b"nonsense\r\n",
        b"POST /message HTTP/1.1\r\nHost: localhost\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
    ],
)
async def test_what_is_no_http_is_400_and_nothing_is_left(
    store: MemoryStore,
    template: Template,
    caplog: pytest.LogCaptureFixture,
    parser: Any,
    text: bytes,
) -> None:
    async with served(store, template) as (server, _), connected(server) as (reader, writer):
        writer.write(text)
        headers, _, answer = (await everything(reader)).partition(b"\r\n\r\n")
        assert headers.startswith(b"HTTP/1.1 400")
        assert b"Invalid HTTP request received." in answer
        await until(lambda: not server.server_state.connections)
    errors = [item for item in caplog.records if item.levelname == "ERROR"]
    assert parser is H11Protocol or not errors  # uvicorn answers behind h11's back


@pytest.mark.parametrize("behind", [b"", head("GET", "/whoami")])
async def test_a_head_that_does_not_end_is_bounded(
    store: MemoryStore, template: Template, behind: bytes
) -> None:
    async with (
        served(store, template, {"header": 60.0}) as (server, _),
        connected(server) as (reader, writer),
        asyncio.TaskGroup() as group,
    ):
        writer.write(behind + b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000)
        dripping = group.create_task(drip(writer, b"x" * 10_000))
        answer = await everything(reader)
        dripping.cancel()
        assert answer.startswith((b"HTTP/1.1 200",) if behind else (b"", b"HTTP/1.1 400"))
        await until(lambda: not server.server_state.connections)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_refused_body_takes_no_answer_with_it_and_its_connection_goes_on(
    store: MemoryStore, template: Template, chunked: bool
) -> None:
    body = b" " * BIG
    kind = {"Transfer_Encoding": "chunked"} if chunked else {"Content_Length": str(BIG)}
    unwanted = head("POST", "/message", Authorization="Bearer no", **kind)
    unwanted += b"%x\r\n%b\r\n0\r\n\r\n" % (BIG, body) if chunked else body
    async with (
        served(store, template, {"header": 60.0}) as (server, _),
        connected(server) as (reader, writer),
    ):
        writer.write(unwanted + head("GET", "/whoami", Connection="close"))
        answers = await everything(reader)
    assert answers.startswith(b"HTTP/1.1 401") and answers.endswith(b"}")
    assert answers.count(b"HTTP/1.1 200") == 1


async def test_requests_in_a_row_are_answered_in_order(
    store: MemoryStore, template: Template
) -> None:
    body = b'{"body": "Hello"}'
    post = head("POST", "/message", Content_Length=str(len(body))) + body
    last = head("GET", "/whoami", Connection="close")
    async with served(store, template) as (server, _), connected(server) as (reader, writer):
        writer.write(post + head("GET", "/health") + last)
        answers = (await everything(reader)).split(b"HTTP/1.1 200 OK")[1:]
    assert [b"You said: Hello" in answers[0], b"healthy" in answers[1], b"alice" in answers[2]] == [
        True,
        True,
        True,
    ]


async def test_a_request_that_offers_another_protocol_is_answered(
    store: MemoryStore, template: Template
) -> None:
    body = b'{"body": "Hello"}'
    fields = {"Connection": "Upgrade", "Upgrade": "h2c", "Content_Length": str(len(body))}
    async with served(store, template) as (server, _), connected(server) as (reader, writer):
        writer.write(head("POST", "/message", **fields) + body)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        writer.write(head("GET", "/whoami", Connection="close"))
        assert b"alice" in await everything(reader)


@pytest.mark.parametrize("size", [9_000, 60_000])
@pytest.mark.parametrize("query", [False, True])
async def test_a_target_over_8_kib_is_414_before_anything_is_made_of_it(
    store: MemoryStore, template: Template, size: int, query: bool
) -> None:
    text = "/whoami?" if query else "/"
    async with (
        served(store, template) as (server, app),
        connected(server, limit=2**20) as (reader, writer),
    ):
        seen: list[str] = []
        app.state.mail.auth.authenticate = seen.append  # nobody gets there
        writer.write(head("GET", text + "a://:" * (size // 5)))
        answer = await everything(reader)
    assert answer.startswith(b"HTTP/1.1 414 ")
    assert b"\r\nx-request-id: " in answer
    detail = json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]
    assert detail == "the path and the query are longer than 8192 bytes; the limit is fixed"
    assert seen == []


@pytest.mark.parametrize("path", ["/whoami", "/nowhere", "/docs/docs.css"])
async def test_requests_without_a_token_are_answered_one_after_the_other(
    store: MemoryStore, template: Template, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_work, "_ANONYMOUS_BURST", 50)
    loop = asyncio.get_running_loop()
    patient = {"header": 20.0, "idle": 20.0, "send": 20.0}
    async with served(store, template, patient, anonymous_rate=10.0, max_requests=1) as (server, _):
        one = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(base_url=server.url, limits=one, timeout=20) as client:
            begun = loop.time()
            statuses = {(await client.get(path)).status_code for _ in range(50 + 6)}
            assert loop.time() - begun >= 0.5
            assert len(statuses) == 1 and statuses < {200, 401, 404}
            waiting = [asyncio.create_task(client.get(path)) for _ in range(20)]
            async with httpx.AsyncClient(base_url=server.url, headers=bearer("alice")) as alice:
                for _ in range(10):  # on a connection of her own, and nobody is in her way
                    assert (await alice.get("/whoami")).status_code == 200
            assert not all(task.done() for task in waiting)
            await asyncio.gather(*waiting)
            begun = loop.time()
            for _ in range(50):  # who has a token does not wait for those without
                await client.get("/whoami", headers=bearer("alice"))
            assert loop.time() - begun < 5


async def test_who_connects_again_has_no_new_burst_of_requests_without_a_token(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_work, "_ANONYMOUS_BURST", 10)
    monkeypatch.setattr(at_work, "_HEALTH_WAIT", 0.01)
    async with served(store, template, anonymous_rate=0.1) as (server, _):
        answered = []
        for number in range(15):
            async with connected(server) as (reader, writer):
                more = {"Authorization": f"Bearer mail_{number:032}"} if number % 2 else {}
                writer.write(head("GET", "/whoami", who="", **more))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(5 if number < 10 else 0.1):
                        answered.append((await reader.readline())[9:12])
        assert answered == [b"401"] * 10
        await until(lambda: not server.server_state.tasks)  # who leaves is not waited for
        async with connected(server) as (reader, writer):
            writer.write(head("GET", "/health", who="", Connection="close"))
            assert (await everything(reader)).startswith(b"HTTP/1.1 200")
        async with connected(server) as (reader, writer):
            writer.write(head("GET", "/whoami", Connection="close"))
            assert (await everything(reader)).startswith(b"HTTP/1.1 200")


def test_addresses_of_strangers_are_bounded_and_a_network_of_ipv6_is_one() -> None:
    strangers = at_work.Strangers(0.01)

    def delay(host: str) -> float:
        return strangers.delay({"client": (host, 1), "path": "/whoami"})

    for number in range(at_work._ANONYMOUS_BURST + 1):
        assert delay(f"2001:db8::{number + 1:x}") <= 0 or number == at_work._ANONYMOUS_BURST
    assert delay("2001:db8::ffff") == at_work._ANONYMOUS_WAIT
    assert delay("2001:db8:0:1::1") <= 0
    assert delay("::ffff:192.0.2.1") <= 0
    assert delay("::ffff:192.0.2.2") <= 0
    for number in range(quotas.MAX_BUCKETS + 10):
        delay(f"host-{number}")
    assert len(strangers._rate._buckets) == quotas.MAX_BUCKETS


@pytest.mark.parametrize("lines", [101, 8000])
async def test_more_than_100_headers_are_431(
    store: MemoryStore, template: Template, lines: int
) -> None:
    async with served(store, template) as (server, app), connected(server) as (reader, writer):
        app.state.mail.auth.authenticate = None  # nobody gets there
        writer.write(
            b"GET /whoami HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * (lines - 1) + b"\r\n"
        )
        answer = await everything(reader)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["detail"] == (
        "there are more than 100 headers"
    )


async def test_100_headers_and_a_body_of_many_lines_are_served(
    store: MemoryStore, template: Template
) -> None:
    async with served(store, template) as (server, _), connected(server) as (reader, writer):
        body = b'{"body":"hello"' + b"\n" * 500 + b"}"
        more = {f"X-{number}": "x" for number in range(96)}
        begin = head("POST", "/message", Connection="close", Content_Length=str(len(body)), **more)
        writer.write(begin + body)
        assert (await everything(reader)).startswith(b"HTTP/1.1 200")


async def test_a_target_of_8_kib_is_served(store: MemoryStore, template: Template) -> None:
    async with served(store, template) as (server, _), connected(server) as (reader, writer):
        target = "/whoami?"
        writer.write(head("GET", target + "a" * (middleware.MAX_TARGET_BYTES - len(target))))
        assert (await everything(reader)).startswith(b"HTTP/1.1 200")
