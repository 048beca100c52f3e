"""The interface of a store: its records, and a protocol for each subject.

A task changes in one of two verbs, and each call is one transaction, all or nothing:

- `Store.post` accepts something from outside a turn: a user's message, a resume, a cancellation.
- `Store.commit_turn` records a step of a turn. With ``done`` false it is a *journal* commit (the
  model replied, an action started or ended). With ``done`` true it ends the turn: the delivery is
  consumed, its journal is removed, and history, outgoing mail, events and the task's state appear.

What else belongs in the transaction (events, histories, memories, an idempotency key) is a field of
`Post` or `TurnCommit`. Both verbs return a `Receipt` with the sequence numbers that the store gave
out; the caller finds out from it that a task has ready mail. Transactions are committed in the
order of the calls. Records are tuples that hold JSON as text, so a store that keeps them keeps
copies.

To add a subject, add a protocol here and list it among the bases of `Store`. `mail.db.statements`
has a class for each of them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.approvals import ApprovalRecords, ApprovalRow
from mail.db.desk import DeskPost, DeskRecords, ShownRow
from mail.db.files import FileRecords
from mail.db.preferences import FeedbackRow, PreferenceRecords
from mail.db.webhooks import WebhookRecords, WebhookRow

NEWEST_EVENTS: Final = 64
"""How many events `EventRecords.latest_time` reads: concurrent turns store theirs as they end."""


class Owner(NamedTuple):
    """Whose data it is. Every query carries it, so one caller's rows never meet another's."""

    swarm: str
    role: str
    id: str

    def __str__(self) -> str:
        return f"{self.role}:{self.id}@{self.swarm}"

    @classmethod
    def of_deleted(cls, swarm: str) -> "Owner":
        """Return whom the outbox names as the owner of a swarm's deleted tasks."""
        return cls("", "deleted", swarm)


class TaskRow(NamedTuple):
    """A task's current state; written whole with every commit of the task.

    ``awaited`` tells that a caller waits for an answer of the current run. ``finish_asked`` tells
    that the finisher was asked to end the task, which happens once in a run (MAIL-TASK-14 and
    MAIL-TASK-15 in ``spec/SPEC.md``), in a task that has ended that its limit of messages ended the
    run. ``steps`` counts the messages processed in this run, ``max_steps`` limits them (None: no
    limit). ``usage`` is what the task's model calls have used, per agent and over all runs, as JSON
    (see `mail.core.usage.Spending`). ``handled`` is what the agents did with the mail of this run
    (see `mail.core.runtime.active_tasks.ActiveTask.handled`).
    """

    task_id: str
    task_owner: str
    task_contributors: tuple[str, ...]
    start_time: str
    entrypoint: str
    state: TaskState = TaskState.RUNNING
    remote_swarms: tuple[str, ...] = ()
    steps: int = 0
    max_steps: int | None = None
    awaited: bool = False
    finish_asked: bool = False
    title: str | None = None
    usage: str = "{}"
    handled: str = ""

    def changed(self, **fields: Any) -> "TaskRow":
        """Return the row with other values of some fields; `_replace` does twice the work."""
        values: list[Any] = list(self)
        for name, value in fields.items():
            values[_TASK_PLACES[name]] = value
        return TaskRow._make(values)


_TASK_PLACES: Final = {name: place for place, name in enumerate(TaskRow._fields)}


class TaskCounts(NamedTuple):
    """How much there is of a task: the events in its log, and the deliveries that wait."""

    events: int = 0
    waiting: int = 0


class QueueLength(NamedTuple):
    """How much mail of a tier waits for an agent, in all tasks that were asked about."""

    agent: str
    tier: int
    waiting: int


class Delivery(NamedTuple):
    """One message for one local agent.

    ``payload`` is the wire message as JSON. ``control`` is the system's own instruction to the
    turn as JSON (see `mail.core.runtime.turn.Control`), never readable or writable by an agent.
    ``seq`` is given by the store; ``attempts`` counts the claims that ended in a process death.
    """

    task_id: str
    recipient: str
    tier: int
    interrupt: bool
    payload: str
    control: str | None = None
    seq: int = 0
    attempts: int = 0


