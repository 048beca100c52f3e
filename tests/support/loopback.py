"""Applications of aiohttp on a free port of loopback, and what MCP servers answer there."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """Serve an application; gives its address."""
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def mcp_reply(
    message: Mapping[str, Any],
    results: Mapping[str, Any],
    *,
    version: str = "2025-06-18",
    **about: Any,
) -> dict[str, Any]:
    """Return what an MCP server answers that was not made to be discovered.

    Args:
        message: The request.
        results: The result of each method; others are refused.
        version: The revision of the protocol that it speaks.
        about: More of what it says of itself.
    """
    begun = {
        "protocolVersion": version,
        "capabilities": {"tools": {}, "resources": {}},
        "serverInfo": {"name": "scripted", "version": "1"},
    }
    known = {"initialize": begun | about, **results}
    method, reply = message["method"], {"jsonrpc": "2.0", "id": message["id"]}
    if method in known:
        return reply | {"result": known[method]}
    return reply | {"error": {"code": -32601, "message": f"no {method}"}}
