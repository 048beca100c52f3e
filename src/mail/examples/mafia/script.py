"""Scripts that play the game offline: a narrator, and players who bluff, suspect and follow leads.

Like all scripts they keep no state: each reads its conversation anew. Their dice hang on what was
said so far, so a game with the same seed is the same game.
"""

import re
from collections.abc import Sequence
from typing import Final

from mail.examples.mafia.choices import NOBODY, Deed, read_choice
from mail.examples.mafia.cues import Cue
from mail.examples.mafia.seat import Seat
from mail.examples.mafia.suspicion import claimed_detectives, most_suspect
from mail.llm.script import Call, Script, call
from mail.llm.script_view import ScriptView

_MOST_SPEAKERS = 5
_TRUST = 0.8

_REMARKS: Final = (
    "I slept badly, and not because of the wind.",
    "Somebody in this square smiles too much this morning.",
    "I have known most of you for years, and one of you has changed.",
    "My door was bolted all night, and I would like to hear who can say the same.",
    "We have too few friends left to waste a day on politeness.",
    "I have no proof, only eyes, and they have not been wrong often.",
    "The quiet ones worry me more than the loud ones.",
    "If we guess wrong today, we will be one fewer tomorrow.",
    "I heard steps in the lane, and they were in no hurry.",
    "Forgive me if I do not take anybody's word for it.",
    "A town is a small place to hide in, and yet they manage.",
    "Let us talk plainly, as long as there is somebody left to talk to.",
)
_REASONS: Final = (
    "their story changes with the listener",
    "they were the first to point at somebody else",
    "they have not looked at anyone today",
    "they speak of the dead as if they had been there",
    "they agree with whoever spoke last",
    "nobody can say where they were",
)
_DUSKS: Final = (
    "The last lamp goes out, and the town goes to sleep.",
    "Shutters close along the square; somewhere a door does not.",
    "Fog comes up from the river, and with it the night.",
)
_DAWNS: Final = (
    "The bell rings, and the town comes together on the square.",
    "A grey morning; the baker's oven is cold.",
    "The cock crows, late, as if it had something to hide.",
)


# --- players ------------------------------------------------------------------------------------


def _play(view: ScriptView) -> str:
    seat = Seat(view)
    if seat.deed is None:
        return _speak(seat)
    choice = _CHOOSE[seat.deed](seat) if seat.options else NOBODY
    return f"{_comment(seat, choice)}\nI {seat.deed} {choice}."


def _speak(seat: Seat) -> str:
    remark = seat.dice.choice(_REMARKS)
    guilty = _caught(seat, seat.living)
    if guilty:
        return (
            f"I am the detective, and I would rather die for it than keep silent: {guilty} is one "
            f"of the mafia. I suspect {guilty}, and after tonight I will not be able to say it."
        )
    others = [name for name in seat.living if name != seat.name and name not in seat.partners]
    suspect = most_suspect(seat, others)
    trusted = seat.partners or [name for name in others if name != suspect]
    trust = f" I trust {seat.dice.choice(trusted)}." if trusted else ""
    return f"{remark} I suspect {suspect}: {seat.dice.choice(_REASONS)}.{trust}"


def _comment(seat: Seat, choice: str) -> str:
    if choice == NOBODY:
        return "I would rather not choose."
    if seat.deed is Deed.NOMINATE:
        if choice == _caught(seat, (choice,)):
            return f"I am the detective, and {choice} is one of the mafia."
        return f"I suspect {choice}: {seat.dice.choice(_REASONS)}."
    return seat.dice.choice(("I have thought about it.", "This is not easy.", "I am sure of it."))


def _caught(seat: Seat, names: Sequence[str]) -> str:
    """Return a name of which the detective knows that it is a mafioso's."""
    return next((name for name in names if seat.findings.get(name)), "")


def _protect(seat: Seat) -> str:
    claimed = [name for name in claimed_detectives(seat) if name in seat.options]
    if claimed and seat.dice.random() < _TRUST:
        return claimed[-1]
    return seat.dice.choice(seat.options)


def _investigate(seat: Seat) -> str:
    unknown = [name for name in seat.options if name not in seat.findings]
    return most_suspect(seat, unknown or seat.options)


