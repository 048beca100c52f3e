"""The people of the town: a name, a trade and a manner of speaking for each player."""

import random
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Persona:
    """Who a player is to the town; says nothing about the role."""

    name: str
    trade: str
    manner: str


PERSONAS: Final = (
    Persona("Agnes", "the baker", "warm, gossips, knows who bought what this morning"),
    Persona("Bruno", "the blacksmith", "few words, all of them heavy"),
    Persona("Clara", "the schoolteacher", "corrects others, sums up in numbered points"),
    Persona("Dmitri", "the ferryman", "speaks in proverbs, half of them his own"),
    Persona("Esther", "the apothecary", "precise, dry, suspicious of strong feelings"),
    Persona("Felix", "the innkeeper", "jovial, changes sides with the room"),
    Persona("Greta", "the seamstress", "notices clothes, hands and small lies"),
    Persona("Hamid", "the watchmaker", "patient, builds a case step by step"),
    Persona("Ingrid", "the huntress", "blunt, quick to accuse, quick to apologise"),
    Persona("Jonas", "the fiddler", "dramatic, cannot resist a good line"),
    Persona("Kamala", "the judge's clerk", "formal, asks for evidence"),
    Persona("Leopold", "the retired colonel", "gives orders, expects to be thanked"),
    Persona("Mirela", "the midwife", "calm, remembers everyone's childhood"),
    Persona("Nikolai", "the bookbinder", "shy, careful, surprisingly stubborn"),
    Persona("Odette", "the theatre owner", "grand, offended by dull arguments"),
    Persona("Pascal", "the baker's rival", "sarcastic, counts votes before they are cast"),
    Persona("Rosa", "the postwoman", "cheerful, has been at every door"),
    Persona("Silas", "the gravedigger", "gloomy, oddly comforting"),
    Persona("Tamar", "the astronomer", "thinks aloud, weighs chances in numbers"),
    Persona("Ulrich", "the beekeeper", "mild until someone repeats a falsehood"),
)
"""As many as may play; no name is part of another."""


def pick_personas(n: int, rng: random.Random) -> list[Persona]:
    """Draw ``n`` different personas."""
    return rng.sample(PERSONAS, n)