class AsideRow(NamedTuple):
    """A delivery that was set aside, and why."""

    delivery: Delivery
    reason: str


class EventRow(NamedTuple):
    """An event about to be logged; ``extra`` is JSON. The store gives it its number."""

    kind: str
    timestamp: str
    description: str = ""
    extra: str = "{}"


class HistoryRow(NamedTuple):
    """What one commit adds to an agent's history: ``entries`` is a JSON list."""

    agent: str
    entries: str


class JournalRow(NamedTuple):
    """One fact about a turn under way, kept until the turn is done.

    ``key`` is ``"reply"`` for the model's reply, else the tool call's id; ``state`` is ``"done"``
    or ``"started"``; ``payload`` is JSON. A later row with the same key replaces the earlier one.
    """

    key: str
    state: str
    payload: str


class CallRow(NamedTuple):
    """A breakpoint tool call of a task and, once given, its result.

    ``call_id`` names the call within its task: the provider's id, or one made from it when another
    call of the task has that. ``call`` is the serialised tool call without its arguments, ``shown``
    the call as callers see it (both JSON). ``control`` is the instruction to the turn that goes on
    with the result (see `mail.core.runtime.turn.Control`); calls that were made before it was kept
    have none.

    A call that no caller answers has no text in ``shown``: its agent waits for a teammate.
    """

    agent: str
    call_id: str
    call: str
    shown: str
    answer: str | None = None
    control: str | None = None

    @property
    def is_wait(self) -> bool:
        """Tell whether it waits for a teammate (`mail.core.runtime.team_waits`), for no caller."""
        return not self.shown


class MemoryRow(NamedTuple):
    """One memory of an owner. ``value`` is JSON; times are RFC 3339 text."""

    namespace: tuple[str, ...]
    key: str
    value: str
    created_at: str
    updated_at: str


class TokenRow(NamedTuple):
    """An access token of the built-in authority: only its SHA-256 is kept."""

    token_hash: str
    role: str
    id: str
    created_at: str
    label: str = ""
    expires_at: str | None = None
    revoked_at: str | None = None


class IdempotencyRow(NamedTuple):
    """An idempotency key that an owner has used, and what its request led to.

    ``fingerprint`` is the SHA-256 of the request, ``created_at`` RFC 3339 text in UTC. Of a request
    that began a run, ``task_id``, ``first_event`` (given by the store) and ``message_id`` (empty
    for the results of breakpoint calls) name it. ``answer`` is what else a repeat needs, as JSON.
    """

    key: str
    fingerprint: str
    created_at: str
    task_id: str = ""
    first_event: int = 0
    message_id: str = ""
    answer: str | None = None


class OutboxRow(NamedTuple):
    """Mail for another swarm, kept until nothing more is expected of it.

    It is ``waiting`` until the peer has taken it. A request is then ``delivered`` until its answer
    arrives; everything else is removed. What cannot be delivered is ``dead`` and stays for
    ``mail outbox``. Rows of one (task, peer) are delivered in the order of their numbers.

    Attributes:
        task_id: The local id of the task.
        peer: The swarm that it is for.
        message_id: Under which the peer knows a repeated delivery.
        sender: The local agent that wrote it, or no text when the runtime itself did.
        kind: The kind of message.
        ref: The request's id, or the payload's own id of another kind.
        wrapper: The `mail.core.wire.MAILInterswarmMessage` as JSON, without a token.
        created_at: When it was written, or let go again by `retry_outbox`; RFC 3339 text in UTC.
        state: See above.
        attempts: How often it was tried.
        next_at: Not to be tried before; RFC 3339 text in UTC, or no text.
        last_error: Why the last attempt failed.
        told: Whether the sending agent has been told of a failure.
        id: Given by the store.
    """

    task_id: str
    peer: str
    message_id: str
    sender: str
    kind: str
    ref: str
    wrapper: str
    created_at: str
    state: Literal["waiting", "delivered", "dead"] = "waiting"
    attempts: int = 0
    next_at: str = ""
    last_error: str = ""
    told: bool = False
    id: int = 0


