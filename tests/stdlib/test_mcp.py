"""MCP actions against servers of the official SDK, and one of the older protocol, on loopback."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
from aiohttp import web
from mcp.server import MCPServer
from mcp.server.mcpserver import Image

from mail.stdlib.mcp import connection
from mail.stdlib.mcp.actions import (
    mcp_call_tool,
    mcp_get_prompt,
    mcp_list_prompts,
    mcp_list_resources,
    mcp_list_tools,
    mcp_ping,
    mcp_read_resource,
)
from mail.stdlib.mcp.servers import actions_of_servers
from mail.swarms_json.fields import checked
from mail.swarms_json.types import SwarmsJSONMCPServer
from tests.server.kit import serving
from tests.stdlib.outside import PUBLIC, Outside
from tests.support.loopback import mcp_reply, served

EVERY = (
    mcp_ping,
    mcp_list_tools,
    mcp_call_tool,
    mcp_list_prompts,
    mcp_get_prompt,
    mcp_list_resources,
    mcp_read_resource,
)
MORE: dict[str, Any] = {
    "tool_name": "add",
    "tool_input": {"a": 1, "b": 2},
    "prompt_name": "greet",
    "resource_uri": "note://today",
}
ALLOWED = '[stdlib.http]\nallow = ["127.0.0.1"]\n'


def make_server() -> MCPServer:
    """Return a server with a bit of everything."""
    server = MCPServer("notes")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two
        numbers."""
        return a + b

    @server.tool()
    def chart() -> Image:
        """Draw a chart."""
        return Image(data=b"\x89PNG0123", format="png")

    @server.tool()
    def big(size: int) -> str:
        """Say much."""
        return "x" * size

    @server.tool()
    async def wait() -> str:
        """Never answer."""
        await asyncio.Event().wait()
        return "too late"

    @server.prompt()
    def greet(name: str = "you") -> str:
        """Greet somebody."""
        return f"Say hello to {name}."

    @server.resource("note://today")
    def today() -> str:
        """The note of the day."""
        return "sunny"

    @server.resource("note://picture", mime_type="image/png")
    def picture() -> bytes:
        return b"\x89PNG"

    @server.resource("note://day/{day}")
    def day(day: str) -> str:
        return f"nothing on {day}"

    return server


