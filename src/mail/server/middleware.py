"""The middleware: what every request passes before and after its route.

It refuses oversized headers, compressed bodies, too many requests at once and
work during a drain, counts the body while it streams in, answers browsers that ask for other
origins, hides what nobody foresaw behind a request id, and writes one log line per request, without
the query string and without headers.
"""

import asyncio
import logging
import re
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mail.clock import SystemClock
from mail.config.server import LimitsConfig
from mail.errors import MAILError, ProtocolError, ShuttingDown
from mail.logcontext import LogContext, begin, end
from mail.redaction import beginning
from mail.server.connections import client_of
from mail.server.cors import Cors
from mail.server.errors import (
    RETRY_AFTER,
    BadEncoding,
    BodyTooLarge,
    BodyTooSlow,
    HeadersTooLarge,
    QuotaExceeded,
    ServerBusy,
    TargetTooLong,
    as_it_is,
    error_response,
    mail_error_response,
)
from mail.server.quotas import Rate

MAX_HEADER_BYTES: Final = 16 * 1024
MAX_HEADERS: Final = 100
MAX_TARGET_BYTES: Final = 8 * 1024
"""The longest path with its query."""
MAX_PARAMETERS: Final = 100
"""Parameters of a query. To read a thousand takes longer than all else about a request."""
BODY_SECONDS: Final = 60.0
"""How long a request's body may take to arrive."""
BODY_SILENCE_SECONDS: Final = 10.0
AT_ONCE: Final = 8
"""Requests of one caller that are at work at a time.

One that only waits, for the rest of its body or for a run, is not. More would be no faster, and
whoever else asks would wait for all of them at each step.
"""
MAX_WAITING: Final = 1000
"""Further requests of the caller that wait for their turn."""
BodyLimits = tuple[int, float, str, str]
"""How many bytes a body may have, in how many seconds it must arrive, and ways out of each."""
_USUAL_WAYS: Final = ("raise [server.limits] max_body_bytes", "send a large one as a file")
WAITS: Final = "mail.waits"
"""In the state of a request: a function to call when it only waits, which takes no place."""
WORKS: Final = "mail.works"
"""In the state of a request: a function to call when it goes on after it waited."""
HELD: Final = "mail.held"
"""In the state of a request: functions to call when it has ended."""
BEGINS: Final = "mail.begins"
"""In the state of a request: a function to call when its `CALLER` is known; it may refuse it."""
HEAD_ONLY: Final = "mail.head_only"
"""Set in the state of a HEAD: a long answer needs no body."""
CALLER: Final = "caller"
"""In the state of a request with a valid token: whose it is."""
ALWAYS_ANSWERED: Final = frozenset({"/", "/health"})
"""Answered however busy the server is: who looks after it must not take it for dead.

Nobody needs a token for them, so they take no place of others' either.
"""
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_ALWAYS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Headers of every answer that says nothing else."""
_ANONYMOUS_BURST: Final = 500
"""A console is 20 requests without a token, and many of its users may be behind one address."""
_ANONYMOUS_WAIT: Final = 10.0
_APART_SECONDS: Final = 0.001
_HEALTH_WAIT: Final = 0.5
_LINGER_SECONDS: Final = 1.0
_LONGEST_METHOD: Final = 32
_LINGER_FACTOR: Final = 16
_MOST_LEFT: Final = 16 * 1024 * 1024
"""Bytes of a body that are read after its request's answer, or that could not be read."""

_log = logging.getLogger("mail.server")
_access = logging.getLogger("mail.server.access")


class Strangers:
    """Who sends requests without a valid token: so many a second are answered for each address.

    Those beyond the rate wait, for a bounded time: many may be behind one address. Addresses of
    IPv6 count by their network, because a host has all of it.

    Args:
        rate: Answers a second, after a burst; 0 for any number.
    """

    def __init__(self, rate: float) -> None:
        self._rate = Rate(rate, _ANONYMOUS_BURST, time.monotonic)
        self._next = asyncio.Lock() if rate else None

    def delay(self, scope: Scope) -> float:
        """Count one more answer; return how many seconds it waits."""
        address = _network(scope)
        seconds = self._rate.wait(address)
        if seconds < _ANONYMOUS_WAIT:  # else it would be longer than that for whoever comes later
            self._rate.take(address, 1)
        most = _HEALTH_WAIT if scope["path"] in ALWAYS_ANSWERED else _ANONYMOUS_WAIT
        return min(seconds, most)

    async def one_after_another(self) -> None:
        """Wait until the last one is a moment ago.

        In between the loop serves others, and threads that commit get the interpreter.
        """
        if self._next is None:
            return
        await self._next.acquire()
        asyncio.get_running_loop().call_later(_APART_SECONDS, self._next.release)


