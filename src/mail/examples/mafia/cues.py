"""The payloads: what the game tells an agent beside the mail that waits for it.

A cue starts with a heading, then come the facts that this agent may know, then what to do. It goes
to one agent only, so it may hold that agent's secrets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from mail.examples.mafia.choices import NOBODY, Deed, Docket
from mail.examples.mafia.roles import DETECTIVE
from mail.examples.mafia.state import Agent, GameResult, GameState


class Cue(StrEnum):
    """The kinds of cues, as their headings name them."""

    GATHERING = "THE TOWN GATHERS"
    NIGHTFALL = "NIGHT FALLS"
    DAWN = "DAWN"
    FLOOR = "YOU HAVE THE FLOOR"
    CHOOSE = "YOUR CHOICE"
    RECORD = "RECORD THE CHOICES"
    VERDICT = "THE VERDICT"
    FINALE = "THE END"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the game in which players choose somebody.

    Attributes:
        deed: The purpose of the choice.
        task: The instruction for the player.
        tool: The tool with which the narrator records it.
        answer: The narrator's answer when all is recorded.
        open: Whether everybody hears the players.
        announced: Whether everybody hears that answer of the narrator; otherwise only the players
            who were asked do.
    """

    deed: Deed
    task: str
    tool: str
    answer: str
    open: bool = False
    announced: bool = False


SECTIONS: Final[Mapping[Deed, Section]] = MappingProxyType(
    {
        section.deed: section
        for section in (
            Section(
                Deed.PROTECT,
                "Choose whom you watch over tonight.",
                "doctor_protect",
                "Tell the doctor that the choice is noted.",
            ),
            Section(
                Deed.INVESTIGATE,
                "Choose whom you look into tonight.",
                "detective_investigate",
                "Tell the detective the finding, exactly as the tool gave it.",
            ),
            Section(
                Deed.KILL,
                "Agree with your partners on a victim; what they said tonight stands above.",
                "mafia_vote_kill",
                "Tell the mafia whom the votes single out.",
            ),
            Section(
                Deed.NOMINATE,
                "Nominate the player who should stand for today's vote, and say why.",
                "add_nomination",
                "Announce who stands for the vote.",
                open=True,
                announced=True,
            ),
            Section(
                Deed.VOTE,
                "Vote one of the candidates out of the town. Your ballot is secret.",
                "add_vote",
                "Announce how many votes each candidate got, not who gave them.",
                announced=True,
            ),
        )
    }
)


def names_of(names: Iterable[str]) -> str:
    """Return names as a list for people."""
    return ", ".join(names) or NOBODY


def gathering(game: GameState) -> str:
    """Cue the narrator to open the game."""
    people = "; ".join(f"{p.name}, {p.persona.trade}" for p in game.players)
    return _cue(
        game,
        Cue.GATHERING,
        f"The people of the town: {people}.",
        "Welcome them, set the scene, and say that the mafia are among them. Everybody hears you.",
    )


def nightfall(game: GameState) -> str:
    """Cue the narrator to send the town to sleep."""
    return _cue(game, Cue.NIGHTFALL, "Send the town to sleep. Everybody hears you.")


def dawn(game: GameState, news: str) -> str:
    """Cue the narrator to tell what the night brought and to draw up the list of speakers."""
    return _cue(
        game,
        Cue.DAWN,
        f"What the night brought: {news}",
        f"Call select_speaker for each player who should speak today, in order, at most "
        f"{game.floor} of them.",
        "Then wake the town and tell it what the night brought. Everybody hears you.",
    )


def floor(game: GameState, player: Agent) -> str:
    """Cue a player to speak in the discussion."""
    return _cue(
        game,
        Cue.FLOOR,
        *_secrets(game, player),
        "Tell the town what you think: whom you suspect, whom you trust, and why. Everybody hears "
        "you. Nothing is decided yet.",
    )