class OutboxChange(NamedTuple):
    """The new state of mail for a peer; ``done`` removes it. Unknown numbers are passed over."""

    id: int
    state: Literal["waiting", "delivered", "dead", "done"]
    attempts: int = 0
    next_at: str = ""
    last_error: str = ""
    told: bool = False


class InboxRow(NamedTuple):
    """Mail from another swarm that has been taken; a repeated delivery gets ``receipt`` again."""

    peer: str
    message_id: str
    receipt: str
    created_at: str


class RegistryRow(NamedTuple):
    """A swarm's registry of other swarms: how often it was changed, and its JSON."""

    version: int
    content: str


@dataclass(slots=True)  # not kw_only: each such field that is left out is looked up by its name
class Post:
    """One commit outside a turn. Every field but the owner and the task may be empty.

    ``new`` demands that the task does not exist yet. ``calls`` are breakpoint calls, inserted or
    replaced by (agent, call_id); ``approvals`` are what people are asked about them, inserted or
    replaced by their ids. ``response`` is the run's final message as JSON (upserted).
    ``settled`` are waiting deliveries of the task that are consumed with the commit (those that do
    not wait any more are passed over); ``cancel_mail`` drops all of its waiting mail. ``snapshot``
    asks the store to bring the documented ``agent_histories`` rows of the task up to date (at a
    pause or an end). ``once`` is a key of the owner's that must be new; it is stored with the
    number of the commit's first event. ``texts`` are large texts that the records may repeat, such
    as the body of the message that a turn has read: stores write them once.

    ``unset`` are deliveries of the task that were set aside and are so no more: they are tried
    again, as new ones among ``deliveries``, or discarded. All of them must still be there.

    ``inbox`` is mail of a peer that must be new. Of the task's mail for peers, ``outbox_changes``
    come first; ``answered`` removes requests to a peer, as (peer, ref); ``close_requests`` removes
    all requests but dead ones, because nobody waits for answers any more; ``outbox`` is added last.

    ``desk`` are letters that go with the commit. If they are refused, so is the commit, and the
    other way round.

    ``feedback`` is for memories of the owner's; what is known of the same approval stays as it is.
    ``webhooks`` are messages to the webhook that tell of the commit.
    """

    owner: Owner
    task: TaskRow
    new: bool = False
    deliveries: tuple[Delivery, ...] = ()
    events: tuple[EventRow, ...] = ()
    histories: tuple[HistoryRow, ...] = ()
    calls: tuple[CallRow, ...] = ()
    approvals: tuple[ApprovalRow, ...] = ()
    memories: tuple[MemoryRow, ...] = ()
    response: str | None = None
    settled: tuple[int, ...] = ()
    unset: tuple[int, ...] = ()
    cancel_mail: bool = False
    snapshot: bool = False
    once: IdempotencyRow | None = None
    texts: tuple[str, ...] = ()
    inbox: InboxRow | None = None
    outbox: tuple[OutboxRow, ...] = ()
    outbox_changes: tuple[OutboxChange, ...] = ()
    answered: tuple[tuple[str, str], ...] = ()
    close_requests: bool = False
    desk: DeskPost | None = None
    feedback: tuple[FeedbackRow, ...] = ()
    webhooks: tuple[WebhookRow, ...] = ()


@dataclass(slots=True)
class TurnCommit(Post):
    """One commit of a turn on the delivery ``seq``.

    With ``done`` the delivery is consumed and its journal removed; with ``dead`` (which goes with
    ``done``) it is put aside as undeliverable for that reason. ``shown`` are letters that stood in
    the turn's request to a model; what was shown before stays as it is noted.
    """

    seq: int = field(kw_only=True)
    done: bool = True
    dead: str | None = None
    journal: tuple[JournalRow, ...] = ()
    shown: tuple[ShownRow, ...] = ()


