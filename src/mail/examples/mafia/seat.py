"""What a scripted agent reads out of its step: the mail, the facts and the task of the cue."""

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from xml.sax.saxutils import unescape

from mail.examples.mafia.choices import Deed
from mail.examples.mafia.cues import Cue
from mail.llm.script_view import ScriptView

_BLOCK = re.compile(
    r"<(?P<kind>public|private)_message>\n<from>(?P<speaker>.*?)</from>\n"
    r"(?:<to>.*?</to>\n)?(?P<text>.*?)\n?</(?P=kind)_message>\s*",
    re.DOTALL,
)
_HEADING = re.compile(r"^=== (?P<when>.+?): (?P<cue>[A-Z ]+) ===$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Heard:
    """A message that reached the agent."""

    speaker: str
    text: str
    public: bool


class Seat:
    """An agent's view of the game, read anew from its history at every turn, as a model does."""

    def __init__(self, view: ScriptView) -> None:
        self.view = view
        # The steps are the texts without a sender; the system's notices about tools have one.
        self._steps = [mail.body for mail in view.mails if not mail.sender]

    @cached_property
    def cue(self) -> Cue | None:
        """The kind of this step's cue."""
        match = _HEADING.search(self.payload)
        return next((cue for cue in Cue if match and cue == match["cue"]), None)

    @cached_property
    def payload(self) -> str:
        """What the game says in this step."""
        return unescape(_BLOCK.sub("", self._steps[-1])) if self._steps else ""

    @cached_property
    def news(self) -> tuple[Heard, ...]:
        """The messages that this step brought."""
        return tuple(_heard(self._steps[-1])) if self._steps else ()

    @cached_property
    def heard(self) -> tuple[Heard, ...]:
        """All messages, oldest first."""
        return tuple(message for step in self._steps for message in _heard(step))

    @cached_property
    def name(self) -> str:
        """The player's own name; empty for the narrator."""
        return self._in_prompt(r"^You are (\w+), ")

    @cached_property
    def role(self) -> str:
        """The player's role."""
        return self._in_prompt(r"^Your secret role: (\w+)\.")

    @cached_property
    def partners(self) -> Sequence[str]:
        """The names of a mafioso's living partners."""
        return self.names("Your partners who are still alive")

    @cached_property
    def living(self) -> Sequence[str]:
        """The names of the living."""
        return self.names("Living")

    @cached_property
    def gone(self) -> dict[str, str]:
        """The players who have left the game: name to role."""
        return dict(re.findall(r"(\w+) \((\w+)\)", self.fact("Gone")))

    @cached_property
    def options(self) -> Sequence[str]:
        """Whom the player may choose."""
        return self.names("You may choose")

    @cached_property
    def deed(self) -> Deed | None:
        """What the player is to choose somebody for."""
        match = re.search(r'"I (.+?) NAME\."', self.payload)
        return next((deed for deed in Deed if match and deed == match[1]), None)

    @cached_property
    def findings(self) -> dict[str, bool]:
        """What the detective knows: name to whether that player is mafia."""
        found = re.findall(r"(\w+) is (not )?mafia\b", self.fact("Your findings so far"))
        return {name: not innocent for name, innocent in found}

    @cached_property
    def dice(self) -> random.Random:
        """Dice that fall the same whenever the same has happened."""
        told = "\n".join((self.view.system, *(mail.body for mail in self.view.mails)))
        return random.Random(hashlib.sha256(told.encode()).digest())  # noqa: S311 - a game

    def fact(self, label: str) -> str:
        """Return what a line ``<label>: …`` of the payload says, without its full stop."""
        match = re.search(rf"^{re.escape(label)}: (.*?)\.?$", self.payload, re.MULTILINE)
        return match[1] if match else ""

    def names(self, label: str) -> Sequence[str]:
        """Return the names in a line ``<label>: A, B.`` of the payload."""
        return tuple(name for name in self.fact(label).split(", ") if name not in ("", "nobody"))

    def _in_prompt(self, pattern: str) -> str:
        match = re.search(pattern, self.view.system, re.MULTILINE)
        return match[1] if match else ""


def _heard(step: str) -> Iterator[Heard]:
    for match in _BLOCK.finditer(step):
        text = unescape(match["text"])
        yield Heard(unescape(match["speaker"]), text, match["kind"] == "public")
