"""The open questions of tasks, and what tasks know of other swarms, as they are stored.

What they mean is told in `mail.core.runtime.ledger` and `mail.core.runtime.peering`.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from mail.db.driver import Batch, Change, Query, Verb, Verbs, read
from mail.db.records import Owner
from mail.db.rows import OWNED, insert

QuestionKind: TypeAlias = Literal["agent", "peer", "for_peer", "participant", "for_participant"]

_COLUMNS: Final = "asker, asked, ref, kind, record, number"

_OPEN: Final = f"""
{insert("questions", "task", _COLUMNS)}
ON CONFLICT (task, number) DO UPDATE SET kind = excluded.kind
"""

_CLOSE: Final = "DELETE FROM questions WHERE task = $1 AND number = $2"

_FIND: Final = f"SELECT key, ledger, peering FROM tasks WHERE {OWNED} AND task_id = $4"

_READ: Final = f"SELECT {_COLUMNS} FROM questions WHERE task = $1 ORDER BY number"

_PUT_PEERING: Final = "UPDATE tasks SET peering = $1 WHERE key = $2"

_PUT_LEDGER: Final = "UPDATE tasks SET ledger = 1 WHERE key = $1"


class Question(NamedTuple):
    """A request without an answer.

    Attributes:
        asker: The one who asked: an agent, of another swarm with its name, or a participant.
        asked: The one who was asked, likewise.
        ref: The reference of answers; unique among the questions of two names in a task.
        kind: The kind of wait: an agent for one of its swarm (``agent``), for another swarm
            (``peer``), for a participant; or the other way round (``for_…``).
        record: The id of the message or letter that asks.
        number: Its place among the questions of its task.
        created_at: The time of a letter that asks.
        thread_id: The thread of a letter that asks.
    """

    asker: str
    asked: str
    ref: str
    kind: QuestionKind = "agent"
    record: str = ""
    number: int = 0
    created_at: str = ""
    thread_id: str = ""

    @property
    def pair(self) -> tuple[str, str]:
        """The asker, and the asked."""
        return self.asker, self.asked

    @property
    def key(self) -> tuple[str, str, str]:
        """The key among the questions of its task."""
        return self.asker, self.asked, self.ref


class LedgerPart(NamedTuple):
    """The changes of a commit in a task's ledger.

    Attributes:
        opened: Questions that are new, or of another kind now.
        closed: The numbers of those that are open no more.
        peering: The new state of other swarms, as JSON; None: as before.
        first: Whether these are all questions of a task of an earlier version.
    """

    opened: tuple[Question, ...] = ()
    closed: tuple[int, ...] = ()
    peering: str | None = None
    first: bool = False


class StoredLedger(NamedTuple):
    """A task's ledger as it is stored; see `LedgerPart`."""

    questions: tuple[Question, ...]
    peering: str | None


def write_ledger(part: LedgerPart, task: int) -> Verb[None]:
    """Write what a commit changes in a ledger."""
    if part.closed:
        yield Batch(_CLOSE, [(task, number) for number in part.closed])
    if part.opened:
        yield Batch(_OPEN, [(task, *each[:6]) for each in part.opened])
    if part.peering is not None:
        yield Change(_PUT_PEERING, (part.peering, task))
    if part.first:
        yield Change(_PUT_LEDGER, (task,))


class LedgerVerbs(Verbs):
    """Ledgers of tasks."""

    @read
    def ledger(self, owner: Owner, task_id: str) -> Verb[StoredLedger | None]:
        """Return a task's ledger; None when an earlier version wrote the task, or nobody did."""
        rows = yield Query(_FIND, (*owner, task_id))
        if not rows or not rows[0][1]:
            return None
        found = yield Query(_READ, (rows[0][0],))
        return StoredLedger(tuple(Question(*row) for row in found), rows[0][2])