class Receipt(NamedTuple):
    """What a commit gave out: the number of its first event and the numbers of its deliveries.

    ``bytes`` is about what all records of the task take by now.
    """

    first_event: int
    seqs: tuple[int, ...]
    bytes: int = 0


class StoredUse(NamedTuple):
    """What an owner takes of a store.

    Attributes:
        bytes: About how much the tasks' records and the memories take.
        tasks: How many tasks there are.
        open_tasks: How many of them are running, queued or paused.
    """

    bytes: int
    tasks: int
    open_tasks: int


class SwarmClaim(NamedTuple):
    """What a server wants of a store that several processes can open.

    Attributes:
        swarm: The swarm that it serves. Another server that claims it in the same database is
            refused.
        lost: Called once, from any thread, when another server has the swarm after the database
            was away. From then on the store refuses to write.
    """

    swarm: str
    lost: Callable[[], None]


class TaskRecords(Protocol):
    """Tasks and the messages to their agents, and the two verbs that change them."""

    async def post(self, post: Post) -> Receipt:
        """Commit something from outside a turn.

        Raises:
            StoreConflict: ``post.new`` and the task exists, or a delivery in ``post.unset`` is not
                set aside.
            KeyTaken: the owner has used the key in ``post.once`` before.
            DeskConflict: what is in ``post.desk`` is refused; see `DeskRecords.post_letters`.
            MailTaken: the mail in ``post.inbox`` was taken before; this comes before the others.
        """

    async def commit_turn(self, turn: TurnCommit) -> Receipt:
        """Commit a step of a turn.

        Raises:
            StoreConflict: the delivery is not waiting any more (already consumed or dropped).
            DeskConflict: what is in ``turn.desk`` is refused; see `DeskRecords.post_letters`.
            MailTaken: the mail in ``turn.inbox`` was taken before; this comes before the others.
        """

    async def claim(self, owner: Owner, seq: int) -> int:
        """Count one more attempt on a recovered delivery and return the new count."""

    async def release(self, owner: Owner, seq: int) -> None:
        """Take a `claim` back: its turn was put off in good order."""

    async def load_task(self, owner: Owner, task_id: str) -> TaskRow | None:
        """Return a task, or None."""

    async def list_tasks(
        self,
        owner: Owner,
        *,
        states: Sequence[TaskState] = (),
        limit: int | None = None,
        before: str | None = None,
    ) -> list[TaskRow]:
        """Return the owner's tasks, newest first.

        Args:
            states: Only tasks in one of these states.
            limit: At most so many.
            before: A task id; only tasks that come after it in this order.
        """

    async def swarm_tasks(
        self, swarm: str, limit: int, before: tuple[Owner, str] | None = None
    ) -> list[tuple[Owner, TaskRow]]:
        """Return the tasks of all owners in a swarm, newest first, and whose they are.

        Args:
            swarm: The swarm.
            limit: At most so many.
            before: An owner in the swarm and the id of a task; only tasks that come after that one
                in this order.
        """

    async def queue_lengths(self, swarm: str, owner: Owner | None = None) -> list[QueueLength]:
        """Return how much mail waits in a swarm by agent and tier, in that order.

        Args:
            swarm: The swarm.
            owner: Only in tasks of this owner.
        """

    async def task_counts(self, owner: Owner, task_ids: Sequence[str]) -> dict[str, TaskCounts]:
        """Return how much there is of some of the owner's tasks, without those it does not have."""

    async def owners(self, swarm: str) -> list[Owner]:
        """Return the owners in a swarm that have tasks, in order."""

    async def swarms(self) -> list[str]:
        """Return the names of the swarms whose owners have tasks, in order."""

    async def open_owners(self, swarm: str) -> list[Owner]:
        """Return the owners in a swarm that have work left, in order.

        That is a running task, or a paused one that is still ``awaited``: its callers were not
        told of the pause.
        """

    async def running_owners(self, swarm: str) -> list[Owner]:
        """Return the owners in a swarm that have a running task, in order.

        What has ended or is paused takes no time here.
        """

    async def waiting_mail(
        self,
        owner: Owner,
        task_id: str,
        after: Delivery | None = None,
        limit: int | None = None,
    ) -> list[Delivery]:
        """Return a task's unconsumed deliveries by (tier, seq).

        Args:
            owner: Whose task it is.
            task_id: The task.
            after: Only those behind this one in that order.
            limit: At most so many.
        """

    async def all_mail(self, owner: Owner, task_id: str, *, whole: bool = True) -> list[Delivery]:
        """Return all of a task's deliveries by seq, consumed or not.

        Args:
            owner: Whose task it is.
            task_id: The task.
            whole: With their long texts; else there may be something short in place of a body, for
                whoever only asks who wrote to whom.
        """

    async def mail_aside(
        self, owner: Owner, task_id: str, after: int = 0, limit: int | None = None
    ) -> list[AsideRow]:
        """Return a task's deliveries that were set aside, by seq.

        Args:
            owner: Whose task it is.
            task_id: The task.
            after: Only those with a greater number.
            limit: At most so many.
        """

    async def journal(self, owner: Owner, seq: int) -> list[JournalRow]:
        """Return the journal of a delivery's turn in order."""

    async def begun(self, owner: Owner, task_id: str) -> list[int]:
        """Return the numbers of a task's waiting deliveries that have a journal, in order."""

    async def calls(self, owner: Owner, task_id: str) -> list[CallRow]:
        """Return a task's breakpoint calls in the order in which they were made."""

    async def open_calls(self, owner: Owner, task_id: str) -> list[CallRow]:
        """Return the calls of a task that callers can answer, in the same order.

        Those without an answer that callers see, but for those whose approval was given.
        """

    async def short_calls(
        self, owner: Owner, task_ids: Sequence[str], max_shown: int
    ) -> dict[str, list[CallRow]]:
        """Return the `open_calls` of some tasks, without tasks that have none.

        Args:
            owner: Whose tasks they are.
            task_ids: The tasks, at most a hundred.
            max_shown: A longer ``shown``, in characters, is not read: the row has ``{}`` there.
        """

    async def paused_on(self, owner: Owner, call_ids: Sequence[str], among: int) -> str | None:
        """Return the id of the newest paused task that waits for one of some calls, or None.

        Args:
            owner: Whose task it is.
            call_ids: The calls' ids.
            among: How many of the owner's newest tasks are looked at, whatever their state.
        """

    async def response(self, owner: Owner, task_id: str) -> str | None:
        """Return the final message of a task's last finished run as JSON, or None."""