def _network(scope: Scope) -> str:
    """Return the address that a request came from, or the network of one of IPv6."""
    host: str = (scope.get("client") or ("",))[0]
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address.packed[:8].hex())


class _AtWork:
    """The requests at work. Of one caller's, `AT_ONCE` are, and others wait in their order.

    Args:
        limit: How many there may be of all callers; 0 for any number.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        share = limit - limit // 4  # one caller leaves a quarter to others
        self._share = min(share, AT_ONCE) if limit else AT_ONCE
        self._whose: dict[_Exchange, Hashable] = {}
        self._each: Counter[Hashable] = Counter()
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @property
    def is_full(self) -> bool:
        """Tell whether no more may begin."""
        return 0 < self.limit <= len(self._whose)

    def add(self, exchange: "_Exchange") -> None:
        """Count a request, for its caller if that is known."""
        self.discard(exchange)
        caller = self._whose[exchange] = exchange.caller
        self._each[caller] += 1

    def discard(self, exchange: "_Exchange") -> None:
        """Count a request no more; the next of its caller's begins."""
        if exchange not in self._whose:
            return
        caller = self._whose.pop(exchange)
        self._each[caller] -= 1
        if not self._each[caller]:
            del self._each[caller]
        self._let_begin(caller)

    async def begin(self, exchange: "_Exchange") -> None:
        """Count a request once it is its turn among those of its caller, if that is known.

        Raises:
            QuotaExceeded: too many of the caller's wait already.
        """
        self.discard(exchange)
        caller = exchange.caller
        if caller is not None and (caller in self._queues or self._each[caller] >= self._share):
            await self._wait(caller)
        self.add(exchange)

    async def _wait(self, caller: Hashable) -> None:
        queue = self._queues.setdefault(caller, deque())
        if len(queue) >= MAX_WAITING:
            raise QuotaExceeded(
                f"{MAX_WAITING} of your requests wait for {self._share} that are at work, which is "
                "the limit; wait for some, or send fewer at a time",
                int(RETRY_AFTER),
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was its turn already
                self._let_begin(caller)
            raise

    def _let_begin(self, caller: Hashable) -> None:
        queue = self._queues.get(caller)
        while queue and self._each[caller] < self._share:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if not queue:
            self._queues.pop(caller, None)


class EdgeMiddleware:
    """Wraps an ASGI application.

    Args:
        app: The application.
        limits: The largest request body (``max_body_bytes``); requests at work at a time
            (``max_requests``; one that waits for a run, or whose answer is a stream, does not
            count any more); and answers a second to requests without a valid token from one
            address (``anonymous_rate``).
        cors: Which other origins' pages may call; None for none.
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
        self._working = _AtWork(limits.max_requests)
        self._clock = SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._cors is not None:
            send = partial(self._cors.send, send=send, request_headers=Headers(scope=scope))
        exchange = _Exchange(scope, send, self._working, self._clock, self._strangers)
        before = begin(LogContext(request_id=exchange.id))
        exchange.client.begin()
        try:
            await self._serve(scope, receive, exchange)
        finally:
            exchange.client.end(exchange.left)
            self._working.discard(exchange)
            exchange.log()
            exchange.let_go()
            end(before)

    async def _serve(self, scope: Scope, receive: Receive, exchange: "_Exchange") -> None:
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

    async def _pass(self, scope: Scope, receive: Receive, exchange: "_Exchange") -> None:
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
        self._check_room(scope)
        if scope["path"] not in ALWAYS_ANSWERED:
            self._working.add(exchange)
        usual = self._usual_body
        limits = self._bodies.get((scope["method"], scope["path"]), usual)
        body = _CountedBody(receive, limits, exchange)
        if scope["method"] == "HEAD":
            scope["state"][HEAD_ONLY] = True
            await self._app({**scope, "method": "GET"}, body.receive, exchange.send_head)
        else:
            await self._app(scope, body.receive, exchange.send)

    def _check_room(self, scope: Scope) -> None:
        if scope["method"] == "POST" and self._draining():
            raise ShuttingDown()
        if scope["path"] in ALWAYS_ANSWERED:
            return
        if self._working.is_full:
            raise ServerBusy(
                f"the server is processing {self._working.limit} requests, which is its limit; "
                "try again later, or raise [server.limits] max_requests"
            )
        if client_of(scope).crowded:
            raise ServerBusy(
                "the server has reached its limit of connections; try again later, or raise "
                "[server.limits] max_connections"
            )

    async def _refuse(
        self, error: MAILError, scope: Scope, receive: Receive, exchange: "_Exchange"
    ) -> None:
        try:
            response = mail_error_response(error)
        except MAILError:
            await self._unforeseen(error, scope, receive, exchange)
            return
        await self._shape(scope["path"], response)(scope, receive, exchange.send)

    async def _unforeseen(
        self, error: Exception, scope: Scope, receive: Receive, exchange: "_Exchange"
    ) -> None:
        _log.error("request %s failed", exchange.id, exc_info=error)
        response = error_response(500, "internal error", request_id=exchange.id)
        await self._shape(scope["path"], response)(scope, receive, exchange.send)


def _check_head(scope: Scope, exchange: "_Exchange") -> None:
    """Refuse what no client sends that means well."""
    if exchange.header_bytes > MAX_HEADER_BYTES:
        raise HeadersTooLarge(
            f"the headers are larger than {MAX_HEADER_BYTES} bytes; the limit is fixed"
        )
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


class _Exchange:
    """One request and its answer: id, start, status, and the headers that every answer gets.

    Attributes:
        id: The request's id.
        client: Who asks.
        given: The first header of each name.
        header_bytes: The size of all headers.
        declared: The size of the body, if the headers tell it.
        left: What may still come of the body: an early answer does not wait for that.
        waited: Whether it had its turn among the requests without a token.
        started: Whether the answer has begun.
    """

    def __init__(
        self,
        scope: Scope,
        send: Send,
        working: _AtWork,
        clock: SystemClock,
        strangers: Strangers,
    ) -> None:
        self.given: dict[bytes, bytes] = {}
        self.header_bytes = 0
        for name, value in scope["headers"]:
            self.given.setdefault(name, value)
            self.header_bytes += len(name) + len(value)
        length = self.given.get(b"content-length", b"")
        self.declared = int(length) if length.isdigit() else 0
        chunked = b"transfer-encoding" in self.given
        self.left = _MOST_LEFT if chunked else min(self.declared, _MOST_LEFT)
        given = self.given.get(b"x-request-id", b"").decode("latin-1")
        self.id = given if REQUEST_ID.fullmatch(given) else clock.new_id()
        self.waited = False
        self.started = False
        self._at_work = True
        self._scope = scope
        self._send = send
        self._working = working
        self._strangers = strangers
        self._status = 0
        self._began = time.monotonic()
        state = scope.setdefault("state", {})
        self.client = client_of(scope)
        state["request_id"] = self.id
        state[WAITS] = self.waits
        state[WORKS] = self.works
        state[BEGINS] = self.goes_on

    @property
    def caller(self) -> Hashable:
        """Whose it is, or None if that is not known."""
        caller: Hashable = self._scope["state"].get(CALLER)
        return caller

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not (self.waited or CALLER in self._scope["state"]):
                with suppress(ClientDisconnect):
                    await self.wait()
            self.started = True
            self._status = message["status"]
            headers = [*message["headers"], (b"x-request-id", self.id.encode())]
            sent = dict(headers)
            headers += [header for header in _ALWAYS if header[0] not in sent]
            if self.client.crowded:
                headers.append((b"connection", b"close"))
            message["headers"] = headers
            if sent.get(b"content-type", b"").startswith(b"text/event-stream"):
                self._working.discard(self)
        await self._send(message)

    async def wait(self) -> None:
        """Let a request without a valid token wait its turn, before its work if it has none at all.

        It takes nobody's place meanwhile.

        Raises:
            ClientDisconnect: the client left before there was anything of an answer.
        """
        self.waited = True
        seconds = self._strangers.delay(self._scope)
        if seconds <= 0:
            await self._strangers.one_after_another()
            return
        self._working.discard(self)
        client, left = self.client, asyncio.Event()
        client.on_leaving = left.set
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if client.gone else seconds):
                await left.wait()
        client.on_leaving = None
        if client.gone:
            raise ClientDisconnect

    def waits(self) -> None:
        """Give its place to another, because it only waits."""
        self._at_work = False
        self._working.discard(self)

    def works(self) -> None:
        """Take a place again."""
        self._at_work = True
        self._working.add(self)

    async def goes_on(self) -> None:
        """Take a place if it has none, once it is its turn."""
        if not self._at_work:
            await self._working.begin(self)
            self._at_work = True

    async def send_head(self, message: Message) -> None:
        """Send the answer to a HEAD: without its body, and no stream lasts longer than its head."""
        if message["type"] == "http.response.start":
            await self.send(message)
            await self._send({"type": "http.response.body", "body": b""})

    def let_go(self) -> None:
        """Leave nothing behind that only the garbage collector could take apart."""
        state = self._scope["state"]
        del state[WAITS], state[WORKS], state[BEGINS]
        for give_back in state.pop(HELD, ()):
            give_back()

    def log(self) -> None:
        if not _access.isEnabledFor(logging.INFO):
            return
        path = self._scope.get("raw_path") or self._scope["path"].encode("utf-8", "replace")
        arguments = (
            self._scope["method"][:_LONGEST_METHOD],
            beginning(path.decode("ascii", "backslashreplace")),
            self._status,
            (time.monotonic() - self._began) * 1000,
        )
        # Without a look at the stack for who logs this.
        said = (_access.name, logging.INFO, __file__, 0, "%s %s %s %.1f ms", arguments, None)
        _access.handle(_access.makeRecord(*said))


class _CountedBody:
    """Passes a request's body on, piece by piece, until it is too much or too slow."""

    def __init__(self, receive: Receive, limits: BodyLimits, exchange: _Exchange) -> None:
        limit, seconds, *self._ways = limits
        self._exchange = exchange
        self._receive: Callable[[], Awaitable[Message]] = receive
        self._limit = limit
        self._seconds = seconds
        self._deadline: float | None = None
        self._size = 0
        self._complete = False
        self._waited = False

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
        steps = self._receive().__await__()
        try:
            waits_for = next(steps)
        except StopIteration as there:  # most bodies are: no timer is needed
            message: Message = there.value
        else:
            self._exchange.waits()
            self._waited = True
            message = await self._in_time(_Begun(waits_for, steps))
        self._size += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        self._exchange.left -= len(message.get("body", b""))
        if self._complete:
            self._exchange.left = 0
        if self._complete and self._waited and message["type"] == "http.request":
            await self._exchange.goes_on()
        return message

    async def _in_time(self, receiving: "_Begun") -> Message:
        try:
            now = asyncio.get_running_loop().time()
            if self._deadline is None:  # a request may have waited before it is read
                self._deadline = now + self._seconds
            async with asyncio.timeout_at(min(now + BODY_SILENCE_SECONDS, self._deadline)):
                return await receiving
        except TimeoutError:
            raise BodyTooSlow(
                "the rest of the request body did not arrive in time; send without a pause of "
                f"{BODY_SILENCE_SECONDS:g} seconds, or {self._ways[1]}"
            ) from None

    async def _discard(self) -> None:
        """Read on for a moment: a client that is cut off while it sends does not see the answer."""
        with suppress(TimeoutError, BodyTooSlow):
            async with asyncio.timeout(_LINGER_SECONDS):
                while not self._complete and self._size < _LINGER_FACTOR * self._limit:
                    await self._next()


@dataclass(slots=True, eq=False)
class _Begun:
    """The rest of an awaitable whose first step was made by hand, and what that waits for."""

    waits_for: Any
    steps: Generator[Any, Any, Message]

    def __await__(self) -> Generator[Any, Any, Message]:
        try:
            yield self.waits_for
        except BaseException:
            self.steps.close()
            raise
        return (yield from self.steps)
