"""Teams: named groups of a swarm, and who in them may write to whom. Pure rules.

The texts of the refusals are part of the tools' documented results. Docs: ``docs/teams.md``.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from mail.errors import NotOfTeam, TeamsDisabled, UnknownTeam, UnknownTeammate

LEAD: Final = "lead"
"""The lead's name in its team, whatever its own name is."""

DEFAULT_WAIT: Final = 300.0
"""Seconds for which an agent waits for a reply if it does not say."""
MAX_WAIT: Final = 3600.0

Priority = Literal["normal", "urgent"]


class Team(NamedTuple):
    """A group: its lead, and the other members in the order in which they are declared."""

    team_id: str
    lead: str
    members: tuple[str, ...]

    @property
    def everybody(self) -> tuple[str, ...]:
        """The names of all, the lead first."""
        return (self.lead, *self.members)

    def called(self, name: str) -> str:
        """Return what somebody of the team is called in it."""
        return LEAD if name == self.lead else name


class Route(NamedTuple):
    """The recipients of a message within a team.

    Attributes:
        team: The team.
        sender: The sender's name in it.
        recipients: The names of those who get it, in the order in which results list them.
    """

    team: Team
    sender: str
    recipients: tuple[str, ...]

    @property
    def reached(self) -> list[str]:
        """The recipients' names in the team."""
        return [self.team.called(name) for name in self.recipients]

    @property
    def subject(self) -> str:
        """The subject of the message."""
        return f"Team {self.team.team_id}: from {self.sender}"


@dataclass(frozen=True, slots=True)
class Teams:
    """The teams of a swarm; ``enabled`` tells whether their tools may be used."""

    enabled: bool = False
    by_id: Mapping[str, Team] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Sequence[Mapping[str, Any]], *, enabled: bool) -> "Teams":
        """Read the entries of ``swarms.json``, which have been checked."""
        teams = (Team(one["id"], one["lead"], tuple(one["members"])) for one in entries)
        return cls(enabled, {team.team_id: team for team in teams})

    def teams_of(self, name: str) -> list[Team]:
        """Return the teams that somebody is in; none while teams are off."""
        if not self.enabled:
            return []
        return [team for team in self.by_id.values() if name in team.everybody]

    def are_teammates(self, one: str, other: str) -> bool:
        """Tell whether two are in one team."""
        return self.enabled and any(other in team.everybody for team in self.teams_of(one))

    def message(self, caller: str, team_id: str, to: str) -> Route:
        """Return the way of a message to one member; ``lead`` is the lead.

        Raises:
            TeamsDisabled, UnknownTeam, NotOfTeam, UnknownTeammate: in this order.
        """
        team = self._team(caller, team_id)
        name = team.lead if to == LEAD else to
        if name not in team.everybody or name == caller:
            raise UnknownTeammate(to)
        return Route(team, team.called(caller), (name,))

    def broadcast(self, caller: str, team_id: str, *, exclude_self: bool) -> Route:
        """Return the way of a message to the whole team.

        All members get it, and the lead if somebody else sends it. A member gets a copy of its own
        unless it excludes itself.

        Raises:
            TeamsDisabled, UnknownTeam, NotOfTeam: in this order.
        """
        team = self._team(caller, team_id)
        names = team.members if caller == team.lead else (*team.members, team.lead)
        names = tuple(name for name in names if not (exclude_self and name == caller))
        return Route(team, team.called(caller), names)

    def _team(self, caller: str, team_id: str) -> Team:
        if not self.enabled:
            raise TeamsDisabled
        team = self.by_id.get(team_id)
        if team is None:
            raise UnknownTeam
        if caller not in team.everybody:
            raise NotOfTeam
        return team


def wait_cycle(edges: Mapping[str, Collection[str]], waiter: str, teammate: str) -> list[str]:
    """Return the names on the cycle that a new wait would close; none if it closes none.

    Args:
        edges: The waits: who waits for whom.
        waiter: The one who would wait.
        teammate: For whom.
    """
    paths, seen = [[teammate]], {teammate}
    while paths:
        path = paths.pop(0)
        for name in sorted(edges.get(path[-1], ())):
            if name == waiter:
                return [waiter, *path, waiter]
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []


NO_TEAMS: Final = Teams()
"""Nobody is in a team."""
