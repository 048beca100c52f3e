"""What an agent is told about the agents it may write to: a block of its system prompt.

An agent function takes it through ``set_peers(comm_targets, peers)``, which the ones in
`mail.factories` have. Functions without that method (an agent without a model needs none) are left
alone. The same wiring gives the same text, byte for byte, so that providers can cache prompts.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from mail.api.agents import MAILAgent
from mail.core.addresses import local_agent_name, parse_agent_address
from mail.factories.base import PEERS_HEADLINE

__all__ = ["describe_peers", "introduce"]

_WIDTH: Final = 300
_SENDERS: Final = ("send_request", "send_response")
_SUPERVISORS_SENDERS: Final = ("send_interrupt", "send_broadcast")
_BUILTIN: Final = (
    (re.compile(r"web_search"), "It can search the web."),
    (re.compile(r"code_interpreter|code_execution"), "It can run code."),
    (re.compile(r"file_search"), "It can search files."),
    (re.compile(r"image_generation"), "It can make images."),
    (re.compile(r"computer"), "It can use a computer."),
)


def introduce(agents: Sequence[MAILAgent], swarm: str) -> None:
    """Tell each agent of a swarm whom it may write to and what they can do."""
    known = {agent.name: _capabilities(_local(agent)) for agent in agents}
    for agent in agents:
        tell: Callable[[Sequence[str], str], object] | None
        tell = getattr(agent.function, "set_peers", None)
        if callable(tell):
            tell(list(agent.comm_targets), describe_peers(agent, known, swarm))


def describe_peers(agent: MAILAgent, known: Mapping[str, str], swarm: str) -> str:
    """Return the block about an agent's communication targets; empty when it can write to nobody.

    Args:
        agent: Whose targets.
        known: What the swarm's agents can do, by name.
        swarm: The swarm's name.
    """
    if _is_mute(agent):
        return ""
    parts = []
    for target in dict.fromkeys(agent.comm_targets):
        name = target if target in known else local_agent_name(target, swarm)
        if name == agent.name:
            continue
        parts.append(_remote(name) if name not in known else f"Name: {target}\n{known[name]}")
    return "\n\n".join([PEERS_HEADLINE, *parts]) if parts else ""


def _capabilities(lines: Sequence[str]) -> str:
    return "\n".join(["Capabilities:", *(f"- {line}" for line in lines)])


def _is_mute(agent: MAILAgent) -> bool:
    """Tell whether the agent has no tool to write with: its words go where a driver sends them."""
    senders = _SENDERS + (_SUPERVISORS_SENDERS if agent.can_complete_tasks else ())
    return all(tool in agent.exclude_tools for tool in senders)


def _remote(target: str) -> str:
    """Describe a target in another swarm; ``*`` stands for each of its agents, or of any swarm."""
    name, swarm = parse_agent_address(target)
    line = f"It works in another swarm, '{swarm}'. Write to it under this full name."
    if name == "*":
        who = f"every agent of the swarm '{swarm}'"
        known, target = "agent-name", f"agent-name@{swarm}"
        if swarm == "*":
            who, known = "every agent of every other swarm", "agent-name and swarm-name"
            target = "agent-name@swarm-name"
        line = f"This stands for {who}. Put names that you know in place of {known}."
    return f"Name: {target}\n{_capabilities([line])}"


def _local(agent: MAILAgent) -> list[str]:
    lines = [
        f"{action.name}: {_line(action.description)}"
        for action in agent.actions
        if action.name not in agent.exclude_tools
    ]
    lines.extend(dict.fromkeys(_builtin(agent)))
    if agent.can_complete_tasks and "task_complete" not in agent.exclude_tools:
        lines.append("It can complete the task.")
    return lines or ["It answers messages; it has no tools of its own."]


def _builtin(agent: MAILAgent) -> Iterator[str]:
    """Describe the tools that the agent's provider runs for it."""
    inner = getattr(agent.function, "_mail_agent", agent.function)
    tools: Any = getattr(inner, "tools", ())
    for tool in tools:
        kind = tool.get("type", "function") if isinstance(tool, Mapping) else "function"
        if kind == "function" or not isinstance(kind, str):
            continue
        found = (text for pattern, text in _BUILTIN if pattern.match(kind))
        yield next(found, f"It has the tool {kind}.")


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _WIDTH else flat[:_WIDTH].rstrip() + "…"
