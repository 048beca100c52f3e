"""The transcript of a game: what was said, who heard it, and a way to print it."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_WIDTH = 96
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class Spoken:
    """One message: who said what to whom; ``("all",)`` is everybody."""

    chapter: str
    speaker: str
    hearers: tuple[str, ...]
    text: str

    @property
    def public(self) -> bool:
        """Tell whether everybody heard it."""
        return self.hearers == ("all",)


class Transcript:
    """Collects what is said and hands it on as lines.

    Args:
        show: Takes each line; None keeps quiet.

    Attributes:
        spoken: All messages, in order.
    """

    def __init__(self, show: Callable[[str], object] | None = None) -> None:
        self.spoken: list[Spoken] = []
        self._show = show
        self._chapter = ""

    def chapter(self, title: str) -> None:
        """Begin a part of the game."""
        self._chapter = title
        self._line("")
        self._line(f"--- {title} {'-' * max(0, _WIDTH - len(title) - 5)}")

    def say(self, speaker: str, hearers: Sequence[str], text: str) -> None:
        """Add a message."""
        spoken = Spoken(self._chapter, speaker, tuple(hearers), text)
        self.spoken.append(spoken)
        self._line("")
        self._line(speaker if spoken.public else f"{speaker} [only to {', '.join(hearers)}]")
        for line in text.strip().splitlines():
            self._wrapped(line, _INDENT)

    def note(self, text: str) -> None:
        """Add a remark that nobody in the game hears."""
        for line in text.splitlines():
            self._wrapped(line, "  * ")

    def _wrapped(self, line: str, indent: str) -> None:
        for part in textwrap.wrap(line, _WIDTH - len(indent)) or [""]:
            self._line(indent + part)

    def _line(self, line: str) -> None:
        if self._show is not None:
            self._show(line.rstrip())