AgedKind = Literal["files", "inbox", "keys", "letters", "tasks"]
"""What goes by age: ``keys`` are idempotency keys and pages of letters, ``tasks`` ended ones."""


class SweepRecords(Protocol):
    """What the owners' records take, and how records go.

    Deleting a task hides it at once, in one commit; `purge` removes its records bit by bit, so that
    nobody's commits wait for long, and goes on after a crash.
    """

    async def stored_use(self, owner: Owner) -> StoredUse:
        """Return what an owner's tasks, memories and idempotency keys take of the store.

        Memories count with their versions and the feedback on them.
        """

    async def delete_task(self, owner: Owner, task_id: str, *, ended: bool = False) -> None:
        """Make a task unknown, with all of its records. Its idempotency keys name no task then.

        Mail for peers that waits and that the runtime itself wrote, such as the end of the task,
        is still to be sent: the outbox has it under `Owner.of_deleted` until it is ``done``.

        Args:
            ended: Only one that has ended, not a paused one.

        Raises:
            StoreConflict: there is no such task, or it is running.
        """

    async def purge(self) -> bool:
        """Remove some records of a deleted task; tell whether there may be more."""

    async def ended_tasks(self, swarm: str, before: str, limit: int) -> list[tuple[Owner, str]]:
        """Return tasks of a swarm that ended before a time, and whose they are.

        Args:
            before: RFC 3339 text in UTC.
            limit: At most so many, the oldest first.
        """

    async def aged_between(
        self, kind: AgedKind, swarm: str, since: str, until: str
    ) -> tuple[str, str] | None:
        """Return the earliest and the latest time of some records that go by age, or None.

        Args:
            kind: Which records. Their time is when they were made, of tasks the last change.
            swarm: Whose they are; keys and the inbox are those of all swarms.
            since: Only those of this time or later, RFC 3339 text in UTC; files that expire then.
            until: Only those of this time or earlier.
        """

    async def sweep_moment(self, name: str) -> str | None:
        """Return how far a kind of deletion by age has come in time, or None at first."""

    async def put_sweep_moment(self, name: str, moment: str) -> None:
        """Store how far it has come."""


