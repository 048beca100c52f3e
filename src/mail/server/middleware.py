"""The middleware: what every request passes before and after its route.

It refuses oversized headers, compressed bodies, too many requests at once and
work during a drain, counts the body while it streams in, answers browsers that ask for other
origins, hides what nobody foresaw behind a request id, and writes one log line per request, without
the query string and without headers.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Final

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mail.clock import SystemClock
from mail.config.server import LimitsConfig
from mail.errors import MAILError, ProtocolError, ShuttingDown
from mail.logcontext import LogContext, begin, end
from mail.server.at_work import ALWAYS_ANSWERED, AtWork, Strangers
from mail.server.errors import (
    BadEncoding,
    BodyTooLarge,
    BodyTooSlow,
    HeadersTooLarge,
    ServerBusy,
    TargetTooLong,
    as_it_is,
    error_response,
    mail_error_response,
)
from mail.server.exchange import Exchange
from mail.traces import continued

MAX_HEADER_BYTES: Final = 16 * 1024
MAX_HEADERS: Final = 100
MAX_TARGET_BYTES: Final = 8 * 1024
"""The longest path with its query."""
MAX_PARAMETERS: Final = 100
"""Parameters of a query. To read a thousand takes longer than all else about a request."""
BODY_SECONDS: Final = 60.0
"""The deadline of a request's body."""
BODY_SILENCE_SECONDS: Final = 10.0
BodyLimits = tuple[int, float, str, str]
"""The size limit and the deadline of a body, and the exceptions from each."""
_USUAL_WAYS: Final = ("raise [server.limits] max_body_bytes", "send a large one as a file")
_LINGER_SECONDS: Final = 1.0
_LINGER_FACTOR: Final = 16

_log = logging.getLogger("mail.server")

_METHODS: Final = ("GET", "POST", "DELETE")
_REQUEST_HEADERS: Final = ("Authorization", "Idempotency-Key", "Last-Event-ID", "X-Request-ID")
_ANSWER_HEADERS: Final = ("Idempotency-Replayed", "Retry-After", "X-Request-ID")
_RULES: Final = (
    "cors_origins in mail.toml lists the allowed origins; their pages may use "
    f"{', '.join(_METHODS)}, "
    f"and send {', '.join(_REQUEST_HEADERS)}"
)


class Cors:
    """The rules for pages of other origins.

    Args:
        origins: Exact origins, such as ``https://app.example.org``.
    """

    def __init__(self, origins: Sequence[str]) -> None:
        self._rules = CORSMiddleware(
            _nowhere,
            allow_origins=tuple(origins),
            allow_methods=_METHODS,
            allow_headers=_REQUEST_HEADERS,
            expose_headers=_ANSWER_HEADERS,
        )

    def asks(self, scope: Scope, headers: Headers) -> bool:
        """Tell whether a request only asks what a page may do (a preflight; it has no token)."""
        preflight = "origin" in headers and "access-control-request-method" in headers
        return preflight and scope["method"] == "OPTIONS"

    def answer(self, headers: Headers) -> Response:
        """Make the answer to such a request."""
        response = self._rules.preflight_response(headers)
        if response.status_code < 400:
            return response
        return error_response(
            response.status_code,
            f"{bytes(response.body).decode()}: {_RULES}",
            headers={"Vary": response.headers["Vary"]},
        )

    async def send(self, message: Message, send: Send, request_headers: Headers) -> None:
        """Send a part of any answer, with the headers that let a named origin's page read it."""
        await self._rules.send(message, send, request_headers)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("only the rules are used")


