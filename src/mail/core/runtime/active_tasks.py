"""The tasks in memory: their rows, running turns, open requests, open calls, waiting callers."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from mail.clock import Clock
from mail.core.compose import derived_id
from mail.core.envelope import Envelope
from mail.core.runtime.change_order import ChangeOrder
from mail.core.runtime.ledger import Ledger, in_swarm, swarm_in
from mail.core.runtime.mailbox import QueuedMessage
from mail.core.runtime.peering import Peering, swarm_of
from mail.core.runtime.run_figures import RunFigures
from mail.core.runtime.team_waits import TeamWait
from mail.core.runtime.turn import Control, ManualStep, Origin, Phase
from mail.core.runtime.waiters import Waiter
from mail.core.runtime.waiting import MOST_ASKS, Report, swarm_of_node
from mail.core.teams import wait_cycle
from mail.core.tools.offer import NO_OFFER, Offer
from mail.core.usage import Spending, Usage
from mail.db.calls import CallRow
from mail.db.records import NO_CLAIM, EventRow, TaskClaim, TaskRow
from mail.errors import TaskPaused
from mail.traces import failed

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

    from mail.core.addresses import MAILAddress
    from mail.core.wire import MAILMessage


@dataclass(slots=True, eq=False, kw_only=True)
class Turn:
    """A claimed delivery while its agent works on it.

    ``counted`` tells that the turn got past the step limit; it is a step once it is committed.
    ``begun`` tells that its asyncio task runs, ``void`` that its mail was cancelled meanwhile.
    ``reports`` are the events of its model calls that no commit has taken yet. ``buffered`` is the
    mail that a manual step shows its agent; it is consumed together with the step. ``shown`` is the
    message as its agent reads it. ``awaits`` are the teammates whose replies it will wait for.
    """

    task: "ActiveTask"
    agent: str
    queued: QueuedMessage
    phase: Phase = Phase.MODEL
    abandoned: bool = False
    counted: bool = False
    begun: bool = False
    void: bool = False
    handle: asyncio.Task[None] | None = None
    partial: list[str] = field(default_factory=list)
    reports: list[EventRow] = field(default_factory=list)
    buffered: list[QueuedMessage] = field(default_factory=list)
    shown: str = ""
    awaits: list[str] = field(default_factory=list)
    _made: int = 0

    @property
    def envelope(self) -> Envelope:
        """The message that its agent works on."""
        return self.queued.envelope

    @property
    def control(self) -> Control | None:
        """The system's instruction to it."""
        return self.queued.control

    @property
    def seq(self) -> int:
        """The number of its delivery."""
        return self.queued.seq

    @property
    def manual(self) -> ManualStep | None:
        """The manual step that it belongs to, if any."""
        return self.queued.control.step if self.queued.control else None

    @property
    def step(self) -> str:
        """Its identity: the same text when it is run again after a crash."""
        row = self.task.row
        return f"{row.task_owner}/{row.task_id}/{self.queued.envelope.id}/{self.agent}"

    @property
    def stopped(self) -> bool:
        """Tell whether it was cancelled, and not by its agent."""
        return self.abandoned or self.handle is None or self.handle.cancelling() > 0

    @property
    def runs(self) -> str:
        """The id of the accepted call that it runs in place of calling the agent, or no text."""
        control = self.control
        return control.call[0] if control is not None and control.call is not None else ""

    @property
    def at_limit(self) -> bool:
        """Tell whether the agent is to finish the run because its limit of messages is reached."""
        return self.queued.finish and self.control is not None and self.control.reason == "limit"

    @property
    def origin(self) -> Origin | None:
        """For whom the agent works in this turn."""
        sender: MAILAddress = self.envelope.sender
        if sender["address_type"] == "system":
            return self.control.origin if self.control else None
        return Origin(sender["address_type"], sender["address"], self.envelope.ref)

    def take_reports(self) -> tuple[EventRow, ...]:
        """Return the events of its model calls for a commit of its own, once."""
        rows = tuple(self.reports)
        self.reports.clear()
        return rows

    def next_id(self) -> str:
        """Return an id for something that the turn makes; a re-run gives the same ids."""
        self._made += 1
        return derived_id(f"{self.step}/{self._made}")


