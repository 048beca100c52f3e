"""Connections that may not last: clients that say nothing, send drop by drop, or do not read.

uvicorn bounds how long a connection idles between two requests, and nothing else. An answer that
nobody reads would stay in memory for ever, even after its connection was closed, and a path may be
of any length. The guards sit on both of uvicorn's parsers: httptools where it is installed, else
h11.
"""

import asyncio
import json
import logging
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, Final

from mail.clock import SystemClock
from mail.config.server import LimitsConfig
from mail.server.middleware import (
    CLIENT,
    CROWDED,
    CUT,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    Client,
)

MAX_TARGET_BYTES: Final = 8 * 1024
"""The longest path with its query."""

_TAKEN_BYTES: Final = 16 * 1024
"""What a reader must at least take within ``send_timeout``, when there is more than that."""
_SPARE: Final = 100
"""Connections beyond the limit that still get an answer: that the server is full, or its health."""
_OTHER_FILES: Final = 500
"""Files and sockets of a server besides its connections: the store, providers, tools."""
_LOOKS: Final = 4
"""How many times within the shortest of its limits a connection is looked at."""
_UNPARSED_BYTES: Final = MAX_HEADER_BYTES * 2
"""What a client may send without completing its headers, a piece of its body, or its request."""
_FED_BYTES: Final = 4 * 1024
"""How much of the headers, or of small chunks, is parsed before they are counted."""
_FRAMING_SHARE: Final = 16
"""The sizes and extensions of chunks cost nothing up to one part in so many of a body's bytes."""
_FREE_FRAMING: Final = 1024
"""Bytes of framing beyond that share before a connection waits for them."""
_FRAMING_WAIT: Final = 2.0
"""The longest wait for framing, however many connections send it."""
_HEAD_END: Final = re.compile(rb"\n\r?\n")

_NO_HTTP: Final = "Invalid HTTP request received."
_DRAINED_PER_SECOND: Final = 16 * 1024 * 1024
"""Bytes of a connection that are read although nobody wants them: a body that was refused."""
_LONG_TARGET: Final = (
    b"414 URI Too Long",
    f"the path and the query are longer than {MAX_TARGET_BYTES} bytes; the limit is fixed",
)
_MANY_HEADERS: Final = (
    b"431 Request Header Fields Too Large",
    f"there are more than {MAX_HEADERS} headers",
)

_log = logging.getLogger("mail.server")


class Pace:
    """So many bytes of framing a second are parsed, on all connections of a server together.

    A chunk of one byte is six on the wire, and takes as long to parse as one of a kilobyte.

    Args:
        rate: Bytes a second.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_at = 0.0

    def wait(self, size: float, now: float) -> float:
        """Count bytes that were parsed; return how many seconds their connection waits."""
        busy = max(self._free_at, now) + size / self._rate
        self._free_at = min(busy, now + _FRAMING_WAIT)
        return self._free_at - now


class Reading:
    """Reads on from a transport when uvicorn asks for it, unless what was read is held.

    Attributes:
        held: Whether what was read waits to be parsed.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.held = False

    def pause_reading(self) -> None:
        """Read nothing more for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, if nothing is held."""
        if not (self.held or self._transport.is_closing()):
            self._transport.resume_reading()


