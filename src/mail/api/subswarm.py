"""A part of a swarm as a template of its own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mail.api.agents import MAILAgentTemplate, as_template
from mail.api.reach import needs_targets
from mail.core.addresses import local_agent_name
from mail.core.runtime.validation import check_entrypoint
from mail.core.suggest import hinted
from mail.core.tools.catalogue import CATALOGUE
from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.api.graph import AgentGraph
    from mail.api.template import MAILSwarmTemplate

__all__ = ["make_subswarm"]


def make_subswarm(
    whole: "AgentGraph[Any]",
    names: Sequence[str],
    suffix: str,
    entrypoint: str | None,
) -> "MAILSwarmTemplate":
    """Return a template of some agents; see `mail.api.graph.AgentGraph.get_subswarm`.

    Raises:
        ConfigError: an agent is unknown, or entrypoint or supervisor are missing.
    """
    from mail.api.template import MAILSwarmTemplate

    agents = _select(whole, names)
    entry = _choose_entrypoint(agents, whole, entrypoint)
    if not any(agent.can_complete_tasks for agent in agents):
        raise ConfigError("Subswarm must contain at least one supervisor")
    _link(agents, whole.name, list(dict.fromkeys(names)))
    own = [action.name for agent in agents for action in agent.actions]
    known = {*CATALOGUE, *(action.name for action in whole.actions), *own}
    return MAILSwarmTemplate(
        name=f"{whole.name}-{suffix}",
        version=whole.version,
        agents=agents,
        actions=whole.actions,
        entrypoint=entry,
        enable_interswarm=whole.enable_interswarm,
        breakpoint_tools=[tool for tool in whole.breakpoint_tools if tool in known],
        exclude_tools=[tool for tool in whole.exclude_tools if tool in known],
        task_message_limit=whole.task_message_limit,
        description=whole.description,
        keywords=whole.keywords,
        public=whole.public,
        enable_db_agent_histories=whole.enable_db_agent_histories,
    )


def _select(whole: "AgentGraph[Any]", names: Sequence[str]) -> list[MAILAgentTemplate]:
    if isinstance(names, str):
        raise ConfigError(f"names must be a list of agent names, got the text '{names}'")
    for name in names:
        if name not in whole.agent_names:
            raise ConfigError(hinted(f"agent '{name}' not found in swarm", name, whole.agent_names))
    return [as_template(agent) for agent in whole.agents if agent.name in names]


def _choose_entrypoint(
    agents: list[MAILAgentTemplate], whole: "AgentGraph[Any]", given: str | None
) -> str:
    if given is not None:
        names = [agent.name for agent in agents]
        if given not in names and given in whole.agent_names:
            listing = ", ".join(f"'{name}'" for name in names)
            raise ConfigError(
                f"entrypoint agent '{given}' not found in swarm: the names that were chosen are "
                f"{listing}; add it to them"
            )
        check_entrypoint(given, names)
        for agent in agents:
            agent.enable_entrypoint = agent.enable_entrypoint or agent.name == given
        return given
    entries = [agent.name for agent in agents if agent.enable_entrypoint]
    if not entries:
        raise ConfigError("Subswarm must contain an entrypoint agent")
    return whole.entrypoint if whole.entrypoint in entries else entries[0]


def _link(agents: list[MAILAgentTemplate], swarm: str, names: list[str]) -> None:
    """Drop the targets that are not there any more; leave nobody without one who needs some."""
    for agent in agents:
        local = dict.fromkeys(local_agent_name(target, swarm) for target in agent.comm_targets)
        agent.comm_targets = [name for name in local if "@" in name or name in names]
    writers = {name: [a.name for a in agents if name in a.comm_targets] for name in names}
    for agent in agents:
        if agent.comm_targets or not needs_targets(agent):
            continue
        others = [name for name in names if name != agent.name]
        agent.comm_targets = [n for n in writers[agent.name] if n in others] or others[:1]
