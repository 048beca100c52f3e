"""The night: the doctor, the detective and the mafia choose in private; then it is resolved."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mail.examples.mafia import cues
from mail.examples.mafia.choices import Deed
from mail.examples.mafia.roles import DETECTIVE, DOCTOR, Role
from mail.examples.mafia.rules import GamePhase
from mail.examples.mafia.speaking import hold_section, narrate

if TYPE_CHECKING:
    from mail.examples.mafia.agents import Agent
    from mail.examples.mafia.table import Table


async def play_night(game: "Table") -> None:
    """Let those who act at night choose.

    Raises:
        CalledOffError: too many steps in a row have failed.
    """
    game.phase = GamePhase.NIGHT
    game.transcript.chapter(f"Night {game.day_number}")
    await narrate(game, cues.nightfall(game))
    game.protected_player = await _alone(game, DOCTOR, Deed.PROTECT, lambda player: _names(game))
    looked_into = await _alone(
        game, DETECTIVE, Deed.INVESTIGATE, lambda player: _others(game, player)
    )
    if looked_into is not None:
        game.findings[looked_into] = game.get_player_by_name(looked_into).is_mafia
    game.night_votes = await hold_section(
        game, Deed.KILL, game.get_mafia_members(), lambda player: _townspeople(game)
    )
    game.phase = GamePhase.RESOLUTION


async def _alone(
    game: "Table", role: Role, deed: Deed, options: Callable[["Agent"], list[str]]
) -> str | None:
    """Ask the one player of a role, if that player lives."""
    players = game.having(role)
    if not players:
        return None
    chosen = await hold_section(game, deed, players, options)
    return next(iter(chosen.values()), None)


def _names(game: "Table") -> list[str]:
    return [player.name for player in game.living]


def _others(game: "Table", player: "Agent") -> list[str]:
    return [name for name in _names(game) if name != player.name]


def _townspeople(game: "Table") -> list[str]:
    return [player.name for player in game.living if not player.is_mafia]
