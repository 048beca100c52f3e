"""A request and its answer, from its first header to its line in the log."""

import asyncio
import logging
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Scope, Send

from mail import metrics
from mail.auth.callers import Caller
from mail.clock import SystemClock
from mail.redaction import beginning
from mail.server.at_work import AtWork, Strangers
from mail.server.connections import client_of

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_ALWAYS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Headers of every answer that says nothing else."""
_LONGEST_METHOD: Final = 32
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MOST_LEFT: Final = 16 * 1024 * 1024
"""Bytes of a refused body that are still read, so that its client gets to read the answer."""
_EXCHANGE: Final = "mail.exchange"
_access = logging.getLogger("mail.server.access")


class Exchange:
    """One request and its answer. It is the one thing of ours in a request's state.

    Attributes:
        id: The request's id.
        client: The client at the other end.
        given: The first header of each name.
        declared: The size of the body, if the headers tell it.
        left: The part of the body that may still come: an early answer does not wait for it.
        waited: Whether it had its turn among the requests without a token.
        started: Whether the answer has begun.
        caller: The caller, once its token is known to be valid.
        token: That token.
        peer: The swarm that it comes from, if that is another.
        route: The path of its route, with parameters in braces; ``none`` if there is no such route.
        body: The bytes that were read and not yet decoded.
        body_check: A check of the body before it is decoded.
        held: Called when the request has ended.
        head_only: It is a HEAD: a long answer needs no body.
        done_before: Its `Idempotency-Key` is known, and so its work is done.
    """

    def __init__(
        self,
        scope: Scope,
        send: Send,
        working: AtWork,
        clock: SystemClock,
        strangers: Strangers,
    ) -> None:
        self.given: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            self.given.setdefault(name, value)
        length = self.given.get(b"content-length", b"")
        self.declared = int(length) if length.isdigit() else 0
        chunked = b"transfer-encoding" in self.given
        self.left = _MOST_LEFT if chunked else min(self.declared, _MOST_LEFT)
        given = self.given.get(b"x-request-id", b"").decode("latin-1")
        self.id = given if REQUEST_ID.fullmatch(given) else clock.new_id()
        self.waited = False
        self.started = False
        self._at_work = False
        self._scope = scope
        self._send = send
        self._working = working
        self._strangers = strangers
        self._status = 0
        self._began = time.monotonic()
        self.caller: Caller | None = None
        self.token = self.peer = ""
        self.route = "none"
        self.body: bytes | None = None
        self.body_check: Callable[[bytes], None] | None = None
        self.held: list[Callable[[], object]] = []
        self.head_only = self.done_before = False
        state = scope.setdefault("state", {})
        self.client = client_of(scope)
        state[_EXCHANGE] = self

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if self.caller is None and not self.waited:
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
        if self._at_work:
            self._at_work = False
            self._working.discard(self)

    async def begins(self) -> None:
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
        del self._scope["state"][_EXCHANGE]
        for give_back in self.held:
            give_back()

    def log(self) -> None:
        """Count the request, and write its line in the log."""
        seconds = time.monotonic() - self._began
        method = self._scope["method"] if self._scope["method"] in _METHODS else metrics.OTHER
        metrics.REQUESTS.add(method, self.route, str(self._status) if self._status else "none")
        metrics.REQUEST_SECONDS.observe(seconds, self.route)
        if not _access.isEnabledFor(logging.INFO):
            return
        path = self._scope.get("raw_path") or self._scope["path"].encode("utf-8", "replace")
        arguments = (
            self._scope["method"][:_LONGEST_METHOD],
            beginning(path.decode("ascii", "backslashreplace")),
            self._status,
            seconds * 1000,
        )
        # Without a look at the stack for who logs this.
        said = (_access.name, logging.INFO, __file__, 0, "%s %s %s %.1f ms", arguments, None)
        _access.handle(_access.makeRecord(*said))


def exchange_of(request: Request) -> Exchange:
    """Return the exchange that a request belongs to."""
    exchange: Exchange = request.scope["state"][_EXCHANGE]
    return exchange


def caller_of(request: Request) -> Caller:
    """Return who makes a request, once its audience has admitted them."""
    caller = exchange_of(request).caller
    assert caller is not None  # noqa: S101 - see `mail.server.deps.Audience.admit`
    return caller
