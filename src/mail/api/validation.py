"""Checks of what builders pass in, and of how a swarm of it hangs together.

A wrong type is told before it breaks something far away. Templates and instances have the same
checks.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mail.api.actions import MAILAction
from mail.core.approvals import Approval
from mail.core.runtime.validation import (
    check_approvals,
    check_entrypoint,
    check_target,
    check_tools,
)
from mail.errors import ConfigError
from mail.swarms_json.names import check_agent_name, check_distinct, check_swarm_name


class _AgentFields(Protocol):
    name: str
    comm_targets: list[str]
    actions: list[MAILAction]
    agent_params: dict[str, Any]
    tool_format: Any
    exclude_tools: list[str]


def check_agent_fields(agent: _AgentFields) -> None:
    """Check the fields that an agent and its template have in common.

    Raises:
        ConfigError: naming the field and what it must be.
    """
    check_text("agent name", agent.name)
    check_agent_name(agent.name)
    whose = f"of agent '{agent.name}'"
    check_texts(f"comm_targets {whose}", agent.comm_targets)
    check_texts(f"exclude_tools {whose}", agent.exclude_tools or ())
    check_actions(f"actions {whose}", agent.actions)
    check_mapping(f"agent_params {whose}", agent.agent_params)
    if agent.tool_format not in ("completions", "responses"):
        raise ConfigError(
            f"tool_format {whose} must be 'completions' or 'responses', got '{agent.tool_format}'"
        )


def check_actions(what: str, actions: object) -> None:
    """Check that something is a sequence of actions.

    Raises:
        ConfigError: it is not.
    """
    _check(_listed(actions), what, "a list of MAILAction objects", actions)
    assert isinstance(actions, Iterable)  # noqa: S101 - the line above proved it
    for action in actions:
        if isinstance(action, str):
            raise ConfigError(
                f"{what} must be MAILAction objects, got the string '{action}'; import the action "
                "and pass the object itself"
            )
        _check(isinstance(action, MAILAction), what, "MAILAction objects", action)


def check_texts(what: str, values: object) -> None:
    """Check that something is a sequence of texts, and not one text.

    Raises:
        ConfigError: it is not.
    """
    _check(_listed(values), what, "a list of names", values)
    assert isinstance(values, Iterable)  # noqa: S101 - the line above proved it
    for value in values:
        _check(isinstance(value, str), what, "names", value)


def text_list(what: str, values: object) -> list[str]:
    """Return a sequence of texts as a list of its own.

    Raises:
        ConfigError: it is none, or one text, which would be taken letter by letter.
    """
    check_texts(what, values)
    assert isinstance(values, Iterable)  # noqa: S101 - the line above proved it
    return list(values)


def check_text(what: str, value: object) -> None:
    """Check that something is text.

    Raises:
        ConfigError: it is not.
    """
    _check(isinstance(value, str), what, "a string", value)


def check_mapping(what: str, value: object) -> None:
    """Check that something is a dictionary.

    Raises:
        ConfigError: it is not.
    """
    _check(isinstance(value, Mapping), what, "a dictionary", value)


def check_limit(limit: object) -> None:
    """Check a ``task_message_limit``.

    Raises:
        ConfigError: it is neither a whole number above 0 nor None.
    """
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit > 0):
        return
    raise ConfigError(
        f"task_message_limit must be a whole number above 0, or None for no limit; got {limit!r}"
    )


def _listed(value: object) -> bool:
    return isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes)


def _check(good: bool, what: str, kind: str, value: object) -> None:
    if not good:
        raise ConfigError(f"{what} must be {kind}, got {type(value).__name__}")


class AgentLike(Protocol):
    """What an agent and an agent template have in common."""

    name: str
    comm_targets: list[str]
    actions: list[MAILAction]
    enable_entrypoint: bool
    can_complete_tasks: bool
    exclude_tools: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What of a swarm must fit together.

    ``user_id`` and ``has_registry`` are None for a template, which has neither.
    """

    name: str
    agents: Sequence[AgentLike]
    actions: Sequence[MAILAction]
    entrypoint: str
    enable_interswarm: bool
    breakpoint_tools: Sequence[str]
    exclude_tools: Sequence[str]
    user_id: str | None = None
    has_registry: bool | None = None
    participants: Sequence[str] = ()
    approvals: Collection[str] = ()

    @property
    def agent_names(self) -> list[str]:
        """The agents' names in order."""
        return [agent.name for agent in self.agents]


