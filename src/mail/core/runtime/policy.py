"""The rules of who may write to whom and call which tools; pure functions (MAIL-TOOL-1 to 4)."""

from collections.abc import Collection, Mapping
from typing import Final

from mail.core.addresses import local_agent_name, parse_agent_address
from mail.core.agents import AgentCore
from mail.core.envelope import Envelope
from mail.core.suggest import did_you_mean
from mail.core.tools.catalogue import CATALOGUE
from mail.errors import ToolError

OWN_COPY: Final = "own_copy"
"""Marks in ``routing_info`` a message whose sender wants it, too."""


def allowed_target(
    sender: str,
    target: str,
    agents: Mapping[str, AgentCore],
    swarm: str,
    known: Collection[str] | None = None,
) -> str:
    """Return the name of an agent that the sender may write to: local, or ``agent@swarm``.

    Args:
        sender: The agent that wants to write.
        target: To whom.
        agents: The local agents.
        swarm: The local swarm.
        known: Agents of other swarms that have written to the sender in this task; None when there
            is no mail between swarms.

    Raises:
        ToolError: the target is unknown, the sender itself or not a communication target, or it is
            remote and there is no mail between swarms.
    """
    if target in agents[sender].comm_targets and target in agents and target != sender:
        return target  # the plain case, before any parsing
    name = local_agent_name(target, swarm)
    if parse_agent_address(name)[1] is not None:
        return _allowed_remote(target, name, agents[sender].comm_targets, known)
    targets = {local_agent_name(allowed, swarm) for allowed in agents[sender].comm_targets}
    if name not in agents:
        hint = did_you_mean(name, targets) or _listing(targets)
        raise ToolError(f"there is no agent named '{target}'.{hint}")
    if name == sender:
        raise ToolError("you cannot send a message to yourself")
    if name not in targets:
        raise ToolError(not_a_target(name, targets))
    return name


def not_a_target(name: str, targets: Collection[str]) -> str:
    """Return why an agent may not write to somebody, and to whom it may."""
    return f"you may not write to '{name}'.{_listing(targets)}"


def _allowed_remote(
    target: str, name: str, comm_targets: Collection[str], known: Collection[str] | None
) -> str:
    """Return an agent of another swarm: one that is listed, or that has written to the sender."""
    if known is None:
        raise ToolError(f"'{target}' is in another swarm, and interswarm messaging is not enabled")
    agent, there = parse_agent_address(name)
    if not agent or not there:
        raise ToolError(f"'{target}' is not an address; write agent@swarm")
    if agent == "all":
        raise ToolError(f"'{target}' is not one agent; use send_interswarm_broadcast")
    listed = {f"{agent}@{there}", f"*@{there}", "*@*"}
    if name in known or not listed.isdisjoint(comm_targets):
        return name
    raise ToolError(f"you may not write to '{name}'.{_listing({*comm_targets, *known})}")


def _listing(targets: Collection[str]) -> str:
    if not targets:
        return " You have no communication targets."
    return f" You may write to: {', '.join(sorted(targets))}."


def check_tool(name: str, agent: AgentCore, exclude_tools: Collection[str]) -> None:
    """Check that an agent may call one of the catalogue's tools.

    Raises:
        ToolError: the tool is excluded, or reserved for supervisors or for agents that take part
            in mail between swarms.
    """
    if name in exclude_tools or name in agent.exclude_tools:
        raise ToolError(f"the tool '{name}' is not available to you")
    if CATALOGUE[name].interswarm and not agent.enable_interswarm:
        raise ToolError(f"only an agent with enable_interswarm may call '{name}'")
    if not agent.can_access_action_or_tool(name):
        raise ToolError(f"only a supervisor may call '{name}'")


def local_recipients(
    envelope: Envelope,
    agents: Collection[str],
    swarm: str,
    participants: Collection[str] = (),
) -> list[str]:
    """Return the local agents that a message goes to: each once.

    Its own sender is among them only if it asks for a copy, as members of a team can.

    Agents of other swarms are left out (see `mail.core.runtime.peering.remote_swarms`), and so are
    the participants that are given.

    Raises:
        ToolError: a recipient is no agent, or not one of this swarm although it is addressed so.
    """
    sender = envelope.sender["address"] if envelope.sender["address_type"] == "agent" else None
    names: dict[str, None] = {}
    for recipient in envelope.recipients:
        name, is_agent = recipient["address"], recipient["address_type"] == "agent"
        if name == "all" and is_agent:
            names.update(dict.fromkeys(agents))
            continue
        if name not in agents:
            name = local_agent_name(name, swarm)
        if is_agent and name in agents:
            names[name] = None
        elif not is_agent or not (name in participants or parse_agent_address(name)[1] is not None):
            hint = did_you_mean(name, agents)
            raise ToolError(f"there is no agent named '{recipient['address']}'.{hint}")
    if sender is not None and not envelope.routing_info.get(OWN_COPY):
        names.pop(sender, None)
    return list(names)
