"""The day: the town talks, nominates and votes, and perhaps one of the candidates has to go."""

from typing import TYPE_CHECKING

from mail.examples.mafia import cues
from mail.examples.mafia.choices import Deed
from mail.examples.mafia.rules import GamePhase, candidates_of, voted_out
from mail.examples.mafia.speaking import hold_section, narrate, speak

if TYPE_CHECKING:
    from mail.examples.mafia.table import Table


async def play_day(game: "Table", news: str) -> str:
    """Play a day; return the news that it leaves.

    Args:
        game: The game.
        news: What the night brought.

    Raises:
        CalledOffError: too many steps in a row have failed.
    """
    game.transcript.chapter(f"Day {game.day_number}")
    await _discuss(game, news)
    candidates = await _nominate(game)
    decision = await _vote(game, candidates)
    game.phase = GamePhase.RESOLUTION
    await narrate(game, cues.verdict(game, decision))
    return decision


async def _discuss(game: "Table", news: str) -> None:
    game.phase = GamePhase.DISCUSSION
    game.open_floor()
    await narrate(game, cues.dawn(game, news))
    for player in game.close_floor():
        await speak(game, player, cues.floor(game, player))


async def _nominate(game: "Table") -> list[str]:
    game.phase = GamePhase.NOMINATION
    names = [player.name for player in game.living]
    nominations = await hold_section(
        game,
        Deed.NOMINATE,
        game.living,
        lambda player: [name for name in names if name != player.name],
    )
    return candidates_of(nominations)


async def _vote(game: "Table", candidates: list[str]) -> str:
    if not candidates:
        return "Nobody was nominated, so nobody has to go."
    game.phase = GamePhase.VOTE
    votes = await hold_section(
        game,
        Deed.VOTE,
        game.living,
        lambda player: [name for name in candidates if name != player.name],
    )
    outcast = voted_out(votes)
    if outcast is None:
        return "No candidate got more votes than every other, so nobody has to go."
    return game.leave(outcast, "voted out of the town")
