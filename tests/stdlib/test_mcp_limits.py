"""MCP actions and servers that send too much, or do not let go."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from mail.stdlib.mcp import connection
from mail.stdlib.mcp.actions import mcp_call_tool, mcp_list_resources, mcp_list_tools
from tests.support.loopback import mcp_reply, served

BEHAVIOUR = web.AppKey("behaviour", dict)
OVER = web.AppKey("over", asyncio.Event)


async def post(request: web.Request) -> web.Response:
    """Answer as a server with sessions does; lists have pages of 8,000 bytes."""
    message = await request.json()
    if "id" not in message:
        return web.Response(status=202)
    cursor = int((message.get("params") or {}).get("cursor", 0))
    padding = "x" * 8000
    more = {"nextCursor": str(cursor + 1)} if cursor < request.app[BEHAVIOUR]["pages"] - 1 else {}
    name = f"page{cursor}"
    tool = {"name": name, "description": padding, "inputSchema": {"type": "object"}}
    template = {"name": name, "uriTemplate": "a://{b}", "description": padding}
    results = {
        "tools/list": {"tools": [tool], **more},
        "resources/list": {"resources": [{"name": name, "uri": "a://b", "description": padding}]},
        "resources/templates/list": {"resourceTemplates": [template]},
        "tools/call": {
            "content": [{"type": "text", "text": "paid"}],
            "isError": message.get("params", {}).get("name") == "fail",
        },
    }
    return web.json_response(mcp_reply(message, results), headers={"Mcp-Session-Id": "s"})


async def delete(request: web.Request) -> web.Response:
    """End a session: slowly, or by hanging up."""
    request.app[BEHAVIOUR]["deletes"] += 1
    if request.app[BEHAVIOUR]["goodbye"] == "never":
        await request.app[OVER].wait()
    elif request.transport is not None:
        request.transport.abort()
    return web.Response()


@pytest.fixture
async def app(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[web.Application]:
    app = web.Application()
    app[BEHAVIOUR] = {"pages": 1, "goodbye": "never", "deletes": 0}
    app[OVER] = asyncio.Event()
    app.router.add_post("/mcp", post)
    app.router.add_delete("/mcp", delete)
    monkeypatch.setattr(logging.getLogger("mcp"), "level", logging.CRITICAL)
    return app


@pytest.fixture
async def url(
    app: web.Application, configure: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    """The address of that server."""
    configure('[stdlib.http]\nallow = ["127.0.0.1"]\ntimeout = 60\nmax_bytes = 20000\n')
    monkeypatch.setattr(connection, "_GOODBYE", 0.1)
    async with served(app) as address:
        yield f"{address}/mcp"
        app[OVER].set()


async def call(action: Any, url: str, **args: Any) -> str:
    """Call an action as an agent does, for at most a part of the timeout in the settings."""
    async with asyncio.timeout(20):
        result: str = await action.function({"server_url": url, **args})
    return result


async def test_all_pages_together_are_limited(app: web.Application, url: str) -> None:
    app[BEHAVIOUR]["pages"] = 2
    listed = await call(mcp_list_tools, url)
    assert [line.partition(":")[0] for line in listed.splitlines()[::2]] == ["page0", "page1"]
    app[BEHAVIOUR]["pages"] = 40
    assert await call(mcp_list_tools, url) == "Error: the answer is longer than 20000 bytes"


async def test_two_lists_of_one_call_share_the_limit(
    url: str, configure: Callable[[str], None]
) -> None:
    assert "page0" in await call(mcp_list_resources, url)
    configure('[stdlib.http]\nallow = ["127.0.0.1"]\nmax_bytes = 12000\n')
    assert await call(mcp_list_resources, url) == "Error: the answer is longer than 12000 bytes"


@pytest.mark.parametrize("goodbye", ["never", "hang up"])
async def test_what_a_tool_said_is_kept_when_the_server_does_not_let_go(
    app: web.Application, url: str, goodbye: str
) -> None:
    app[BEHAVIOUR]["goodbye"] = goodbye
    assert await call(mcp_call_tool, url, tool_name="pay", tool_input={}) == "paid"
    answer = await call(mcp_call_tool, url, tool_name="fail", tool_input={})
    assert answer == "Error: the tool failed: paid"
    assert app[BEHAVIOUR]["deletes"] == 2


async def test_what_does_not_fit_into_json_is_told(url: str) -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, "\ud800", object()):
        answer = await call(mcp_call_tool, url, tool_name="pay", tool_input={"a": value})
        assert answer.startswith("Error: ")
    answer = await call(mcp_list_tools, "http://\udcff.example/")
    assert answer == "Error: the address is not a valid URL"
