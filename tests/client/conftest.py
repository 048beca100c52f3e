"""A real HTTP server on loopback that plays the counterpart of the client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from mail.client import MAILClient
from mail.client.stream import Reconnect
from mail.config import ClientConfig

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Counterpart:
    """Routes to answer with, and the requests that came in as (method, path, headers, JSON)."""

    url: str = ""
    routes: dict[tuple[str, str], Handler] = field(default_factory=dict)
    seen: list[tuple[str, str, Any, Any]] = field(default_factory=list)

    def answer(self, method: str, path: str, value: Any, status: int = 200) -> None:
        """Answer a route with JSON."""

        async def handler(request: web.Request) -> web.StreamResponse:
            return web.json_response(value, status=status)

        self.routes[method, path] = handler

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Note the request and find its route."""
        body = await request.json() if request.can_read_body else None
        self.seen.append((request.method, request.raw_path, request.headers, body))
        handler = self.routes.get((request.method, request.raw_path))
        if handler is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        return await handler(request)


@pytest.fixture
async def server() -> AsyncIterator[Counterpart]:
    """Return a running counterpart."""
    counterpart = Counterpart()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", counterpart.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    counterpart.url = "http://{}:{}".format(*runner.addresses[0])
    yield counterpart
    await runner.cleanup()


@pytest.fixture
async def client(server: Counterpart) -> AsyncIterator[MAILClient]:
    """Return a client of the counterpart that does not wait long between attempts."""
    async with MAILClient(server.url + "/", "key-1", config=ClientConfig(timeout=5)) as client:
        client.reconnect = Reconnect(tries=3, first_wait=0.01, longest_wait=0.02)
        yield client


async def start_stream(request: web.Request) -> web.StreamResponse:
    """Begin an event stream."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


def events_of(*chunks: bytes, cut: bool = False) -> Handler:
    """Make a handler that sends bytes, then ends the stream or (``cut``) drops the connection."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await start_stream(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if cut:
            assert request.transport is not None
            await asyncio.sleep(0.02)  # lets the written bytes leave before the reset
            request.transport.abort()
        return response

    return handler
