"""The parts of one runtime instance, put together once; every step takes them from here."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from mail.clock import Clock
from mail.core.actions import ActionCore, ActionOverrideFunction
from mail.core.agents import AgentCore
from mail.core.approvals import Approval
from mail.core.compose import Composer
from mail.core.interswarm import PEER_ROLE, Gateway
from mail.core.runtime.active_tasks import ActiveTask, ActiveTasks
from mail.core.runtime.histories import Histories
from mail.core.runtime.mailbox import Mailbox
from mail.core.runtime.settings import RuntimeSettings
from mail.core.runtime.subjects import TaskSubject
from mail.core.tasks import TaskState
from mail.core.teams import Teams
from mail.db.blobs import Blobs
from mail.db.desk import PARTICIPANT_ROLE
from mail.db.records import Owner
from mail.db.store import Store
from mail.errors import ShuttingDown
from mail.services.event_log import EventLog
from mail.traces import tracer

if TYPE_CHECKING:
    import asyncio

    from opentelemetry.trace import Tracer


@dataclass(frozen=True, kw_only=True)
class SwarmParts:
    """The parts of a swarm.

    Attributes:
        entrypoint: The agent that gets messages without a target.
        agents: By their names.
        actions: Those of the swarm, by their names; agents may have their own.
        breakpoint_tools: The tools whose calls wait for the caller's results.
        exclude_tools: The tools of the runtime that no agent has.
        approvals: By name, of which tools the calls wait for a person.
        teams: Its teams.
        participants: Those with a mailbox in the swarm that are no agents.
    """

    entrypoint: str
    agents: Mapping[str, AgentCore]
    actions: Mapping[str, ActionCore]
    breakpoint_tools: frozenset[str]
    exclude_tools: frozenset[str]
    approvals: Mapping[str, Approval]
    teams: Teams
    participants: Set[str]

    @cached_property
    def holds(self) -> bool:
        """Tell whether calls of any tool wait for a person."""
        own = [each for agent in self.agents.values() for each in (agent.actions or {}).values()]
        held = any(action.approval is not None for action in (*self.actions.values(), *own))
        return held or bool(self.approvals)

    def approval_for(self, agent: str, tool: str) -> Approval | None:
        """Return how calls of a tool are held: the swarm says, else the action."""
        held = self.approvals.get(tool)
        if held is not None:
            return held
        action = self.actions.get(tool) or (self.agents[agent].actions or {}).get(tool)
        return action.approval if action is not None else None

    @property
    def finisher(self) -> str:
        """The agent that is asked to end a task: the entrypoint, or else a supervisor."""
        entry = self.agents.get(self.entrypoint)
        if entry is not None and entry.can_complete_tasks:
            return self.entrypoint
        for name, agent in self.agents.items():
            if agent.can_complete_tasks:
                return name
        return self.entrypoint


@dataclass(frozen=True, slots=True)
class Outside:
    """The ways out of a swarm.

    Attributes:
        gateway: Leads to other swarms; without one agents write to nobody there.
        ring: Wakes those who wait for letters.
        blobs: Leads to the contents of files that come with letters, for the swarm's name.
    """

    gateway: Gateway | None = None
    ring: Callable[[Collection[str]], None] | None = None
    blobs: Callable[[str], Blobs] | None = None


@dataclass(slots=True, eq=False)
class Status:
    """The condition of a runtime, and the way in which it is used.

    Attributes:
        print_llm_streams: Whether models' text goes to the console.
        action_override: The function that is called in place of actions.
        manual: Whether a driver steps the agents.
        draining: Whether new work is refused.
        closed: Whether all that wait have been told of that.
        degraded: Why the store fails at the moment.
        abandoned: The number of interrupted turns whose agents have not returned yet.
    """

    print_llm_streams: bool = True
    action_override: ActionOverrideFunction | None = None
    manual: bool = False
    draining: bool = False
    closed: bool = False
    degraded: str | None = None
    abandoned: int = 0


def _nothing() -> None:
    """Do nothing."""


async def _stopped() -> None:
    raise ShuttingDown()


@dataclass(slots=True, eq=False, kw_only=True)
class RuntimeContext:
    """The parts of one runtime, shared by the steps of a turn. Parts know nothing of one another.

    ``subjects`` add to the changes of tasks. ``wake`` is called when there may be mail to work on.
    ``start`` opens the store and takes up unfinished tasks, the first time.
    ``under_way`` are changes whose callers have left. ``tracer`` makes spans, if anything does.
    """

    owner: Owner
    parts: SwarmParts
    settings: RuntimeSettings
    clock: Clock
    store: Store
    composer: Composer
    mailbox: Mailbox
    active_tasks: ActiveTasks
    histories: Histories
    events: EventLog
    outside: Outside
    status: Status
    subjects: TaskSubject = field(default_factory=TaskSubject)
    wake: Callable[[], None] = _nothing
    start: Callable[[], Awaitable[None]]
    under_way: set["asyncio.Task[None]"] = field(default_factory=set)
    tracer: "Tracer | None" = field(default_factory=tracer)

    def part(self) -> None:
        """Let the parts of a runtime that has stopped go; its memory is free at once then."""
        self.subjects, self.wake, self.start = TaskSubject(), _nothing, _stopped

    def follow_seconds(self, task_id: str) -> float:
        """Return after how long a stream of a task looks for events that others have stored."""
        return inf if task_id in self.active_tasks.ids else self.store.follow_seconds

    @property
    def swarm(self) -> str:
        """The swarm's name."""
        return self.owner.swarm

    @property
    def agents(self) -> Mapping[str, AgentCore]:
        """The swarm's agents, by their names."""
        return self.parts.agents

    @property
    def host(self) -> str:
        """The swarm whose tasks these are, when the owner is another swarm."""
        return self.owner.id if self.owner.role == PEER_ROLE else ""

    @property
    def guest(self) -> str:
        """The participant whose tasks these are, when the owner is one."""
        takes_part = self.owner.role == PARTICIPANT_ROLE
        return self.owner.id if takes_part and self.owner.id in self.parts.participants else ""

    def settle(self, task: ActiveTask) -> None:
        """Let go of a task that nothing is happening to; the store has it all."""
        if task.turns or task.arriving or task.waits or task.pins or task.waiters:
            return
        if self.mailbox.waiting(task.task_id) and (
            task.row.state is TaskState.RUNNING or self.mailbox.decided(task.task_id)
        ):
            return
        if self.active_tasks.get(task.task_id) is not task:
            return
        task.end_span()  # if it goes on, something has to come from elsewhere before
        self.mailbox.drop(task.task_id)
        self.histories.forget(task.task_id)
        for forgotten in self.active_tasks.remove(task):
            self.events.forget(forgotten)
