"""MCP clients are told of new mail, of posts in threads, and of how tasks go on."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from mail.db.memory import MemoryStore
from mail.mcp.watching import INBOX, task_uri, thread_uri
from mail.server.app import create_app
from tests.server.kit import TOKENS, Script, Server, Template, bearer, config, running_server

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
HTTP, STDIO = "http", "stdio"


@pytest.fixture
async def desk(store: MemoryStore, script: Script) -> AsyncIterator[Server]:
    template = Template(script)
    template.participants = [{"name": n, "description": ""} for n in ("editor", "reviewer")]
    served = create_app(config(max_streams=4), template=template, store=store)  # type: ignore[arg-type]
    async with running_server(served) as server:
        server.quotas = served.state.mail.quotas
        yield server


class Told:
    """What a client was told, whichever way."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self.news = asyncio.Event()

    def add(self, uri: str) -> None:
        self.uris.append(uri)
        self.news.set()

    async def heard(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            self.add(str(message.params.uri))

    async def of(self, uri: str) -> None:
        """Wait until the client was told of a resource, and forget that."""
        async with asyncio.timeout(10):
            while uri not in self.uris:
                self.news.clear()
                await self.news.wait()
        self.uris.remove(uri)


@asynccontextmanager
async def client(server: Server, who: str, transport: str, era: str, told: Told):
    async with AsyncExitStack() as stack:
        if transport == HTTP:
            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers=bearer(who), timeout=20)
            )
            streams = streamable_http_client(f"{server.url}/mcp", http_client=http)
        else:
            environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
            words = ["-m", "mail.cli", "mcp", server.url]
            environ["MAIL_API_KEY"] = TOKENS[who]
            streams = stdio_client(
                StdioServerParameters(command=sys.executable, args=words, env=environ)
            )
        heard = told.heard if era == "legacy" else None  # newer clients get them from `listen`
        yield await stack.enter_async_context(Client(streams, mode=era, message_handler=heard))


@asynccontextmanager
async def watching(mcp: Client, era: str, told: Told, *uris: str) -> AsyncIterator[None]:
    if era == "legacy":
        for uri in uris:
            await mcp.subscribe_resource(uri)
        yield
        return
    async with mcp.listen(resource_subscriptions=uris) as news:
        assert news.honored.resource_subscriptions == list(uris)

        async def listen() -> None:
            async for event in news:
                told.add(str(event.uri))

        listening = asyncio.create_task(listen())
        try:
            yield
        finally:
            listening.cancel()


