"""How a swarm hangs together: one validation for templates and instances."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mail.api.actions import MAILAction
from mail.core.addresses import local_agent_name
from mail.core.tools.catalogue import CATALOGUE
from mail.errors import ConfigError
from mail.swarms_json.names import check_distinct, check_swarm_name, hinted

__all__ = ["AgentLike", "Wiring", "actions_by_name", "check_wiring"]


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

    @property
    def agent_names(self) -> list[str]:
        """The agents' names in order."""
        return [agent.name for agent in self.agents]


def check_wiring(wiring: Wiring) -> None:
    """Check a swarm as a whole; the first problem is reported.

    Raises:
        ConfigError: saying what is wrong and, for an unknown name, which one may be meant.
    """
    check_swarm_name(wiring.name)
    if not wiring.agents:
        raise ConfigError("swarm must have at least one agent")
    if wiring.user_id is not None and not wiring.user_id:
        raise ConfigError("user ID must be at least 1 character long")
    check_distinct("agent", wiring.agent_names)
    _check_entrypoint(wiring)
    for agent in wiring.agents:
        for target in agent.comm_targets:
            _check_target(wiring, agent, target)
    if wiring.enable_interswarm and wiring.has_registry is False:
        raise ConfigError("swarm registry must be provided if interswarm messaging is enabled")
    if not any(agent.can_complete_tasks for agent in wiring.agents):
        raise ConfigError("swarm must have at least one supervisor")
    _check_tools(wiring)


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


def _check_entrypoint(wiring: Wiring) -> None:
    entries = [agent.name for agent in wiring.agents if agent.enable_entrypoint]
    if not entries:
        raise ConfigError("swarm must have at least one entrypoint agent")
    if wiring.entrypoint not in wiring.agent_names:
        text = f"entrypoint agent '{wiring.entrypoint}' not found in swarm"
        raise ConfigError(hinted(text, wiring.entrypoint, wiring.agent_names))
    if wiring.entrypoint not in entries:
        raise ConfigError(
            f"entrypoint agent '{wiring.entrypoint}' does not have 'enable_entrypoint' set to true"
        )


def _check_target(wiring: Wiring, agent: AgentLike, target: str) -> None:
    name = local_agent_name(target, wiring.name)
    if "@" in name:
        if not wiring.enable_interswarm:
            raise ConfigError(
                f"agent '{agent.name}' has interswarm communication target '{target}' but "
                "interswarm messaging is not enabled for this swarm"
            )
    elif name not in wiring.agent_names:
        text = f"agent '{agent.name}' has invalid communication target '{target}'"
        raise ConfigError(hinted(text, name, wiring.agent_names))


def _check_tools(wiring: Wiring) -> None:
    own = [action.name for agent in wiring.agents for action in agent.actions]
    known = [*CATALOGUE, *(action.name for action in wiring.actions), *own]
    for tool in wiring.breakpoint_tools:
        if tool not in known:
            raise ConfigError(hinted(f"breakpoint tool '{tool}' not found in swarm", tool, known))
    excluded = [*wiring.exclude_tools]
    excluded.extend(tool for agent in wiring.agents for tool in agent.exclude_tools)
    for tool in excluded:
        if tool not in known:
            raise ConfigError(hinted(f"excluded tool '{tool}' is not valid", tool, known))