class GuardedConnection(asyncio.Protocol):
    """The guards of a connection: a mixin before one of uvicorn's protocols (see `guarded`)."""

    limits: ClassVar[LimitsConfig]
    pace: ClassVar[Pace]
    framing_rate: ClassVar[float]

    # What both of uvicorn's protocols have.
    app_state: dict[str, Any]
    connections: set[Any]
    cycle: Any
    flow: Any
    loop: asyncio.AbstractEventLoop
    timeout_keep_alive: float
    transport: asyncio.Transport

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = self.limits.idle_timeout
        self._client = Client()
        self._headers_since: float | None = None
        self._left = 0  # bytes in the write buffer at the last progress
        self._looks = 0  # since then
        self._watch: asyncio.TimerHandle | None = None
        self._refusal: tuple[bytes, str] | None = None  # status and reason, if it is a known one
        self._period = min(self.limits.header_timeout, self.limits.send_timeout) / _LOOKS
        self._in_body = False  # whether what comes next is of a request's body
        self._content = 0  # bytes of bodies so far, without the framing of their chunks
        self._framing = 0.0  # of it, beyond its share of the bytes, what was not waited for
        self._piece = _FED_BYTES  # how much of a body is parsed at once
        self._rest = b""  # what was read and is held
        self._resting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch; refuse what is too much."""
        super().connection_made(transport)
        self._reading = Reading(transport)
        self.flow = type(self.flow)(self._reading)
        self.app_state = {**self.app_state, CUT: transport.abort, CLIENT: self._client}
        beyond = len(self.connections) - self.limits.max_connections
        if self.limits.max_connections and beyond > 0:
            if beyond > _SPARE:
                transport.abort()
                return
            self.app_state[CROWDED] = True
        self._headers_since = self.loop.time()
        self._watch = self.loop.call_later(self._period, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()
        if self._resting is not None:
            self._resting.cancel()
        self._rest = b""
        self._client.leave()
        super().connection_lost(exc)
        # uvicorn's timer would hold on to a broken connection.
        self._unset_keepalive_if_required()  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Take bytes, and note when a request's headers began and ended."""
        if self._reading.held:
            self._rest += data
            self._reading.pause_reading()
            return
        unwanted = self._between_requests
        if self._headers_since is None and unwanted:
            self._headers_since = self.loop.time()
        fed, wait = 0, 0.0
        while fed < len(data) and not wait:  # or 256 KiB of headers come at once
            part = data[fed : fed + (self._piece if self._in_body else _FED_BYTES)]
            wait = self._parse(part)
            fed += len(part)
            if self.transport.is_closing():
                return
        if unwanted and self._between_requests and fed > _TAKEN_BYTES:
            wait += fed / _DRAINED_PER_SECOND  # a body whose request has its answer already
        if wait:
            self._rest = data[fed:]
            self._reading.held = True
            self._reading.pause_reading()
            self._resting = self.loop.call_later(wait, self._go_on)
        if not self._between_requests:
            self._headers_since = None
            if CROWDED in self.app_state:
                self.cycle.keep_alive = False

    def _parse(self, part: bytes) -> float:
        """Parse what came next; return how many seconds to wait before more is parsed."""
        in_body, content = self._in_body, self._content
        self._feed(part)
        if not (in_body and self._in_body):  # the next request may begin in it
            self._piece = _FED_BYTES
            return 0.0
        beyond = len(part) * (1 - 1 / _FRAMING_SHARE) - (self._content - content)
        self._framing = max(0.0, self._framing + beyond)
        if self._framing <= _FREE_FRAMING:
            self._piece = min(2 * self._piece, _UNPARSED_BYTES)
            return 0.0
        self._piece = _FED_BYTES
        size, self._framing = self._framing, 0.0
        return self.pace.wait(size, self.loop.time())

    def _go_on(self) -> None:
        """Parse what was read before a wait, then read on."""
        self._reading.held = False
        rest, self._rest = self._rest, b""
        if rest and not self.transport.is_closing():
            self.data_received(rest)
        if not self.flow.read_paused:
            self._reading.resume_reading()

    def resume_writing(self) -> None:
        """Note that the reader took much of what was waiting."""
        super().resume_writing()
        self._looks = 0

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP in the shape of all errors, if it can still be answered."""
        if not self._between_requests:  # the broken request must get no second answer
            self._disconnect(self.cycle)
            if self.cycle.response_started:
                self.transport.abort()
                return
        status, detail = self._refusal or (b"400 Bad Request", msg)
        request_id = SystemClock().new_id()  # what was sent cannot be read for another one
        _log.info("request %s is refused: %s", request_id, detail)
        body = json.dumps({"detail": detail, "errors": []}).encode()
        lines = (
            b"HTTP/1.1 " + status,
            b"content-type: application/json",
            b"content-length: %d" % len(body),
            b"connection: close",
            b"x-request-id: " + request_id.encode(),
        )
        self.transport.write(b"\r\n".join((*lines, b"", body)))
        self.transport.close()

    def _feed(self, data: bytes) -> None:
        super().data_received(data)

    @staticmethod
    def _disconnect(cycle: Any) -> None:
        cycle.disconnected = True
        cycle.message_event.set()

    @property
    def _between_requests(self) -> bool:
        cycle = self.cycle  # None before the first request
        return cycle is None or bool(cycle.response_complete)

    def _look(self) -> None:
        now = self.loop.time()
        since = now if self._headers_since is None else self._headers_since
        if now - since >= self.limits.header_timeout:
            self._cut("its request headers did not arrive in time")
        elif self._stalls():
            self._cut("the client stopped reading")
        else:
            self._watch = self.loop.call_later(self._period, self._look)

    def _stalls(self) -> bool:
        """Tell whether too little was taken of what waits to be sent, for too long.

        Time is counted in looks: while the server itself is held up, no reader can take anything.
        """
        left = self.transport.get_write_buffer_size()
        if left == 0 or self._left == 0 or left <= self._left - _TAKEN_BYTES:
            self._left, self._looks = left, 0
        else:
            self._looks += 1
        return self._looks * self._period >= self.limits.send_timeout

    def _cut(self, why: str) -> None:
        _log.info("connection closed: %s", why)
        self.transport.abort()


class PipeliningConnection(GuardedConnection):
    """What httptools needs besides: it limits nothing, and reads requests ahead of their turn."""

    framing_rate = 512.0 * 1024  # some 5 % of a processor
    headers: list[tuple[bytes, bytes]]
    parser: Any
    url: bytes
    pipeline: Any  # requests that wait for their turn

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unparsed = 0
        self._offered = False
        self._running: Any = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered, which need not be the last one that came."""
        self.pipeline.clear()
        if self._running is not None:
            self._disconnect(self._running)
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        """Begin the request, unless it offers another protocol: then its body is skipped."""
        self._unparsed = 0
        if len(self.headers) > MAX_HEADERS:
            raise ValueError("too many headers")
        if len(self.url) > MAX_TARGET_BYTES:
            raise ValueError("the target is too long")
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            raise ValueError("not exactly one Host")  # the parser makes an error of its own of it
        self._in_body = True
        self._offered = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._offered:
            super().on_headers_complete()  # type: ignore[misc]  # uvicorn's

    def on_body(self, body: bytes) -> None:
        """Note the progress."""
        self._unparsed = 0
        self._content += len(body)
        super().on_body(body)  # type: ignore[misc]  # uvicorn's

    def on_message_complete(self) -> None:
        """Note the progress."""
        self._unparsed = 0
        self._in_body = False
        if not self._offered:
            super().on_message_complete()  # type: ignore[misc]  # uvicorn's

    def send_400_response(self, msg: str) -> None:
        """Give requests that came whole their answers first; what is broken came behind them."""
        self.parser = None
        if self.pipeline and self.cycle.more_body:
            self.pipeline.popleft()
        if self._between_requests or self._running.more_body:
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """Answer what is broken in its turn."""
        super().on_response_complete()  # type: ignore[misc]  # uvicorn's
        if self.parser is None and self._between_requests and not self.transport.is_closing():
            super().send_400_response(_NO_HTTP)

    @property
    def _between_requests(self) -> bool:
        return self._running is None or bool(self._running.response_complete)

    def _feed(self, data: bytes) -> None:
        """Take bytes, but only so many that bring no request further."""
        import httptools

        if self.parser is None:  # what came behind a broken request
            return
        self._unset_keepalive_if_required()  # type: ignore[attr-defined]  # uvicorn's
        self._unparsed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError:
            self._unparsed = _UNPARSED_BYTES + 1
        many = len(self.headers or ()) > MAX_HEADERS
        if (many or self._unparsed > _UNPARSED_BYTES) and not self.transport.is_closing():
            if len(getattr(self, "url", b"")) > MAX_TARGET_BYTES:
                self._refusal = _LONG_TARGET
            elif many:
                self._refusal = _MANY_HEADERS
            self.send_400_response(_NO_HTTP)

    def _decline(self, rest: bytes) -> None:
        """Read a request that offers another protocol (h2c, for one) again without the offer."""
        version = self.parser.get_http_version().encode()
        head = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        head += [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
        self.parser = type(self.parser)(self)
        self._feed(b"\r\n".join([*head, b"", rest]))

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)  # type: ignore[misc]  # uvicorn's


