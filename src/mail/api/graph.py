"""Who may write to whom, read and written as an adjacency matrix.

Row and column ``i`` stand for the swarm's ``i``-th agent; a 1 in row ``i``, column ``j`` says that
agent ``i`` may write to agent ``j``. Targets in other swarms are not part of the matrix.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mail.api.actions import MAILAction
from mail.api.reach import check_reach
from mail.api.validation import AgentLike
from mail.core.addresses import local_agent_name
from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.api.template import MAILSwarmTemplate

__all__ = ["AgentGraph", "Matrix", "read_matrix", "targets_after"]

Matrix = list[list[int]]
A = TypeVar("A", bound=AgentLike)


class AgentGraph(Generic[A]):
    """What a swarm and its template have in common: agents that may write to one another."""

    name: str
    version: str
    agents: list[A]
    actions: list[MAILAction]
    entrypoint: str
    enable_interswarm: bool
    breakpoint_tools: list[str]
    exclude_tools: list[str]
    task_message_limit: int | None
    description: str
    keywords: list[str]
    public: bool
    enable_db_agent_histories: bool

    @property
    def agent_names(self) -> list[str]:
        """The agents' names in order."""
        return [agent.name for agent in self.agents]

    @property
    def supervisors(self) -> list[A]:
        """The agents that may complete tasks."""
        return [agent for agent in self.agents if agent.can_complete_tasks]

    @property
    def adjacency_matrix(self) -> Matrix:
        """Who may write to whom, as it is now; see `mail.api.graph`."""
        return self._build_adjacency_matrix()[0]

    def _build_adjacency_matrix(self) -> tuple[Matrix, list[str]]:
        return read_matrix(self.agents, self.name), self.agent_names

    def update_from_adjacency_matrix(self, adj: Sequence[Sequence[int]]) -> None:
        """Overwrite the agents' communication targets; those in other swarms are kept.

        It holds from each agent's next turn on. Nothing is changed when an error is raised.

        Args:
            adj: One row of 0 and 1 per agent, in the order of ``agent_names``.

        Raises:
            ConfigError: the matrix is not of that form, or an agent would be left without targets
                although it is not both entrypoint and supervisor.
        """
        self._set_targets(targets_after(adj, self.agents, self.name))

    @abstractmethod
    def _set_targets(self, targets: list[list[str]]) -> None:
        """Give each agent its new targets, in the order of the agents."""

    def get_subswarm(
        self, names: Sequence[str], name_suffix: str, entrypoint: str | None = None
    ) -> "MAILSwarmTemplate":
        """Return a template of some of the agents, named ``<name>-<name_suffix>``.

        Targets outside the selection are dropped. An agent that has none left gets those that may
        write to it, or else the first other agent, unless it is both entrypoint and supervisor.
        The rest (actions, tools, limits, description, …) is taken over.

        Args:
            names: The agents to take.
            name_suffix: Ends the new name.
            entrypoint: One of them, which becomes an entrypoint if it is none; by default this
                swarm's entrypoint if it is among them, else the first one that is an entrypoint.

        Raises:
            ConfigError: an agent is unknown, or entrypoint or supervisor are missing.
        """
        from mail.api.subswarm import make_subswarm

        return make_subswarm(self, names, name_suffix, entrypoint)


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
                f"Adjacency matrix is malformed. Row {number} may hold 0 and 1 only; got {value!r}."
            )
    return [bool(value) for value in row]


def _listed(values: Any) -> list[Any]:
    try:
        return list(values)  # arrays of other libraries are no Sequence
    except TypeError:
        raise ConfigError(
            "Adjacency matrix is malformed. It must be a list of lists of 0 and 1; "
            f"got {type(values).__name__} in place of a list."
        ) from None
