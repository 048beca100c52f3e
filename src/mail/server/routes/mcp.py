"""``POST /mcp``: the tools of `mail.mcp` for clients that speak MCP over streamable HTTP.

No session is kept: each request stands for itself, with its own token, and any server process can
answer it. The tools ask this server's own routes with the caller's token, inside the process.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import httpx
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from mail.errors import ProtocolError, ToolError
from mail.mcp.tools import Api, profile_of, tools_of
from mail.server.bodies import parse_object
from mail.server.deps import State, ToolUser
from mail.server.errors import BodyTooLarge
from mail.server.intake import body_of, made_of_body
from mail.server.middleware import CALLER, WAITS
from mail.server.routing import MAILRouter
from mail.server.state import PARTICIPANT_ROLE

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from mail.mcp.server import Caller

__all__ = ["McpDoor", "router"]

_PROFILES: Final = "mcp_profiles"
_AROUND_MESSAGE: Final = 64 * 1024
"""Bytes of a request beside the text of a message."""

router = MAILRouter(include_in_schema=False)
"""Described by the protocol itself: no part of the OpenAPI document."""


@dataclass(slots=True, eq=False)
class McpDoor:
    """The SDK's side of the route: begun by the first request, ended by `close`.

    Attributes:
        app: The application that the tools ask.
    """

    app: Any
    _serving: "asyncio.Task[None] | None" = field(default=None, init=False)
    _begun: "asyncio.Future[StreamableHTTPSessionManager] | None" = field(default=None, init=False)

    async def manager(self) -> "StreamableHTTPSessionManager":
        """Return what answers requests; the first call imports the SDK."""
        if self._begun is None:
            self._begun = asyncio.get_running_loop().create_future()
            # The SDK's task group must be left by the task that entered it.
            self._serving = asyncio.create_task(self._serve(self._begun), name="mcp")
        return await asyncio.shield(self._begun)

    async def close(self) -> None:
        """End what goes on."""
        if self._serving is not None:
            self._serving.cancel()
            with suppress(asyncio.CancelledError):
                await self._serving

    async def _serve(self, begun: "asyncio.Future[StreamableHTTPSessionManager]") -> None:
        try:
            made = await asyncio.to_thread(self._make)
            async with made.run():
                begun.set_result(made)
                await asyncio.Event().wait()
        except Exception as error:
            if begun.done():
                raise
            begun.set_exception(error)

    def _make(self) -> "StreamableHTTPSessionManager":
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from mail.mcp.server import make_server

        return StreamableHTTPSessionManager(make_server(self._connected), stateless=True)

    async def _connected(self, ctx: Any) -> "Caller":
        from mail.mcp.server import Caller

        place: dict[str, Any] = ctx.request.scope["state"]
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        client = httpx.AsyncClient(
            transport=transport,
            base_url="http://mail",
            headers={"Authorization": f"Bearer {place['token']}"},
            timeout=None,  # noqa: S113 - the routes have their own limits
        )
        caller = place[CALLER]
        own_id = caller.id if caller.role == PARTICIPANT_ROLE else ""
        return Caller(Api(client), place[_PROFILES], own_id)


class _Handed(Response):
    """An answer that the SDK gives to a body that was read before."""

    def __init__(self, manager: "StreamableHTTPSessionManager", body: bytes) -> None:
        super().__init__()
        self._manager = manager
        self._unread = [body]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_again() -> Message:
            if self._unread:
                return {"type": "http.request", "body": self._unread.pop(), "more_body": False}
            return await receive()

        await self._manager.handle_request(scope, receive_again, send)


@router.post("/mcp")
async def mcp(
    request: Request,
    state: State,
    caller: ToolUser,
    tools: Annotated[
        str, Query(description="The profiles of tools to offer, separated by commas.")
    ] = "",
) -> Response:
    """Speak MCP: list the tools and call them.

    The body is a JSON-RPC request of the Model Context Protocol over streamable HTTP, without
    sessions. Tools act with the caller's own token.
    """
    profiles = [name for name in (part.strip() for part in tools.split(",")) if name]
    profiles = profiles or [profile_of(caller.role)]
    try:
        tools_of(profiles)
    except ToolError as error:
        raise ProtocolError(f"tools: {error}") from None
    door: McpDoor = request.app.state.mcp
    request.scope["state"][_PROFILES] = profiles
    # Read here: the SDK would take what is too much or too fast, and parse it on the event loop.
    body = await body_of(request)
    if len(body) > state.config.limits.max_message_bytes + _AROUND_MESSAGE:
        raise BodyTooLarge(
            "the request is larger than a message may be, with what belongs to it; send less, or "
            "raise [server.limits] max_message_bytes"
        )
    await made_of_body(request, parse_object)
    manager = await door.manager()
    request.scope["state"][WAITS]()  # what the tools ask takes places of its own
    return _Handed(manager, body)
