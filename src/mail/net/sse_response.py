"""Task events as server-sent events over HTTP: framing, headers, and readers that stall."""

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from mail.core.events import TaskEvent

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse, ServerSentEvent

__all__ = ["RETRY_MS", "SEND_SECONDS", "event_source", "event_stream"]

RETRY_MS: Final = 2000
"""How long a client should wait before it reconnects; said once, with the first event."""

SEND_SECONDS: Final = 30.0
"""A reader that takes nothing for so long is cut off; it can resume with ``Last-Event-ID``."""

_COMMENT_SECONDS: Final = 60
_DRAIN_SECONDS: Final = 25.0
_BARE: Final = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
"""Characters that JSON lets through but readers or UTF-8 do not."""


def event_source(
    events: AsyncIterator[TaskEvent], *, send_timeout: float = SEND_SECONDS
) -> "EventSourceResponse":
    """Make the streaming answer for a task's events.

    Each event has its name, one line of JSON as ``data``, its sequence number as ``id`` when it is
    stored, and CRLF line ends. The iterator is closed when the reader leaves.

    Args:
        events: The events; ``ping`` events come from here, too.
        send_timeout: Seconds that one event may take to be sent.
    """
    return event_stream(_frames(events), ping=_COMMENT_SECONDS, send_timeout=send_timeout)


def event_stream(
    frames: "AsyncIterator[ServerSentEvent]", *, ping: int, send_timeout: float
) -> "EventSourceResponse":
    """Make the streaming answer of events that are framed already.

    Args:
        frames: The events.
        ping: Seconds of silence after which a comment keeps the connection alive.
        send_timeout: Seconds that one event may take to be sent.
    """
    from sse_starlette import EventSourceResponse

    return EventSourceResponse(
        frames,
        headers={"Cache-Control": "no-cache"},
        ping=ping,
        send_timeout=send_timeout,
        # A host that is told to stop must not cut the stream before its last event.
        shutdown_grace_period=_DRAIN_SECONDS,
    )


async def _frames(events: AsyncIterator[TaskEvent]) -> "AsyncIterator[ServerSentEvent]":
    from sse_starlette import ServerSentEvent

    retry: int | None = RETRY_MS
    try:
        async for event in events:
            # Some readers split lines at every Unicode line break, so none goes out bare.
            data = _BARE.sub(_escape, event.data_text())
            yield ServerSentEvent(data, event=event.kind, id=event.id, retry=retry)
            retry = None
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
