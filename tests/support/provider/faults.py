"""What may go wrong with a request, on demand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One request's misfortune; several may be combined.

    ``status`` answers with that status and ``message`` (and ``retry_after`` as a header) in place
    of a reply. ``silence`` waits so many seconds before the first byte, ``token_delay`` before
    each piece of the reply. ``cut_after`` breaks the connection after so many events, or with
    ``politely`` ends the stream as if it were complete. ``truncate_arguments`` leaves the last
    tool call's arguments unfinished. ``error_event`` sends an error as the stream's first event,
    or with ``cut_after`` once so many events are out; ``failed`` makes it a ``response.failed``
    where there is such an event (Responses), ``flat`` gives it the other shape that OpenAI has for
    it there. ``code`` is the vendor's name of the error, be it an answer or an event. ``pings`` are
    sent after the first event, a tenth of a second apart (Anthropic). ``comments`` so many signs of
    life come before the first event, ``comment_delay`` seconds apart: comments, or Responses' own
    ``keepalive`` events. ``html`` answers with a web page. ``body`` is the whole body of the answer
    (with ``status``) or the data of the ``error_event``, where a vendor has a shape of its own;
    ``event`` is then its name.
    """

    status: int | None = None
    message: str = "the fake provider was told to fail"
    retry_after: float | str | None = None
    silence: float = 0.0
    token_delay: float = 0.0
    cut_after: int | None = None
    politely: bool = False
    truncate_arguments: bool = False
    error_event: str | None = None
    failed: bool = False
    flat: bool = False
    code: str | None = None
    pings: int = 0
    html: bool = False
    comments: int = 0
    comment_delay: float = 0.1
    body: Mapping[str, Any] | None = None
    event: str | None = None
