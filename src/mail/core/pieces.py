"""JSON in pieces, for what is too large to be encoded, or kept in memory encoded, as a whole."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic_core import to_json

PIECE: Final = 32 * 1024
"""About how many characters a piece has. To encode one takes a fraction of a millisecond."""

_ITEM: Final = 8
"""About how many characters an item of a list or an object has besides its texts."""

_SMALL: Final = 1e-4
_LARGE: Final = 1e15
"""Between these, numbers are written without an exponent."""
_DELETE: Final = r"\u007f"
"""How only one of two encoders writes this character."""

T = TypeVar("T")

_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_BARE: Final = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
"""Characters that JSON lets through but readers or UTF-8 do not."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """A text whose parts are made when they are needed. It can be read once."""

    parts: Iterable[str]


@dataclass(frozen=True, slots=True)
class Listed:
    """A list whose items are JSON in pieces, made when they are needed. It can be read once."""

    items: Iterable[Iterable[str]]


def json_line(value: object) -> str:
    """Return a value as one line of compact JSON in which nothing breaks a line for any reader."""
    return _unbroken(_COMPACT.encode(value))


def json_pieces(value: object) -> Iterator[str]:
    """Yield `json_line` of a value piece by piece. It may contain `Spelled` and `Listed`."""
    return iter((_plain(value),)) if _left(value, PIECE) >= 0 else joined(_cut(value))


def unread_pieces(text: str) -> Iterator[str]:
    """Yield JSON that `to_json` wrote as one line, piece by piece; to decode it would take long."""
    return map(_unbroken, sliced(text))


def joined(tokens: Iterable[str]) -> Iterator[str]:
    """Yield texts together, as soon as they come to a piece."""
    waiting: list[str] = []
    size = 0
    for token in tokens:
        waiting.append(token)
        size += len(token)
        if size >= PIECE:
            yield "".join(waiting)
            waiting.clear()
            size = 0
    if waiting:
        yield "".join(waiting)


def sliced(text: str) -> Iterator[str]:
    """Yield a text in slices of at most a piece."""
    if len(text) <= PIECE:
        return iter((text,))
    return (text[at : at + PIECE] for at in range(0, len(text), PIECE))


def _left(value: Any, room: int) -> int:
    """Return how many characters a value leaves of some room; below 0 if it is not `_plain`.

    It stops there, so that it takes no longer for a larger value.
    """
    if type(value) is dict:
        room -= sum(map(len, value))
        items: Collection[Any] = value.values()
    elif type(value) is list:
        items = value
    else:
        items = (value,)
    room -= _ITEM * (len(items) + 1)
    for item in items:
        kind = type(item)
        if kind is str:
            room -= len(item)
        elif kind is int:
            room -= item.bit_length() // 3
        elif kind is dict or kind is list:
            room = _left(item, room)
        elif item is not None and kind is not bool and not _is_usual(item):
            return -1
        if room < 0:
            break
    return room


def _is_usual(value: object) -> bool:
    """Tell whether a value is a number that everybody writes alike, without an exponent."""
    return type(value) is float and (not value or _SMALL <= abs(value) < _LARGE)


def _plain(value: object) -> str:
    """Return `json_line` of a value of which `_left` leaves room, in a fraction of the time."""
    try:
        text = to_json(value).decode()
    except ValueError:  # an unpaired surrogate
        return json_line(value)
    differs = _DELETE in text or "\x85" in text or "\u2028" in text or "\u2029" in text
    return json_line(value) if differs else text


def _cut(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        value = Spelled((value,))
    if isinstance(value, list | tuple):
        value = Listed(map(_items, _groups(value, _left_of_item)))
    if isinstance(value, Spelled):
        yield '"'
        for part in value.parts:
            for slice_ in sliced(part):
                yield _spelled(slice_)
        yield '"'
    elif isinstance(value, Listed):
        yield "["
        for number, item in enumerate(value.items):
            yield "," if number else ""
            yield from item
        yield "]"
    elif isinstance(value, Mapping):
        yield "{"
        for number, fields in enumerate(_groups(value.items(), _left_of_field)):
            yield "," if number else ""
            yield from _fields(fields)
        yield "}"
    else:
        yield json_line(value)


def _items(items: list[Any]) -> Iterable[str]:
    return json_pieces(items[0]) if len(items) == 1 else (_plain(items)[1:-1],)


def _fields(fields: list[tuple[str, Any]]) -> Iterator[str]:
    if len(fields) == 1:
        [(key, item)] = fields
        yield f"{json_line(key)}:"
        yield from json_pieces(item)
    else:
        yield _plain(dict(fields))[1:-1]


def _groups(items: Iterable[T], left: Callable[[T, int], int]) -> Iterator[list[T]]:
    """Yield items together that are encoded at once, which takes far less time; a large one alone.

    Args:
        items: Those of a list or an object.
        left: See `_left`.
    """
    group: list[T] = []
    room = PIECE
    for item in items:
        room = left(item, room)
        if room < 0 and group:
            yield group
            group, room = [], left(item, PIECE)
        group.append(item)
    if group:
        yield group


def _left_of_item(item: Any, room: int) -> int:
    return _left(item, room - _ITEM)


def _left_of_field(field: tuple[str, Any], room: int) -> int:
    key, item = field
    return _left(item, room - len(key) - _ITEM)


def _spelled(text: str) -> str:
    if text.isascii() and "\x7f" not in text:  # both write it in the same way, this one faster
        return to_json(text).decode()[1:-1]
    return json_line(text)[1:-1]


def _unbroken(text: str) -> str:
    return text if text.isascii() else _BARE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
