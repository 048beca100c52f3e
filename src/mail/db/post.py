"""What one commit of a task holds; `mail.db.commit` stores it, all or nothing.

A task changes in one of two verbs:

- `Store.post` accepts something from outside a turn: a user's message, a resume, a cancellation.
- `Store.commit_turn` records a step of a turn. With ``done`` false it is a *journal* commit (the
  model replied, an action started or ended). With ``done`` true it ends the turn: the delivery is
  consumed, its journal is removed, and history, outgoing mail, events and the task's state appear.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from mail.db.calls import CallRow
from mail.db.desk import DeskPost, ShownRow
from mail.db.ledger import LedgerPart
from mail.db.preferences import FEEDBACK_TEXTS, FeedbackRow
from mail.db.records import (
    Delivery,
    EventRow,
    HistoryRow,
    IdempotencyRow,
    InboxRow,
    JournalRow,
    MemoryRow,
    OutboxChange,
    OutboxRow,
    Owner,
    TaskRow,
)
from mail.db.rows import key_size
from mail.db.texts import text_size
from mail.db.webhooks import WebhookRow


@dataclass(slots=True)  # not kw_only: each such field that is left out is looked up by its name
class Post:
    """One commit outside a turn. Every field but the owner and the task may be empty.

    ``new`` demands that the task does not exist yet. ``calls`` are inserted or replaced by
    (agent, call_id). ``response`` is the run's final message as JSON (upserted).
    ``settled`` are waiting deliveries of the task that are consumed with the commit (those that do
    not wait any more are passed over); ``cancel_mail`` drops all of its waiting mail. ``snapshot``
    asks the store to bring the documented ``agent_histories`` rows of the task up to date (at a
    pause or an end). ``once`` is a key of the owner's that must be new; it is stored with the
    number of the commit's first event.

    ``unset`` are deliveries of the task that were set aside and are so no more: they are tried
    again, as new ones among ``deliveries``, or discarded. All of them must still be there.

    ``inbox`` is mail of a peer that must be new. Of the task's mail for peers, ``outbox_changes``
    come first; ``answered`` removes requests to a peer, as (peer, ref); ``close_requests`` removes
    all requests but dead ones, because nobody waits for answers any more; ``outbox`` is added last.

    ``ledger`` is what changes in the task's open questions, and in what is known of other swarms.

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
    memories: tuple[MemoryRow, ...] = ()
    response: str | None = None
    settled: tuple[int, ...] = ()
    unset: tuple[int, ...] = ()
    cancel_mail: bool = False
    snapshot: bool = False
    once: IdempotencyRow | None = None
    inbox: InboxRow | None = None
    outbox: tuple[OutboxRow, ...] = ()
    outbox_changes: tuple[OutboxChange, ...] = ()
    answered: tuple[tuple[str, str], ...] = ()
    close_requests: bool = False
    ledger: LedgerPart | None = None
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


def size_beside_task(post: Post) -> int:
    """Return about how many bytes a commit adds to what its owner has beside its task.

    What is replaced by that counts, too: it is a little too much.
    """
    key = 0 if post.once is None else key_size(post.once)
    feedback = (getattr(row, name) for row in post.feedback for name in FEEDBACK_TEXTS)
    memories = (row.value for row in post.memories)
    return key + sum(map(text_size, (*feedback, *memories)))