@pytest.fixture(params=[False, True], ids=["events", "json"])
async def url(
    request: pytest.FixtureRequest,
    configure: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[str]:
    """A served MCP server, which answers with event streams or with JSON."""
    configure(ALLOWED)
    monkeypatch.setattr(logging.getLogger("mcp"), "level", logging.CRITICAL)
    app = make_server().streamable_http_app(json_response=request.param)
    async with serving(app) as client:
        yield f"{str(client.base_url).rstrip('/')}/mcp"


async def call(action: Any, server_url: str, **args: Any) -> str:
    """Call an action as an agent does."""
    result: str = await action.function({"server_url": server_url, **args})
    return result


async def test_a_server_is_pinged(url: str) -> None:
    assert await call(mcp_ping, url) == "pong"


async def test_tools_are_listed_with_their_arguments(url: str) -> None:
    lines = (await call(mcp_list_tools, url)).splitlines()
    assert lines[0] == "add: Add two numbers."
    assert lines[1].startswith('  arguments: {"type": "object", "properties": {"a": ')
    assert [line.partition(":")[0] for line in lines[::2]] == ["add", "chart", "big", "wait"]


async def test_tools_are_called(url: str) -> None:
    assert await call(mcp_call_tool, url, tool_name="add", tool_input={"a": 1, "b": 2}) == "3"
    assert await call(mcp_call_tool, url, tool_name="chart", tool_input={}) == (
        "[image: image/png, 8 bytes]"
    )


async def test_a_tool_that_fails_is_told(url: str) -> None:
    answer = await call(mcp_call_tool, url, tool_name="add", tool_input={"a": "x", "b": 2})
    assert answer.startswith("Error: the tool failed: ")
    assert "valid integer" in answer
    answer = await call(mcp_call_tool, url, tool_name="subtract", tool_input={})
    assert answer == "Error: the tool failed: Unknown tool: subtract"


async def test_its_tools_can_be_actions(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES_TOKEN", "t-1")
    server = {"url": url, "headers": {"Authorization": "Bearer ${NOTES_TOKEN}"}, "tools": ["add"]}
    entry = checked("MCP server", SwarmsJSONMCPServer, server)
    found = await asyncio.to_thread(actions_of_servers, {"notes": entry})
    add = found["notes"]["add"]
    assert add.name == "notes__add" and add.parameters["required"] == ["a", "b"]
    assert add.untrusted and await add.function({"a": 1, "b": 2}) == "3"
    answer = await add.function({"a": "x", "b": 2})
    assert answer.startswith("Error: the tool failed: ") and "valid integer" in answer


async def test_prompts_are_listed_and_filled_in(url: str) -> None:
    assert await call(mcp_list_prompts, url) == "greet: Greet somebody.\n  name (optional)"
    assert await call(mcp_get_prompt, url, prompt_name="greet") == "user: Say hello to you."
    given = {"name": "Ann"}
    assert await call(mcp_get_prompt, url, prompt_name="greet", prompt_arguments=given) == (
        "user: Say hello to Ann."
    )
    answer = await call(mcp_get_prompt, url, prompt_name="insult")
    assert answer.startswith("Error: the MCP server refused: ")


async def test_resources_are_listed_and_read(url: str) -> None:
    listed = (await call(mcp_list_resources, url)).splitlines()
    assert listed[0] == "note://today - today: The note of the day. (text/plain)"
    assert listed[2] == "note://day/{day} (a pattern) - day"
    assert await call(mcp_read_resource, url, resource_uri="note://today") == "sunny"
    assert await call(mcp_read_resource, url, resource_uri="note://day/monday") == (
        "nothing on monday"
    )
    assert await call(mcp_read_resource, url, resource_uri="note://picture") == (
        "[binary: note://picture (image/png), 4 bytes]"
    )
    answer = await call(mcp_read_resource, url, resource_uri="note://nowhere")
    assert answer == "Error: the MCP server refused: Unknown resource: note://nowhere"


async def test_an_answer_that_is_too_long_is_refused(
    url: str, configure: Callable[[str], None]
) -> None:
    configure(ALLOWED + "max_bytes = 20000\n")
    answer = await call(mcp_call_tool, url, tool_name="big", tool_input={"size": 100})
    assert answer == "x" * 100
    answer = await call(mcp_call_tool, url, tool_name="big", tool_input={"size": 30_000})
    assert answer == "Error: the answer is longer than 20000 bytes"


async def test_a_tool_that_never_answers_is_given_up(
    url: str, configure: Callable[[str], None]
) -> None:
    configure(ALLOWED + "timeout = 0.5\n")
    answer = await call(mcp_call_tool, url, tool_name="wait", tool_input={})
    assert answer.startswith("Error: ")
    assert "0.5 seconds" in answer or "in time" in answer or "timed out" in answer.lower()
    configure(ALLOWED)
    assert await call(mcp_ping, url) == "pong"


async def test_what_is_no_mcp_server_is_told(url: str) -> None:
    answer = await call(mcp_ping, url.replace("/mcp", "/nothing"))
    assert answer.startswith("Error: ")
    assert await call(mcp_ping, "http://127.0.0.1:1/mcp") == "Error: the connection failed"
    assert await call(mcp_ping, "nonsense") == (
        "Error: only full http:// and https:// addresses can be fetched"
    )
    assert await call(mcp_ping, "http://a.example:x/") == "Error: the address is not a valid URL"


@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
async def test_arguments_are_checked(action: Any) -> None:
    assert await action.function({}) == "Error: `server_url` is required"
    assert await action.function({"server_url": 5}) == "Error: `server_url` must be a string"
    for name in set(action.parameters["required"]) - {"server_url"}:
        args = {"server_url": "http://127.0.0.1/", **MORE}
        kind = "a dictionary" if name == "tool_input" else "a string"
        assert await action.function(args | {name: None}) == f"Error: `{name}` is required"
        assert await action.function(args | {name: 5}) == f"Error: `{name}` must be {kind}"


async def test_arguments_of_prompts_are_texts() -> None:
    answer = await call(mcp_get_prompt, "http://x/", prompt_name="a", prompt_arguments={"n": 1})
    assert answer == "Error: the values of `prompt_arguments` must be strings"


class Recording(httpx2.AsyncBaseTransport):
    """Answers every request with a redirect, and remembers where it went."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return httpx2.Response(307, headers={"Location": self.location})


@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:9/mcp",
        "http://[::1]:9/mcp",
        "http://169.254.169.254/mcp",
        "http://localhost/mcp",
        "http://both.example/mcp",
        "http://public.example@10.0.0.1/mcp",
    ],
)
async def test_private_addresses_are_refused_before_a_connection(
    outside: Outside, monkeypatch: pytest.MonkeyPatch, wall: list[str], action: Any, address: str
) -> None:
    outside.names |= {"localhost": ["127.0.0.1"], "both.example": [PUBLIC, "127.0.0.1"]}
    transport = Recording("/")
    monkeypatch.setattr(connection, "system_transport", lambda: transport)
    answer = await action.function({"server_url": address, **MORE})
    assert "not a public address; an operator can allow it in mail.toml" in answer
    assert answer.startswith("Error: ")
    assert (transport.requests, wall) == ([], [])


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1/mcp", "http://other.example/mcp", "http://a:b@public.example/", "/again"],
)
async def test_redirects_lead_nowhere_else(
    outside: Outside, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    transport = Recording(location)
    monkeypatch.setattr(connection, "system_transport", lambda: transport)
    answer = await call(mcp_ping, "http://me:secret@public.example/mcp")
    assert answer.startswith("Error: ")
    assert "secret" not in answer
    assert {request.url.host for request in transport.requests} == {PUBLIC}
    assert {request.headers["host"] for request in transport.requests} == {"public.example"}
    assert {request.headers["authorization"] for request in transport.requests} == {
        "Basic bWU6c2VjcmV0"
    }


async def old_protocol(request: web.Request) -> web.Response:
    """Speak the protocol as it was before servers could be discovered."""
    message = await request.json()
    if "id" not in message:
        return web.Response(status=202)
    cursor = message.get("params", {}).get("cursor")
    tool = {"name": f"tool{cursor or 0}", "inputSchema": {"type": "object"}}
    more = {} if cursor else {"nextCursor": "1"}
    results = {"ping": {}, "tools/list": {"tools": [tool], **more}}
    return web.json_response(mcp_reply(message, results, version="2025-03-26"))


@pytest.fixture
async def old(configure: Callable[[str], None]) -> AsyncIterator[str]:
    """A server of the older protocol."""
    configure(ALLOWED)
    app = web.Application()
    app.router.add_post("/mcp", old_protocol)
    async with served(app) as address:
        yield f"{address}/mcp"


async def test_servers_of_the_older_protocol_are_served_too(old: str) -> None:
    assert await call(mcp_ping, old) == "pong"
    assert (await call(mcp_list_tools, old)).splitlines()[::2] == ["tool0", "tool1"]
    answer = await call(mcp_list_prompts, old)
    assert answer == "Error: the MCP server refused: no prompts/list"
