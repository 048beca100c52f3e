"""Decode JSON text strictly, and check that a definition is made of plain JSON values."""

import json
import math
import os
import stat
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn

from mail.errors import ConfigError

MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest definition, as a file or as text."""

_UTF8_MARK: Final = b"\xef\xbb\xbf"
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_TOO_LARGE: Final = f"it is larger than {MAX_BYTES // 1024 // 1024} MiB"
_NOT_A_FILE: Final = "it is not a regular file"
_HAS_MARK: Final = "it begins with a byte order mark; save it as UTF-8 without one"


def read_text(path: str | PathLike[str]) -> str:
    """Return the text of a swarms file.

    Raises:
        ConfigError: it cannot be read, is no regular file, is too large, or is not UTF-8 without a
            byte order mark.
    """
    failed = f"cannot read swarms.json file at {path}"
    try:
        data = _bytes_of(Path(path))
    except OSError as error:
        raise ConfigError(f"{failed}: {error.strerror or error}") from None
    except ValueError as error:  # a path that cannot be one
        raise ConfigError(f"{failed}: {error}") from None
    problem = _NOT_A_FILE if data is None else _problem(data)
    if data is None or problem:
        raise ConfigError(f"{failed}: {problem}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{failed}: it is not UTF-8 text, see line {line}") from None


def parse_json(text: str, source: str) -> Any:
    """Return the value of a JSON text.

    Args:
        text: The text.
        source: What the text is, for errors.

    Raises:
        ConfigError: the text is not JSON, is too large, names a key twice in one object, or holds
            NaN or an infinite number.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{source} must be JSON text, actually got {type(text).__name__}")
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{source} cannot be used: {_TOO_LARGE}")
    if text.startswith("\ufeff"):
        raise ConfigError(f"{source} is not valid JSON: {_HAS_MARK}")

    def refuse_constant(name: str) -> NoReturn:
        raise ConfigError(f"{source} is not valid JSON: it contains {name}, which is not a number")

    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ConfigError(f"{source} cannot be used: {_twice(pairs)}")
        return found

    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=unique)
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError(f"{source} is not valid JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{source} is not valid JSON: {error}") from None


def _bytes_of(path: Path) -> bytes | None:
    """Return the bytes of a regular file, or None for anything else, which may never end."""
    # Opening a pipe would wait for somebody to write to it; Windows has no such flag.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return file.read(MAX_BYTES + 1)


def _problem(data: bytes) -> str | None:
    if len(data) > MAX_BYTES:
        return _TOO_LARGE
    if data.startswith(_UTF8_MARK):
        return _HAS_MARK
    if data.startswith(_UTF16_MARKS):
        return "it is UTF-16 text; save it as UTF-8"
    return None


def _twice(pairs: Sequence[tuple[str, Any]]) -> str:
    twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    owner = dict(pairs).get("name")
    of = f" (the one whose name is '{owner}')" if isinstance(owner, str) and twice != "name" else ""
    return f"the key '{twice}' appears twice in one object{of}"


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
        return "contains a number that is not finite"
    return _text_problem(item) if isinstance(item, str) else None


def _key_problem(key: object) -> str | None:
    if not isinstance(key, str):
        return f"contains the key {key!r}, which is not a string"
    return _text_problem(key)


def _text_problem(text: str) -> str | None:
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "contains an unpaired surrogate, which cannot be encoded,"
    return None


def _owner(value: object) -> str:
    name = value.get("name") if isinstance(value, dict) else None
    return f" ('{name}')" if isinstance(name, str) and name.isprintable() else ""
