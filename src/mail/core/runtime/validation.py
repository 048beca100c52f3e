"""Names that a swarm refers to and must have: entrypoint, communication targets, tools.

The same rules and texts hold for templates, swarms and a runtime that is built directly.
"""

from collections.abc import Collection, Iterable, Mapping

from mail.core.actions import ActionCore
from mail.core.addresses import is_remote_target, local_agent_name
from mail.core.agents import AgentCore
from mail.core.suggest import hinted
from mail.core.tools.catalogue import CATALOGUE
from mail.errors import ConfigError


def check_names(  # noqa: PLR0913 - the parts of a swarm, all named
    *,
    agents: Mapping[str, AgentCore],
    actions: Mapping[str, ActionCore],
    swarm: str,
    entrypoint: str,
    enable_interswarm: bool,
    breakpoint_tools: Iterable[str],
    exclude_tools: Iterable[str],
    participants: Collection[str] = (),
    approvals: Iterable[str] = (),
) -> None:
    """Check every name that a runtime is given.

    Raises:
        ConfigError: naming the first one that is unknown, and which one may be meant.
    """
    check_entrypoint(entrypoint, agents)
    targets = dict.fromkeys([*agents, *participants])
    for name, agent in agents.items():
        for target in agent.comm_targets:
            check_target(name, target, targets, swarm, enable_interswarm)
    own = [action for agent in agents.values() for action in agent.actions or {}]
    excluded = [tool for agent in agents.values() for tool in sorted(agent.exclude_tools)]
    check_tools(breakpoint_tools, [*exclude_tools, *excluded], [*actions, *own])
    check_approvals(approvals, breakpoint_tools, [*actions, *own])


def check_entrypoint(entrypoint: str, agents: Collection[str]) -> None:
    """Check that the entrypoint is one of the agents.

    Raises:
        ConfigError: it is not.
    """
    if entrypoint not in agents:
        text = f"entrypoint agent '{entrypoint}' not found in swarm"
        raise ConfigError(hinted(text, entrypoint, agents))


def check_target(
    agent: str, target: str, names: Collection[str], swarm: str, enable_interswarm: bool
) -> None:
    """Check a communication target of an agent.

    Args:
        agent: The agent.
        target: The target.
        names: The swarm's agents and participants.
        swarm: The swarm.
        enable_interswarm: Whether mail may go to other swarms.

    Raises:
        ConfigError: nobody has that name, or it is in another swarm although mail stays here, or it
            is no address.
    """
    if target in names and "@" not in target:
        return
    name = local_agent_name(target, swarm)
    if "@" in name:
        if not enable_interswarm:
            raise ConfigError(
                f"agent '{agent}' has interswarm communication target '{target}' but "
                "interswarm messaging is not enabled for this swarm"
            )
        if not is_remote_target(target):
            raise ConfigError(
                f"agent '{agent}' has communication target '{target}', which is not of the form "
                "'agent@swarm', '*@swarm' or '*@*'"
            )
    elif name not in names:
        text = f"agent '{agent}' has invalid communication target '{target}'"
        raise ConfigError(hinted(text, name, names))


def check_approvals(
    approvals: Iterable[str], breakpoint_tools: Iterable[str], own: Iterable[str]
) -> None:
    """Check the names of tools that need an approval.

    Raises:
        ConfigError: one is unknown, or a breakpoint tool.
    """
    known = [*CATALOGUE, *own]
    for tool in approvals:
        if tool not in known:
            raise ConfigError(hinted(f"approvals: tool '{tool}' not found in swarm", tool, known))
        if tool in breakpoint_tools:
            raise ConfigError(
                f"approvals: '{tool}' is one of the breakpoint_tools; a call is answered in one of "
                "the two ways"
            )


def check_tools(
    breakpoint_tools: Iterable[str], excluded: Iterable[str], own: Iterable[str]
) -> None:
    """Check tool names against MAIL's own tools and a swarm's actions.

    Args:
        breakpoint_tools: Tools whose calls pause a task.
        excluded: Tools that the swarm or an agent excludes.
        own: The names of the swarm's actions.

    Raises:
        ConfigError: naming the first one that is unknown.
    """
    known = [*CATALOGUE, *own]
    for tool in breakpoint_tools:
        if tool not in known:
            raise ConfigError(hinted(f"breakpoint tool '{tool}' not found in swarm", tool, known))
    for tool in excluded:
        if tool not in known:
            raise ConfigError(hinted(f"excluded tool '{tool}' is not valid", tool, known))
