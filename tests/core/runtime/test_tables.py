"""The tables that must agree: the catalogue, its handlers, what is offered and what is allowed."""

import inspect

import pytest

from mail.core.agents import AgentCore
from mail.core.runtime.handlers import HANDLERS
from mail.core.teams import Team
from mail.core.tools.build import (
    create_file_tools,
    create_letter_tools,
    create_mail_tools,
    create_search_memory_tool,
    create_supervisor_tools,
    create_team_tools,
)
from mail.core.tools.catalogue import CATALOGUE
from mail.core.tools.schema import get_tool_spec_name


async def nothing(history, tool_choice):
    return None, []


def test_every_tool_has_a_handler_and_every_handler_a_tool() -> None:
    assert HANDLERS.keys() == CATALOGUE.keys()
    assert all(inspect.iscoroutinefunction(handler) for handler in HANDLERS.values())


def test_every_tool_is_offered_to_somebody() -> None:
    offered = [*create_mail_tools(["b"]), *create_supervisor_tools(["b"], enable_interswarm=True)]
    offered += [create_search_memory_tool(), *create_team_tools([Team("alpha", "a", ("b",))])]
    offered += [*create_letter_tools(), *create_file_tools()]
    names = [get_tool_spec_name(tool) for tool in offered]
    assert set(names) == CATALOGUE.keys()


@pytest.mark.parametrize("supervisor", [False, True])
def test_an_agent_may_call_every_tool_of_the_catalogue_but_those_above_it(supervisor) -> None:
    above = {"send_interrupt", "send_broadcast", "task_complete"}
    between = {"send_interswarm_broadcast", "discover_swarms"}
    assert _refused(can_complete_tasks=supervisor) == (between if supervisor else above | between)
    assert _refused(can_complete_tasks=supervisor, enable_interswarm=True) == (
        set() if supervisor else above | between
    )


def _refused(**rights: bool) -> set[str]:
    agent = AgentCore(nothing, ["b"], **rights)
    return {name for name in CATALOGUE if not agent.can_access_action_or_tool(name)}
