"""The events of a user's task in another swarm, across broken connections."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pydantic_core import from_json

from mail.core.events import TERMINAL_KINDS
from mail.egress.bodies import read_body
from mail.egress.rules import FetchError
from mail.errors import RoutingError
from mail.net.peers import PeerAccess, bearer, check_accepted
from mail.net.sse import SSEEvent, SSEParser, answered_events

if TYPE_CHECKING:
    import httpx

_IDLE_SECONDS: Final = 60.0
"""Without data for so long, a connection counts as broken; servers ping every 15 seconds."""

_TRIES: Final = 8
_LONGEST_PAUSE: Final = 30.0
_LONGEST_NUMBER: Final = 20
_LARGEST_ANSWER: Final = 8 * 1024 * 1024
_EVENT_STREAM: Final = "text/event-stream"

_log = logging.getLogger("mail.router")


class UserStream:
    """A stream of events; begin it with `post` or `follow`, then iterate over `events` once.

    After a broken connection it goes on with ``GET /tasks/{task_id}/events``. A server that does
    not number its events, as those of MAIL 1.3.6, cannot do that; with it the stream breaks off.

    Args:
        access: The rules for requests to the peer.
        client: The client that sends the requests.
        base_url: The address of the peer's server.
        token: The user's token there.
        task_id: The task, if it is already known.
        last_event_id: The last event that came before.
        pings: Whether to give the ``ping`` events, too.
    """

    def __init__(
        self,
        access: PeerAccess,
        client: "httpx.AsyncClient",
        base_url: str,
        token: str,
        *,
        task_id: str | None,
        last_event_id: str | None = None,
        pings: bool = True,
    ) -> None:
        self._access = access
        self._client = client
        self._base_url = base_url
        self._token = token
        self._task_id = task_id
        self._last = last_event_id
        self._pings = pings
        self._held = AsyncExitStack()
        self._response: httpx.Response | None = None
        self._answered: list[SSEEvent] = []
        self._replays = False
        self._ended = False
        self._tries = 0

    async def post(self, url: str, body: bytes) -> None:
        """Begin with the answer to a request.

        Raises:
            RoutingError: it is refused, or not answered with a stream.
        """
        await self._open("POST", url, bearer(self._token, _EVENT_STREAM), body)

    async def follow(self) -> None:
        """Begin, or go on, after the last event that came.

        Raises:
            RoutingError: it is refused, or not answered with a stream.
        """
        headers = bearer(self._token, _EVENT_STREAM) | {"Last-Event-ID": self._last or "0"}
        path = quote(self._task_id or "", safe="")
        await self._open("GET", f"{self._base_url}/tasks/{path}/events", headers)
        self._replays = True

    async def _open(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None = None
    ) -> None:
        await self._held.aclose()
        opening = self._access.answer(
            self._client,
            method,
            url,
            headers=headers,
            content=body,
            seconds=None,
            idle_seconds=_IDLE_SECONDS,
        )
        try:
            async with AsyncExitStack() as stack:
                response = await stack.enter_async_context(opening)
                await check_accepted(response, self._token)
                kind = response.headers.get("content-type", "")
                if body is not None and kind.startswith("application/json"):
                    answer = await read_body(response, _LARGEST_ANSWER)
                    self._answered = answered_events(answer.data)
                    return
                if not kind.startswith(_EVENT_STREAM):
                    raise RoutingError("the answer is not a stream of events", status=200)
                self._held = stack.pop_all()
        except FetchError as error:
            raise RoutingError(str(error)) from None
        self._response = response

    async def events(self) -> AsyncGenerator[SSEEvent, None]:
        """Yield the events up to the end of the run.

        Raises:
            RoutingError: the connection breaks and the stream cannot go on.
        """
        try:
            while True:
                async for event in self._read():
                    if event.event != "ping" or self._pings:
                        yield event
                    if self._ended and self._replays:
                        return
                if self._ended:
                    return
                await self._go_on()
        finally:
            await self._held.aclose()

    async def _read(self) -> AsyncGenerator[SSEEvent, None]:
        """Yield what is new on this connection, until it ends or breaks."""
        parser = SSEParser()
        if self._response is None:
            for event in filter(self._is_new, self._answered):
                yield event
            return
        try:
            async for chunk in self._response.aiter_raw():
                for event in parser.feed(chunk):
                    if event.event == "server_drain":
                        return
                    if self._is_new(event):
                        yield event
        except Exception as error:  # noqa: BLE001 - httpx's, and a ValueError for too large an event
            _log.info("the events of task %s broke off: %s", self._task_id, type(error).__name__)

    def _is_new(self, event: SSEEvent) -> bool:
        """Note where the stream stands; tell whether the event has not been given yet."""
        if self._task_id is None:
            found = data_of(event).get("task_id")
            self._task_id = found if isinstance(found, str) else None
        number, last = _number(event.id), _number(self._last)
        if number is not None and last is not None and number <= last:
            return False
        self._last = event.id or self._last
        self._ended = self._ended or event.event in TERMINAL_KINDS
        self._tries = 0
        return True

    async def _go_on(self) -> None:
        if self._task_id is None or self._last is None:
            raise RoutingError("the stream of events broke off, and cannot be resumed")
        while True:
            if self._tries >= _TRIES:
                raise RoutingError("the stream of events broke off, and the server is not reached")
            pause = min(2.0**self._tries, _LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.2, 1.0))  # noqa: S311 - no secret
            self._tries += 1
            try:
                await self.follow()
            except RoutingError as error:
                if error.is_permanent:
                    raise
            else:
                return


def data_of(event: SSEEvent) -> dict[str, Any]:
    """Return the JSON object that an event has as its data; an empty one without."""
    try:
        found = from_json(event.data or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(event_id: str | None) -> int | None:
    known = event_id is not None and len(event_id) < _LONGEST_NUMBER and event_id.isdecimal()
    return int(event_id or 0) if known else None
