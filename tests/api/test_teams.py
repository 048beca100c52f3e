"""Teams of a library swarm: who is offered the tools, and what becomes of teams in parts of it."""

from typing import Any

import pytest

from mail import MAILSwarmTemplate
from mail.api import MAILAgentTemplate
from mail.core.tools.schema import get_tool_spec_name
from mail.errors import ConfigError
from mail.factories import LiteLLMAgentFunction, LiteLLMSupervisorFunction
from mail.llm.scripted import ScriptedModel

TEAM: Any = {"id": "alpha", "lead": "boss", "members": ["writer"]}
TOOLS = {"teammate_message", "teammate_broadcast"}


def office(*teams: Any, **options: Any) -> MAILSwarmTemplate:
    """Return a swarm of a boss, a writer and a clerk."""

    def agent(name: str, *targets: str) -> MAILAgentTemplate:
        leads = name == "boss"
        return MAILAgentTemplate(
            name=name,
            factory=LiteLLMSupervisorFunction if leads else LiteLLMAgentFunction,
            comm_targets=list(targets),
            actions=[],
            agent_params={"llm": "scripted", "model": ScriptedModel([]), "system": "Work."},
            enable_entrypoint=leads,
            can_complete_tasks=leads,
        )

    agents = [agent("boss", "clerk"), agent("writer", "clerk"), agent("clerk", "boss")]
    options = {"teams": teams, "enable_teams": True, **options}
    return MAILSwarmTemplate(name="office", agents=agents, entrypoint="boss", **options)


def offered(template: MAILSwarmTemplate) -> dict[str, set[str | None]]:
    """Return the tools for teams that the model of each agent is offered."""
    functions: dict[str, Any] = {
        agent.name: agent.function for agent in template.instantiate({}).agents
    }
    return {
        name: {get_tool_spec_name(tool) for tool in function.tool_specs} & TOOLS
        for name, function in functions.items()
    }


def test_members_are_offered_the_tools_and_nobody_else() -> None:
    assert offered(office(TEAM)) == {"boss": TOOLS, "writer": TOOLS, "clerk": set()}
    assert offered(office(TEAM, exclude_tools=["teammate_broadcast"]))["writer"] == {
        "teammate_message"
    }


def test_nobody_is_offered_them_while_teams_are_off() -> None:
    assert not any(offered(office(TEAM, enable_teams=False)).values())
    assert office(TEAM).instantiate({}).enable_teams


def test_a_part_of_a_swarm_keeps_the_teams_that_are_whole() -> None:
    whole = office(TEAM, {"id": "beta", "lead": "boss", "members": ["clerk"]})
    part = whole.get_subswarm(["boss", "writer"], "part")
    assert part.teams == [TEAM] and part.enable_teams
    assert offered(part) == {"boss": TOOLS, "writer": TOOLS}


def test_wrong_teams_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"team 'alpha' names 'nobody'"):
        office(TEAM | {"lead": "nobody"})
    with pytest.raises(ConfigError, match="duplicate team name 'alpha'"):
        office(TEAM, TEAM)