class HistoryRecords(Protocol):
    """What the agents of a task remember of it; commits append to it."""

    async def history(self, owner: Owner, task_id: str, agent: str) -> list[str]:
        """Return the ``entries`` texts of an agent's history in order of their commits."""


class EventRecords(Protocol):
    """The event logs of tasks; commits append to them."""

    async def events(
        self,
        owner: Owner,
        task_id: str,
        after: int = 0,
        limit: int | None = None,
        max_bytes: int | None = None,
    ) -> list[TaskEvent]:
        """Return a task's events with a number above ``after``, in order.

        Args:
            owner: Whose task it is.
            task_id: The task.
            after: The number before the first.
            limit: At most so many.
            max_bytes: At most so many bytes of text, but at least one event: no more is read.
        """

    async def next_event_bytes(self, owner: Owner, task_id: str, after: int) -> int:
        """Return the bytes of a task's first event with a number above ``after``; 0 without one."""

    async def latest_time(self, owner: Owner, task_id: str) -> str:
        """Return the latest time among a task's newest events, or no text when it has none."""


class IdempotencyRecords(Protocol):
    """The idempotency keys that owners have used; a `Post` may bring one."""

    async def find_key(self, owner: Owner, key: str) -> IdempotencyRow | None:
        """Return what is known of an idempotency key, or None."""

    async def put_key(self, owner: Owner, row: IdempotencyRow) -> None:
        """Store a key without a commit of a task.

        Raises:
            KeyTaken: the owner has used it before.
        """

    async def drop_keys(self, before: str, limit: int) -> int:
        """Remove keys, of any owner, that were made before a time; return how many.

        Args:
            before: RFC 3339 text in UTC.
            limit: At most so many, the oldest first.
        """


class MemoryRecords(Protocol):
    """The memories of owners, in namespaces; commits may write some too."""

    async def put_memories(self, owner: Owner, rows: Sequence[MemoryRow]) -> None:
        """Insert or replace memories by (namespace, key)."""

    async def delete_memory(self, owner: Owner, namespace: tuple[str, ...], key: str) -> None:
        """Remove a memory if it is there."""

    async def get_memory(
        self, owner: Owner, namespace: tuple[str, ...], key: str
    ) -> MemoryRow | None:
        """Return a memory, or None."""

    async def search_memories(
        self,
        owner: Owner,
        prefix: tuple[str, ...],
        query: str = "",
        *,
        limit: int = 10,
        offset: int = 0,
    ) -> list[MemoryRow]:
        """Return memories whose namespace begins with ``prefix``.

        With a query, only those whose value contains one of its words (case ignored), ordered by
        how many different words they contain; otherwise, and among equals, newest first.
        """

    async def memory_namespaces(self, owner: Owner) -> list[tuple[str, ...]]:
        """Return the owner's namespaces in order."""


