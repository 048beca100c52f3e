"""Request bodies: how they are read, and the base class of their models.

A body is JSON whatever its ``Content-Type`` says. Its depth and number of parts are limited before
anything is built from it, types are strict, and a null stands for an absent field.
"""

import difflib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json
from starlette.requests import Request

from mail.core.schema import problems_in
from mail.core.suggest import did_you_mean
from mail.errors import ProtocolError

__all__ = [
    "MAX_DEPTH",
    "MAX_PARTS",
    "JSONRequest",
    "RequestBody",
    "body_of",
    "check_names",
    "one_of",
    "parse_object",
    "read_body",
    "refusal",
    "with_body",
]

MAX_DEPTH: Final = 64
MAX_PARTS: Final = 400_000
"""Brackets, commas and strings: some 100,000 values."""

# Possessive, so that hostile input cannot make it back-track; an unclosed string runs to the end.
_TOKENS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)

_BIG_NUMBER: Final = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{200}")
_SHOWN_PROBLEMS: Final = 5
_SHOWN_FIELDS: Final = 10
_SHOWN_OF_NAME: Final = 64
_COMPARED_FIELDS: Final = 100
"""Unknown fields that are compared with the known ones: a body may have 100,000 of them."""

_log = logging.getLogger("mail.server")

B = TypeVar("B", bound="RequestBody")


class RequestBody(BaseModel):
    """A request body. An unknown field is refused when it is close to a known one, else ignored.

    A model with ``extra="forbid"`` refuses every unknown field.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the fields in JSON."""
        return [field.alias or name for name, field in cls.model_fields.items()]


class JSONRequest(Request):
    """A request whose body has been read and parsed.

    It has no ``Content-Type``, so that FastAPI takes the body for JSON, as every body is.
    """

    def __init__(self, request: Request, text: bytes, values: dict[str, Any]) -> None:
        headers = [pair for pair in request.scope["headers"] if pair[0] != b"content-type"]
        super().__init__({**request.scope, "headers": headers}, request.receive)
        self._text = text
        self._values = values

    async def body(self) -> bytes:
        """Return the body as it came."""
        return self._text

    async def json(self) -> dict[str, Any]:
        """Return the body as it was parsed."""
        return self._values


async def body_of(request: Request) -> bytes:
    """Return the body of a caller's request.

    Raises:
        QuotaExceeded: too many bodies of the caller's are still coming.
        BodyTooLarge, BodyTooSlow: it is more, or takes longer, than the server takes.
    """
    with request.state.body_place():  # set by `mail.server.deps.Audience`
        return await request.body()


async def with_body(request: Request, model: type[RequestBody]) -> JSONRequest:
    """Read and parse the body of a request, and check the names of its fields.

    Raises:
        ProtocolError: it is not a JSON object, or has a misspelt field.
        QuotaExceeded, BodyTooLarge, BodyTooSlow: see `body_of`.
    """
    return JSONRequest(request, *await _read(request, model))


async def _read(request: Request, model: type[RequestBody]) -> tuple[bytes, dict[str, Any]]:
    text = await body_of(request)
    values = parse_object(text)
    check_names(values, model, request.scope["path"])
    return text, values


async def read_body(request: Request, model: type[B]) -> B:
    """Read a body and make its model of it, where FastAPI does not.

    Raises:
        ProtocolError: it does not fit the model.
        QuotaExceeded, BodyTooLarge, BodyTooSlow: see `body_of`.
    """
    _, values = await _read(request, model)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise refusal(problems_in(error.errors())) from None


def parse_object(text: bytes, what: str = "the request body") -> dict[str, Any]:
    """Read a JSON object; ``what`` names it in errors.

    Raises:
        ProtocolError: it is not JSON, not an object, nested too deeply, or has too many parts.
    """
    _check_size(text, what)
    if not text.strip():
        raise ProtocolError(f"{what} is empty; send a JSON object")
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ProtocolError(f"{what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError(f"{what} must be a JSON object")
    if _BIG_NUMBER.search(text):
        _check_finite(value, what)
    return value


def check_names(values: Mapping[str, Any], model: type[RequestBody], path: str) -> None:
    """Refuse misspelt fields of a body, and log other unknown fields; ``path`` is for the log.

    Raises:
        ProtocolError: a field is close to one that the model has, or the model forbids it.
    """
    problems = []
    ignored = []
    unknown = _unknown(values, model)
    for field, name, owner in islice(unknown, _COMPARED_FIELDS):
        known = owner.names()
        hint = did_you_mean(name[:_SHOWN_OF_NAME], known)
        if owner.model_config["extra"] == "forbid":
            problem = f"unknown option '{name[:_SHOWN_OF_NAME]}'; allowed are {', '.join(known)}."
            problems.append({"field": field, "problem": problem + hint})
        elif hint:
            problems.append({"field": field, "problem": f"unknown field.{hint}"})
        else:
            ignored.append(name)
    if problems:
        raise refusal(problems)
    if ignored:
        ignored += [name for _, name, _ in unknown]
        _log.warning("%s: unknown fields ignored: %s", path, _shown(ignored))


def refusal(problems: list[dict[str, str]]) -> ProtocolError:
    """Make the error for a request with wrong fields."""
    shown = problems[:_SHOWN_PROBLEMS]
    text = "; ".join(f"{item['field']}: {item['problem']}" for item in shown)
    return ProtocolError(f"invalid request: {text}", problems)


def one_of(value: str, known: Iterable[str], problem: str) -> str:
    """Return a value that is among the known ones.

    Raises:
        ValueError: it is not; the text begins with ``problem`` and names the closest.
    """
    names = list(known)
    if value in names:
        return value
    close = difflib.get_close_matches(value[:_SHOWN_OF_NAME], names, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"one of {', '.join(names)}"
    raise ValueError(f"{problem} {value[:_SHOWN_OF_NAME]!r}; {hint}")


def _unknown(
    values: Mapping[str, Any], model: type[RequestBody], prefix: str = ""
) -> Iterator[tuple[str, str, type[RequestBody]]]:
    """Yield the unknown fields: the path, the name, and the model that does not have it."""
    known, nested = _fields(model)
    for name in sorted(values.keys() - known):
        yield prefix + name, name, model
    for name, inner in nested.items():
        if isinstance(values.get(name), dict):
            yield from _unknown(values[name], inner, f"{prefix}{name}.")


@cache
def _fields(model: type[RequestBody]) -> tuple[frozenset[str], dict[str, type[RequestBody]]]:
    """Return the names of a model's fields in JSON, and the models of those that are objects."""
    nested = {}
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, RequestBody):
                nested[field.alias or name] = kind
    return frozenset(model.names()), nested


def _shown(unknown: list[str]) -> str:
    shown = ", ".join(repr(name[:_SHOWN_OF_NAME]) for name in unknown[:_SHOWN_FIELDS])
    more = len(unknown) - _SHOWN_FIELDS
    return f"{shown} and {more} more" if more > 0 else shown


def _check_finite(value: object, what: str) -> None:
    """Refuse numbers that no float holds: they were read as infinite, which is not JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ProtocolError(f"{what} contains a number that is too large") from None


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
