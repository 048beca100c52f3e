"""What a definition may be made of before anything else is asked of it."""

import math
from typing import Any, Final

from mail.errors import ConfigError

__all__ = ["MAX_DEPTH", "check_plain"]

MAX_DEPTH: Final = 64
"""Levels of lists and objects inside a definition."""


def check_plain(value: object, what: str) -> None:
    """Check keys, numbers, texts and depth of a definition, however deep they are.

    Python objects that JSON does not know are left alone: a definition made in code may hold them
    in ``agent_params``.

    Args:
        value: The definition.
        what: What it is, for errors.

    Raises:
        ConfigError: naming the place of a key that is not text, a number that is not finite, text
            with half a surrogate pair, or of nesting beyond `MAX_DEPTH`.
    """
    waiting: list[tuple[Any, tuple[object, ...]]] = [(value, ())]
    while waiting:
        item, path = waiting.pop()
        problem = _value_problem(item, len(path))
        if problem:
            place = ".".join(str(part) for part in path[:8]).encode("ascii", "backslashreplace")
            at = f" at '{place.decode()}'" if path else ""
            raise ConfigError(f"{what} {problem}{at}{_owner(value)}")
        if isinstance(item, dict):
            waiting.extend((part, (*path, key)) for key, part in item.items())
        elif isinstance(item, list):
            waiting.extend((part, (*path, index)) for index, part in enumerate(item))


def _value_problem(item: object, depth: int) -> str | None:
    if isinstance(item, dict | list) and depth >= MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} levels deep"
    if isinstance(item, dict):
        return next(filter(None, map(_key_problem, item)), None)
    if isinstance(item, float) and not math.isfinite(item):
        return "holds a number that is not finite"
    return _text_problem(item) if isinstance(item, str) else None


def _key_problem(key: object) -> str | None:
    if not isinstance(key, str):
        return f"holds the key {key!r}, which is not text"
    return _text_problem(key)


def _text_problem(text: str) -> str | None:
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which cannot be written anywhere,"
    return None


def _owner(value: object) -> str:
    name = value.get("name") if isinstance(value, dict) else None
    return f" ('{name}')" if isinstance(name, str) and name.isprintable() else ""
