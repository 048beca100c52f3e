"""Where commands print: what was asked for on stdout, everything about it on stderr."""

import codecs
import json
import sys
from typing import TYPE_CHECKING, Any

from mail.cli.plain import cleaned

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Screen"]


class Screen:
    """Prints in colour on a terminal and plainly elsewhere; nothing is wrapped or cut."""

    def __init__(self) -> None:
        from rich.console import Console

        self._out = Console(highlight=False, markup=False, emoji=False)
        self._err = Console(highlight=False, markup=False, emoji=False, stderr=True)

    def say(self, *parts: str | tuple[str, str]) -> None:
        """Print a line of what was asked for; a part is a text or a pair of text and style."""
        _print(self._out, parts)

    def note(self, *parts: str | tuple[str, str]) -> None:
        """Print a line about the answer."""
        _print(self._err, parts)

    def fail(self, text: str) -> None:
        """Print what went wrong."""
        _print(self._err, ((text, "red"),))

    def show_json(self, value: Any, *, indent: int | None = 2) -> None:
        """Print a value as JSON; without ``indent`` on one line, at once."""
        text = json.dumps(value, ensure_ascii=not _writes_utf8(), indent=indent)
        sys.stdout.write(cleaned(text) + "\n")
        sys.stdout.flush()


def _writes_utf8() -> bool:
    """Tell whether stdout takes every sign; elsewhere the missing ones need JSON's own escapes."""
    return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"


def _print(console: "Console", parts: tuple[str | tuple[str, str], ...]) -> None:
    from rich.text import Text

    line = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append(cleaned(text), style)
    console.print(line, soft_wrap=True)
    console.file.flush()
