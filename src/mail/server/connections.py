"""Connections that may not last: clients that say nothing, never stop, or do not read.

uvicorn bounds how long a connection idles between two requests, and nothing else. `Connection`
stands between a transport and uvicorn's protocol: it passes everything on, and cuts what goes on
for too long. Finer guards of sockets are a proxy's (docs/deployment.md).
"""

import asyncio
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from starlette.types import Scope

from mail.config.server import LimitsConfig
from mail.net import sse

CLIENT: Final = "mail.client"
"""In the state of a request: its `Client`, where the host tells when that leaves."""

HEADER_SECONDS: Final = 10.0
"""The deadline of a request's headers."""
IDLE_SECONDS: Final = 75
"""The time that a connection lasts between two requests: longer than at most proxies."""
_TAKEN_BYTES: Final = 16 * 1024
"""The bytes that a reader must take within `mail.net.sse.SEND_SECONDS`, when there are more."""
_SPARE: Final = 100
"""Connections beyond the limit that still get an answer: that the server is full, or its health."""
_OTHER_FILES: Final = 500
"""Files and sockets of a server besides its connections: the store, providers, tools."""
_LOOKS: Final = 4
"""The number of looks at a connection within the shorter of the two."""
_HEAD_BYTES: Final = 64 * 1024
"""The bytes that a client may send without completing the headers of a request."""

_OFFER: Final = re.compile(rb"\r\n[Uu]pgrade:[^\r\n]*")
"""An offer of another protocol, as Java's clients send it with each request. httptools would take
what comes behind the headers for that protocol."""

_log = logging.getLogger("mail.server")


@dataclass(slots=True, eq=False)
class Client:
    """The client at the other end of a connection.

    Attributes:
        cut: Drops the connection with what still waits to be sent. None with another host than
            `mail server`, which does not tell either when the client leaves.
        crowded: The connection is one more than the server takes.
        gone: The connection is lost.
        on_leaving: Called when that happens.
        requests: Those that are being answered: one, or none.
        since: The time at which the headers of the next request began to arrive.
        unread: The bytes that came since then; less than 0 while the rest of a body may come
            whose request has its answer already.
    """

    cut: Callable[[], object] | None = None
    crowded: bool = False
    gone: bool = False
    on_leaving: Callable[[], object] | None = None
    requests: int = 0
    since: float | None = None
    unread: int = 0

    def begin(self) -> None:
        """Hear that the headers of a request are complete."""
        self.requests += 1
        self.since, self.unread = None, 0

    def end(self, left: int) -> None:
        """Hear that a request has been answered; so many bytes of its body may still come."""
        self.requests -= 1
        self.unread = -left

    def leave(self) -> None:
        """Tell who waits for it that the client has left."""
        self.gone = True
        if self.on_leaving is not None:
            self.on_leaving()


def client_of(scope: Scope) -> Client:
    """Return who asks."""
    client: Client = scope["state"].setdefault(CLIENT, Client())
    return client


@dataclass(slots=True, eq=False)
class Connection(asyncio.Protocol):
    """One connection: passes bytes on to uvicorn's protocol, and watches how they go.

    Attributes:
        limits: Its limits.
        http: Uvicorn's protocol.
        others: The connections of the server.
        client: The client at the other end, known to each request.
    """

    limits: LimitsConfig
    http: asyncio.Protocol
    others: set[Any]
    client: Client
    _transport: asyncio.Transport = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _left: int = 0  # bytes in the write buffer at the last progress
    _looks: int = 0  # since then
    _quiet: int = 0  # looks without a request, or a part of one
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch; refuse what is too much."""
        self._transport = transport
        self.client.cut = transport.abort
        self.http.connection_made(transport)
        most = self.limits.max_connections
        self.client.crowded = 0 < most < len(self.others)
        if self.client.crowded and len(self.others) > most + _SPARE:
            transport.abort()
            return
        self.client.since = self._loop.time()
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()
        self.client.leave()
        self.http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; note when the headers of a request begin."""
        client = self.client
        if not client.requests:
            if client.since is None:
                client.since = self._loop.time()
            client.unread += len(data)
            if client.unread > 0 and data.find(b"pgrade:", 0, _HEAD_BYTES) >= 0:
                head, end, body = data.partition(b"\r\n\r\n")
                data = _OFFER.sub(b"", head) + end + body
        self.http.data_received(data)
        if client.unread > _HEAD_BYTES:  # a request whose headers are complete begins before that
            self._loop.call_soon(self._cut_head)

    def eof_received(self) -> bool | None:
        """Pass on that nothing more comes."""
        return self.http.eof_received()

    def pause_writing(self) -> None:
        """Pass on that much waits to be sent."""
        self.http.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the reader took much of it."""
        self._looks = 0
        self.http.resume_writing()

    def _cut_head(self) -> None:
        if self.client.unread > _HEAD_BYTES:
            self._cut("its request headers do not end")

    def _look_later(self) -> None:
        self._watch = self._loop.call_later(_period(), self._look)

    def _look(self) -> None:
        client, now = self.client, self._loop.time()
        if client.since is not None and now - client.since >= HEADER_SECONDS:
            self._cut("its request headers did not arrive in time")
        elif self._stalls():
            self._cut("the client stopped reading")
        elif self._is_idle():
            self._cut("the client said nothing")
        else:
            self._look_later()

    def _is_idle(self) -> bool:
        """Tell whether nothing has come for long: uvicorn waits for what a client has begun."""
        busy = self.client.requests or self.client.since is not None
        self._quiet = 0 if busy else self._quiet + 1
        return self._quiet * _period() >= 2 * IDLE_SECONDS

    def _stalls(self) -> bool:
        """Tell whether too little was taken of what waits to be sent, for too long.

        Time is counted in looks: while the server itself is held up, no reader can take anything.
        """
        left = self._transport.get_write_buffer_size()
        if left == 0 or self._left == 0 or left <= self._left - _TAKEN_BYTES:
            self._left, self._looks = left, 0
        else:
            self._looks += 1
        return self._looks * _period() >= sse.SEND_SECONDS

    def _cut(self, why: str) -> None:
        _log.info("connection closed: %s", why)
        self._transport.abort()


def _period() -> float:
    return min(HEADER_SECONDS, sse.SEND_SECONDS) / _LOOKS


def connections(
    limits: LimitsConfig, protocol: Callable[..., asyncio.Protocol] | None = None
) -> Any:
    """Return what makes a server's connections, for uvicorn's ``http`` option.

    Args:
        limits: Their limits.
        protocol: One of uvicorn's protocols; the fastest one that is installed when absent.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    return partial(_connect, limits, protocol or AutoHTTPProtocol)


def _connect(
    limits: LimitsConfig,
    make: Callable[..., asyncio.Protocol],
    *,
    server_state: Any,
    app_state: dict[str, Any],
    **given: Any,
) -> Connection:
    client = Client()
    app_state = {**app_state, CLIENT: client}
    http = make(server_state=server_state, app_state=app_state, **given)
    return Connection(limits, http, server_state.connections, client)


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
