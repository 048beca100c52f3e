"""An incremental parser for server-sent events: bytes in, events out, no I/O.

It follows the WHATWG rules (line ends CRLF, LF or CR, comments, one blank after the colon, multi-
line data), whatever way the bytes are cut into chunks. Two things differ on purpose: an event
without data is delivered too (``data`` None), and ``id`` is that of this event alone, so that a
heartbeat without an id does not repeat an older one. An unfinished event at the end is dropped.
"""

from typing import Final, NamedTuple

__all__ = ["MAX_EVENT_BYTES", "SSEEvent", "SSEParser"]

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