class EdgeMiddleware:
    """Wraps an ASGI application.

    Args:
        app: The application.
        limits: The largest request body (``max_body_bytes``); requests at work at a time
            (``max_requests``; one that waits for a run, or whose answer is a stream, does not
            count any more); and answers a second to requests without a valid token from one
            address (``anonymous_rate``).
        cors: The other origins whose pages may call; None for none.
        answers_to: Tells of a ``Host`` header whether it names the server; None for any.
        draining: Tells whether the server takes no more work.
        shape: Gives the answer to an error the shape that clients of its path expect.
        bodies: Method and path of requests with other bodies, to the limits of these.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: LimitsConfig,
        cors: Cors | None = None,
        answers_to: Callable[[str], bool] | None = None,
        draining: Callable[[], bool],
        shape: Callable[[str, JSONResponse], JSONResponse] = as_it_is,
        bodies: Mapping[tuple[str, str], BodyLimits] | None = None,
    ) -> None:
        self._app = app
        self._usual_body = (limits.max_body_bytes, BODY_SECONDS, *_USUAL_WAYS)
        self._bodies = bodies or {}
        self._strangers = Strangers(limits.anonymous_rate)
        self._cors = cors
        self._answers_to = answers_to
        self._draining = draining
        self._shape = shape
        self._working = AtWork(limits.max_requests)
        self._clock = SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._cors is not None:
            send = partial(self._cors.send, send=send, request_headers=Headers(scope=scope))
        exchange = Exchange(scope, send, self._working, self._clock, self._strangers)
        before = begin(LogContext(request_id=exchange.id))
        exchange.client.begin()
        traced = continued(exchange.given) if b"traceparent" in exchange.given else nullcontext()
        try:
            with traced:
                await self._serve(scope, receive, exchange)
        finally:
            exchange.client.end(exchange.left)
            self._working.discard(exchange)
            exchange.log()
            exchange.let_go()
            end(before)

    async def _serve(self, scope: Scope, receive: Receive, exchange: Exchange) -> None:
        try:
            await self._pass(scope, receive, exchange)
        except TimeoutError as error:
            if not exchange.started:
                await self._unforeseen(error, scope, receive, exchange)
            else:
                _log.info(
                    "stream closed: the client stopped reading", extra={"request_id": exchange.id}
                )
                if exchange.client.cut is not None:
                    exchange.client.cut()
                    await asyncio.sleep(0)  # until the host has noticed
        except ClientDisconnect:
            _log.debug(
                "request %s: the client disconnected before its body was complete", exchange.id
            )
        except MAILError as error:
            if not exchange.started:
                await self._refuse(error, scope, receive, exchange)
            elif not isinstance(error, BodyTooLarge | BodyTooSlow):
                raise  # else a stream's reader goes on sending: the connection is closed
        except Exception as error:
            if exchange.started:
                raise
            await self._unforeseen(error, scope, receive, exchange)

    async def _pass(self, scope: Scope, receive: Receive, exchange: Exchange) -> None:
        given = exchange.given
        _check_head(scope, exchange)
        host = given.get(b"host", b"").decode("latin-1")
        if host and self._answers_to is not None and not self._answers_to(host):
            raise ProtocolError(
                f"this server does not answer to the host {host[:80]!r}; [server] allowed_hosts in "
                "mail.toml allows further names"
            )
        if self._cors is not None and self._cors.asks(scope, headers := Headers(scope=scope)):
            exchange.waited = True  # whoever may call could not send a token here
            await self._cors.answer(headers)(scope, receive, exchange.send)
            return
        if b"authorization" not in given:
            await exchange.wait()
        self._check_room(scope, exchange)
        usual = self._usual_body
        limits = self._bodies.get((scope["method"], scope["path"]), usual)
        body = _CountedBody(receive, limits, exchange)
        if scope["method"] == "HEAD":
            exchange.head_only = True
            await self._app({**scope, "method": "GET"}, body.receive, exchange.send_head)
        else:
            await self._app(scope, body.receive, exchange.send)

    def _check_room(self, scope: Scope, exchange: Exchange) -> None:
        if scope["method"] == "POST" and self._draining():
            raise ShuttingDown()
        if scope["path"] in ALWAYS_ANSWERED:
            return
        if self._working.is_full:
            raise ServerBusy(
                f"the server is processing {self._working.limit} requests, which is its limit; "
                "try again later, or raise [server.limits] max_requests"
            )
        if exchange.client.crowded:
            raise ServerBusy(
                "the server has reached its limit of connections; try again later, or raise "
                "[server.limits] max_connections"
            )

    async def _refuse(
        self, error: MAILError, scope: Scope, receive: Receive, exchange: Exchange
    ) -> None:
        try:
            response = mail_error_response(error)
        except MAILError:
            await self._unforeseen(error, scope, receive, exchange)
            return
        await self._shape(scope["path"], response)(scope, receive, exchange.send)

    async def _unforeseen(
        self, error: Exception, scope: Scope, receive: Receive, exchange: Exchange
    ) -> None:
        _log.error("request %s failed", exchange.id, exc_info=error)
        response = error_response(500, "internal error", request_id=exchange.id)
        await self._shape(scope["path"], response)(scope, receive, exchange.send)


def _check_head(scope: Scope, exchange: Exchange) -> None:
    """Refuse what no client sends that means well."""
    if sum([len(name) + len(value) for name, value in scope["headers"]]) > MAX_HEADER_BYTES:
        raise HeadersTooLarge(
            f"the headers are larger than {MAX_HEADER_BYTES} bytes; the limit is fixed"
        )
    hosts = [name for name, _ in scope["headers"]].count(b"host")
    if hosts > 1 or (not hosts and scope.get("http_version") == "1.1"):
        raise ProtocolError("a request must have exactly one Host header")
    if len(scope["headers"]) > MAX_HEADERS:
        raise HeadersTooLarge(f"there are more than {MAX_HEADERS} headers")
    if len(scope["path"]) + len(scope["query_string"]) > MAX_TARGET_BYTES:
        raise TargetTooLong(
            f"the path and the query are longer than {MAX_TARGET_BYTES} bytes; the limit is fixed"
        )
    if scope["query_string"].count(b"&") >= MAX_PARAMETERS:
        raise ProtocolError(f"the query has more than {MAX_PARAMETERS} parameters")
    if exchange.given.get(b"content-encoding", b"").strip().lower() not in (b"", b"identity"):
        raise BadEncoding(
            "a request body must not be compressed; remove the Content-Encoding header"
        )


class _CountedBody:
    """Passes a request's body on, piece by piece, until it is too much or too slow."""

    def __init__(self, receive: Receive, limits: BodyLimits, exchange: Exchange) -> None:
        self._limit, self._seconds, *self._ways = limits
        self._exchange = exchange
        self._receive = receive
        self._deadline: float | None = None
        self._size = 0
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:  # what follows is the news that the client has gone
            return await self._receive()
        message = await self._next()
        if max(self._size, self._exchange.declared) > self._limit:
            await self._discard()
            raise BodyTooLarge(
                f"the request body is larger than {self._limit} bytes; send less, or "
                f"{self._ways[0]}"
            )
        return message

    async def _next(self) -> Message:
        now = asyncio.get_running_loop().time()
        if self._deadline is None:  # a request may have waited before it is read
            self._deadline = now + self._seconds
        try:
            async with asyncio.timeout_at(min(now + BODY_SILENCE_SECONDS, self._deadline)):
                message = await self._receive()
        except TimeoutError:
            raise BodyTooSlow(
                "the rest of the request body did not arrive in time; send without a pause of "
                f"{BODY_SILENCE_SECONDS:g} seconds, or {self._ways[1]}"
            ) from None
        size = len(message.get("body", b""))
        self._size += size
        self._complete = not message.get("more_body", False)
        self._exchange.left = 0 if self._complete else self._exchange.left - size
        return message

    async def _discard(self) -> None:
        """Read on for a moment: a client that is cut off while it sends does not see the answer."""
        with suppress(TimeoutError, BodyTooSlow):
            async with asyncio.timeout(_LINGER_SECONDS):
                while not self._complete and self._size < _LINGER_FACTOR * self._limit:
                    await self._next()
