"""The records of a store: tuples that hold JSON as text, so a store that keeps them keeps copies.

Those of a subject with a module of its own (letters, files, calls, webhooks, preferences) are
there; what goes into one transaction of a task is in `mail.db.commit`.
"""

from typing import Any, Final, Literal, NamedTuple

from mail.core.tasks import TaskState


class Owner(NamedTuple):
    """The owner of data. Every query carries it, so one caller's rows never meet another's."""

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

    @property
    def is_unfinished(self) -> bool:
        """Tell whether there is work left: it runs, or its callers were not told of its pause."""
        return self.state is TaskState.RUNNING or (self.state is TaskState.PAUSED and self.awaited)

    def changed(self, **fields: Any) -> "TaskRow":
        """Return the row with other values of some fields; `_replace` does twice the work."""
        values: list[Any] = list(self)
        for name, value in fields.items():
            values[_TASK_PLACES[name]] = value
        return TaskRow._make(values)


_TASK_PLACES: Final = {name: place for place, name in enumerate(TaskRow._fields)}


class TaskClaim(NamedTuple):
    """The claim of a task as a process knows it.

    Attributes:
        epoch: The number of claims that the task has had.
        held: Whether the newest one is this process's. Nobody has the task otherwise, and the next
            commit takes it.
    """

    epoch: int = 0
    held: bool = False

    @property
    def next_epoch(self) -> int:
        """The epoch with the next commit."""
        return self.epoch + (not self.held)

    def after(self, *, held: bool) -> "TaskClaim":
        """Return the claim after a commit: a task that is not unfinished any more is nobody's."""
        return TaskClaim(self.next_epoch, held=held)


NO_CLAIM: Final = TaskClaim()
"""That of a task that is to be."""


class TaskCounts(NamedTuple):
    """The size of a task: the events in its log, and the deliveries that wait."""

    events: int = 0
    waiting: int = 0


class QueueLength(NamedTuple):
    """The amount of mail of a tier that waits for an agent, in all tasks that were asked about."""

    agent: str
    tier: int
    waiting: int


class Delivery(NamedTuple):
    """One message for one local agent.

    ``payload`` is the wire message as JSON. ``control`` is the system's own instruction to the
    turn as JSON (see `mail.core.runtime.turn.Control`), never readable or writable by an agent.
    ``seq`` is given by the store; ``attempts`` counts the claims that ended in a process death.
    ``texts`` is the store's own; see `mail.db.texts`.
    """

    task_id: str
    recipient: str
    tier: int
    interrupt: bool
    payload: str
    control: str | None = None
    seq: int = 0
    attempts: int = 0
    texts: str | None = None


class AsideRow(NamedTuple):
    """A delivery that was set aside, and why."""

    delivery: Delivery
    reason: str


class EventRow(NamedTuple):
    """An event about to be logged; ``extra`` is JSON. The store gives it its number.

    ``texts`` is the store's own; see `mail.db.texts`.
    """

    kind: str
    timestamp: str
    description: str = ""
    extra: str = "{}"
    texts: str | None = None


class HistoryRow(NamedTuple):
    """The addition of one commit to an agent's history: ``entries`` is a JSON list.

    ``texts`` is the store's own; see `mail.db.texts`.
    """

    agent: str
    entries: str
    texts: str | None = None


class JournalRow(NamedTuple):
    """One fact about a turn under way, kept until the turn is done.

    ``key`` is ``"reply"`` for the model's reply, else the tool call's id; ``state`` is ``"done"``
    or ``"started"``; ``payload`` is JSON. A later row with the same key replaces the earlier one.
    ``texts`` is the store's own; see `mail.db.texts`.
    """

    key: str
    state: str
    payload: str
    texts: str | None = None


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
        created_at: The time of writing, or of `retry_outbox`; RFC 3339 text in UTC.
        state: See above.
        attempts: The number of attempts.
        next_at: Not to be tried before; RFC 3339 text in UTC, or no text.
        last_error: Why the last attempt failed.
        told: Whether the sending agent has been told of a failure.
        id: Given by the store.
        texts: The store's own; see `mail.db.texts`.
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
    texts: str | None = None


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


class StoredUse(NamedTuple):
    """The use that an owner makes of a store.

    Attributes:
        bytes: About how much the tasks' records and the memories take.
        tasks: The number of tasks.
        open_tasks: The number of those that are running, queued or paused.
        elsewhere: The number of those that other processes work on, or may take up.
    """

    bytes: int
    tasks: int
    open_tasks: int
    elsewhere: int = 0
