"""The players, the rules and the state of a game. No mail, and no calls of models."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mail.api.actions import MAILAction
from mail.api.agents import MAILAgentTemplate
from mail.core.tools.catalogue import CATALOGUE
from mail.errors import ConfigError
from mail.examples.mafia.choices import Deed, Docket, NarratorError
from mail.examples.mafia.prompts import NARRATOR, create_agent_system_prompt
from mail.examples.mafia.roles import Faction, Persona, Role
from mail.factories.action import LiteLLMActionAgentFunction

MOST_CANDIDATES: Final = 3
_FEWEST_SPEAKERS: Final = 3
_PROXY: Final = "litellm_proxy/"


class GamePhase(StrEnum):
    """The phase of a game."""

    SETUP = "setup"
    NIGHT = "night"
    DISCUSSION = "discussion"
    NOMINATION = "nomination"
    VOTE = "vote"
    RESOLUTION = "resolution"
    GAME_OVER = "game over"


class Winner(StrEnum):
    """The outcome of a game."""

    TOWN = "town"
    MAFIA = "mafia"
    DRAW = "draw"


@dataclass(frozen=True, slots=True)
class GameResult:
    """The end of a game: who won, why, and on which day."""

    winner: Winner
    reason: str
    day: int


@dataclass(slots=True)
class Agent:
    """One player: the persona that all see, the role that nobody does, the model that plays it."""

    persona: Persona
    role: Role
    llm: str
    alive: bool = True

    @property
    def name(self) -> str:
        """The persona's name, which is also the agent's."""
        return self.persona.name

    @property
    def is_mafia(self) -> bool:
        """Tell whether the player wins with the mafia."""
        return self.role.faction is Faction.MAFIA

    def build_agent_template(self) -> MAILAgentTemplate:
        """Return the agent of the swarm: words only, no tools."""
        system = create_agent_system_prompt(self.persona, self.role)
        return build_model_agent(self.name, self.llm, system, [NARRATOR], [])


def build_model_agent(
    name: str, llm: str, system: str, targets: Sequence[str], actions: list[MAILAction]
) -> MAILAgentTemplate:
    """Build an agent without MAIL's own tools: who hears what is the game's decision alone."""
    return MAILAgentTemplate(
        name=name,
        factory=LiteLLMActionAgentFunction,
        comm_targets=list(targets),
        actions=actions,
        agent_params={"llm": llm, "system": system, "use_proxy": llm.startswith(_PROXY)},
        enable_entrypoint=name == NARRATOR,
        tool_format="completions",
        exclude_tools=list(CATALOGUE),
    )


def winner_of(players: Iterable[Agent]) -> GameResult | None:
    """Return who has won with these players left, or None; the day is filled in by the game."""
    living = [player for player in players if player.alive]
    mafia = sum(player.is_mafia for player in living)
    if not mafia:
        return GameResult(Winner.TOWN, "no mafioso is left alive", 0)
    if mafia * 2 >= len(living):
        return GameResult(Winner.MAFIA, "the mafia can no longer be outvoted", 0)
    return None


def kill_target(votes: Mapping[str, str]) -> str | None:
    """Return whom the mafia kill: the most votes win, and of several the one named first."""
    counted = Counter(votes.values()).most_common(1)  # equal counts keep the order of arrival
    return counted[0][0] if counted else None


def candidates_of(nominations: Mapping[str, str], most: int = MOST_CANDIDATES) -> list[str]:
    """Return who stands for the vote: the most often nominated, of several the one named first."""
    return [name for name, _ in Counter(nominations.values()).most_common(most)]


def voted_out(votes: Mapping[str, str]) -> str | None:
    """Return who has strictly more votes than anybody else; a tie spares them all."""
    counted = Counter(votes.values()).most_common(2)
    if not counted or (len(counted) > 1 and counted[0][1] == counted[1][1]):
        return None
    return counted[0][0]


@dataclass(frozen=True, slots=True)
class Death:
    """The circumstances of a player's death."""

    name: str
    role: str
    round: int
    how: str


@dataclass(eq=False, kw_only=True)
class GameState:
    """The players, the survivors, and the choices so far.

    Attributes:
        players: In the order in which they sit.
        phase: The phase of the game.
        day_number: The round: night and day number one make round one; 0 before the first night.
        docket: The choices of the section that is being played.
        speakers: Today's list of speakers, as the narrator draws it up.
        findings: The detective's findings: name to whether that player is mafia.
        protected_player: Whom the doctor protects, in the newest night.
        night_votes: Member of the mafia to whom that member wants dead, in the newest night.
        deaths: The players who left the game, in order.
        mended: Choices, as (deed, player), that the narrator failed to record.
        result: The outcome of the game, once it has ended.
    """

    players: list[Agent]
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
    def living(self) -> list[Agent]:
        """The players who are still in the game."""
        return [player for player in self.players if player.alive]

    def get_player_by_name(self, name: str) -> Agent:
        """Return a player, dead or alive.

        Raises:
            ConfigError: nobody has that name.
        """
        for player in self.players:
            if player.name == name:
                return player
        raise ConfigError(f"there is no player named '{name}'")

    def get_mafia_members(self) -> list[Agent]:
        """Return the mafiosi who are still in the game."""
        return [player for player in self.living if player.is_mafia]

    def having(self, role: Role) -> list[Agent]:
        """Return the living players of a role."""
        return [player for player in self.living if player.role is role]

    def partners(self, player: Agent) -> list[str]:
        """Return the names of a mafioso's living partners; none for anybody else."""
        members = self.get_mafia_members() if player.is_mafia else []
        return [member.name for member in members if member is not player]

    def confidants(self, player: Agent, deed: Deed) -> list[str]:
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
        """The number of players that may still get onto the list of speakers."""
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

    def close_floor(self) -> list[Agent]:
        """Return who speaks, in order; a list that is too short is filled up as players sit."""
        for player in self.living:
            if len(self.speakers) >= min(_FEWEST_SPEAKERS, len(self.living)):
                break
            if player.name not in self.speakers:
                self.speakers.append(player.name)
        self._most_speakers = 0
        return [self.get_player_by_name(name) for name in self.speakers]
