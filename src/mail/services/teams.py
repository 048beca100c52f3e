"""What members of teams who are no agents do: messages to teammates and to whole teams.

They go through the mail desk as letters. Who may write to whom are the rules of `mail.core.teams`,
the same as for agents. Docs: ``docs/teams.md``.
"""

from dataclasses import dataclass
from typing import NamedTuple

from mail.core.teams import Priority, Route, Team, Teams
from mail.services.desk import Draft, MailDesk, SentLetter

__all__ = ["TeamDesk", "TeamLetter"]


class TeamLetter(NamedTuple):
    """A message that is stored for those it is for.

    Attributes:
        sent: The letter.
        route: Where it went, by the names of the team.
    """

    sent: SentLetter
    route: Route


@dataclass(frozen=True, slots=True)
class TeamDesk:
    """The desk of a swarm's teams; the callers have made sure who a caller is.

    Attributes:
        desk: The mail desk.
        teams: The teams.
    """

    desk: MailDesk
    teams: Teams

    def list_teams(self, caller: str) -> list[Team]:
        """Return the teams that somebody is in; none while teams are off."""
        return self.teams.teams_of(caller)

    async def message(
        self,
        caller: str,
        team_id: str,
        to: str,
        message: str,
        *,
        priority: Priority = "normal",
        request_id: str = "",
    ) -> TeamLetter:
        """Send a message to one member of a team.

        Args:
            caller: Who sends it.
            team_id: The team.
            to: The name of the member, or ``lead``.
            message: The text.
            priority: ``urgent`` if it wants attention at once.
            request_id: As in `MailDesk.send_message`.

        Raises:
            TeamError: see `mail.core.teams.Teams.message`; nothing is stored.
            ProtocolError: the text is empty or too long; nothing is stored.
            RequestReused: the request id stands for another letter.
        """
        route = self.teams.message(caller, team_id, to)
        draft = _draft(route, message, priority, request_id)
        sent = await self.desk.send_message(caller, draft, route.recipients[0], None)
        return TeamLetter(sent, route)

    async def broadcast(
        self,
        caller: str,
        team_id: str,
        message: str,
        *,
        priority: Priority = "normal",
        exclude_self: bool = False,
        request_id: str = "",
    ) -> TeamLetter:
        """Send a message to all members of a team: to all of them, or to nobody.

        Args:
            exclude_self: Send no copy to the caller.

        The other arguments and the errors are those of `message`.
        """
        route = self.teams.broadcast(caller, team_id, exclude_self=exclude_self)
        draft = _draft(route, message, priority, request_id)
        sent = await self.desk.broadcast_message(
            caller, draft, route.recipients, with_sender=caller in route.recipients
        )
        return TeamLetter(sent, route)


def _draft(route: Route, message: str, priority: Priority, request_id: str) -> Draft:
    return Draft(message, route.subject, urgent=priority == "urgent", request_id=request_id)
