"""The state of a game, and what the narrator's tools may do to it. No mail, no models."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mail.errors import ConfigError
from mail.examples.mafia.choices import Deed, Docket, NarratorError
from mail.examples.mafia.prompts import NARRATOR
from mail.examples.mafia.roles import Role
from mail.examples.mafia.rules import GamePhase, GameResult, candidates_of, kill_target, voted_out

if TYPE_CHECKING:
    from mail.examples.mafia.agents import Agent

_FEWEST_SPEAKERS = 3


@dataclass(frozen=True, slots=True)
class Death:
    """How a player left the game."""

    name: str
    role: str
    round: int
    how: str


@dataclass(eq=False, kw_only=True)
class GameState:
    """Who plays, who lives, and what has been chosen.

    Attributes:
        players: In the order in which they sit.
        phase: Where the game is.
        day_number: The round: night and day number one make round one; 0 before the first night.
        docket: The choices of the section that is being played.
        speakers: Today's list of speakers, as the narrator draws it up.
        findings: What the detective knows: name to whether that player is mafia.
        protected_player: Whom the doctor protects, in the newest night.
        night_votes: Member of the mafia to whom that member wants dead, in the newest night.
        deaths: Who left the game, in order.
        mended: Choices, as (deed, player), that the narrator failed to record.
        result: How the game ended, once it has.
    """

    players: list["Agent"]
    phase: GamePhase = GamePhase.SETUP
    day_number: int = 0
    docket: Docket | None = None
    speakers: list[str] = field(default_factory=list)
    findings: dict[str, bool] = field(default_factory=dict)
    protected_player: str | None = None
    night_votes: dict[str, str] = field(default_factory=dict)
    deaths: list[Death] = field(default_factory=list)
    mended: list[tuple[Deed, str]] = field(default_factory=list)
    result: GameResult | None = None
    _most_speakers: int = 0

    # --- who is who ---------------------------------------------------------------------------

    @property
    def living(self) -> list["Agent"]:
        """The players who are still in the game."""
        return [player for player in self.players if player.alive]

    def get_player_by_name(self, name: str) -> "Agent":
        """Return a player, dead or alive.

        Raises:
            ConfigError: nobody has that name.
        """
        for player in self.players:
            if player.name == name:
                return player
        raise ConfigError(f"there is no player named '{name}'")

    def get_mafia_members(self) -> list["Agent"]:
        """Return the mafiosi who are still in the game."""
        return [player for player in self.living if player.is_mafia]

    def having(self, role: Role) -> list["Agent"]:
        """Return the living players of a role."""
        return [player for player in self.living if player.role is role]

    def partners(self, player: "Agent") -> list[str]:
        """Return the names of a mafioso's living partners; none for anybody else."""
        members = self.get_mafia_members() if player.is_mafia else []
        return [member.name for member in members if member is not player]

    def confidants(self, player: "Agent", deed: Deed) -> list[str]:
        """Return who hears a player's choice when not everybody does."""
        return [NARRATOR, *(self.partners(player) if deed is Deed.KILL else ())]

    def finding(self, name: str) -> str:
        """Return what the detective learns about a player."""
        known = "a member" if self.get_player_by_name(name).is_mafia else "not a member"
        return f"{name} is {known} of the mafia."

    def leave(self, name: str, how: str) -> str:
        """Take a player out of the game; return the news of it."""
        player = self.get_player_by_name(name)
        player.alive = False
        self.deaths.append(Death(name, player.role.name, self.day_number, how))
        return f"{name} was {how}. The role: {player.role.name}."

    def resolve_night_actions(self) -> str:
        """Let happen what was chosen in the night; return the news of it."""
        target = kill_target(self.night_votes)
        if target is None or target == self.protected_player:
            return "Nobody died tonight."
        return self.leave(target, "killed in the night")

    # --- choices ------------------------------------------------------------------------------

    def asked_alone(self, deed: Deed) -> str:
        """Return the only player who is asked for a deed now.

        Raises:
            NarratorError: nobody is asked for it now.
        """
        return next(iter(self._open(deed).options))

    def record(self, deed: Deed, player: str, choice: str) -> str:
        """Record a player's choice and return it as it is spelt here; see `Docket.record`.

        Raises:
            NarratorError: nobody is asked for it now, or that was not this player's choice.
        """
        return self._open(deed).record(player, choice)

    def standing(self, deed: Deed) -> str:
        """Return how the choices stand.

        Raises:
            NarratorError: nobody is asked for it now.
        """
        docket = self._open(deed)
        counts = Counter(docket.recorded.values()).most_common()
        parts = [f"So far: {', '.join(f'{name} {count}' for name, count in counts) or 'none'}."]
        if docket.missing:
            parts.append(f"Still to record: {', '.join(docket.missing)}.")
        elif deed is Deed.VOTE:
            parts.append(f"Complete. Voted out: {voted_out(docket.recorded) or 'nobody'}.")
        elif deed is Deed.NOMINATE:
            parts.append(f"Complete. Candidates: {', '.join(candidates_of(docket.recorded))}.")
        return " ".join(parts)

    def _open(self, deed: Deed) -> Docket:
        if self.docket is None or self.docket.deed is not deed:
            raise NarratorError(f"nobody is asked whom to {deed} in the phase '{self.phase}'.")
        return self.docket

    # --- the list of speakers -----------------------------------------------------------------

    @property
    def floor(self) -> int:
        """How many more players may get onto the list of speakers."""
        return max(self._most_speakers - len(self.speakers), 0)

    def open_floor(self) -> None:
        """Let the narrator draw up a new list of speakers."""
        self.speakers.clear()
        self._most_speakers = len(self.living)

    def select_speaker(self, name: str) -> str:
        """Put a player onto the list of speakers; one who is on it stays where they are.

        Raises:
            NarratorError: no list is drawn up now, or the player is not among the living.
        """
        if not self._most_speakers:
            raise NarratorError(f"no list of speakers is drawn up in the phase '{self.phase}'.")
        wanted = name.strip().casefold()
        player = next((p for p in self.living if p.name.casefold() == wanted), None)
        if player is None:
            names = ", ".join(p.name for p in self.living)
            raise NarratorError(f"'{name}' is not among the living players: {names}.")
        if player.name not in self.speakers:
            self.speakers.append(player.name)
        return player.name

    def close_floor(self) -> list["Agent"]:
        """Return who speaks, in order; a list that is too short is filled up as players sit."""
        for player in self.living:
            if len(self.speakers) >= min(_FEWEST_SPEAKERS, len(self.living)):
                break
            if player.name not in self.speakers:
                self.speakers.append(player.name)
        self._most_speakers = 0
        return [self.get_player_by_name(name) for name in self.speakers]
