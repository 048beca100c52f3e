"""How scripted players make up their minds about one another."""

import re
from collections.abc import Sequence

from mail.examples.mafia.roles import MAFIA
from mail.examples.mafia.seat import Seat

_CLAIM = re.compile(r"\bI am the detective\b.*?\b(\w+) is one of the mafia\b", re.DOTALL)
_SUSPECT = re.compile(r"\bI suspect (\w+)")
_TRUST = re.compile(r"\bI trust (\w+)")

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
        suspects, trusts = _SUSPECT.findall(message.text), _TRUST.findall(message.text)
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
