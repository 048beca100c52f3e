"""The server behind nginx and Caddy, set up as ``deploy/`` has them."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mail.db.memory import MemoryStore
from mail.server.app import create_app
from tests.server.kit import Script, Template, bearer, config, running_server
from tests.support.proxies import NAMES, behind


@pytest.fixture(params=NAMES)
def proxy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass
class Echo:
    """A server that tells what came through."""

    pieces: list[int] = field(default_factory=list)
    begun: int = 0

    async def tell(self, request: Request) -> JSONResponse:
        self.begun += 1
        with suppress(ClientDisconnect):
            self.pieces.extend([len(piece) async for piece in request.stream()])
        assert request.client is not None
        return JSONResponse({"headers": dict(request.headers), "client": request.client.host})


@asynccontextmanager
async def echo_behind(proxy: str) -> AsyncIterator[tuple[Echo, str]]:
    echo = Echo()
    app = Starlette(routes=[Route("/{path:path}", echo.tell, methods=["GET", "POST"])])
    async with running_server(app) as server:
        with behind(proxy, server.url.removeprefix("http://")) as url:
            yield echo, url


async def talk(url: str, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send something over a bare connection; return what comes until it ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    got = b""
    try:
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
            async with asyncio.timeout(20):
                while more := await reader.read(65536):
                    got += more
    finally:
        writer.transport.abort()
    return got


HEAD = b"POST /x HTTP/1.1\r\nHost: mail.example.org\r\nConnection: close\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


async def test_messages_streams_and_refusals_come_through(
    proxy: str, store: MemoryStore, template: Template, script: Script
) -> None:
    app = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with running_server(app) as server:
        with behind(proxy, server.url.removeprefix("http://")) as url:
            async with httpx.AsyncClient(base_url=url, headers=bearer("alice")) as client:
                large = {"body": "x" * 900_000}
                for body in ({"body": "Hello"}, large):
                    answer = await client.post("/message", json=body)
                    assert answer.json()["response"].endswith(body["body"])
                refused = await client.post("/message", json={"body": "x" * 5_000_000})
                assert refused.status_code == 413
                assert "max_body_bytes" in refused.json()["detail"]  # the server's own words
                hang = {"body": "hang", "stream": True}
                async with client.stream("POST", "/message", json=hang) as stream:
                    lines = stream.aiter_lines()
                    assert await anext(lines) == "id: 1"  # while the agent works
                    script.gate.set()
                    assert any("task_complete" in line for line in [each async for each in lines])


async def test_the_server_learns_the_address_of_a_client_and_none_that_it_makes_up(
    proxy: str,
) -> None:
    async with echo_behind(proxy) as (_, url), httpx.AsyncClient() as client:
        made_up = {"X-Forwarded-For": "203.0.113.7", "Host": "mail.example.org"}
        told = (await client.get(url, headers=made_up)).json()
    assert told["client"] == "127.0.0.1"
    assert told["headers"]["x-forwarded-for"] == "127.0.0.1"
    assert told["headers"]["x-forwarded-proto"] == "http"


async def test_a_client_that_offers_http_2_keeps_its_body(proxy: str) -> None:
    offer = HEAD.replace(b"close", b"Upgrade, HTTP2-Settings, close") + b"Upgrade: h2c\r\n"
    async with echo_behind(proxy) as (echo, url):
        answer = await talk(url, offer + b"HTTP2-Settings: AAMAAABk\r\nContent-Length: 2\r\n\r\n{}")
        assert answer.startswith(b"HTTP/1.1 200") and echo.pieces == [2, 0]


async def test_chunks_of_a_byte_come_through_as_few_pieces(proxy: str) -> None:
    async with echo_behind(proxy) as (echo, url):
        answer = await talk(url, CHUNKED + b"1\r\n \r\n" * 20_000 + b"0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        assert sum(echo.pieces) == 20_000 and len(echo.pieces) < 200


@pytest.mark.parametrize(
    "begun",
    [
        b"GET / HTTP/1.1\r\nHost: mail.example.org\r\nX: ",
        CHUNKED + b"2\r\n{}\r\n0\r\nX: ",
        CHUNKED + b"2;x=",
    ],
)
async def test_what_does_not_end_is_cut_by_the_proxy(proxy: str, begun: bytes) -> None:
    async with echo_behind(proxy) as (echo, url):
        answer = await talk(url, begun, *[b"x" * 10_000] * 200)
        assert not answer.startswith(b"HTTP/1.1 200")
        assert sum(echo.pieces) <= 2


async def test_nginx_waits_for_a_body_and_the_server_does_not() -> None:
    async with echo_behind("nginx") as (echo, url):
        slow = asyncio.create_task(
            talk(url, HEAD + b"Content-Length: 5\r\n\r\n", *[b"x"] * 5, pause=0.1)
        )
        await asyncio.sleep(0.3)
        assert echo.begun == 0
        assert (await slow).startswith(b"HTTP/1.1 200") and echo.pieces == [5, 0]


async def test_nginx_takes_only_so_many_connections_from_one_address() -> None:
    held: list[socket.socket] = []
    async with echo_behind("nginx") as (_, url):
        port = urlsplit(url).port
        try:
            for _ in range(1024):
                held.append(socket.create_connection(("127.0.0.1", port)))
                held[-1].sendall(HEAD + b"Content-Length: 5\r\n\r\n")
            async with asyncio.timeout(20):
                while not (await talk(url, HEAD + b"Content-Length: 0\r\n\r\n")).startswith(
                    b"HTTP/1.1 503"
                ):
                    await asyncio.sleep(0.05)
        finally:
            for each in held:
                each.close()


def test_the_compose_file_opens_the_proxy_alone() -> None:
    yaml: Any = pytest.importorskip("yaml")

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Knows Compose's `!reset`, which takes back what an earlier file says."""

    Loader.add_constructor(
        "!reset", lambda loader, node: ("reset", loader.construct_sequence(node))
    )
    from tests.support.proxies import _DEPLOY

    services = yaml.load((_DEPLOY / "compose.yml").read_text(), Loader)["services"]
    assert services["server"]["ports"] == ("reset", [])
    assert services["proxy"]["ports"] == ["80:80", "443:443"]
    assert services["proxy"]["environment"]["MAIL_UPSTREAM"] == "server:8000"
