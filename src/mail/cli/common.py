"""What commands share: exit codes, flags that stand for settings, and text safe to print."""

import argparse
import math
import unicodedata
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from mail.config.env import expanded

__all__ = [
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "NO_ANSWER",
    "PAUSED",
    "USAGE",
    "cleaned",
    "config_path",
    "in_flags",
    "one_line",
    "positive",
    "print_table",
    "whole_number",
]

DONE: Final = 0
FAILED: Final = 1
"""The command failed: the server rejected it, or the task failed."""

USAGE: Final = 2
"""The command line or the configuration is invalid; nothing was attempted."""

PAUSED: Final = 3
"""The task is paused and waits for results of breakpoint calls."""

NO_ANSWER: Final = 4
"""The server cannot be reached, or did not respond in time."""

INTERRUPTED: Final = 130
"""Interrupted with Ctrl-C."""


_FLAG_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ServerConfig: 'port'": "--port",
        "ServerConfig: 'host'": "--host",
        "SwarmConfig: 'name'": "--swarm-name",
        "SwarmConfig: 'source'": "--swarm-source",
        "StoreConfig: 'url'": "--store",
    }
)
"""The name of an argument in a model's error, and its name on the command line."""


def config_path(given: str | None) -> str | None:
    """Return a ``--config`` argument as an absolute path, or None.

    Raises:
        ConfigError: the user named after a tilde does not exist.
    """
    return None if given is None else str(expanded(given, "--config").resolve())


def in_flags(text: str) -> str:
    """Replace an argument's name in a model's error with the name of its flag."""
    for argument, flag in _FLAG_OF.items():
        text = text.replace(argument, flag)
    return text


_MOST_DIGITS: Final = 18


def whole_number(text: str) -> int:
    """Read an argument that is a whole number above 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not (text.isdecimal() and len(text) <= _MOST_DIGITS and int(text)):
        raise argparse.ArgumentTypeError("must be a whole number and must be at least 1")
    return int(text)


def positive(text: str) -> float:
    """Read an argument that is a finite number above 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("must be a number above 0")
    return value


_KEPT: Final = frozenset("\n\t")
_REORDERING: Final = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the display order of text."""


def cleaned(text: str) -> str:
    r"""Return the text with control characters as ``\uXXXX``; line ends and tabs stay.

    The meaning of JSON text does not change.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(sign) if _obeyed(sign) else sign for sign in text)


def one_line(text: str, most: int = 200) -> str:
    """Return the text's words on one safe line with a maximum length."""
    line = cleaned(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def _obeyed(sign: str) -> bool:
    if sign in _KEPT:
        return False
    return sign in _REORDERING or unicodedata.category(sign) in ("Cc", "Cs")


def _escaped(sign: str) -> str:
    return f"\\u{ord(sign):04x}"


def print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print lines of cells, the first of them the headings, in columns as wide as they need."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(c.ljust(width) for c, width in zip(line, widths, strict=True)).rstrip())
