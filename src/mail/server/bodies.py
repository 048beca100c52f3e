"""Request bodies: what they may be, and the base class of their models.

A body is JSON whatever its ``Content-Type`` says. Its depth, its number of values and the digits of
a number are limited before anything is built from it, types are strict, and a null stands for an
absent field. `mail.server.intake` reads them.
"""

import difflib
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Any, ClassVar, Final, get_args

from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json

from mail.core.suggest import did_you_mean
from mail.errors import ProtocolError
from mail.redaction import beginning

MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 100
"""Digits of a number in a row: to read a longer one takes more than its length."""

_LISTS: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET: Final = bytes(set(range(256)) - set(b"[]{}"))
_DIGITS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_NUMBER: Final = b"0" * (MAX_DIGITS + 1)
_LONG_EXPONENT: Final = b"e000"
MAX_VALUES: Final = 50_000
"""Values of a body."""
_FEWER: Final = "send fewer; the limit is fixed"
_SHOWN_PROBLEMS: Final = 5
_SHOWN_FIELDS: Final = 10
_SHOWN_OF_NAME: Final = 64
_COMPARED_FIELDS: Final = 20
"""Unknown fields that are compared with the known ones: a body may have thousands of them."""

_log = logging.getLogger("mail.server")


class RequestBody(BaseModel):
    """A request body. An unknown field is refused when it is close to a known one, else ignored.

    A model with ``extra="forbid"`` refuses every unknown field.

    Attributes:
        may_be_empty: Whether a request may come without a body, which counts as ``{}`` then.
        may_be_in_list: Whether a list with one such object counts as that object.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)
    may_be_empty: ClassVar[bool] = False
    may_be_in_list: ClassVar[bool] = False

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the fields in JSON."""
        return [field.alias or name for name, field in cls.model_fields.items()]


class _TooManyValues(Exception):
    """There are more than allowed."""


def parse_json(
    text: bytes,
    max_values: int = MAX_VALUES,
    what: str = "the request body",
    *,
    fewer: str = _FEWER,
) -> Any:
    """Read JSON; ``what`` names it in errors, and ``fewer`` says what to do about too many values.

    Raises:
        ProtocolError: it is not JSON, nested too deeply, or has too many values or digits.
    """
    try:
        outside = _outside_strings(text, max_values)
        _check_values(outside, max_values)
    except _TooManyValues:
        raise ProtocolError(f"{what} has more than {max_values} values; {fewer}") from None
    _check_depth(outside, what)
    numbers = outside.translate(_DIGITS, b"+")
    if _LONG_NUMBER in numbers:
        problem = f"contains a number that is too large: more than {MAX_DIGITS} digits in a row"
        raise ProtocolError(f"{what} {problem}")
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ProtocolError(f"{what} is not valid JSON: {error}") from None
    if _LONG_EXPONENT in numbers:
        _check_finite(value, what)
    return value


def parse_object(
    text: bytes,
    max_values: int = MAX_VALUES,
    what: str = "the request body",
    *,
    fewer: str = _FEWER,
    empty: bool = False,
    in_list: bool = False,
) -> dict[str, Any]:
    """Read a JSON object; see `parse_json`.

    Args:
        text, max_values, what, fewer: See `parse_json`.
        empty: No text counts as ``{}``.
        in_list: A list with one object counts as that object.

    Raises:
        ProtocolError: it is not an object, or see `parse_json`.
    """
    if not text.strip():
        if empty:
            return {}
        raise ProtocolError(f"{what} is empty; send a JSON object")
    value = parse_json(text, max_values, what, fewer=fewer)
    if in_list and isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        problem = ", or a list with one" if in_list else ""
        raise ProtocolError(f"{what} must be a JSON object{problem}")
    return value


def check_names(values: Mapping[str, Any], model: type[RequestBody], path: str) -> frozenset[str]:
    """Refuse misspelt fields of a body, and log other unknown fields; ``path`` is for the log.

    Returns:
        The names that the model has.

    Raises:
        ProtocolError: a field is close to one that the model has, or the model forbids it.
    """
    names, nested = _fields(model)
    if names.issuperset(values) and nested.keys().isdisjoint(values):
        return names
    problems = []
    ignored = []
    unknown = _unknown(values, model)
    first = sorted(islice(unknown, _COMPARED_FIELDS), key=itemgetter(0))
    for field, name, owner in first:
        known = owner.names()
        hint = did_you_mean(name, known)
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
        more = sum(1 for _ in unknown)
        _log.warning("%s: unknown fields ignored: %s", beginning(path), _shown(ignored, more))
    return names


def check_query(given: Iterable[str], known: Iterable[str], path: str) -> None:
    """Refuse misspelt parameters of a query, and log other unknown ones; ``path`` is for the log.

    Raises:
        ProtocolError: a parameter is close to a known one.
    """
    names = sorted(known)
    unknown = [name for name in dict.fromkeys(given) if name not in names]
    hints = {name: did_you_mean(name, names) for name in unknown[:_COMPARED_FIELDS]}
    problems = [
        {"field": name[:_SHOWN_OF_NAME], "problem": f"unknown parameter.{hint}"}
        for name, hint in hints.items()
        if hint
    ]
    if problems:
        raise refusal(problems)
    if unknown:
        _log.warning("%s: unknown parameters ignored: %s", beginning(path), _shown(unknown, 0))


def whole(value: object) -> object:
    """Take 3.0 for 3: to JSON they are the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
    for name in values:
        if name not in known:
            yield prefix + name[:_SHOWN_OF_NAME], name, model
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


def _shown(unknown: list[str], more: int) -> str:
    shown = beginning(", ".join(repr(name[:_SHOWN_OF_NAME]) for name in unknown[:_SHOWN_FIELDS]))
    more += max(0, len(unknown) - _SHOWN_FIELDS)
    return f"{shown} and {more} more" if more else shown


def _check_finite(value: object, what: str) -> None:
    """Refuse numbers that no float holds: they were read as infinite, which is not JSON."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif isinstance(each, float) and math.isinf(each):
            raise ProtocolError(f"{what} contains a number that is too large")


def _outside_strings(text: bytes, max_values: int) -> bytes:
    """Return JSON without its strings. What is not JSON is cut somehow; the parser refuses it."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if text.count(b'"') > 4 * max_values:  # two of a value, two of its name
        raise _TooManyValues
    return b"".join(text.split(b'"')[::2])


def _check_values(outside: bytes, max_values: int) -> None:
    if sum(map(outside.count, (b",", b"[", b"{"))) > max_values:
        raise _TooManyValues


def _check_depth(outside: bytes, what: str) -> None:
    brackets = outside.translate(_LISTS, _NO_BRACKET)
    for _ in range(MAX_DEPTH):
        if b"[]" not in brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if b"[]" in brackets:
        raise ProtocolError(f"{what} is nested deeper than {MAX_DEPTH} levels; the limit is fixed")