@dataclass(slots=True, eq=False)
class TaskClock:
    """Tells the time for the events of a task."""

    clock: Clock
    latest: str = ""

    def now(self) -> str:
        """Return the time for an event of the task, never earlier than the time before.

        So a wall clock that is set back does not make times contradict the events' numbers.
        """
        self.latest = max(self.latest, self.clock.now())
        return self.latest

    def go_on_from(self, latest: str) -> None:
        """Give no times before the latest one that the task's stored events have."""
        try:
            moment = datetime.fromisoformat(latest).astimezone(UTC)
        except (ValueError, OverflowError):  # no event, or the text that a caller wrote as a time
            return
        self.latest = max(self.latest, moment.isoformat())


@dataclass(slots=True, eq=False)
class TaskMemory:
    """The decisions about a task: as they are stored, or as a change would have them.

    A change works on a copy of its own (`draft`), which becomes the task's when it is stored. What
    both may have is not changed in place but replaced: dictionaries, rows and tuples.

    ``row`` is what the store has. ``calls`` are the held calls by (agent, call id), ``waits`` the
    open waits for teammates likewise. ``replies`` are the participants' letters, by agent, that
    ended waits of agents which wait on. ``pausing`` tells that a pause still has to be told.
    ``finish`` is the request to finish the run that waits or is being worked on. ``exhausted``
    tells why the task's budget allows no further model call; it fails for that reason when the
    turns that still run have ended.
    ``offer`` is what the caller of the run lends its entrypoint.
    ``host`` is the swarm whose task it is, if it is a peer's, and ``peering`` what it has to do
    with other swarms: None as long as that is nothing. Likewise ``guest`` is the participant whose
    task it is. ``asks`` are the open questions, and ``met`` has (agent, participant) for each
    participant that has written to an agent; all copies have the same.
    """

    row: TaskRow
    times: TaskClock
    host: str = ""
    guest: str = ""
    asks: Ledger = field(default_factory=Ledger)
    calls: dict[tuple[str, str], CallRow] = field(default_factory=dict)
    waits: dict[tuple[str, str], TeamWait] = field(default_factory=dict)
    replies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pausing: bool = False
    finish: QueuedMessage | None = None
    exhausted: str | None = None
    offer: Offer = NO_OFFER
    peering: Peering | None = None
    met: set[tuple[str, str]] = field(default_factory=set)

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self.row.task_id

    def draft(self) -> "TaskMemory":
        """Return a copy that a change may work on."""
        return TaskMemory(
            self.row,
            self.times,
            self.host,
            self.guest,
            self.asks.draft(),
            self.calls,
            self.waits,
            self.replies,
            self.pausing,
            self.finish,
            self.exhausted,
            self.offer,
            self.peering and self.peering.draft(),
            self.met,
        )

    def now(self) -> str:
        """Return the time for an event of the task; see `TaskClock.now`."""
        return self.times.now()

    def change(self, **fields: Any) -> TaskRow:
        """Replace fields of the row and return the new row."""
        self.row = self.row.changed(**fields)
        return self.row

    def open_calls(self, agent: str | None = None) -> list[CallRow]:
        """Return the calls without a result, of one agent or of all."""
        return [
            call
            for call in self.calls.values()
            if call.answer is None and (agent is None or call.agent == agent)
        ]

    def asked_calls(self, agent: str | None = None) -> list[CallRow]:
        """Return the open calls that nobody has answered: an accepted one is open until it ran."""
        return [call for call in self.open_calls(agent) if call.is_asked]

    def paused_error(self) -> TaskPaused:
        """Return what a message into the paused task is refused with."""
        return TaskPaused(self.task_id, [call.call_id for call in self.asked_calls()])

    def put(self, *rows: CallRow) -> None:
        """Add held calls, or replace them."""
        self.calls = self.calls | {row.key: row for row in rows}

    def open_waits(self, agent: str) -> list[TeamWait]:
        """Return an agent's waits for teammates."""
        return [wait for wait in self.waits.values() if wait.row.agent == agent]

    def peers(self) -> Peering:
        """Return what it has to do with other swarms, from now on if it had nothing yet."""
        if self.peering is None:
            self.peering = Peering()
        return self.peering

    @property
    def owes_others(self) -> bool:
        """Tell whether a peer or a participant waits for an answer of this run."""
        return self.asks.waits("for_peer", "for_participant")

    def report(self, node: str, *, owed: bool) -> Report:
        """Return what this side of the task says to other swarms when nothing goes on here.

        Args:
            node: Its name, as in ``task_contributors``.
            owed: Whether somebody waits for an answer of the run; see `ActiveTask.is_owed`.
        """
        peering, swarm = self.peering or Peering(), swarm_of_node(node)
        is_open = self.row.state.is_open
        waited = {swarm_in(each.asked) for each in self.asks.waited("peer")}
        plain = peering.plain - waited - {swarm_of_node(name) for name in peering.told}
        sent = {peer: count for peer, count in peering.sent.items() if count and peer not in plain}
        taken = {name: count for name, count in peering.taken.items() if count}
        pairs = self.asks.pairs() if is_open else []
        asks = tuple((in_swarm(a, swarm), in_swarm(b, swarm)) for a, b in pairs[:MOST_ASKS])
        acts = is_open and (owed if self.host else self.row.awaited)
        # Not the time now: a task that is let go of and read again says the same as before.
        return Report(node, self.times.latest, sent, taken, asks, acts)

    @property
    def handled(self) -> dict[str, str] | None:
        """The reactions of agents to mail of this run: ``acknowledged``, ``ignored`` or ``read``.

        None when somebody has read a message that wants an answer.
        """
        told: dict[str, str] | None = from_json(self.row.handled or "{}")
        return told

    def note_read(self, turn: Turn, done: str) -> None:
        """Note what an agent did with its mail; of several messages the worst counts."""
        mail, told = turn.envelope, self.handled
        if told is None or not self.row.state.is_open:
            return
        before = told.get(turn.agent, "")
        if mail.sender["address_type"] == "system":  # it may follow up on tools
            told |= {turn.agent: done} if done and before == "read" else {}
        elif self.is_personal(mail) and mail.wants_answer:
            told = None
        else:
            told[turn.agent] = max(done or "read", before)  # the worst is last in the alphabet
        self.change(handled=to_json(told).decode())

    def is_personal(self, envelope: Envelope) -> bool:
        """Tell whether it is mail of whoever the task is there for: they are answered in the end.

        In a peer's task that are agents of that peer, and those of others that ask something.
        """
        if envelope.sender["address_type"] in ("user", "admin"):
            return True
        if self.guest and envelope.sender["address"] == self.guest:
            return envelope.sender["address_type"] == "agent"
        peer = swarm_of(envelope.sender) if self.host else ""
        return bool(peer) and (peer == self.host or envelope.kind == "request")


