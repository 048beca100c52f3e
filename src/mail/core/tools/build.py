"""The tools that an agent is offered, built from the catalogue."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Final, Protocol

from pydantic_core import from_json, to_json

from mail.core.teams import Team
from mail.core.tools.catalogue import CATALOGUE, SendArgs, ToolSpec
from mail.core.tools.schema import ToolStyle, pydantic_model_to_tool

Tool = dict[str, Any]
_OF_BROADCASTS: Final = ("acknowledge_broadcast", "ignore_broadcast")


@cache
def _written(name: str, style: ToolStyle) -> bytes:
    spec = CATALOGUE[name]
    tool = pydantic_model_to_tool(spec.model, name, spec.description, style)
    layout = tool if style == "responses" else tool["function"]
    for shape in layout["parameters"]["properties"].values():
        for bound in ("minLength", "minItems", "maxItems"):  # strict mode does not know them
            shape.pop(bound, None)
    return to_json(tool)


def _plain(name: str, style: ToolStyle) -> Tool:
    """Return a fresh copy: callers may change it, and a new schema costs 20 times more."""
    tool: Tool = from_json(_written(name, style))
    return tool


def _addressed(
    name: str, targets: Sequence[str], enable_interswarm: bool, style: ToolStyle
) -> Tool:
    """Build a tool with a ``target``: one of the names, or any address between swarms."""
    tool = _plain(name, style)
    layout = tool if style == "responses" else tool["function"]
    target = layout["parameters"]["properties"]["target"]
    names = list(dict.fromkeys(targets))
    if names:
        target["description"] = f"The agent to write to. Allowed: {', '.join(names)}."
    if enable_interswarm:
        target["description"] += " Write agent-name@swarm-name for an agent of another swarm."
    elif names:  # an empty enum would be no valid schema
        target["enum"] = names
    return tool


class _AddressedMaker(Protocol):
    def __call__(
        self,
        targets: Sequence[str],
        enable_interswarm: bool = False,
        style: ToolStyle = "completions",
    ) -> Tool: ...


class _PlainMaker(Protocol):
    def __call__(self, style: ToolStyle = "completions") -> Tool: ...


def _addressed_maker(name: str) -> _AddressedMaker:
    def create(
        targets: Sequence[str],
        enable_interswarm: bool = False,
        style: ToolStyle = "completions",
    ) -> Tool:
        return _addressed(name, targets, enable_interswarm, style)

    create.__doc__ = f"Build ``{name}`` for the given targets."
    return create


def _plain_maker(name: str) -> _PlainMaker:
    def create(style: ToolStyle = "completions") -> Tool:
        return _plain(name, style)

    create.__doc__ = f"Build ``{name}``."
    return create


create_request_tool: Final = _addressed_maker("send_request")
create_response_tool: Final = _addressed_maker("send_response")
create_interrupt_tool: Final = _addressed_maker("send_interrupt")
create_broadcast_tool: Final = _plain_maker("send_broadcast")
create_interswarm_broadcast_tool: Final = _plain_maker("send_interswarm_broadcast")
create_swarm_discovery_tool: Final = _plain_maker("discover_swarms")
create_acknowledge_broadcast_tool: Final = _plain_maker("acknowledge_broadcast")
create_ignore_broadcast_tool: Final = _plain_maker("ignore_broadcast")
create_await_message_tool: Final = _plain_maker("await_message")
create_help_tool: Final = _plain_maker("help")
create_search_memory_tool: Final = _plain_maker("search_memory")
create_task_complete_tool: Final = _plain_maker("task_complete")


def create_mail_tools(
    targets: Sequence[str],
    enable_interswarm: bool = False,
    style: ToolStyle = "completions",
    exclude_tools: Collection[str] | None = None,
) -> list[Tool]:
    """Build the tools of every agent that has somebody to write to.

    Args:
        targets: The agents it may write to.
        enable_interswarm: Allow ``agent@swarm`` addresses as targets.
        style: The format of the specifications.
        exclude_tools: Names to leave out.
    """
    return _create(_for_agents(extra=False), targets, enable_interswarm, style, exclude_tools)


def create_extra_tools(
    style: ToolStyle = "completions", exclude_tools: Collection[str] | None = None
) -> list[Tool]:
    """Build what agents get beside ``create_mail_tools``: ``search_memory``."""
    return _create(_for_agents(extra=True), (), False, style, exclude_tools)


def _for_agents(*, extra: bool) -> list[str]:
    specs = CATALOGUE.values()
    return [
        spec.name
        for spec in specs
        if spec.audience == "agent"
        and spec.extra is extra
        and not (spec.team or spec.letters or spec.files)
    ]


def create_letter_tools(
    style: ToolStyle = "completions", exclude_tools: Collection[str] | None = None
) -> list[Tool]:
    """Build the tools of an agent that may write to participants."""
    return _create(
        [s.name for s in CATALOGUE.values() if s.letters], (), False, style, exclude_tools
    )


def create_file_tools(
    style: ToolStyle = "completions", exclude_tools: Collection[str] | None = None
) -> list[Tool]:
    """Build the tools of an agent that participants write to: for the files in their messages."""
    names = [spec.name for spec in CATALOGUE.values() if spec.files]
    return _create(names, (), False, style, exclude_tools)


def create_team_tools(
    teams: Sequence[Team],
    style: ToolStyle = "completions",
    exclude_tools: Collection[str] | None = None,
) -> list[Tool]:
    """Build the tools of an agent that is in some teams; none if it is in no team.

    Args:
        teams: The teams.
        style: The format of the specifications.
        exclude_tools: Names to leave out.
    """
    names = [spec.name for spec in CATALOGUE.values() if spec.team and teams]
    tools = _create(names, (), False, style, exclude_tools)
    listing = "; ".join(f"{team.team_id}: lead, {', '.join(team.members)}" for team in teams)
    for tool in tools:
        layout = tool if style == "responses" else tool["function"]
        team_id = layout["parameters"]["properties"]["teamId"]
        team_id["enum"] = [team.team_id for team in teams]
        team_id["description"] = f"One of your teams. Who is in them: {listing}."
    return tools


def create_supervisor_tools(
    targets: Sequence[str],
    can_complete_tasks: bool = True,
    enable_interswarm: bool = False,
    style: ToolStyle = "completions",
    _debug_include_intraswarm: bool = True,
    exclude_tools: Collection[str] | None = None,
) -> list[Tool]:
    """Build the further tools of a supervisor.

    Among them are those for broadcasts, which ``create_mail_tools`` has as well.

    Args:
        targets: The agents it may write to.
        can_complete_tasks: Whether to include ``task_complete``.
        enable_interswarm: Allow ``agent@swarm`` addresses as targets, and include
            ``send_interswarm_broadcast`` and ``discover_swarms``.
        style: The format of the specifications.
        _debug_include_intraswarm: Whether to include those for mail within the swarm.
        exclude_tools: Names to leave out.
    """

    def offered(spec: ToolSpec) -> bool:
        if spec.interswarm:
            return enable_interswarm
        if spec.audience != "supervisor" and spec.name not in _OF_BROADCASTS:
            return False
        return can_complete_tasks if spec.name == "task_complete" else _debug_include_intraswarm

    names = [spec.name for spec in CATALOGUE.values() if offered(spec)]
    return _create(names, targets, enable_interswarm, style, exclude_tools)


def _create(
    names: Sequence[str],
    targets: Sequence[str],
    enable_interswarm: bool,
    style: ToolStyle,
    excluded: Collection[str] | None,
) -> list[Tool]:
    return [
        _addressed(name, targets, enable_interswarm, style)
        if CATALOGUE[name].model is SendArgs
        else _plain(name, style)
        for name in names
        if name not in (excluded or ())
    ]