def _kill(seat: Seat) -> str:
    for message in seat.news:  # whoever of the partners chose first leads
        wanted = read_choice(message.text, Deed.KILL, seat.options)
        if wanted in seat.options and not message.public and message.speaker in seat.partners:
            return str(wanted)
    claimed = [name for name in claimed_detectives(seat) if name in seat.options]
    return claimed[-1] if claimed else seat.dice.choice(seat.options)


def _accuse(seat: Seat) -> str:
    """Choose somebody to get rid of by day; mafiosi spare their partners if they can."""
    guilty = _caught(seat, seat.options)
    if guilty:
        return guilty
    others = [name for name in seat.options if name not in seat.partners]
    return most_suspect(seat, others) if others else NOBODY


_CHOOSE: Final = {
    Deed.PROTECT: _protect,
    Deed.INVESTIGATE: _investigate,
    Deed.KILL: _kill,
    Deed.NOMINATE: _accuse,
    Deed.VOTE: _accuse,
}


# --- the narrator -------------------------------------------------------------------------------


def _narrate(view: ScriptView) -> str | Sequence[Call]:
    seat = Seat(view)
    if seat.cue is Cue.DAWN and not view.new_results:
        speakers = seat.dice.sample(seat.living, min(len(seat.living), _MOST_SPEAKERS))
        return [call("select_speaker", player_name=name) for name in speakers]
    if seat.cue is Cue.RECORD and not view.new_results:
        return _records(seat) or "Nobody has chosen anybody."
    return _tell(seat)


def _records(seat: Seat) -> Sequence[Call]:
    """Return a tool call for each player who chose somebody in this step's messages."""
    tool, options = seat.fact("Tool"), seat.names("Could be chosen")
    deed, first, second = _TOOLS[tool]
    chosen: dict[str, str] = {}
    for message in seat.news:
        choice = read_choice(message.text, deed, options)
        if message.speaker in seat.names("Players asked") and choice is not None:
            chosen[message.speaker] = choice
    return [
        call(tool, **({first: player} if first else {}), **{second: choice})
        for player, choice in chosen.items()
        if choice != NOBODY
    ]


def _tell(seat: Seat) -> str:
    """Say what the cue asks for."""
    match seat.cue:
        case Cue.GATHERING:
            return (
                "Welcome, all of you. It is a small town, and until this week nobody locked a "
                "door. But the mafia are among us, and from tonight nobody is safe."
            )
        case Cue.NIGHTFALL:
            return seat.dice.choice(_DUSKS)
        case Cue.DAWN:
            return f"{seat.dice.choice(_DAWNS)} {seat.fact('What the night brought')}."
        case Cue.VERDICT:
            return f"The town has decided. {seat.fact('What the town decided')}."
        case Cue.FINALE:
            return f"So it ends. {seat.fact('What happened last')}. The lamps are lit again."
    return _tell_recorded(seat)


def _tell_recorded(seat: Seat) -> str:
    text = seat.view.new_results[-1].content if seat.view.new_results else ""
    standing = re.search(r"So far: (.+?)\.(?: Complete\. (.+))?$", text)
    counts, outcome = standing.groups() if standing else ("", "")
    match seat.fact("Tool"):
        case "doctor_protect":
            return "It is noted, doctor. Keep a light burning."
        case "detective_investigate":
            return f"Detective, this is what you found: {text.partition(' finds out: ')[2]}"
        case "mafia_vote_kill":
            return f"The votes of the mafia: {counts}. So be it."
        case "add_nomination":
            return f"The nominations are in: {counts}. {outcome}"
    return f"The ballots are counted: {counts}. {outcome}"


_TOOLS: Final = {
    "doctor_protect": (Deed.PROTECT, "", "target_name"),
    "detective_investigate": (Deed.INVESTIGATE, "", "target_name"),
    "mafia_vote_kill": (Deed.KILL, "mafia_name", "target_name"),
    "add_nomination": (Deed.NOMINATE, "player_name", "nominee_name"),
    "add_vote": (Deed.VOTE, "voter_name", "candidate_name"),
}

PLAYER: Final[Script] = _play
"""Plays any role."""

NARRATOR: Final[Script] = _narrate
"""Leads the game."""
