"""From what a player wrote to what the player chose, and the docket that keeps the choices."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mail.core.suggest import did_you_mean
from mail.errors import ToolError

NOBODY: Final = "nobody"
"""The choice of a player who abstains."""

_ABSTAIN: Final = ("nobody", "no one", "no-one")
_BETWEEN: Final = r"[\s:*_\"'\u201c\u2018\[]+"


class NarratorError(ToolError):
    """A tool call of the narrator that cannot be; the text goes back to the narrator."""


class Deed(StrEnum):
    """A purpose that players choose each other for, as they have to say it: ``I <deed> <name>``."""

    PROTECT = "protect"
    INVESTIGATE = "investigate"
    KILL = "vote to kill"
    NOMINATE = "nominate"
    VOTE = "vote for"


def read_choice(text: str, deed: Deed, options: Sequence[str]) -> str | None:
    """Read the last ``I <deed> <name>`` of a text.

    Args:
        text: The player's text, markdown and all.
        deed: The purpose of the choice.
        options: The names that may be chosen; ``nobody`` always may.

    Returns:
        The name as it is spelt in ``options``, `NOBODY`, or None when there is no such sentence.
    """
    known = {name.casefold(): name for name in options} | dict.fromkeys(_ABSTAIN, NOBODY)
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    verb = r"\s+".join(deed.split())
    found = re.findall(rf"\bI\s+{verb}{_BETWEEN}({names})\b", text, re.IGNORECASE)
    return known[found[-1].casefold()] if found else None


@dataclass(slots=True)
class Docket:
    """The choices of one section of a game: what players said, and what the narrator recorded.

    Attributes:
        deed: The purpose of the choice.
        options: The players who may be chosen, by each player who is asked.
        declared: Player to choice, as the game read it; a player who never said is `NOBODY`.
        recorded: Player to choice, as it counts. Only what was declared can be recorded.
        mended: Players whose choice the narrator failed to record.
    """

    deed: Deed
    options: dict[str, list[str]]
    declared: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, str] = field(default_factory=dict)
    mended: list[str] = field(default_factory=list)

    def declare(self, player: str, choice: str | None) -> None:
        """Note what a player said; None counts as an abstention."""
        self.declared[player] = NOBODY if choice is None else choice

    @property
    def missing(self) -> dict[str, str]:
        """The choices that were declared and still have to be recorded."""
        return {
            player: choice
            for player, choice in self.declared.items()
            if choice != NOBODY and player not in self.recorded
        }

    def record(self, player: str, choice: str) -> str:
        """Record a player's choice; recording it again changes nothing.

        Returns:
            The name that was chosen, as it is spelt in this game.

        Raises:
            NarratorError: this player was not asked, may not choose that, or chose otherwise.
        """
        player = _known(player, self.options, "is not asked now")
        choice = _known(choice, self.options[player], f"cannot be chosen by {player}")
        said = self.declared.get(player)
        if said is None:
            raise NarratorError(f"{player} has not chosen yet; wait for the answer.")
        if said == NOBODY:
            raise NarratorError(f"{player} chose nobody; there is nothing to record.")
        if said != choice:
            raise NarratorError(f"{player} chose {said}, not {choice}. Record what was chosen.")
        self.recorded[player] = choice
        return choice

    def settle(self) -> None:
        """Record what the narrator did not, so that every choice that was made counts."""
        for player, choice in self.missing.items():
            self.recorded[player] = choice
            self.mended.append(player)
        # Votes are counted in the order in which they were cast, whoever recorded them when.
        self.recorded = {p: self.recorded[p] for p in self.declared if p in self.recorded}


def _known(name: str, names: Sequence[str] | dict[str, list[str]], problem: str) -> str:
    found = next((known for known in names if known.casefold() == name.strip().casefold()), None)
    if found is None:
        hint = did_you_mean(name, names)
        raise NarratorError(f"'{name}' {problem}; there are: {', '.join(names)}.{hint}")
    return found
