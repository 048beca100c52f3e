"""The rules: what a game consists of, who may be voted out, who has won. No mail, no models."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mail.examples.mafia.agents import Agent

MOST_CANDIDATES: Final = 3


class GamePhase(StrEnum):
    """Where a game is."""

    SETUP = "setup"
    NIGHT = "night"
    DISCUSSION = "discussion"
    NOMINATION = "nomination"
    VOTE = "vote"
    RESOLUTION = "resolution"
    GAME_OVER = "game over"


class Winner(StrEnum):
    """How a game ended."""

    TOWN = "town"
    MAFIA = "mafia"
    DRAW = "draw"


@dataclass(frozen=True, slots=True)
class GameResult:
    """The end of a game: who won, why, and on which day."""

    winner: Winner
    reason: str
    day: int


def winner_of(players: Iterable["Agent"]) -> GameResult | None:
    """Return who has won with these players left, or None; the day is filled in by the game."""
    living = [player for player in players if player.alive]
    mafia = sum(player.is_mafia for player in living)
    if not mafia:
        return GameResult(Winner.TOWN, "no mafioso is left alive", 0)
    if mafia * 2 >= len(living):
        return GameResult(Winner.MAFIA, "the mafia can no longer be outvoted", 0)
    return None


def kill_target(votes: Mapping[str, str]) -> str | None:
    """Return whom the mafia kill: the most votes win, and of several the one named first."""
    counted = Counter(votes.values()).most_common(1)  # equal counts keep the order of arrival
    return counted[0][0] if counted else None


def candidates_of(nominations: Mapping[str, str], most: int = MOST_CANDIDATES) -> list[str]:
    """Return who stands for the vote: the most often nominated, of several the one named first."""
    return [name for name, _ in Counter(nominations.values()).most_common(most)]


def voted_out(votes: Mapping[str, str]) -> str | None:
    """Return who has strictly more votes than anybody else; a tie spares them all."""
    counted = Counter(votes.values()).most_common(2)
    if not counted or (len(counted) > 1 and counted[0][1] == counted[1][1]):
        return None
    return counted[0][0]
