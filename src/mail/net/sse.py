"""Server-sent events: an incremental parser, and the response that streams a task's events.

The parser turns bytes into events and does no I/O. It follows the WHATWG rules (line ends CRLF, LF
or CR, comments, one blank after the colon, multi-line data), whatever way the bytes are cut into
chunks. Two things differ on purpose: an event without data is delivered too (``data`` None), and
``id`` is that of this event alone, so that a heartbeat without an id does not repeat an older one.
An unfinished event at the end is dropped.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic_core import from_json

from mail.core.events import TaskEvent
from mail.core.large import LARGE, in_turn, json_line, slices
from mail.core.schema import parse_message
from mail.errors import RoutingError

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse, ServerSentEvent

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


class SSEEvent(NamedTuple):
    """One event: its name, its text, and the ``id`` and ``retry`` (ms) that came with it."""

    event: str
    data: str | None
    id: str | None = None
    retry: int | None = None


class SSEParser:
    """Feed it chunks as they arrive.

    ``reconnect_ms`` is what the newest ``retry:`` line asked for, whether or not it belonged to an
    event; None before the first.

    Args:
        max_event_bytes: The most that one event may hold.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.reconnect_ms: int | None = None
        self._max = max_event_bytes
        self._tail: list[bytes] = []
        self._held = 0
        self._after_cr = False
        self._first_line = True
        self._event: str | None = None
        self._data: list[str] = []
        self._id: str | None = None
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[SSEEvent]:
        """Take the next bytes and return the events that they complete.

        Raises:
            ValueError: an event is larger than allowed.
        """
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        self._held += len(chunk)
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if len(lines) > 1:
            lines[0] = b"".join(self._tail) + lines[0]
            self._tail = []
        if lines[-1]:
            self._tail.append(lines[-1])
        events = [event for line in lines[:-1] if (event := self._take(line)) is not None]
        if self._held > self._max:
            raise ValueError(f"a server-sent event is larger than {self._max} bytes")
        return events

    def _take(self, raw: bytes) -> SSEEvent | None:
        if self._first_line:
            self._first_line = False
            raw = raw.removeprefix(_BOM)
        if not raw:
            return self._finish()
        name, _, value = raw.decode("utf-8", "replace").partition(":")
        self._set(name, value.removeprefix(" "))
        return None

    def _set(self, name: str, value: str) -> None:
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self._retry = self.reconnect_ms = int(value)

    def _finish(self) -> SSEEvent | None:
        event: SSEEvent | None = None
        if self._event is not None or self._data:
            data = "\n".join(self._data) if self._data else None
            event = SSEEvent(self._event or "message", data, self._id, self._retry)
        self._reset()
        return event

    def _reset(self) -> None:
        self._event = self._id = self._retry = None
        self._data = []
        self._held = sum(map(len, self._tail))


def answered_events(data: bytes) -> list[SSEEvent]:
    """Return the events of a run that was answered with JSON, as MAIL 1.3.6 does.

    Raises:
        RoutingError: it is not the answer to a message for agents of another swarm.
    """
    try:
        answer = from_json(data)
        message = parse_message(answer.get("response") if isinstance(answer, dict) else None)
    except ValueError:
        text = "the answer is neither a stream of events nor a final message"
        raise RoutingError(text, status=200) from None
    about = {"timestamp": message["timestamp"], "task_id": message["message"]["task_id"]}
    new = {**about, "extra_data": {"full_message": message}}
    end = {**about, "response": message["message"]["body"]}
    return [SSEEvent("new_message", json_line(new)), SSEEvent("task_complete", json_line(end))]


RETRY_MS: Final = 2000
"""The pause before a client reconnects; sent once, with the first event."""

SEND_SECONDS: Final = 30.0
"""A reader that takes nothing for so long is cut off; it can resume with ``Last-Event-ID``."""

_NEVER: Final = 10**8
_DRAIN_SECONDS: Final = 25.0


def event_source(
    events: AsyncGenerator[TaskEvent, None], *, pings: bool = True
) -> "EventSourceResponse":
    """Make the streaming answer for a task's events.

    Each event has its name, one line of JSON as ``data``, its sequence number as ``id`` when it is
    stored, and CRLF line ends. The generator is closed when the reader leaves.

    Args:
        events: The events; ``ping`` events come from here, too.
        pings: Whether a ``ping`` is an event. If not, a comment keeps the connection alive.
    """
    return event_stream(_frames(events, pings))


def event_stream(
    frames: "AsyncGenerator[bytes, None] | AsyncGenerator[ServerSentEvent | bytes, None]",
) -> "EventSourceResponse":
    """Make the streaming answer of events that are framed already.

    Args:
        frames: The events, with something now and then that keeps the connection alive.
    """
    from sse_starlette import EventSourceResponse

    return EventSourceResponse(
        _sliced(frames),
        headers={"Cache-Control": "no-cache"},
        ping=_NEVER,  # it would come between the slices of an event
        send_timeout=SEND_SECONDS,
        # A host that is told to stop must not cut the stream before its last event.
        shutdown_grace_period=_DRAIN_SECONDS,
    )


def frame(
    name: str, data: str, *, number: str | None = None, retry: int | None = None, sep: str = "\r\n"
) -> bytes:
    """Return an event with its one line of data."""
    head = f"id: {number}{sep}" if number is not None else ""
    tail = f"{sep}retry: {retry}" if retry is not None else ""
    return f"{head}event: {name}{sep}data: {data}{tail}{sep}{sep}".encode()


async def _sliced(
    frames: "AsyncGenerator[bytes, None] | AsyncGenerator[ServerSentEvent | bytes, None]",
) -> "AsyncGenerator[ServerSentEvent | bytes, None]":
    async with aclosing(frames):
        async for data in frames:
            for part in slices(data) if isinstance(data, bytes) else (data,):
                yield part
            del data  # while the next one is awaited, nothing keeps this one


async def _frames(
    events: AsyncGenerator[TaskEvent, None], pings: bool
) -> "AsyncGenerator[ServerSentEvent | bytes, None]":
    from sse_starlette import ServerSentEvent

    retry: int | None = RETRY_MS
    async with aclosing(events):
        async for event in events:
            if event.kind == "ping" and not pings:
                yield b":\r\n\r\n"
                continue
            if event.size > LARGE:
                yield await in_turn(event.size, partial(_frame, event, retry))
            else:
                yield ServerSentEvent(event.data_text(), event=event.kind, id=event.id, retry=retry)
            retry = None
            del event  # while the next one is awaited, nothing keeps this one


def _frame(event: TaskEvent, retry: int | None) -> bytes:
    return frame(event.kind, event.data_text(), number=event.id, retry=retry)
