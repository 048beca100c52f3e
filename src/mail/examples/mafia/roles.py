"""The roles of a game of Mafia: whose side it is on, what it does at night, how many there are."""

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
    """What a player secretly is.

    Attributes:
        name: As players read it.
        faction: The side that the player wins with.
        night: What the player does at night.
        aim: What the player should be after.
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