class TokenRecords(Protocol):
    """The access tokens of the built-in authority. They belong to no owner."""

    async def put_token(self, token: TokenRow) -> None:
        """Insert or replace a token by its hash."""

    async def find_token(self, token_hash: str) -> TokenRow | None:
        """Return a token by its hash, revoked or not, or None."""

    async def list_tokens(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""


class OutboxRecords(Protocol):
    """Mail for other swarms, and what has been taken of theirs; see `OutboxRow`."""

    async def due_outbox(
        self,
        swarm: str,
        now: str,
        limit: int,
        *,
        owner: Owner | None = None,
        without: Collection[str] = (),
        untold: Collection[str] = (),
    ) -> list[tuple[Owner, OutboxRow]]:
        """Return waiting mail that may be tried now: of each (task, peer) only the first.

        Args:
            swarm: The local swarm.
            now: RFC 3339 text in UTC; rows whose ``next_at`` is later are left out.
            limit: At most so many, the oldest first.
            owner: Only mail of this owner's tasks.
            without: No mail for these peers.
            untold: Mail for these peers only if its sender was told of no failure.
        """

    async def next_outbox(self, swarm: str, after: str | None = None) -> str | None:
        """Return the earliest ``next_at`` of what is first in a (task, peer), or None without any.

        No text means at once. With ``after``, only later times count.
        """

    async def unanswered_outbox(
        self,
        swarm: str,
        before: str,
        after: int,
        limit: int,
        *,
        owner: Owner | None = None,
    ) -> list[tuple[Owner, OutboxRow]]:
        """Return a page of the delivered requests that were written before a time, in order.

        Args:
            swarm: The local swarm.
            before: RFC 3339 text in UTC.
            after: Only requests with a greater number.
            limit: At most so many.
            owner: Only requests of this owner's tasks.
        """

    async def task_outbox(self, owner: Owner, task_id: str) -> list[OutboxRow]:
        """Return a task's mail for peers in order, whatever its state."""

    async def list_outbox(
        self, swarm: str, *, peer: str | None = None, after: int = 0, limit: int = 100
    ) -> list[tuple[Owner, OutboxRow]]:
        """Return a page of a swarm's mail for peers in order of the numbers, in any state."""

    async def change_outbox(self, changes: Sequence[OutboxChange]) -> None:
        """Commit what came of attempts that concern nobody but the outbox."""

    async def retry_outbox(self, swarm: str, number: int) -> bool:
        """Let waiting or dead mail be tried at once, as if it had just been written.

        Of its (task, peer) it keeps its place, before what was added after it.

        Returns:
            Whether there is such mail.
        """

    async def find_inbox(self, swarm: str, peer: str, message_id: str) -> str | None:
        """Return the receipt of mail that a swarm has taken from a peer, or None."""

    async def drop_inbox(self, before: str, limit: int) -> int:
        """Forget what was taken before a time, by any swarm; return how many.

        Args:
            before: RFC 3339 text in UTC.
            limit: At most so many, the oldest first.
        """


@runtime_checkable
class RegistryRecords(Protocol):
    """The registries of other swarms, in a store that several servers may share.

    It is no part of `Store`: elsewhere a registry is a file (see `mail.net.registry_file`).
    """

    async def load_registry(self, swarm: str, known: int = 0) -> RegistryRow | None:
        """Return a swarm's registry; None without one, or when its version is still ``known``."""

    async def save_registry(self, swarm: str, content: str, version: int) -> int:
        """Replace a swarm's registry, and return its new version.

        Args:
            swarm: The local swarm.
            content: Its JSON.
            version: That of the registry that is replaced, 0 if there is none.

        Raises:
            StoreConflict: it has another version by now.
        """


class Store(
    TaskRecords,
    SweepRecords,
    HistoryRecords,
    EventRecords,
    IdempotencyRecords,
    MemoryRecords,
    TokenRecords,
    OutboxRecords,
    DeskRecords,
    FileRecords,
    PreferenceRecords,
    ApprovalRecords,
    WebhookRecords,
    Protocol,
):
    """Durable state of any number of owners. Methods raise `mail.errors.StoreError`."""

    @property
    def durable(self) -> bool:
        """Tell whether committed state survives the process."""

    async def open(self) -> None:
        """Connect and migrate. May be called again; the first call does the work."""

    async def close(self) -> None:
        """Finish what is queued and disconnect."""

    async def claim_swarm(self, swarm: str) -> None:
        """Keep other servers from one more swarm, as from the first one, until `close`.

        Raises:
            StoreLocked: another server has it.
        """