def post(server: Server, who: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = httpx.post(f"{server.url}{path}", json=body, headers=bearer(who))
    assert answer.status_code == 200, answer.text
    return answer.json()


async def posted(*request: Any) -> dict[str, Any]:
    return await asyncio.to_thread(post, *request)


@pytest.mark.parametrize("transport", [HTTP, STDIO])
@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_new_mail_is_told(desk: Server, transport: str, era: str) -> None:
    told = Told()
    made = {"title": "Release", "participants": ["reviewer"]}
    thread = (await posted(desk, "editor", "/threads", made))["thread"]["id"]
    letter = {"recipient_id": "reviewer", "content": "Ready?"}
    async with client(desk, "reviewer", transport, era, told) as mcp:
        listed = {str(each.uri) for each in (await mcp.list_resources()).resources}
        assert listed == {INBOX, thread_uri(thread)}
        async with watching(mcp, era, told, INBOX, thread_uri(thread)):
            for _ in range(2):
                await posted(desk, "editor", "/messages", letter)
                await told.of(INBOX)
            assert told.uris == []
            await posted(desk, "editor", "/messages", {"thread_id": thread, "content": "When?"})
            await told.of(thread_uri(thread))
            await told.of(INBOX)
            inbox = json.loads((await mcp.read_resource(INBOX)).contents[0].text)
            assert [each["content"] for each in inbox["messages"]][:2] == ["When?", "Ready?"]
            assert inbox["unread"] == 4  # reading a resource marks nothing


@pytest.mark.parametrize("transport", [HTTP, STDIO])
@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_news_of_a_task_are_told(
    desk: Server, script: Script, transport: str, era: str
) -> None:
    told = Told()
    async with client(desk, "alice", transport, era, told) as mcp:
        begun = await mcp.call_tool("submit_task", {"message": "hang", "wait_seconds": 0})
        await script.entered.wait()
        uri = task_uri(begun.structured_content["task_id"])
        async with watching(mcp, era, told, uri):
            script.gate.set()
            await told.of(uri)


async def test_only_what_one_may_see_is_watched(desk: Server) -> None:
    told = Told()
    made = await posted(desk, "editor", "/threads", {"title": "x", "participants": []})
    secret = thread_uri(made["thread"]["id"])
    async with client(desk, "reviewer", HTTP, "auto", told) as mcp:
        wanted = [INBOX, secret, task_uri("x"), "file:///etc/passwd", "mail://threads/.."]
        async with mcp.listen(resource_subscriptions=wanted) as news:
            assert news.honored.resource_subscriptions == [INBOX]
        with pytest.raises(MCPError, match="at most 32"):
            async with mcp.listen(resource_subscriptions=[f"x:{n}" for n in range(33)]):
                pass
    async with (
        client(desk, "alice", HTTP, "auto", told) as mcp,
        mcp.listen(resource_subscriptions=[INBOX]) as news,
    ):
        assert not news.honored.resource_subscriptions
    async with client(desk, "reviewer", HTTP, "legacy", told) as mcp:
        for uri in (secret, "file:///etc/passwd", task_uri("x")):
            with pytest.raises(MCPError):
                await mcp.subscribe_resource(uri)


async def test_who_has_left_a_thread_is_told_once_and_no_more(desk: Server) -> None:
    told = Told()
    made = {"title": "x", "participants": ["reviewer"]}
    thread = (await posted(desk, "editor", "/threads", made))["thread"]["id"]
    uri = thread_uri(thread)
    async with (
        client(desk, "reviewer", HTTP, "auto", told) as mcp,
        watching(mcp, "auto", told, INBOX, uri),
    ):
        gone = f"{desk.url}/threads/{thread}/participants/reviewer"
        answer = await asyncio.to_thread(httpx.delete, gone, headers=bearer("editor"))
        assert answer.status_code == 200
        letter = {"recipient_id": "reviewer", "content": "x"}
        await posted(desk, "editor", "/messages", letter)
        await told.of(INBOX)
        await told.of(uri)
        await posted(desk, "editor", "/messages", letter)
        await told.of(INBOX)
        assert told.uris == []


async def test_streams_are_bounded(desk: Server) -> None:
    """Four streams may be open: a client that listens for mail has two, its own and a wait."""
    async with AsyncExitStack() as stack:
        for _ in range(2):
            mcp = await stack.enter_async_context(client(desk, "editor", HTTP, "auto", Told()))
            await stack.enter_async_context(mcp.listen(resource_subscriptions=[INBOX]))
        quotas = desk.quotas
        async with asyncio.timeout(10):
            while quotas.open_streams < 4:
                await asyncio.sleep(0.01)
        mcp = await stack.enter_async_context(client(desk, "editor", HTTP, "auto", Told()))
        with pytest.raises(MCPError, match="open streams"):
            async with mcp.listen(resource_subscriptions=[INBOX]):
                pass
    async with asyncio.timeout(10):
        while quotas.open_streams:
            await asyncio.sleep(0.01)


# --- sessions, which only clients of older revisions need -----------------------------------------

ACCEPT = {"Accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def test_a_session_is_its_callers_alone_and_ends(desk: Server) -> None:
    url = f"{desk.url}/mcp"
    async with httpx.AsyncClient(headers=bearer("editor") | ACCEPT, timeout=10) as http:
        begun = await http.post(url, json=INITIALIZE)
        name = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
        others = bearer("reviewer") | name
        assert (await http.get(url, headers=others)).status_code == 404
        assert (await http.delete(url, headers=others)).status_code == 404
        assert (await http.get(url)).status_code == 405
        assert (await http.delete(url)).status_code == 405
        async with http.stream("GET", url, headers=name) as stream:
            pieces = stream.aiter_lines()
            assert await anext(pieces) == ": ping"
            async with http.stream("GET", url, headers=name) as newer:
                assert await anext(newer.aiter_lines()) == ": ping"
                async with asyncio.timeout(10):
                    assert "".join([line async for line in pieces]) == ""  # the older one ends
                assert (await http.delete(url, headers=name)).status_code == 204
        unknown = await http.get(url, headers=name)
        assert unknown.status_code == 404 and "initialize" in unknown.json()["detail"]
        ask = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": INBOX}}
        for headers in ({}, name):
            answer = await http.post(url, json=ask, headers=headers)
            assert "no such session" in answer.text


async def test_old_sessions_give_way(desk: Server) -> None:
    url = f"{desk.url}/mcp"
    async with httpx.AsyncClient(headers=bearer("editor") | ACCEPT, timeout=10) as http:
        names = []
        for _ in range(66):
            names.append((await http.post(url, json=INITIALIZE)).headers["mcp-session-id"])
        ends = [await http.delete(url, headers={"Mcp-Session-Id": name}) for name in names]
        assert [answer.status_code for answer in ends] == [404] * 2 + [204] * 64
