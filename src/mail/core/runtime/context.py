"""The parts of one runtime instance, put together once; every step takes them from here."""

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
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
from mail.core.tasks import TaskState
from mail.core.teams import NO_TEAMS, Teams
from mail.db.blobs import Blobs
from mail.db.desk import PARTICIPANT_ROLE
from mail.db.records import Owner
from mail.db.store import Store
from mail.services.event_log import EventLog

if TYPE_CHECKING:
    import asyncio


@dataclass(slots=True, eq=False, kw_only=True)
class RuntimeContext:
    """What the steps of a turn share. Parts know nothing of one another.

    ``manual`` tells that agents are stepped by a driver, ``draining`` stops new work, ``closed``
    tells that all that wait have been told of it, ``degraded``
    tells why the store fails at the moment, and ``abandoned`` counts interrupted turns whose agent
    functions have not returned yet. ``gateway`` leads to other swarms; without one agents write to
    nobody there. ``teams`` are those of the swarm. ``host`` is the swarm whose tasks these are,
    when the owner is another swarm. ``participants`` have mailboxes in the swarm, and are no
    agents; ``ring`` wakes those who wait for letters, and ``blobs`` leads to the contents of files
    that come with letters, for the swarm's name. ``guest`` is the participant whose tasks these
    are, when the owner is one. ``approvals`` tell, by name, of which tools the calls wait for a
    person; ``holds`` whether any do, actions with an approval of their own included.
    ``on_deadline`` is called when a call is held that must be answered in time, ``wake`` when there
    may be mail to work on. ``under_way`` are changes whose callers have left.
    """

    owner: Owner
    entrypoint: str
    agents: Mapping[str, AgentCore]
    actions: Mapping[str, ActionCore]
    breakpoint_tools: frozenset[str]
    exclude_tools: frozenset[str]
    settings: RuntimeSettings
    clock: Clock
    store: Store
    composer: Composer
    mailbox: Mailbox
    active_tasks: ActiveTasks
    histories: Histories
    events: EventLog
    print_llm_streams: bool = True
    action_override: ActionOverrideFunction | None = None
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    gateway: Gateway | None = None
    teams: Teams = NO_TEAMS
    participants: Set[str] = frozenset()
    ring: Callable[[Collection[str]], None] | None = None
    blobs: Callable[[str], Blobs] | None = None
    on_deadline: Callable[[], None] = lambda: None
    wake: Callable[[], None] = lambda: None
    under_way: set["asyncio.Task[None]"] = field(default_factory=set)
    manual: bool = False
    draining: bool = False
    closed: bool = False
    degraded: str | None = None
    abandoned: int = 0
    swarm: str = field(init=False)
    host: str = field(init=False)
    guest: str = field(init=False)
    holds: bool = field(init=False)

    def __post_init__(self) -> None:
        self.swarm = self.owner.swarm
        self.host = self.owner.id if self.owner.role == PEER_ROLE else ""
        own = [each for agent in self.agents.values() for each in (agent.actions or {}).values()]
        held = any(action.approval is not None for action in (*self.actions.values(), *own))
        self.holds = held or bool(self.approvals)
        takes_part = self.owner.role == PARTICIPANT_ROLE and self.owner.id in self.participants
        self.guest = self.owner.id if takes_part else ""

    def approval_for(self, agent: str, tool: str) -> Approval | None:
        """Return how calls of a tool are held: the swarm says, else the action."""
        held = self.approvals.get(tool)
        if held is not None:
            return held
        action = self.actions.get(tool) or (self.agents[agent].actions or {}).get(tool)
        return action.approval if action is not None else None

    @property
    def finisher(self) -> str:
        """Who is asked to end a task: the entrypoint if it may, else the first supervisor."""
        entry = self.agents.get(self.entrypoint)
        if entry is not None and entry.can_complete_tasks:
            return self.entrypoint
        for name, agent in self.agents.items():
            if agent.can_complete_tasks:
                return name
        return self.entrypoint

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
        self.mailbox.drop(task.task_id)
        self.histories.forget(task.task_id)
        for forgotten in self.active_tasks.remove(task):
            self.events.forget(forgotten)