def ask_choice(game: GameState, player: Agent, docket: Docket) -> str:
    """Cue a player to choose somebody."""
    section = SECTIONS[docket.deed]
    hearers = "everybody" if section.open else names_of(game.confidants(player, docket.deed))
    return _cue(
        game,
        Cue.CHOOSE,
        *_secrets(game, player),
        section.task,
        *_how_to_choose(docket, player.name),
        f"Heard by: {hearers}.",
    )


def ask_again(game: GameState, player: Agent, docket: Docket) -> str:
    """Cue a player whose choice could not be read."""
    return _cue(
        game,
        Cue.CHOOSE,
        *_secrets(game, player),
        "Your answer did not contain the sentence with your choice, or it named somebody who "
        "cannot be chosen. This is the last time you are asked; without the sentence you abstain.",
        *_how_to_choose(docket, player.name),
        "Heard by: Narrator.",
    )


def record(game: GameState, docket: Docket) -> str:
    """Cue the narrator to record the choices that were made."""
    return _cue(
        game,
        Cue.RECORD,
        f"Players asked: {names_of(docket.options)}.",
        f"Could be chosen: {names_of(_choosable(docket))}.",
        f"Tool: {SECTIONS[docket.deed].tool}.",
        "Call the tool once for each player who chose somebody, as they answered above; skip those "
        f"who chose {NOBODY}.",
        *_answer_to(docket),
    )


def record_again(game: GameState, docket: Docket) -> str:
    """Cue the narrator to record what is missing."""
    missing = "; ".join(f"{player} chose {choice}" for player, choice in docket.missing.items())
    return _cue(
        game,
        Cue.RECORD,
        f"Tool: {SECTIONS[docket.deed].tool}.",
        f"Still to record: {missing}.",
        *_answer_to(docket),
    )


def verdict(game: GameState, news: str) -> str:
    """Cue the narrator to close the day."""
    return _cue(
        game,
        Cue.VERDICT,
        f"What the town decided: {news}",
        "Tell the town. Everybody hears you.",
    )


def finale(game: GameState, result: GameResult, news: str) -> str:
    """Cue the narrator to end the game."""
    ending = "Nobody wins" if result.winner == "draw" else f"The {result.winner.value} wins"
    roles = ", ".join(f"{p.name} ({p.role.name})" for p in game.players)
    return _cue(
        game,
        Cue.FINALE,
        f"What happened last: {news}",
        f"{ending}: {result.reason}.",
        f"The roles, now open to all: {roles}.",
        "End the game. Everybody hears you.",
    )


def _cue(game: GameState, cue: Cue, *lines: str) -> str:
    when = "BEFORE THE FIRST NIGHT" if not game.day_number else f"ROUND {game.day_number}"
    gone = names_of(f"{death.name} ({death.role})" for death in game.deaths)
    facts = (f"Living: {names_of(p.name for p in game.living)}.", f"Gone: {gone}.")
    return "\n".join((f"=== {when}: {cue} ===", *facts, *lines))


def _secrets(game: GameState, player: Agent) -> Sequence[str]:
    """Return what only this player may know."""
    if player.is_mafia:
        return (f"Your partners who are still alive: {names_of(game.partners(player))}.",)
    if player.role is DETECTIVE:
        known = "; ".join(f"{n} is {'' if m else 'not '}mafia" for n, m in game.findings.items())
        return (f"Your findings so far: {known or 'none'}.",)
    return ()


def _how_to_choose(docket: Docket, player: str) -> Sequence[str]:
    return (
        f"You may choose: {names_of(docket.options[player])}.",
        f'End with exactly this sentence, with one of these names: "I {docket.deed} NAME." If you '
        f'would rather choose nobody: "I {docket.deed} {NOBODY}."',
    )


def _choosable(docket: Docket) -> Iterable[str]:
    return dict.fromkeys(name for names in docket.options.values() for name in names)


def _answer_to(docket: Docket) -> Sequence[str]:
    section = SECTIONS[docket.deed]
    hearers = "everybody" if section.announced else f"only {names_of(docket.options)}"
    return (f"Then: {section.answer}", f"Heard by: {hearers}.")
