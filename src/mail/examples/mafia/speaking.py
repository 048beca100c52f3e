"""Getting words out of models that may fail, and choices out of words that may not hold any."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from mail.core.wire import MAILMessage
from mail.errors import AgentError, ModelError, TaskFailed
from mail.examples.mafia import cues
from mail.examples.mafia.choices import Deed, Docket, read_choice
from mail.examples.mafia.prompts import NARRATOR

if TYPE_CHECKING:
    from mail.examples.mafia.agents import Agent
    from mail.examples.mafia.table import Table

ATTEMPTS: Final = 2
MOST_FAILURES: Final = 6

_FAILURES: Final = (AgentError, ModelError, TaskFailed, TimeoutError)


class CalledOffError(Exception):
    """So many steps failed in a row that the game cannot go on; the text says why."""


async def narrate(game: "Table", payload: str, targets: Sequence[str] | None = None) -> str:
    """Let the narrator speak to everybody, or to ``targets``; ``""`` when the model failed.

    Raises:
        CalledOffError: too many steps in a row have failed.
    """
    return await _words(game, NARRATOR, lambda: game.step_narrator(payload, targets))


async def speak(
    game: "Table", player: "Agent", payload: str, targets: Sequence[str] | None = None
) -> str:
    """Let a player speak to everybody, or to ``targets``; ``""`` when the model failed.

    Raises:
        CalledOffError: too many steps in a row have failed.
    """
    name = player.name
    return await _words(
        game, name, lambda: game.step_agent(name, targets is None, targets, payload)
    )


async def _words(game: "Table", name: str, step: Callable[[], Awaitable[MAILMessage]]) -> str:
    for _ in range(ATTEMPTS):
        try:
            message = await step()
        except _FAILURES as error:
            reason = str(error) or "it took too long"
            game.failures += 1
            game.transcript.note(f"{name} gave no answer: {reason}")
            if game.failures >= MOST_FAILURES:
                raise CalledOffError(f"called off, models keep failing: {reason}") from None
        else:
            game.failures = 0
            return message["message"]["body"]
    return ""


async def hold_section(
    game: "Table",
    deed: Deed,
    players: Sequence["Agent"],
    options: Callable[["Agent"], list[str]],
) -> dict[str, str]:
    """Ask players for a choice, one after the other, and have the narrator record what they chose.

    Args:
        game: The game.
        deed: What they choose somebody for.
        players: Who is asked.
        options: Whom a player may choose; one who has no choice is not asked.

    Returns:
        Player to choice, in the order of the answers; without those who chose nobody.

    Raises:
        CalledOffError: too many steps in a row have failed.
    """
    choices = {player.name: names for player in players if (names := options(player))}
    game.docket = docket = Docket(deed, choices)
    try:
        for name in choices:
            await _choose(game, game.get_player_by_name(name), docket)
        await _have_recorded(game, docket)
    finally:
        game.docket = None
    docket.settle()
    for name, choice in docket.recorded.items():
        by = " (the narrator missed it)" if name in docket.mended else ""
        game.transcript.note(f"{name}: {deed} {choice}{by}")
    game.mended.extend((deed, name) for name in docket.mended)
    return docket.recorded


async def _choose(game: "Table", player: "Agent", docket: Docket) -> None:
    """Ask one player; ask once more, in private, if the answer cannot be read."""
    section, options = cues.SECTIONS[docket.deed], docket.options[player.name]
    hearers = None if section.open else game.confidants(player, docket.deed)
    text = await speak(game, player, cues.ask_choice(game, player, docket), hearers)
    choice = read_choice(text, docket.deed, options)
    if choice is None:
        text = await speak(game, player, cues.ask_again(game, player, docket), [NARRATOR])
        choice = read_choice(text, docket.deed, options)
    docket.declare(player.name, choice)


async def _have_recorded(game: "Table", docket: Docket) -> None:
    """Let the narrator record the choices; remind it once of what is missing."""
    announced = cues.SECTIONS[docket.deed].announced
    hearers = None if announced else list(docket.options)
    if docket.missing or announced:
        await narrate(game, cues.record(game, docket), hearers)
    if docket.missing:
        await narrate(game, cues.record_again(game, docket), hearers)