class PlainConnection(GuardedConnection):
    """What h11 needs besides: it takes a target of any length."""

    framing_rate = 64.0 * 1024  # some 10 %: it is written in Python
    conn: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn.next_event = partial(self._checked, self.conn.next_event)

    def _checked(self, next_event: Callable[[], Any]) -> Any:
        import h11

        begins = self.conn.their_state is h11.IDLE
        if begins:
            head = _HEAD_END.split(self.conn.trailing_data[0], 1)[0]
            if head.count(b"\n") > MAX_HEADERS:
                self._refusal = _MANY_HEADERS
                raise h11.RemoteProtocolError("too many headers")
        try:
            event = next_event()
        except h11.RemoteProtocolError:
            line = self.conn.trailing_data[0].partition(b"\n")[0]
            if begins and len(line) > MAX_TARGET_BYTES:
                self._refusal = _LONG_TARGET
            raise
        self._in_body = self.conn.their_state is h11.SEND_BODY
        if isinstance(event, h11.Data):
            self._content += len(event.data)
        if isinstance(event, h11.Request) and len(event.target) > MAX_TARGET_BYTES:
            self._refusal = _LONG_TARGET
            raise h11.RemoteProtocolError("the target is too long")
        return event


def guarded(limits: LimitsConfig, parser: str = "") -> type[GuardedConnection]:
    """Return the class of a server's connections, for uvicorn's ``http`` option.

    Args:
        limits: What they are held to.
        parser: ``"httptools"`` or ``"h11"``; the faster one that is installed when empty.
    """
    if parser == "h11" or not (parser or find_spec("httptools")):
        from uvicorn.protocols.http.h11_impl import H11Protocol

        bases: tuple[Any, ...] = (PlainConnection, H11Protocol)
    else:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

        bases = (PipeliningConnection, HttpToolsProtocol)
    return type("Connection", bases, {"limits": limits, "pace": Pace(bases[0].framing_rate)})


def allow_open_files(limits: LimitsConfig) -> None:
    """Let the process open as many files as its connections need, as far as the system allows."""
    if sys.platform == "win32" or not limits.max_connections:
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.max_connections + _SPARE + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < wanted:
            _log.warning(
                "the limit of %d open files allows fewer connections than configured", allowed
            )
