"""``/mcp``: the tools of `mail.mcp` for clients that speak MCP over streamable HTTP.

Each POST stands for itself, with its own token, and any server process can answer it. A session is
nothing but the list of resources that a client of an older revision has subscribed to; it listens
for their changes with a GET. The tools ask this server's own routes with the caller's token, inside
the process.
"""

import asyncio
import json
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import httpx
from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from mail.auth.callers import Caller as TokenCaller
from mail.config.server import ServerConfig, answers_to
from mail.errors import Forbidden, ProtocolError, ToolError
from mail.mcp.api import Api
from mail.mcp.tools import profile_of, read_profiles
from mail.mcp.watching import Watcher
from mail.net.sse import event_stream, frame
from mail.server.bodies import parse_object
from mail.server.deps import State, TaskOwner
from mail.server.errors import BodyTooLarge, error_response
from mail.server.exchange import caller_of, exchange_of
from mail.server.intake import body_of, made_of_body
from mail.server.routing import MAILRouter
from mail.server.state import PARTICIPANT_ROLE

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from mail.mcp.server import Caller

_AROUND_MESSAGE: Final = 64 * 1024
"""Bytes of a request beside the text of a message."""
_MOST_VALUES: Final = 1_000
"""JSON values of a request: the SDK parses it again, and validates it, on the event loop."""
_FEWER: Final = (
    "the limit of /mcp is fixed; send fewer, or use the route of the HTTP API that does the same"
)
_SESSION: Final = "mcp-session-id"
_MOST_SESSIONS: Final = 64
_MOST_OF_ALL: Final = 4096
_IDLE_SECONDS: Final = 3600.0
_PING_SECONDS: Final = 15.0
_NOT_FOUND: Final = 404
_NOT_ALLOWED: Final = 405
_PING: Final = b": ping\r\n\r\n"

_NO_SESSION: Final = "there is no such session here; initialize a new one"

SessionId = Annotated[str | None, Header(alias="Mcp-Session-Id")]

router = MAILRouter(include_in_schema=False)
"""Described by the protocol itself: no part of the OpenAPI document."""


@dataclass(slots=True, eq=False)
class _Session:
    """The subscriptions of a client of an older revision, and the stream that tells it."""

    watcher: Watcher = field(default_factory=Watcher)
    used: float = field(default_factory=time.monotonic)
    stream: asyncio.Event | None = None
    """Wakes its newest stream; an older one ends."""

    def replace_stream(self, stream: asyncio.Event | None) -> None:
        """Let its stream end, and another one take the place."""
        before, self.stream = self.stream, stream
        if before is not None:
            before.set()


@dataclass(slots=True, eq=False)
class _Sessions:
    """The sessions of this process, the longest unused first; one with a stream is in use."""

    _held: OrderedDict[tuple[TokenCaller, str], _Session] = field(default_factory=OrderedDict)

    def begin(self, caller: TokenCaller) -> str:
        """Return the id of a new session, which takes the place of an old one if need be."""
        oldest = time.monotonic() - _IDLE_SECONDS
        while self._held and next(iter(self._held.values())).used <= oldest:
            self._held.popitem(last=False)
        own = [key for key in self._held if key[0] == caller]
        if len(own) >= _MOST_SESSIONS:
            self.end(*own[0])
        elif len(self._held) >= _MOST_OF_ALL:
            self.end(*next(iter(self._held)))
        name = uuid.uuid4().hex
        self._held[caller, name] = _Session()
        return name

    def find(self, caller: TokenCaller, name: str) -> _Session | None:
        """Return a session of a caller's, which counts as used now."""
        found = self._held.get((caller, name))
        if found is not None:
            found.used = time.monotonic()
            self._held.move_to_end((caller, name))
        return found

    def end(self, caller: TokenCaller, name: str) -> bool:
        """Forget a session; tell whether there was one."""
        ended = self._held.pop((caller, name), None)
        if ended is not None:
            ended.replace_stream(None)
        return ended is not None


@dataclass(slots=True, eq=False)
class McpDoor:
    """The SDK's side of the route: begun by the first request, ended by `close`.

    Attributes:
        app: The application that the tools ask.
    """

    app: Any
    sessions: _Sessions = field(default_factory=_Sessions)
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
        return self.caller_of(ctx.request)

    def caller_of(self, request: Request) -> "Caller":
        """Return who makes a request, as the tools know it."""
        from mail.mcp.server import Caller

        exchange, caller = exchange_of(request), caller_of(request)
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        client = httpx.AsyncClient(
            transport=transport,
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {exchange.token}"},
            timeout=None,  # noqa: S113 - the routes have their own limits
        )
        quotas = self.app.state.mail.quotas

        def watcher() -> Watcher:
            session = self.sessions.find(caller, request.headers.get(_SESSION, ""))
            if session is None:
                raise ToolError(_NO_SESSION)
            return session.watcher

        return Caller(
            Api(client),
            read_profiles(request.query_params.get("tools", "")) or [profile_of(caller.role)],
            caller.id if caller.role == PARTICIPANT_ROLE else "",
            watcher,
            partial(quotas.stream, caller),
        )


