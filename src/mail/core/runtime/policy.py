"""Who may write to whom, and who may call what. Pure rules (MAIL-TOOL-1 to 4)."""

from collections.abc import Collection, Mapping

from mail.core.addresses import local_agent_name, parse_agent_address
from mail.core.agents import AgentCore
from mail.core.envelope import Envelope
from mail.core.suggest import did_you_mean
from mail.core.tools.catalogue import CATALOGUE
from mail.errors import ToolError

__all__ = ["allowed_target", "check_tool", "local_recipients"]


def allowed_target(sender: str, target: str, agents: Mapping[str, AgentCore], swarm: str) -> str:
    """Return the local name of an agent that the sender may write to.

    Raises:
        ToolError: the target is unknown, remote, the sender itself or not a communication target.
    """
    if target in agents[sender].comm_targets and target in agents and target != sender:
        return target  # the plain case, before any parsing
    name = local_agent_name(target, swarm)
    if parse_agent_address(name)[1] is not None:
        raise ToolError(f"'{target}' is in another swarm, and interswarm messaging is not enabled")
    targets = {local_agent_name(allowed, swarm) for allowed in agents[sender].comm_targets}
    if name not in agents:
        hint = did_you_mean(name, targets) or _listing(targets)
        raise ToolError(f"there is no agent named '{target}'.{hint}")
    if name == sender:
        raise ToolError("you cannot send a message to yourself")
    if name not in targets:
        raise ToolError(f"you may not write to '{name}'.{_listing(targets)}")
    return name


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


def local_recipients(envelope: Envelope, agents: Collection[str], swarm: str) -> list[str]:
    """Return the agents that a message goes to: each once, never its own sender.

    Raises:
        ToolError: a recipient is not an agent of this swarm.
    """
    sender = envelope.sender["address"] if envelope.sender["address_type"] == "agent" else None
    names: dict[str, None] = {}
    for recipient in envelope.recipients:
        if recipient["address"] == "all" and recipient["address_type"] == "agent":
            names.update(dict.fromkeys(agents))
            continue
        name = recipient["address"]
        if name not in agents:
            name = local_agent_name(name, swarm)
        if recipient["address_type"] != "agent" or name not in agents:
            hint = did_you_mean(name, agents)
            raise ToolError(f"there is no agent named '{recipient['address']}'.{hint}")
        names[name] = None
    if sender is not None:
        names.pop(sender, None)
    return list(names)
