"""A task's events as they happen, across broken connections.

If a connection breaks or the server restarts, the stream continues with
``GET /tasks/{task_id}/events`` after the last event seen (``Last-Event-ID``), until the run's
terminal event. Servers that do not number their events (1.3.6) cannot resume; with them a broken
connection raises.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Self

from mail.client.http import Reconnect
from mail.core.events import TERMINAL_KINDS
from mail.errors import ClientDecodeError, ClientHTTPError
from mail.net.sse import SSEEvent, SSEParser, answered_events

if TYPE_CHECKING:
    import aiohttp
    from sse_starlette import ServerSentEvent

__all__ = ["EventStream", "Reconnect", "ReplayOpener"]

_PERMANENT: Final = range(400, 500)
_BUSY: Final = frozenset({408, 425, 429})

logger = logging.getLogger("mail.client")


ReplayOpener = Callable[[str, str], Awaitable["aiohttp.ClientResponse"]]
"""Opens the replay of (task id, last event id)."""


class EventStream:
    """An async iterator of ``sse_starlette.ServerSentEvent``; ``data`` is JSON text.

    Iterate over it once. To leave early, call `aclose` or use ``async with``: this releases the
    connection, and the task continues. Iterating raises `mail.errors.ClientHTTPError` if
    reconnecting fails, or if a POST's response ends without a terminal event, and
    `mail.errors.ClientDecodeError` if the response is not an event stream.

    Args:
        response: The open response to read first.
        replay: Opens the rest of the event log after a broken connection.
        task_id: The task's id, if it is already known.
        last_event_id: The last event seen before this stream.
        until_terminal: End with the run instead of at the end of the log. After a reconnection
            the run ends with the next terminal event.
        reconnect: The retry limits.
        repeats: ``replay`` repeats the request with its idempotency key. It then needs no task id,
            and ends with the request's own run.
    """

    def __init__(
        self,
        response: "aiohttp.ClientResponse",
        replay: ReplayOpener,
        *,
        task_id: str | None,
        last_event_id: str | None,
        until_terminal: bool,
        reconnect: Reconnect,
        repeats: bool = False,
    ) -> None:
        self.task_id = task_id
        self.last_event_id = last_event_id
        self._response = response
        self._replay = replay
        self._until_terminal = until_terminal
        self._reconnect = reconnect
        self._repeats = repeats
        self._attempt = 0
        self._asked = 0.0
        self._events = self._run()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "ServerSentEvent":
        from sse_starlette import ServerSentEvent

        event = await anext(self._events)
        return ServerSentEvent(event.data, event=event.event, id=event.id, retry=event.retry)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Release the connection. The task continues."""
        await self._events.aclose()
        self._response.close()

    async def _run(self) -> AsyncGenerator[SSEEvent]:
        import aiohttp

        replaying = not self._until_terminal
        ended = answered = False
        while True:
            drained = False
            broken: Exception | None = None
            try:
                async with aclosing(self._read()) as events:
                    async for event in events:
                        yield event
                        ended = event.event in TERMINAL_KINDS
                        answered = answered or ended
                        # The response to a POST ends with the terminal event of its own message.
                        # Only the server knows which: another run of the task may end earlier.
                        if ended and self._until_terminal and replaying:
                            return
                        if drained := event.event == "server_drain":
                            break
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                broken = error
            finally:
                self._response.close()
            # Only a repeat of the request can tell whether a last terminal event was its own.
            known = ended and not (self._repeats and broken is not None)
            unknown = self.task_id is None or self.last_event_id is None
            is_over = replaying or (unknown and not self._repeats)  # at a regular end
            if known or (broken is None and not drained and is_over):
                if self._until_terminal and not answered:
                    raise _lost(self.task_id, "ended without an answer")
                return
            if not self._repeats and (self.task_id is None or (unknown and not replaying)):
                raise _lost(self.task_id) from broken
            await self._connect_again(broken)
            replaying = not self._repeats

    async def _read(self) -> AsyncGenerator[SSEEvent]:
        parser = SSEParser()
        as_json = self._response.content_type == "application/json"
        async for chunk in _whole(self._response) if as_json else self._response.content.iter_any():
            try:
                events = answered_events(chunk) if as_json else parser.feed(chunk)
            except ValueError as error:
                raise ClientDecodeError(str(error)) from error
            if parser.reconnect_ms is not None:
                self._asked = parser.reconnect_ms / 1000
            for event in events:
                if self._is_new(event):
                    yield event

    def _is_new(self, event: SSEEvent) -> bool:
        """Record the position in the stream; return False for an event already delivered."""
        if self.task_id is None:
            self.task_id = _task_id(event)
        if event.id is None:
            if event.event == "ping":
                self._attempt = 0  # the server responds; there are just no new events
            return True
        number, last = _number(event.id), _number(self.last_event_id)
        if number is not None and last is not None and number <= last:
            return False
        self.last_event_id = event.id
        self._attempt = 0
        return True

    async def _connect_again(self, broken: Exception | None) -> None:
        while self._attempt < self._reconnect.tries:
            await asyncio.sleep(self._reconnect.wait(self._attempt, self._asked))
            self._attempt += 1
            logger.info("reconnecting to the events of task %s", self.task_id)
            try:
                self._response = await self._replay(self.task_id or "", self.last_event_id or "")
            except ClientHTTPError as error:
                if error.status in _PERMANENT and error.status not in _BUSY:
                    raise
                broken = error
            else:
                return
        raise _lost(self.task_id) from broken


async def _whole(response: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
    yield await response.read()


def _lost(task_id: str | None, how: str = "broke") -> ClientHTTPError:
    where = f"; task '{task_id}' continues, see GET /tasks/{{task_id}}/events" if task_id else ""
    return ClientHTTPError(f"MAIL client request failed: the event stream {how}{where}")


def _task_id(event: SSEEvent) -> str | None:
    try:
        found = json.loads(event.data or "null")
    except ValueError:
        return None
    value = found.get("task_id") if isinstance(found, dict) else None
    return value if isinstance(value, str) else None


def _number(event_id: str | None) -> int | None:
    return int(event_id) if event_id and len(event_id) < 20 and event_id.isdecimal() else None