def check_parts(agents: object, kind: type, actions: object) -> None:
    """Check the types of what a swarm or template is made of.

    Raises:
        ConfigError: the agents are not all of the given kind, or an action is no `MAILAction`.
    """
    if isinstance(agents, str) or not isinstance(agents, Iterable):
        raise ConfigError(f"agents must be a list of {kind.__name__}s")
    for agent in agents:
        if not isinstance(agent, kind):
            got = type(agent).__name__
            raise ConfigError(f"agents must be {kind.__name__} objects, got {got}")
    check_actions("actions of the swarm", actions)


def check_wiring(wiring: Wiring) -> None:
    """Check a swarm as a whole; the first problem is reported.

    Raises:
        ConfigError: saying what is wrong and, for an unknown name, which one may be meant.
    """
    check_text("swarm name", wiring.name)
    check_text("entrypoint", wiring.entrypoint)
    check_swarm_name(wiring.name)
    if not wiring.agents:
        raise ConfigError("swarm must have at least one agent")
    if wiring.user_id is not None and not wiring.user_id:
        raise ConfigError("user ID must be at least 1 character long")
    check_distinct("agent", wiring.agent_names)
    _check_entry_flags(wiring)
    names = dict.fromkeys(
        (*wiring.agent_names, *wiring.participants)
    )  # looked into for each target of each agent
    for agent in wiring.agents:
        for target in agent.comm_targets:
            check_target(agent.name, target, names, wiring.name, wiring.enable_interswarm)
    if wiring.enable_interswarm and wiring.has_registry is False:
        raise ConfigError("swarm registry must be provided if interswarm messaging is enabled")
    if not any(agent.can_complete_tasks for agent in wiring.agents):
        raise ConfigError("swarm must have at least one supervisor")
    _check_tool_names(wiring)


def actions_by_name(
    actions: Iterable[MAILAction], agents: Iterable[AgentLike]
) -> dict[str, MAILAction]:
    """Return a swarm's actions that have a name of their own.

    Where two agents have different actions of the same name (bound to their own state, say), the
    name is left out: each agent's own action is the one that counts then.
    """
    found: dict[str, MAILAction] = {}
    ambiguous: set[str] = set()
    for action in (*actions, *(action for agent in agents for action in agent.actions)):
        if found.setdefault(action.name, action) is not action:
            ambiguous.add(action.name)
    return {name: action for name, action in found.items() if name not in ambiguous}


def _check_entry_flags(wiring: Wiring) -> None:
    entries = [agent.name for agent in wiring.agents if agent.enable_entrypoint]
    if not entries:
        raise ConfigError("swarm must have at least one entrypoint agent")
    check_entrypoint(wiring.entrypoint, wiring.agent_names)
    if wiring.entrypoint not in entries:
        raise ConfigError(
            f"entrypoint agent '{wiring.entrypoint}' does not have 'enable_entrypoint' set to true"
        )


def _check_tool_names(wiring: Wiring) -> None:
    own = [action.name for agent in wiring.agents for action in agent.actions]
    excluded = [tool for agent in wiring.agents for tool in agent.exclude_tools]
    check_tools(
        wiring.breakpoint_tools,
        [*wiring.exclude_tools, *excluded],
        [*(action.name for action in wiring.actions), *own],
    )
    held = [
        action.name
        for action in (*wiring.actions, *(a for agent in wiring.agents for a in agent.actions))
        if action.approval is not None
    ]
    known = [*(action.name for action in wiring.actions), *own]
    check_approvals([*wiring.approvals, *held], wiring.breakpoint_tools, known)


def checked_approvals(approvals: object) -> dict[str, Approval]:
    """Return approvals by the names of tools.

    Raises:
        ConfigError: they are something else.
    """
    if not isinstance(approvals, Mapping):
        raise ConfigError("approvals must be a mapping from tool to mail.Approval")
    for tool, approval in approvals.items():
        if not isinstance(approval, Approval):
            got = type(approval).__name__
            raise ConfigError(f"approvals: '{tool}' must have a mail.Approval, got {got}")
    return dict(approvals)


class _Reaching(Protocol):
    name: str
    enable_entrypoint: bool
    can_complete_tasks: bool


def needs_targets(agent: _Reaching) -> bool:
    """Tell whether the agent is lost without targets: it is not both entrypoint and supervisor."""
    return not (agent.can_complete_tasks and agent.enable_entrypoint)


def check_reach(agent: _Reaching, targets: Sequence[str]) -> None:
    """Check that an agent has targets if it needs some.

    Raises:
        ConfigError: it has none.
    """
    if not targets and needs_targets(agent):
        raise ConfigError(
            f"agent must have at least one communication target, got 0 (agent '{agent.name}'). "
            "Only an agent with both enable_entrypoint and can_complete_tasks may have none."
        )
