"""Decode JSON text strictly, and check that a definition is made of plain JSON values."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn

from mail.errors import ConfigError

MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest definition, as a file or as text."""

_TOO_LARGE: Final = f"it is larger than {MAX_BYTES // 1024 // 1024} MiB"
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: str | PathLike[str]) -> str:
    """Return the text of a swarms file.

    Raises:
        ConfigError: it cannot be read, is no regular file, is too large, or is not UTF-8.
    """
    try:
        file = Path(path)
        if file.exists() and not file.is_file() and not file.is_dir():
            problem = "it is not a regular file"  # a pipe or a device may never end
        elif file.stat().st_size > MAX_BYTES and file.is_file():
            problem = _TOO_LARGE
        else:
            data = file.read_bytes()
            if not data.startswith(_UTF16_MARKS):
                return data.decode("utf-8")
            problem = "it is UTF-16 text; save it as UTF-8"
    except OSError as error:
        problem = error.strerror or str(error)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = f"it is not UTF-8 text, see line {line}"
    except ValueError as error:  # a path that cannot be one
        problem = str(error)
    raise ConfigError(f"cannot read swarms.json file at {path}: {problem}")


def parse_json(text: str, source: str) -> Any:
    """Return the value of a JSON text.

    Args:
        text: The text.
        source: The name of the text, for errors.

    Raises:
        ConfigError: the text is not JSON, is too large, names a key twice in one object, or holds
            NaN or an infinite number.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{source} must be JSON text, actually got {type(text).__name__}")
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{source} cannot be used: {_TOO_LARGE}")
    if text.startswith("\ufeff"):
        mark = "it begins with a byte order mark; save it as UTF-8 without one"
        raise ConfigError(f"{source} is not valid JSON: {mark}")

    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"it contains {name}, which is not a number")

    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError(_twice(pairs))
        return found

    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=unique)
    except RecursionError:
        raise ConfigError(f"{source} is not valid JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{source} is not valid JSON: {error}") from None


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
        what: The name of the value, for errors.

    Raises:
        ConfigError: naming the place of a key that is not text, a number that is not finite, text
            with half a surrogate pair, or of nesting beyond `MAX_DEPTH`.
    """
    waiting: list[tuple[Any, tuple[object, ...]]] = [(value, ())]
    while waiting:
        item, path = waiting.pop()
        if problem := _problem_of(item, len(path)):
            place = ".".join(str(part) for part in path[:8]).encode("ascii", "backslashreplace")
            at = f" at '{place.decode()}'" if path else ""
            name = value.get("name") if isinstance(value, dict) else None
            owner = f" ('{name}')" if isinstance(name, str) and name.isprintable() else ""
            raise ConfigError(f"{what} {problem}{at}{owner}")
        if isinstance(item, dict):
            waiting.extend((part, (*path, key)) for key, part in item.items())
        elif isinstance(item, list):
            waiting.extend((part, (*path, index)) for index, part in enumerate(item))


def _problem_of(item: object, depth: int) -> str | None:
    if isinstance(item, dict | list) and depth >= MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} levels deep"
    if isinstance(item, float) and not math.isfinite(item):
        return "contains a number that is not finite"
    for text in item if isinstance(item, dict) else (item,) if isinstance(item, str) else ():
        if not isinstance(text, str):
            return f"contains the key {text!r}, which is not a string"
        try:
            text.encode()
        except UnicodeEncodeError:
            return "contains an unpaired surrogate, which cannot be encoded,"
    return None
