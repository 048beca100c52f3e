"""Who in a team may write to whom: the rules on their own."""

import pytest

from mail.core.teams import LEAD, Teams
from mail.errors import NotOfTeam, TeamsDisabled, UnknownTeam, UnknownTeammate

ENTRIES = [
    {"id": "alpha", "lead": "boss", "members": ["writer", "editor"]},
    {"id": "beta", "lead": "editor", "members": ["clerk"]},
]
TEAMS = Teams.of(ENTRIES, enabled=True)


def test_the_refusals_have_the_documented_texts_in_the_documented_order() -> None:
    off = Teams.of(ENTRIES, enabled=False)
    with pytest.raises(TeamsDisabled, match=r"^Teams are not enabled\.$"):
        off.message("nobody", "none", "x")
    with pytest.raises(UnknownTeam, match=r"^Team not found\.$"):
        TEAMS.message("nobody", "none", "x")
    with pytest.raises(NotOfTeam, match=r"^You are not a member of this team\.$"):
        TEAMS.message("nobody", "alpha", "x")
    with pytest.raises(UnknownTeammate, match=r'^Teammate "x" not found\.$'):
        TEAMS.message("writer", "alpha", "x")


def test_members_of_one_team_may_not_write_into_another() -> None:
    with pytest.raises(NotOfTeam):
        TEAMS.message("writer", "beta", "clerk")
    with pytest.raises(NotOfTeam):
        TEAMS.broadcast("clerk", "alpha", exclude_self=False)
    with pytest.raises(UnknownTeammate):
        TEAMS.message("writer", "alpha", "clerk")


def test_lead_is_the_lead_of_that_team_and_what_the_lead_is_called() -> None:
    assert TEAMS.message("writer", "alpha", LEAD).recipients == ("boss",)
    assert TEAMS.message("writer", "alpha", "boss").reached == [LEAD]
    assert TEAMS.message("clerk", "beta", LEAD).recipients == ("editor",)
    assert TEAMS.message("boss", "alpha", "writer").sender == LEAD
    assert TEAMS.message("editor", "alpha", "writer").sender == "editor"


def test_whoever_is_in_no_team_has_no_teammates() -> None:
    assert [team.team_id for team in TEAMS.teams_of("editor")] == ["alpha", "beta"]
    assert TEAMS.are_teammates("editor", "clerk") and not TEAMS.are_teammates("writer", "clerk")
    assert Teams.of(ENTRIES, enabled=False).teams_of("editor") == []
