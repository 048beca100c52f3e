"""Untrusted bodies and JSON: how deep and how much, told before anything is built from it."""

import json
import re
from typing import Any, Final

from pydantic_core import from_json
from starlette.requests import Request

from mail.errors import ProtocolError

__all__ = ["MAX_DEPTH", "MAX_PARTS", "body_of", "parse_object"]

MAX_DEPTH: Final = 64
MAX_PARTS: Final = 400_000
"""Brackets, commas and strings: some 100,000 values."""

# Possessive, so that hostile input cannot make it back-track; an unclosed string runs to the end.
_TOKENS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)

_BIG_NUMBER: Final = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{200}")


async def body_of(request: Request) -> bytes:
    """Return the body of a caller's request.

    Raises:
        QuotaExceeded: too many bodies of the caller's are still coming.
        BodyTooLarge, BodyTooSlow: it is more, or takes longer, than the server takes.
    """
    with request.state.body_place():  # set by `mail.server.deps.current_caller`
        return await request.body()


def parse_object(text: bytes, what: str = "the request body") -> dict[str, Any]:
    """Read a JSON object; ``what`` names it in errors.

    Raises:
        ProtocolError: it is not JSON, not an object, nested too deeply, or has too many parts.
    """
    _check_size(text, what)
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ProtocolError(f"{what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError(f"{what} must be a JSON object")
    if _BIG_NUMBER.search(text):
        _check_finite(value, what)
    return value


def _check_finite(value: object, what: str) -> None:
    """Refuse numbers that no float holds: they were read as infinite, which is not JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ProtocolError(f"{what} holds a number that is too large") from None


def _check_size(text: bytes, what: str) -> None:
    depth = 0
    for parts, token in enumerate(_TOKENS.finditer(text), 1):
        char = text[token.start()]
        if char in b"[{":
            depth += 1
        elif char in b"]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise ProtocolError(f"{what} is nested deeper than {MAX_DEPTH} levels")
        if parts > MAX_PARTS:
            raise ProtocolError(f"{what} has more than {MAX_PARTS} parts")
