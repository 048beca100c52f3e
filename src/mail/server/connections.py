"""Connections that may not last: clients that say nothing, send drop by drop, or do not read.

uvicorn bounds how long a connection idles between two requests, and nothing else. An answer that
nobody reads would stay in memory for ever, even after its connection was closed.
"""

import asyncio
import json
import logging
import sys
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from mail.config.server import LimitsConfig
from mail.server.middleware import CROWDED, CUT

__all__ = ["GuardedConnection", "allow_open_files", "guarded"]

_TAKEN_BYTES: Final = 16 * 1024
"""What a reader must at least take within ``send_timeout``, when there is more than that."""
_SPARE: Final = 100
"""Connections beyond the limit that still get an answer: that the server is full, or its health."""
_OTHER_FILES: Final = 500
"""Files and sockets of a server besides its connections: the store, providers, tools."""
_LOOKS: Final = 4
"""How many times within the shortest of its limits a connection is looked at."""

_log = logging.getLogger("mail.server")


class GuardedConnection(H11Protocol):
    """One connection of uvicorn's, held to the limits of its class (see `guarded`)."""

    limits: ClassVar[LimitsConfig]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = self.limits.idle_timeout  # type: ignore[assignment]  # a delay
        self._headers_since: float | None = None
        self._left = 0  # bytes in the write buffer at the last progress
        self._looks = 0  # since then
        self._watch: asyncio.TimerHandle | None = None
        self._period = min(self.limits.header_timeout, self.limits.send_timeout) / _LOOKS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch; refuse what is too much."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, CUT: transport.abort}
        beyond = len(self.connections) - self.limits.max_connections
        if self.limits.max_connections and beyond > 0:
            if beyond > _SPARE:
                transport.abort()
                return
            self.app_state = {**self.app_state, CROWDED: True}
        self._headers_since = self.loop.time()
        self._watch = self.loop.call_later(self._period, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn's timer would hold on to a broken connection

    def data_received(self, data: bytes) -> None:
        """Take bytes, and note when a request's headers began and ended."""
        if self._headers_since is None and self._between_requests:
            self._headers_since = self.loop.time()
        super().data_received(data)
        if self.app_state.get(CROWDED) and not self._between_requests:
            self.cycle.keep_alive = False
        if not self._between_requests:
            self._headers_since = None

    def resume_writing(self) -> None:
        """Note that the reader took much of what was waiting."""
        super().resume_writing()
        self._looks = 0

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP in the shape of all errors, if it can still be answered."""
        if not self._between_requests:  # the broken request must get no second answer
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = json.dumps({"detail": msg, "errors": []}).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _between_requests(self) -> bool:
        # uvicorn has no cycle before the first request, whatever its annotation says.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _look(self) -> None:
        now = self.loop.time()
        since = now if self._headers_since is None else self._headers_since
        if now - since >= self.limits.header_timeout:
            self._cut("its request headers did not arrive in time")
        elif self._stalls():
            self._cut("its reader stalled")
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
        _log.info("connection cut: %s", why)
        self.transport.abort()


def guarded(limits: LimitsConfig) -> type[GuardedConnection]:
    """Return the class of a server's connections, for uvicorn's ``http`` option."""
    return type("GuardedConnection", (GuardedConnection,), {"limits": limits})


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
            _log.warning("only %d open files are allowed: fewer connections than set", allowed)
