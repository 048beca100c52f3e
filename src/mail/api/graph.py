"""Who may write to whom, read and written as an adjacency matrix.

Row and column ``i`` stand for the swarm's ``i``-th agent; a 1 in row ``i``, column ``j`` says that
agent ``i`` may write to agent ``j``. Targets in other swarms are not part of the matrix.
"""

from collections.abc import Sequence
from typing import Any

from mail.api.reach import check_reach
from mail.api.validation import AgentLike
from mail.core.addresses import local_agent_name
from mail.errors import ConfigError

__all__ = ["Matrix", "read_matrix", "targets_after"]

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
        targets = [target for target, name in kept.items() if "@" in name or name in wanted]
        targets.extend(name for name in wanted if name not in kept.values())
        check_reach(agent, targets)
        found.append(targets)
    return found


def _read_rows(adj: Any, size: int) -> list[list[bool]]:
    rows = _listed(adj)
    if len(rows) != size:
        raise ConfigError(
            "Length of adjacency matrix does not match number of agents. "
            f"There are {size} agents, so it needs {size} rows; got {len(rows)}."
        )
    return [_read_row(_listed(row), number, size) for number, row in enumerate(rows)]


def _read_row(row: list[Any], number: int, size: int) -> list[bool]:
    if len(row) != size:
        raise ConfigError(
            f"Adjacency matrix is malformed. Row {number} needs {size} entries; got {len(row)}."
        )
    for value in row:
        if value not in (0, 1):
            raise ConfigError(
                f"Adjacency matrix is malformed. Row {number} may contain only "
                f"0 and 1; got {value!r}."
            )
    return [bool(value) for value in row]


def _listed(values: Any) -> list[Any]:
    try:
        return list(values)  # arrays of other libraries are no Sequence
    except TypeError:
        raise ConfigError(
            "Adjacency matrix is malformed. It must be a list of lists of 0 and 1; "
            f"got {type(values).__name__} instead of a list."
        ) from None
