"""Posts over kept connections: what is refused before a connection, and what is connected to."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mail.egress.client import Resolve
from mail.egress.posts import GuardedPosts, PostAnswer
from mail.egress.rules import EgressPolicy, FetchError, NotPublic
from tests.stdlib.outside import NOT_PUBLIC, PUBLIC, TRICKS, Outside

NOWHERE = EgressPolicy()
HERE = EgressPolicy(("127.0.0.1",))


@pytest.fixture
def world() -> Outside:
    return Outside(names={"public.example": [PUBLIC]})


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Refuse every connection; returns where they were to lead."""
    found: list[str] = []

    def refuse(self: socket.socket, address: Any) -> None:
        found.append(address[0])
        raise PermissionError("no way out")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    return found


@asynccontextmanager
async def posting(
    policy: EgressPolicy = HERE, resolve: Resolve | None = None
) -> AsyncIterator[GuardedPosts]:
    posts = GuardedPosts(policy, "Tester/1", resolve)
    try:
        yield posts
    finally:
        await posts.aclose()


async def post(
    posts: GuardedPosts, url: str, *, seconds: float = 5, max_bytes: int = 1000, **headers: str
) -> PostAnswer:
    return await posts.post(url, headers, b"{}", seconds=seconds, max_bytes=max_bytes)


@asynccontextmanager
async def serving(answer: Any) -> AsyncIterator[str]:
    """Run a server on loopback that answers every post; give the address of its name."""
    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        yield f"http://peer.example:{server.port}"


def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(("address", "kind"), NOT_PUBLIC)
async def test_what_is_not_public_is_refused_by_address_and_by_name(
    world: Outside, tried: list[str], address: str, kind: str
) -> None:
    world.names["inside.example"] = [address]
    world.names["both.example"] = [PUBLIC, address]
    literal = f"[{address}]" if ":" in address else address
    async with posting(NOWHERE, world.resolve) as posts:
        for host in (literal, "inside.example", "both.example", literal):
            with pytest.raises(NotPublic, match=rf"is an? .*{kind}.* address, not a public"):
                await post(posts, f"http://{host}/")
    assert tried == []


@pytest.mark.parametrize("url", TRICKS)
async def test_tricks_with_the_spelling_lead_nowhere(
    world: Outside, tried: list[str], url: str
) -> None:
    async with posting(NOWHERE, world.resolve) as posts:
        with pytest.raises(FetchError):
            await post(posts, url)
    assert set(tried) <= {PUBLIC}


async def test_a_name_is_refused_in_capitals_and_with_a_dot_at_its_end(
    world: Outside, tried: list[str]
) -> None:
    world.names["localhost"] = ["127.0.0.1"]
    async with posting(NOWHERE, world.resolve) as posts:
        for host in ("localhost", "LOCALHOST", "localhost.", "LocalHost."):
            with pytest.raises(NotPublic):
                await post(posts, f"http://{host}/")
    assert set(world.asked) == {"localhost"}
    assert tried == []


async def test_connections_lead_to_the_checked_addresses_only(
    world: Outside, tried: list[str]
) -> None:
    world.names["rebind.example"] = [[PUBLIC], ["127.0.0.1"]]
    async with posting(NOWHERE, world.resolve) as posts:
        with pytest.raises(FetchError, match=r"^the connection failed$"):
            await post(posts, "http://rebind.example/")
    async with posting(NOWHERE, world.resolve) as posts:
        with pytest.raises(NotPublic):
            await post(posts, "http://rebind.example/")
    assert tried == [PUBLIC]


async def test_names_that_nobody_knows_are_told(world: Outside, tried: list[str]) -> None:
    world.names["empty.example"] = []
    async with posting(NOWHERE, world.resolve) as posts:
        with pytest.raises(FetchError, match=r"'lost\.example' cannot be resolved"):
            await post(posts, "http://lost.example/")
        with pytest.raises(FetchError, match=r"'empty\.example' has no address"):
            await post(posts, "http://empty.example/")


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="straight")

    async with serving(answer) as url, posting(resolve=here) as posts:
        assert (await post(posts, url)).body.data == b"straight"


async def test_a_redirect_is_the_answer() -> None:
    paths = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with serving(answer) as url, posting(resolve=here) as posts:
        assert (await post(posts, f"{url}/here")).status == 307
    assert paths == ["/here"]


# --- what is sent and read ----------------------------------------------------------------------


async def test_a_request_says_what_it_was_given_and_nothing_else() -> None:
    async def answer(request: web.Request) -> web.Response:
        response = web.json_response({**request.headers, "body": await request.text()})
        response.set_cookie("session", "secret")
        return response

    async with serving(answer) as url, posting(resolve=here) as posts:
        with_user = url.replace("http://", "http://somebody:secret@")
        for _ in range(2):  # the second time without the cookie that was set
            found = await post(posts, with_user, Authorization="Bearer tok")
            told = found.body.data.decode().lower()
            assert '"authorization": "bearer tok"' in told
            assert '"user-agent": "tester/1"' in told
            assert '"accept-encoding": "identity"' in told
            assert "secret" not in told
            assert "cookie" not in told
            assert '"body": "{}"' in told


async def test_connections_are_kept_for_their_name() -> None:
    ports = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return web.Response(text=request.host)

    async with serving(answer) as url, posting(resolve=here) as posts:
        other = url.replace("peer.example", "other.example")
        hosts = [(await post(posts, one)).body.data for one in (url, url, other, url)]
    assert [host.partition(b".")[0] for host in hosts] == [b"peer", b"peer", b"other", b"peer"]
    assert ports[0] == ports[1] == ports[3] != ports[2]


async def test_an_answer_is_read_up_to_the_limit() -> None:
    async def answer(request: web.Request) -> web.Response:
        packed = request.path == "/packed"
        body = gzip.compress(bytes(10_000_000)) if packed else b"x" * 100_000
        return web.Response(body=body, headers={"Content-Encoding": "gzip"} if packed else None)

    async with serving(answer) as url, posting(resolve=here) as posts:
        for path in ("plain", "packed"):
            found = await post(posts, f"{url}/{path}", max_bytes=5000)
            assert (len(found.body.data), found.body.complete) == (5000, False)
        whole = await post(posts, f"{url}/plain", max_bytes=100_000)
        assert whole.body.complete


async def test_a_server_that_does_not_answer_or_breaks_off_is_told() -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/slow":
            await asyncio.sleep(2)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with serving(answer) as url, posting(resolve=here) as posts:
        with pytest.raises(FetchError, match=r"^no answer within 0\.2 seconds$"):
            await post(posts, f"{url}/slow", seconds=0.2)
        with pytest.raises(FetchError, match=r"^the request failed \(ServerDisconnectedError\)$"):
            await post(posts, f"{url}/broken")
