"""What the wire formats have in common: events, replies, and the functions that write them."""

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mail.llm.scripted import words
from tests.support.provider.faults import Fault
from tests.support.provider.record import Seen
from tests.support.provider.steps import AnyStep
from tests.support.provider.tokens import Tokens

__all__ = ["Event", "Reply", "Wire", "made_id", "noise", "openai_error", "pieces"]

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

    def id(self, prefix: str, at: int = 0) -> str:
        """Return an id: always the same for the same place in the reply to the same request."""
        return made_id(prefix, f"{self.seed}/{prefix}/{at}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A wire format.

    ``whole`` gives the body of a plain reply, ``events`` the events of a streamed one, ``error``
    the body of a refusal (with the vendor's name for it, if that is not the usual), ``broken`` the
    event that ends a stream after a number of others. ``done`` is what follows the last event.
    """

    whole: Callable[[Reply], dict[str, Any]]
    events: Callable[[Reply], Iterator[Event]]
    error: Callable[[int, str, str | None], Mapping[str, Any]]
    broken: Callable[[Reply, Fault, int], Event]
    done: bytes = b""


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
