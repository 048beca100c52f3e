"""JSON answers held against typed dictionaries, to the key: nothing missing, nothing added."""

import types
from collections.abc import Iterator
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import is_typeddict

from mail.net import types as types_of_server

__all__ = ["misfits"]

_KNOWN_SOMETIMES = frozenset({"arguments_left_out", "cost", "events_omitted", "participant"})
"""Keys that our own server sends only when it knows their value, or when they are true."""

_OF_A_WAIT = frozenset({"status", "reply"})
"""What the answer to a message to a teammate says only if the caller waited for the reply."""

_OF_AN_END = frozenset({"response", "subject", "status", "breakpoints", "ended_by"})
"""What the events that end a run say, beside what every event says."""


def misfits(value: Any, shape: Any) -> list[str]:
    """Return what is wrong with a JSON value; nothing when it has the shape.

    Keys of the server's answers that a typed dictionary lets be absent must be there, too: older
    servers do not send them, our own does.
    """
    return list(_misfits(value, shape, "$"))


def _misfits(value: Any, shape: Any, where: str) -> Iterator[str]:
    origin, arguments = get_origin(shape), get_args(shape)
    if origin in (NotRequired, Required, Annotated):
        yield from _misfits(value, arguments[0], where)
    elif origin in (Union, types.UnionType):
        if all(list(_misfits(value, each, where)) for each in arguments):
            yield f"{where}: {value!r} fits none of {arguments}"
    elif is_typeddict(shape):
        yield from _of_keys(value, shape, where)
    elif origin is list and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _misfits(item, arguments[0], f"{where}[{number}]")
    elif origin is dict and isinstance(value, dict):
        for name, item in value.items():
            yield from _misfits(item, arguments[1], f"{where}.{name}")
    elif not (value in arguments if origin is Literal else _fits(value, shape)):
        yield f"{where}: {value!r} is no {shape}"


def _of_keys(value: Any, shape: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {value!r} is no object"
        return
    hints = get_type_hints(shape, include_extras=True)
    own = shape.__module__ == types_of_server.__name__
    needed = set(hints) - _KNOWN_SOMETIMES if own else set(shape.__required_keys__)
    if shape is types_of_server.PostTeamMessageResponse:
        needed -= _OF_A_WAIT
    yield from (f"{where}.{name}: missing" for name in sorted(needed - value.keys()))
    known = set(hints) | (_OF_AN_END if shape is types_of_server.EventData else set())
    yield from (f"{where}.{name}: not documented" for name in sorted(value.keys() - known))
    for name in sorted(hints.keys() & value.keys()):
        yield from _misfits(value[name], hints[name], f"{where}.{name}")


def _fits(value: Any, shape: Any) -> bool:
    if shape is Any:
        return True
    if shape is None or shape is type(None):
        return value is None
    if isinstance(value, bool):
        return shape is bool
    if shape is float:
        return isinstance(value, int | float)
    return isinstance(shape, type) and isinstance(value, shape)