@dataclass(slots=True, eq=False, kw_only=True)
class ActiveTask(TaskMemory):
    """A task that something is happening to, and what has become of it in memory.

    What it has of a `TaskMemory` is what the store has, but for ``row.usage``, which runs ahead: it
    is changed by who holds the ``order`` alone, when a change has been stored.
    ``people`` holds the ids of users' messages that no committed turn has consumed yet.
    ``arriving`` counts mail that is on its way into the mailbox, ``pins`` work that needs the
    task in memory. ``loaded`` tells that the task's waiting mail is in the mailbox.
    ``out`` holds the numbers of deliveries that somebody has taken out of the mailbox and has not
    consumed or put back yet; ``away`` names the agents whose mail was put off and comes back by
    itself (it counts as arriving).
    ``steps_due`` maps the ids of manual steps to where their callers wait for the agent's words.
    ``request_id`` is that of the newest request, for the log.
    ``trace`` is the root of its trace, where that is known, and ``span`` that of a run that a
    caller has begun here.
    ``void`` tells that it was deleted, or taken up by another process: its turns commit nothing.
    ``claim`` is what the next commit is to prove; it was looked at after so many ``lapses``.
    ``taken_up`` tells that this process had claimed and loaded the task before.
    ``bytes`` is about what its records take, as the newest commit said.
    ``run`` has the figures of the run.
    """

    fresh: bool
    stored: bool = False
    turns: dict[str, Turn] = field(default_factory=dict)
    people: set[str] = field(default_factory=set)
    out: set[int] = field(default_factory=set)
    waiters: list[Waiter] = field(default_factory=list)
    order: ChangeOrder = field(default_factory=ChangeOrder)
    arriving: int = 0
    pins: int = 0
    loaded: bool = True
    void: bool = False
    claim: TaskClaim = NO_CLAIM
    lapses: int = 0
    taken_up: bool = False
    away: list[str] = field(default_factory=list)
    request_id: str = ""
    trace: "SpanContext | None" = None
    span: "Span | None" = None
    steps_due: dict[str, "asyncio.Future[MAILMessage]"] = field(default_factory=dict)
    bytes: int = 0
    run: RunFigures = field(default_factory=RunFigures)
    _spending: tuple[str, Spending] = ("", Spending({}, {}))

    def adopt(self, memory: TaskMemory, *, stored: bool) -> None:
        """Take over what a change has made of the task, and has stored if there was anything."""
        usage = self.row.usage  # calls may have been reported meanwhile
        self.row = memory.row if memory.row.usage is usage else memory.row.changed(usage=usage)
        self.calls = memory.calls
        self.asks.adopt(memory.asks, stored=stored)
        if memory.waits is not self.waits:
            for key in self.waits.keys() - memory.waits.keys():
                self.waits[key].stop()
            self.waits = memory.waits
        self.replies, self.pausing, self.finish = memory.replies, memory.pausing, memory.finish
        self.exhausted, self.offer = memory.exhausted, memory.offer
        if memory.peering is not None:
            self.peering = self.peering or memory.peering
            self.peering.adopt(memory.peering)

    def end_span(self, failure: str = "") -> None:
        """End the span of its run, if it has one; ``failure`` is how the run has failed."""
        span, self.span = self.span, None
        if span is not None:
            if failure:
                failed(span, failure)
            span.end()

    @property
    def is_owed(self) -> bool:
        """Tell whether somebody waits for an answer of this run: a caller, host or guest."""
        return self.owes_others or bool(self.waiters) or bool(self.people)

    @property
    def steps(self) -> int:
        """Messages processed in this run, with those that are being processed.

        The row has only what is committed, so a turn that is run again after a crash is one step.
        """
        return self.row.steps + sum(turn.counted for turn in self.turns.values())

    @property
    def spending(self) -> Spending:
        """The use of the task's model calls, as the row says."""
        if self._spending[0] is not self.row.usage:
            self._spending = self.row.usage, Spending.from_json(self.row.usage)
        return self._spending[1]

    def spend(self, agent: str, usage: Usage) -> Usage:
        """Add an agent's model call to the row; return what the task has used by now."""
        spending = self.spending.plus(agent, usage)
        self._spending = spending.to_json(), spending
        self.row = self.row.changed(usage=self._spending[0])
        return spending.total

    def wait_path(self, waiter: str, teammate: str) -> list[str]:
        """Return the names on the cycle that a new wait would close; none if it closes none.

        Waits that running turns are about to begin count, too: of two that would wait for each
        other, the second is told.
        """
        edges: dict[str, set[str]] = {}
        for wait in self.waits.values():
            edges.setdefault(wait.row.agent, set()).add(wait.teammate)
        for turn in self.turns.values():
            edges.setdefault(turn.agent, set()).update(turn.awaits)
        return wait_cycle(edges, waiter, teammate)


