"""Helpers of commands: exit codes, flags that stand for settings, and text safe to print."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType, SimpleNamespace
from typing import Final

from mail.config.env import CONFIG_PATH, expanded, overridden

DONE: Final = 0
FAILED: Final = 1
"""The command failed: the server rejected it, or the task failed."""

USAGE: Final = 2
"""The command line or the configuration is invalid; nothing was attempted."""

PAUSED: Final = 3
"""The task is paused and waits for results of breakpoint calls."""

NO_ANSWER: Final = 4
"""The server cannot be reached, or did not respond in time."""

LIMITED: Final = 5
"""The task has an answer, but its step limit ended the run."""

INTERRUPTED: Final = 130
"""Interrupted with Ctrl-C."""


_FLAG_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ServerConfig: 'port'": "--port",
        "ServerConfig: 'workers'": "--workers",
        "ServerConfig: 'host'": "--host",
        "SwarmConfig: 'name'": "--swarm-name",
        "SwarmConfig: 'source'": "--swarm-source",
        "StoreConfig: 'url'": "--store",
    }
)
"""The name of an argument in a model's error, and its name on the command line."""


def configured(given: str | None) -> AbstractContextManager[None]:
    """Have a ``--config`` argument name the file of settings for a while.

    Raises:
        ConfigError: the user named after a tilde does not exist.
    """
    path = None if given is None else str(expanded(given, "--config").resolve())
    return overridden(CONFIG_PATH, path)


def in_flags(text: str) -> str:
    """Replace an argument's name in a model's error with the name of its flag."""
    for argument, flag in _FLAG_OF.items():
        text = text.replace(argument, flag)
    return text


# The console has the same rule, in `parts.js`.
_UNSEEN: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f"
    r"\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\uf8ff"
    r"\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd"
    r"\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    r"\U000e0000-\U0010ffff"
)
"""Controls but line ends and tabs, formats, separators, fillers, what nobody has given a shape."""

_EMOJI: Final = (
    r"\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935"
    r"\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_HIDDEN: Final = re.compile(  # one selector after an emoji, and a joiner between two, are seen
    rf"[{_UNSEEN}](?<![{_EMOJI}]\ufe0f|[0-9#*]\ufe0f(?=\u20e3)|[{_EMOJI}\ufe0f]\u200d(?=[{_EMOJI}]))"
)


def cleaned(text: str) -> str:
    r"""Return the text with characters that cannot be seen as ``\uXXXX``, two above U+FFFF.

    Line ends and tabs stay. The meaning of JSON text does not change.
    """

    def escaped(found: re.Match[str]) -> str:
        units = found[0].encode("utf-16-be", "surrogatepass").hex("|", 2)
        return "\\u" + units.replace("|", "\\u")

    return _HIDDEN.sub(escaped, text)


def one_line(text: str, most: int = 200) -> str:
    """Return the text's words on one safe line with a maximum length."""
    line = " ".join(cleaned(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def in_columns(lines: Sequence[Sequence[str]], most: int = 200) -> list[str]:
    """Return lines of cells, the first of them the headings, in columns as wide as they need."""
    shown = [[one_line(cell, most) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in shown]


def tell(arguments: SimpleNamespace, answer: object, *lines: str) -> int:
    """Print what a command found, as JSON with ``--json`` or as lines; return success."""
    for line in [json.dumps(answer)] if arguments.json else lines:
        print(cleaned(line))
    return DONE
