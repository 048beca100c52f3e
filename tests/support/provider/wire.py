"""What the wire formats have in common: events, replies, and the functions that write them."""

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mail.llm.scripted import words
from tests.support.provider.faults import Fault
from tests.support.provider.record import Seen
from tests.support.provider.steps import AnyStep
from tests.support.provider.tokens import Tokens

__all__ = ["Event", "Reply", "Traits", "Wire", "made_id", "noise", "openai_error", "pieces"]
__all__ += ["as_line", "as_sse"]

_IDS = uuid.UUID("5d0c1d5e-6c1c-5d5e-9a3f-6f3f2b8f7a10")
_ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event. ``content``: it carries a piece of what the model wrote."""

    data: dict[str, Any]
    name: str | None = None
    content: bool = False


def as_sse(event: Event) -> bytes:
    """Return a server-sent event."""
    name = f"event: {event.name}\n".encode() if event.name else b""
    return name + b"data: " + json.dumps(event.data).encode() + b"\n\n"


def as_line(event: Event) -> bytes:
    """Return a line of JSON."""
    return json.dumps(event.data).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How a provider writes where its format leaves room.

    ``ids`` is the shape of a call's id, ``thoughts`` the field of a chat delta that has reasoning.
    With ``whole_calls`` a call comes in one piece. ``comment`` is sent as a sign of life before the
    reply, which clients have to skip.
    """

    ids: Literal["usual", "nine"] = "usual"
    thoughts: str = "reasoning_content"
    whole_calls: bool = False
    comment: str | None = None


_USUAL = Traits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is to be written: the script's steps as an answer to a request.

    ``seed`` is the request's digest, from which all ids are made. ``counted``: a chat stream is
    to end with its usage.
    """

    seen: Seen
    seed: str
    steps: list[AnyStep]
    tokens: Tokens
    counted: bool = False
    traits: Traits = _USUAL

    def id(self, prefix: str, at: int = 0) -> str:
        """Return an id: always the same for the same place in the reply to the same request."""
        return made_id(prefix, f"{self.seed}/{prefix}/{at}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A wire format.

    ``whole`` gives the body of a plain reply, ``events`` the events of a streamed one, ``error``
    the body of a refusal (with the vendor's name for it, if that is not the usual), ``broken`` the
    event that ends a stream after a number of others. ``done`` is what follows the last event.
    ``written`` gives the bytes of an event, ``media`` the type of a stream.
    """

    whole: Callable[[Reply], dict[str, Any]]
    events: Callable[[Reply], Iterator[Event]]
    error: Callable[[int, str, str | None], Mapping[str, Any]]
    broken: Callable[[Reply, Fault, int], Event]
    done: bytes = b""
    written: Callable[[Event], bytes] = as_sse
    media: str = "text/event-stream"


def made_id(prefix: str, seed: str) -> str:
    """Return the id for a seed."""
    return f"{prefix}_{uuid.uuid5(_IDS, seed).hex}"


def pieces(text: str, size: int | None = None) -> list[str]:
    """Split a text into the pieces that a stream sends: words, or so many characters."""
    if size is None:
        return words(text)
    return [text[start : start + size] for start in range(0, len(text), size)]


def noise(seed: str, delta: str = "") -> str:
    """Return the padding that hides how long a piece is; a client has no use for it."""
    return hashlib.sha256(f"{seed}{delta}".encode()).hexdigest()[: 16 - len(delta) % 16]


def openai_error(status: int, message: str, named: str | None = None) -> dict[str, Any]:
    """Return the body with which OpenAI refuses."""
    kind, code = _ERRORS.get(status, ("server_error" if status >= 500 else _ERRORS[400][0], None))
    error = {"message": message, "type": named or kind, "param": None, "code": named or code}
    return {"error": error}