class ActiveTasks:
    """The live tasks of one owner, and the newest finished ones for synchronous accessors.

    ``claims`` are those of tasks that run, and that nothing is happening to at the moment. A task
    that was claimed and not taken up, because what was asked of it was refused, is not among them:
    the search for tasks that nobody works on finds it.
    """

    def __init__(self, recent: int) -> None:
        self._live: dict[str, ActiveTask] = {}
        self.claims: dict[str, TaskClaim] = {}
        self._recent: OrderedDict[str, TaskRow] = OrderedDict()
        self._limit = recent

    def __iter__(self) -> Iterator[ActiveTask]:
        return iter(list(self._live.values()))

    def __len__(self) -> int:
        return len(self._live)

    @property
    def ids(self) -> Set[str]:
        """The live tasks' ids; a live view."""
        return self._live.keys()

    def get(self, task_id: str) -> ActiveTask | None:
        """Return a live task, or None."""
        return self._live.get(task_id)

    def add(self, task: ActiveTask) -> ActiveTask:
        """Put a task under this ledger's eyes."""
        self._live[task.task_id] = task
        self._recent.pop(task.task_id, None)
        return task

    def remove(self, task: ActiveTask) -> list[str]:
        """Let go of a task; return the ids of recent tasks that fell out to make room."""
        if self._live.get(task.task_id) is task:
            del self._live[task.task_id]
        if not task.stored:
            return [task.task_id]
        if task.claim.held and (task.taken_up or task.loaded):
            self.claims[task.task_id] = task.claim
        self._recent[task.task_id] = task.row
        dropped = []
        while len(self._recent) > self._limit:
            dropped.append(self._recent.popitem(last=False)[0])
        return dropped

    def forget(self, task_id: str) -> None:
        """Let go of a finished task that is deleted."""
        self._recent.pop(task_id, None)

    def row(self, task_id: str) -> TaskRow | None:
        """Return the row of a live or recent task."""
        live = self._live.get(task_id)
        return live.row if live else self._recent.get(task_id)

    def rows(self) -> list[TaskRow]:
        """Return the rows of all recent and live tasks."""
        return [*self._recent.values(), *(task.row for task in self._live.values())]
