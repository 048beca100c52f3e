"""Output of commands: results go to stdout, everything else to stderr."""

import codecs
import json
import sys
from typing import TYPE_CHECKING, Any

from mail.cli.common import cleaned

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Screen"]


class Screen:
    """Prints in colour on a terminal and plain text elsewhere, without wrapping or truncating."""

    def __init__(self) -> None:
        from rich.console import Console

        self._out = Console(highlight=False, markup=False, emoji=False)
        self._err = Console(highlight=False, markup=False, emoji=False, stderr=True)

    def say(self, *parts: str | tuple[str, str]) -> None:
        """Print a line of the result; a part is a text or a pair of text and style."""
        _print(self._out, parts)

    def note(self, *parts: str | tuple[str, str]) -> None:
        """Print a line about the result."""
        _print(self._err, parts)

    def fail(self, text: str) -> None:
        """Print an error."""
        _print(self._err, ((text, "red"),))

    def show_json(self, value: Any, *, indent: int | None = 2) -> None:
        """Print a value as JSON; without ``indent`` on one line, and flush it."""
        text = json.dumps(value, ensure_ascii=not _writes_utf8(), indent=indent)
        sys.stdout.write(cleaned(text) + "\n")
        sys.stdout.flush()


def _writes_utf8() -> bool:
    """Tell whether stdout is UTF-8; any other encoding needs JSON escapes."""
    return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"


def _print(console: "Console", parts: tuple[str | tuple[str, str], ...]) -> None:
    from rich.text import Text

    line = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append(cleaned(text), style)
    console.print(line, soft_wrap=True)
    console.file.flush()
