"""Checks of what builders pass in, and of how a swarm of it hangs together.

A wrong type is told before it breaks something far away. Templates and instances have the same
checks.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from mail.api.actions import MAILAction
from mail.core.approvals import Approval
from mail.core.runtime.validation import check_entrypoint, check_target
from mail.errors import ConfigError
from mail.factories.checks import check_listed, check_texts
from mail.swarms_json.names import check_agent_name, check_distinct, check_swarm_name


class AgentLike(Protocol):
    """The attributes that an agent and an agent template share."""

    name: str
    comm_targets: list[str]
    actions: list[MAILAction]
    agent_params: dict[str, Any]
    enable_entrypoint: bool
    can_complete_tasks: bool
    tool_format: Any
    exclude_tools: list[str]


def check_agent_fields(agent: AgentLike) -> None:
    """Check the fields that an agent and its template have in common.

    Raises:
        ConfigError: naming the field and what it must be.
    """
    check_texts(**{"agent name": agent.name})
    check_agent_name(agent.name)
    whose = f"of agent '{agent.name}'"
    check_listed(f"comm_targets {whose}", agent.comm_targets, str, "names")
    check_listed(f"exclude_tools {whose}", agent.exclude_tools or (), str, "names")
    check_actions(f"actions {whose}", agent.actions)
    check_mapping(f"agent_params {whose}", agent.agent_params)
    if agent.tool_format not in ("completions", "responses"):
        raise ConfigError(
            f"tool_format {whose} must be 'completions' or 'responses', got '{agent.tool_format}'"
        )


def check_actions(what: str, actions: Any) -> None:
    """Check that something is a sequence of actions.

    Raises:
        ConfigError: it is not.
    """
    check_listed(what, actions, object, "MAILAction objects")
    for action in actions:
        if isinstance(action, str):
            raise ConfigError(
                f"{what} must be MAILAction objects, got the string '{action}'; import the action "
                "and pass the object itself"
            )
        if not isinstance(action, MAILAction):
            raise ConfigError(f"{what} must be MAILAction objects, got {type(action).__name__}")


def text_list(what: str, values: Any) -> list[str]:
    """Return a sequence of texts as a list of its own.

    Raises:
        ConfigError: it is none, or one text, which would be taken letter by letter.
    """
    check_listed(what, values, str, "names")
    return list(values)


def check_mapping(what: str, value: object) -> None:
    """Check that something is a dictionary.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} must be a dictionary, got {type(value).__name__}")


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


def check_wiring(
    swarm: str,
    agents: Sequence[AgentLike],
    entrypoint: str,
    names: Collection[str],
    *,
    interswarm: bool,
) -> None:
    """Check how the agents of a swarm hang together; the first problem is reported.

    Args:
        swarm: The swarm's name.
        agents: The agents.
        entrypoint: The name of the swarm's entrypoint.
        names: The names of the participants.
        interswarm: Whether mail may go to other swarms.

    Raises:
        ConfigError: saying what is wrong and, for an unknown name, which one may be meant.
    """
    check_texts(**{"swarm name": swarm, "entrypoint": entrypoint})
    check_swarm_name(swarm)
    if not agents:
        raise ConfigError("swarm must have at least one agent")
    own = [agent.name for agent in agents]
    check_distinct("agent", own)
    entries = [agent.name for agent in agents if agent.enable_entrypoint]
    if not entries:
        raise ConfigError("swarm must have at least one entrypoint agent")
    check_entrypoint(entrypoint, own)
    if entrypoint not in entries:
        raise ConfigError(
            f"entrypoint agent '{entrypoint}' does not have 'enable_entrypoint' set to true"
        )
    known = dict.fromkeys((*own, *names))
    for agent in agents:
        for target in agent.comm_targets:
            check_target(agent.name, target, known, swarm, interswarm)
    if not any(agent.can_complete_tasks for agent in agents):
        raise ConfigError("swarm must have at least one supervisor")


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


def needs_targets(agent: AgentLike) -> bool:
    """Tell whether the agent is lost without targets: it is not both entrypoint and supervisor."""
    return not (agent.can_complete_tasks and agent.enable_entrypoint)


def check_reach(agent: AgentLike, targets: Collection[str]) -> None:
    """Check that an agent has targets if it needs some.

    Raises:
        ConfigError: it has none.
    """
    if not targets and needs_targets(agent):
        raise ConfigError(
            f"agent must have at least one communication target, got 0 (agent '{agent.name}'). "
            "Only an agent with both enable_entrypoint and can_complete_tasks may have none."
        )
