"""The players of a game of Mafia: personas, which all see, and roles, which nobody does."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mail.errors import ConfigError

MIN_PLAYERS: Final = 4
MAX_PLAYERS: Final = 20

_PLAYERS_PER_MAFIOSO = 4


class Faction(StrEnum):
    """A side: it wins or loses as one."""

    TOWN = "town"
    MAFIA = "mafia"


@dataclass(frozen=True, slots=True)
class Role:
    """A player's secret role.

    Attributes:
        name: As players read it.
        faction: The side that the player wins with.
        night: The player's deed at night.
        aim: The player's goal.
    """

    name: str
    faction: Faction
    night: str
    aim: str


MAFIA: Final = Role(
    "Mafia",
    Faction.MAFIA,
    "Every night the mafia agree on one townsperson to kill. You know your partners.",
    "Seem harmless, turn suspicion on townspeople, and never name a partner.",
)
DOCTOR: Final = Role(
    "Doctor",
    Faction.TOWN,
    "Every night you watch over one player, yourself if you like, who then survives an attack.",
    "Guess whom the mafia fear most, and do not let them know who you are.",
)
DETECTIVE: Final = Role(
    "Detective",
    Faction.TOWN,
    "Every night you look into one other player and learn whether they are mafia.",
    "Let the town profit from what you find, without dying for it too early.",
)
VILLAGER: Final = Role(
    "Villager",
    Faction.TOWN,
    "At night you sleep.",
    "Watch who says what and who votes how, and find the mafia by it.",
)


def calculate_roles(n: int) -> list[Role]:
    """Return the roles of a game: one mafioso in four, a doctor, a detective, and villagers.

    Args:
        n: The number of players, 4 to 20.

    Returns:
        ``n`` roles, mafia first; deal them out in a random order.

    Raises:
        ConfigError: too few players, or too many.
    """
    if not MIN_PLAYERS <= n <= MAX_PLAYERS:
        raise ConfigError(f"Mafia takes {MIN_PLAYERS} to {MAX_PLAYERS} players, got {n}")
    special = [MAFIA] * (n // _PLAYERS_PER_MAFIOSO) + [DOCTOR, DETECTIVE]
    return special + [VILLAGER] * (n - len(special))


@dataclass(frozen=True, slots=True)
class Persona:
    """A player's public character; it says nothing about the role."""

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
