"""The graph of a swarm: who may write to whom, the agents' peers, and subswarms.

Who may write to whom is read and written as an adjacency matrix. Row and column ``i`` stand for the
swarm's ``i``-th agent; a 1 in row ``i``, column ``j`` says that agent ``i`` may write to agent
``j``. Targets in other swarms, and participants, are not part of the matrix.

What an agent is told about those it may write to is a block of its system prompt. An agent function
takes it through ``set_peers(comm_targets, peers)``, which the ones in
`mail.factories` have. Functions without that method (an agent without a model needs none) are left
alone. The same wiring gives the same text, byte for byte, so that providers can cache prompts.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from mail.api.agents import MAILAgent, MAILAgentTemplate, as_template
from mail.api.validation import AgentLike, check_reach, needs_targets
from mail.core.addresses import local_agent_name, parse_agent_address
from mail.core.runtime.validation import check_entrypoint
from mail.core.suggest import hinted
from mail.core.teams import Teams
from mail.errors import ConfigError
from mail.factories.base import PEERS_HEADLINE

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


NOBODY: Final[Mapping[str, str]] = MappingProxyType({})
_GUEST: Final = (
    "It is no agent of the swarm: it reads its messages when it can, and may answer late, or never."
)

Matrix = list[list[int]]


def read_matrix(agents: Sequence[AgentLike], swarm: str) -> Matrix:
    """Return the matrix of some agents' communication targets."""
    names = [agent.name for agent in agents]
    rows = []
    for agent in agents:
        targets = {local_agent_name(target, swarm) for target in agent.comm_targets}
        rows.append([int(name in targets) for name in names])
    return rows


def targets_after(
    adj: Sequence[Sequence[int]], agents: Sequence[AgentLike], swarm: str
) -> list[list[str]]:
    """Return each agent's communication targets as a matrix says.

    Targets that stay keep their place, so that an unchanged matrix changes nothing.

    Raises:
        ConfigError: see `AgentGraph.update_from_adjacency_matrix`.
    """
    rows = _read_rows(adj, len(agents))
    names = [agent.name for agent in agents]
    found = []
    for agent, row in zip(agents, rows, strict=True):
        wanted = [name for name, bit in zip(names, row, strict=True) if bit]
        kept = {target: local_agent_name(target, swarm) for target in agent.comm_targets}
        targets = [t for t, name in kept.items() if name in wanted or name not in names]
        targets.extend(name for name in wanted if name not in kept.values())
        check_reach(agent, targets)
        found.append(targets)
    return found


def _read_rows(adj: Any, size: int) -> list[list[bool]]:
    try:
        rows = [list(row) for row in adj]  # arrays of other libraries are no Sequence
    except TypeError:
        raise ConfigError(
            "Adjacency matrix is malformed. It must be a list of lists of 0 and 1."
        ) from None
    if len(rows) != size:
        raise ConfigError(
            "Length of adjacency matrix does not match number of agents. "
            f"There are {size} agents, so it needs {size} rows; got {len(rows)}."
        )
    for number, row in enumerate(rows):
        if len(row) != size or any(value not in (0, 1) for value in row):
            raise ConfigError(
                f"Adjacency matrix is malformed. Row {number} needs {size} entries, which may only "
                f"be 0 and 1; got {row}."
            )
    return [[bool(value) for value in row] for row in rows]


def introduce(
    agents: Sequence[MAILAgent],
    swarm: str,
    teams: Teams,
    participants: Mapping[str, str] = NOBODY,
    *,
    files: bool = False,
) -> None:
    """Tell each agent of a swarm whom it may write to and what they can do, and its teams.

    Args:
        agents: The agents.
        swarm: The swarm's name.
        teams: The swarm's teams.
        participants: The others with a mailbox, with descriptions.
        files: Whether files can come with their messages.
    """
    known = {
        name: _capabilities([f"{_GUEST} {_line(told)}".rstrip()])
        for name, told in participants.items()
    }
    known |= {agent.name: _capabilities(_local(agent)) for agent in agents}
    for agent in agents:
        own, joined = set(agent.comm_targets), teams.teams_of(agent.name)
        tell: Callable[..., object] | None = getattr(agent.function, "set_peers", None)
        if callable(tell):
            tell(list(agent.comm_targets), describe_peers(agent, known, swarm))
        meet: Callable[..., object] | None = getattr(agent.function, "set_contacts", None)
        if callable(meet):
            reached = {name for team in joined for name in team.everybody} | own
            guests = [
                name for name in participants if not reached.isdisjoint((name, f"{name}@{swarm}"))
            ]
            writes = any(not own.isdisjoint((name, f"{name}@{swarm}")) for name in participants)
            is_written_to = writes or (agent.enable_entrypoint and bool(participants))
            meet(joined, guests, files=files and is_written_to)


def describe_peers(agent: MAILAgent, known: Mapping[str, str], swarm: str) -> str:
    """Return the block about an agent's communication targets; empty when it can write to nobody.

    Args:
        agent: The agent with these targets.
        known: The abilities of the swarm's agents and the participants, by name.
        swarm: The swarm's name.
    """
    senders = _SENDERS + (_SUPERVISORS_SENDERS if agent.can_complete_tasks else ())
    if all(tool in agent.exclude_tools for tool in senders):
        return ""  # it cannot write: its words go where a driver sends them
    parts = []
    for target in dict.fromkeys(agent.comm_targets):
        name = target if target in known else local_agent_name(target, swarm)
        if name == agent.name:
            continue
        parts.append(_remote(name) if name not in known else f"Name: {target}\n{known[name]}")
    return "\n\n".join([PEERS_HEADLINE, *parts]) if parts else ""


def _capabilities(lines: Sequence[str]) -> str:
    return "\n".join(["Capabilities:", *(f"- {line}" for line in lines)])


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


def part_of(
    agents: Sequence[Any],
    names: Sequence[str],
    swarm: str,
    entrypoints: tuple[str | None, str],
) -> tuple[list[MAILAgentTemplate], str]:
    """Return templates of some of a swarm's agents, and the entrypoint of that part.

    Args:
        agents: All of them, agents or templates.
        names: Which.
        swarm: The swarm's name.
        entrypoints: The one that was asked for, and that of the whole swarm.

    Raises:
        ConfigError: see `AgentGraph.get_subswarm`.
    """
    if isinstance(names, str):
        raise ConfigError(f"names must be a list of agent names, got the string '{names}'")
    known = [agent.name for agent in agents]
    for name in names:
        if name not in known:
            raise ConfigError(hinted(f"agent '{name}' not found in swarm", name, known))
    part = [as_template(agent) for agent in agents if agent.name in names]
    entry = _choose_entrypoint(part, known, *entrypoints)
    if not any(agent.can_complete_tasks for agent in part):
        raise ConfigError("Subswarm must contain at least one supervisor")
    _link(part, swarm, list(dict.fromkeys(names)))
    return part, entry


def _choose_entrypoint(
    agents: list[MAILAgentTemplate], known: Sequence[str], given: str | None, whole: str
) -> str:
    names = [agent.name for agent in agents]
    if given is not None:
        if given not in names and given in known:
            listing = ", ".join(f"'{name}'" for name in names)
            raise ConfigError(
                f"entrypoint agent '{given}' not found in swarm: the chosen agents are "
                f"{listing}; add it"
            )
        check_entrypoint(given, names)
        agents[names.index(given)].enable_entrypoint = True
        return given
    entries = [agent.name for agent in agents if agent.enable_entrypoint]
    if not entries:
        raise ConfigError("Subswarm must contain an entrypoint agent")
    return whole if whole in entries else entries[0]


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
