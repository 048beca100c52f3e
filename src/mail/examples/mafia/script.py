"""Scripts that play the game offline: a narrator, and players who bluff, suspect and follow leads.

Like all scripts they keep no state: each reads its conversation anew. Their dice hang on what was
said so far, so a game with the same seed is the same game.
"""

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from xml.sax.saxutils import unescape

from mail.examples.mafia.choices import NOBODY, Deed, read_choice
from mail.examples.mafia.cues import Cue
from mail.examples.mafia.roles import MAFIA
from mail.llm.script import Call, Script, call
from mail.llm.script_view import ScriptView

# --- what a script reads out of its step ---------------------------------------------------------

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
        """The game's words in this step."""
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
        """The purpose that the player is to choose somebody for."""
        match = re.search(r'"I (.+?) NAME\."', self.payload)
        return next((deed for deed in Deed if match and deed == match[1]), None)

    @cached_property
    def findings(self) -> dict[str, bool]:
        """The detective's findings: name to whether that player is mafia."""
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


# --- what players think of one another -----------------------------------------------------------

_CLAIM = re.compile(r"\bI am the detective\b.*?\b(\w+) is one of the mafia\b", re.DOTALL)
_SUSPECT = re.compile(r"\bI suspect (\w+)")
_TRUSTS = re.compile(r"\bI trust (\w+)")

_BY_CLAIM = 5.0
_BY_WORD = 0.5
_MOST_BY_WORD = 2.0
_BY_DEED = 1.0
_WHIM = 2.5


def claimed_detectives(seat: Seat) -> list[str]:
    """Return who has said in public to be the detective, oldest claim first."""
    return [m.speaker for m in seat.heard if m.public and _CLAIM.search(m.text)]


def suspicion(seat: Seat, name: str) -> float:
    """Return how suspect a player seems from what was said in public; above 0 is suspect."""
    words, claims, deeds = 0.0, 0.0, 0.0
    for message in seat.heard:
        if not message.public:
            continue
        suspects, trusts = _SUSPECT.findall(message.text), _TRUSTS.findall(message.text)
        if message.speaker == name:
            deeds += _in_hindsight(seat, suspects) - _in_hindsight(seat, trusts)
            continue
        claim = _CLAIM.search(message.text)
        claims += claim is not None and claim[1] == name
        words += suspects.count(name) - trusts.count(name)
    by_word = max(-_MOST_BY_WORD, min(_MOST_BY_WORD, words * _BY_WORD))
    return by_word + deeds * _BY_DEED + min(claims, 1.0) * _BY_CLAIM


def _in_hindsight(seat: Seat, names: Sequence[str]) -> float:
    """Return how wrong it was to suspect these: the dead have shown their roles."""
    roles = [seat.gone[name] for name in names if name in seat.gone]
    return sum(-2.0 if role == MAFIA.name else 0.5 for role in roles)


def most_suspect(seat: Seat, names: Sequence[str]) -> str:
    """Return the most suspect of some players; the dice decide where nothing is known."""
    known_good = {name for name, guilty in seat.findings.items() if not guilty}
    return max(
        names,
        key=lambda name: (
            name not in known_good,
            suspicion(seat, name) + seat.dice.uniform(0.0, _WHIM),
        ),
    )


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