class _Handed(Response):
    """An answer that the SDK gives to a body that was read before."""

    def __init__(
        self, manager: "StreamableHTTPSessionManager", body: bytes, session: str | None
    ) -> None:
        super().__init__()
        self._manager = manager
        self._unread = [body]
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_again() -> Message:
            if self._unread:
                return {"type": "http.request", "body": self._unread.pop(), "more_body": False}
            return await receive()

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start" and self._session:
                named = (_SESSION.encode(), self._session.encode())
                message["headers"] = [*message["headers"], named]
            await send(message)

        await self._manager.handle_request(scope, receive_again, send_named)


@router.post("/mcp")
async def mcp(
    request: Request,
    state: State,
    caller: TaskOwner,
    tools: Annotated[
        str, Query(description="The profiles of tools to offer, separated by commas.")
    ] = "",
) -> Response:
    """Speak MCP: list the tools and call them.

    The body is a JSON-RPC request of the Model Context Protocol over streamable HTTP. Tools act
    with the caller's own token. ``initialize`` begins a session, which only ``resources/subscribe``
    needs.
    """
    _check_origin(request, state.config)
    try:
        read_profiles(tools)
    except ToolError as error:
        raise ProtocolError(f"tools: {error}") from None
    door: McpDoor = request.app.state.mcp
    # Read here: the SDK would take what is too much or too fast, and parse it on the event loop.
    body = await body_of(request)
    if len(body) > state.config.limits.max_message_bytes + _AROUND_MESSAGE:
        raise BodyTooLarge(
            "the request is larger than a message may be, with what belongs to it; send less, or "
            "raise [server.limits] max_message_bytes"
        )
    parsed = partial(parse_object, max_values=_MOST_VALUES, fewer=_FEWER)
    asked = await made_of_body(request, parsed)
    manager = await door.manager()
    session = door.sessions.begin(caller) if asked.get("method") == "initialize" else None
    exchange_of(request).waits()  # what the tools ask takes places of its own
    return _Handed(manager, body, session)


@router.get("/mcp")
async def listen(
    request: Request, state: State, caller: TaskOwner, name: SessionId = None
) -> Response:
    """Notify of changes of the resources that a session has subscribed to.

    Without the id of a session there is nothing to listen to: 405. A new stream of a session ends
    the one before.
    """
    _check_origin(request, state.config)
    if name is None:
        return _not_without_session()
    door: McpDoor = request.app.state.mcp
    session = door.sessions.find(caller, name)
    if session is None:
        return error_response(_NOT_FOUND, _NO_SESSION)
    api = door.caller_of(request).api
    held = ExitStack()
    held.enter_context(state.quotas.stream(caller))
    use = partial(door.sessions.find, caller, name)
    return event_stream(_notifications(api, session, held, use))


@router.delete("/mcp")
async def end(request: Request, caller: TaskOwner, name: SessionId = None) -> Response:
    """End a session: its subscriptions are forgotten, and its stream ends."""
    door: McpDoor = request.app.state.mcp
    if name is None:
        return _not_without_session()
    if not door.sessions.end(caller, name):
        return error_response(_NOT_FOUND, _NO_SESSION)
    return Response(status_code=204)


def _check_origin(request: Request, config: ServerConfig) -> None:
    """Refuse pages of other origins, as the protocol wants it: a name may lead here for a while.

    Raises:
        Forbidden: the request comes from a page that is neither local nor allowed.
    """
    origin = request.headers.get("origin")
    if origin is None or origin in config.cors_origins:
        return
    if not answers_to(config, origin.partition("//")[2]):
        raise Forbidden("pages of this origin may not use /mcp; cors_origins in mail.toml may")


def _not_without_session() -> Response:
    detail = "without the Mcp-Session-Id of a session, /mcp takes POST only"
    return error_response(_NOT_ALLOWED, detail, headers={"Allow": "POST"})


async def _notifications(
    api: Api, session: _Session, held: ExitStack, use: Callable[[], object]
) -> AsyncGenerator[bytes, None]:
    """Yield a notification for each change, and something now and then to keep the connection."""
    changed, news = dict[str, None](), asyncio.Event()
    session.replace_stream(news)

    async def tell(uri: str) -> None:
        changed[uri] = None
        news.set()

    watching = asyncio.create_task(session.watcher.run(api, tell), name="mcp watcher")
    watching.add_done_callback(lambda _: news.set())
    try:
        yield _PING
        while session.stream is news and not watching.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(_PING_SECONDS):
                    await news.wait()
            news.clear()
            use()
            if not changed and session.stream is news:
                yield _PING
            while changed and session.stream is news:
                uri = next(iter(changed))
                del changed[uri]
                told = {"method": "notifications/resources/updated", "params": {"uri": uri}}
                yield frame("message", json.dumps({"jsonrpc": "2.0", **told}))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        if session.stream is news:
            session.stream = None
        held.close()
