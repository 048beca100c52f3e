"""The verb that changes a task, and what one such change holds: one transaction, all or nothing.

A `Commit` brings something from outside a turn: a message, an answer, a cancellation. A
`TurnCommit` records a step of a turn. With ``done`` false it is a *journal* commit (the model
replied, an action started or ended). With ``done`` true it ends the turn: the delivery is consumed,
its journal is removed, and history, outgoing mail, events and the task's state appear.

The verb returns a `Receipt` with the numbers that the store gave out; the caller finds out from it
that a task has ready mail. Transactions are committed in the order of the calls.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from mail.core.large import in_turn, turn_of
from mail.db.calls import CallRow, put_calls
from mail.db.desk import DeskPost, ShownRow, add_letters, note_shown
from mail.db.driver import Batch, Change, Insert, Query, RowChange, TaskPlace, Verb, Verbs, timed
from mail.db.keys import key_size, put_key
from mail.db.ledger import LedgerPart, write_ledger
from mail.db.outbox import change_outbox
from mail.db.preferences import FEEDBACK_TEXTS, FeedbackRow, add_feedback
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
    TaskClaim,
    TaskRow,
)
from mail.db.rows import columns, insert
from mail.db.texts import LARGE, Lifter, text_size
from mail.db.webhooks import WebhookRow, add_webhooks
from mail.errors import MailTaken, StoreConflict

_TAKE_MAIL: Final = f"{insert('inbox', 'swarm_name', columns(InboxRow))} ON CONFLICT DO NOTHING"

_IS_READY: Final = "SELECT 1 FROM messages WHERE seq = $1 AND task = $2 AND state = 'ready' {}"

_UNSET: Final = "UPDATE messages SET state = 'acked' WHERE task = $1 AND state = 'dead' AND seq {}"

_CANCEL_JOURNALS: Final = """
DELETE FROM journal WHERE message IN (SELECT seq FROM messages WHERE task = $1 AND state = 'ready')
"""

_CANCEL_MAIL: Final = "UPDATE messages SET state = 'cancelled' WHERE task = $1 AND state = 'ready'"

_ADD_MESSAGE: Final = """
INSERT INTO messages (task, recipient, tier, interrupt, payload, control, attempts, texts, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'ready')
"""

_PUT_JOURNAL: Final = f"""
{insert("journal", "message", columns(JournalRow))} ON CONFLICT ({{}})
DO UPDATE SET state = excluded.state, payload = excluded.payload, texts = excluded.texts
"""

_ADD_HISTORY: Final = insert("history_entries", "task", columns(HistoryRow))

_KNOWN_TEXTS: Final = "SELECT hash FROM task_texts WHERE task = $1 AND hash {}"

_ADD_TEXT: Final = insert("task_texts", "task", "hash", "text")

_ADD_BYTES: Final = "UPDATE tasks SET bytes = bytes + $1 WHERE key = $2"

_ADD_OUTBOX: Final = insert("outbox", "task", columns(OutboxRow, "task_id", "id"))

_ANSWERED: Final = (
    "DELETE FROM outbox WHERE task = $1 AND kind = 'request' AND peer = $2 AND ref = $3"
)

_CLOSE_REQUESTS: Final = (
    "DELETE FROM outbox WHERE task = $1 AND kind = 'request' AND state <> 'dead'"
)

_GROWN: Final = """
SELECT agent, entries, e.id FROM history_entries AS e
LEFT JOIN agent_histories AS h ON h.task = e.task AND h.agent_name = e.agent
WHERE e.task = $1 AND e.id > coalesce(h.through, 0) ORDER BY agent, e.id
"""


_ROW_BYTES: Final = 100


@dataclass(slots=True)  # not kw_only: each such field that is left out is looked up by its name
class Commit:
    """One commit of a task. Every field but the owner and the task may be empty.

    ``new`` begins the task; otherwise the task must exist. With ``queued`` it is nobody's, though
    it runs: the first process that has room takes it. ``claim`` is the claim under which the task
    is changed; without one no claim is looked at, nor taken. ``calls`` are inserted or
    replaced by (agent, call_id). ``response`` is the run's final message as JSON (upserted).
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
    queued: bool = False
    claim: TaskClaim | None = None
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
class TurnCommit(Commit):
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
    """The numbers that a commit gave out: of its first event, and of its deliveries.

    ``bytes`` is about what all records of the task take by now, ``added`` what the commit added.
    """

    first_event: int
    seqs: tuple[int, ...]
    bytes: int = 0
    added: int = 0


def size_beside_task(commit: Commit) -> int:
    """Return about how many bytes a commit adds to what its owner has beside its task.

    What is replaced by that counts, too: it is a little too much.
    """
    key = 0 if commit.once is None else key_size(commit.once)
    feedback = (getattr(row, name) for row in commit.feedback for name in FEEDBACK_TEXTS)
    memories = (row.value for row in commit.memories)
    return key + sum(map(text_size, (*feedback, *memories)))


class ShortCommit(NamedTuple):
    """A commit without its long texts.

    Attributes:
        commit: Its rows have ``texts`` where something was taken out; see `mail.db.texts.Lifter`.
        texts: The long texts by their hashes.
        response_texts: The ``texts`` of the response.
    """

    commit: Commit
    texts: Mapping[str, str]
    response_texts: str | None = None


class CommitVerbs(Verbs):
    """Commits of tasks."""

    async def commit(self, commit: Commit) -> Receipt:
        """Commit a change of a task.

        Raises:
            MailTaken: the mail in ``inbox`` was taken before; this comes before the others.
            ClaimLost: somebody else has taken the task.
            StoreConflict: with ``new`` the task exists, or it is gone without; a delivery in
                ``unset`` is not set aside; that of a turn is not waiting any more (already
                consumed or dropped).
            KeyTaken: the owner has used the key in ``once`` before.
            DeskConflict: what is in ``desk`` is refused; see `LetterVerbs.post_letters`.
        """
        short, records = ShortCommit(commit, {}), _records(commit)
        length = sum(map(len, records))
        async with turn_of(length):
            if length > LARGE and max(map(len, records)) > LARGE:
                short = await in_turn(length, partial(lifted, commit))
                records = _records(short.commit)
            size = text_size("".join(records)) + _ROW_BYTES * len(records)
            work = self.driver.transaction(partial(self._commit, commit, short, size))
            return await timed("commit", work)

    def _commit(self, commit: Commit, short: ShortCommit, size: int) -> Verb[Receipt]:
        mail, swarm = commit.inbox, commit.owner.swarm
        if mail is not None and not (yield Change(_TAKE_MAIL, (swarm, *mail))):
            raise MailTaken  # before anything else, so that a repeated one is told as such
        held = commit.task.is_unfinished and not commit.queued
        node = self.driver.node if held else ""
        change = RowChange(commit.new, len(commit.events), size, node, commit.claim)
        task = yield from self.sql.put_task(commit.owner, commit.task, change)
        if task is None:
            wrong = "exists already" if commit.new else "is not there any more"
            raise StoreConflict(f"task '{commit.task.task_id}' {wrong}")
        if isinstance(short.commit, TurnCommit):
            yield from self._write_turn(short.commit, task)
        if commit.once is not None:
            yield from put_key(commit.owner, commit.once._replace(first_event=task.first_event))
        return (yield from self._write(commit, short, task, size))

    def _write_turn(self, turn: TurnCommit, task: TaskPlace) -> Verb[None]:
        """Write what only a step of a turn has."""
        if turn.done:
            state = "acked" if turn.dead is None else "dead"
            ready = yield from self.sql.consume(task.key, (turn.seq,), state, turn.dead)
        else:
            ready = yield Query(_IS_READY.format(self.sql.lock), (turn.seq, task.key))
        if not ready:
            raise StoreConflict(f"delivery {turn.seq} is not waiting")
        if turn.journal and not turn.done:
            key = f"message, {self.sql.hashed.format('key')}"
            text = _PUT_JOURNAL.format(key)
            yield Batch(text, [(turn.seq, *fact) for fact in turn.journal])
        if turn.shown:
            yield from note_shown(turn.owner.swarm, turn.shown)

    def _write(
        self, whole: Commit, short: ShortCommit, task: TaskPlace, size: int
    ) -> Verb[Receipt]:
        """Write what all commits have in common."""
        commit, key = short.commit, task.key
        texts = (yield from self._add_texts(short.texts, key)) if short.texts else 0
        if commit.settled or commit.unset or commit.cancel_mail:
            yield from self._settle(commit, key)
        if commit.histories:
            yield Batch(_ADD_HISTORY, [(key, *row) for row in commit.histories])
        seqs: Sequence[int] = ()
        if commit.deliveries:
            mails = [(key, *mail[1:6], mail.attempts, mail.texts) for mail in commit.deliveries]
            seqs = yield Insert(_ADD_MESSAGE, "seq", mails)
        if commit.events:
            yield self._events(whole, commit, task)
        if commit.ledger is not None:
            yield from write_ledger(commit.ledger, key)
        if commit.calls:
            sizes = [call.size for call in whole.calls]
            yield from put_calls(self.sql, key, commit.calls, sizes)
        if commit.memories:
            values = [self.sql.memory_values(commit.owner, row) for row in commit.memories]
            yield Batch(self.sql.put_memory, values)
        if commit.response is not None:
            texts_of, response = short.response_texts, commit.response
            who = commit.task.task_id, *commit.owner
            response_json = self.sql.json(response)
            yield Change(self.sql.put_response, (*who, response_json, response, key, texts_of))
        if commit.snapshot and self.driver.durable:
            yield from self._update_snapshots(commit.owner, commit.task.task_id, key)
        yield from _write_mail(commit, key)
        return Receipt(task.first_event, tuple(seqs), task.bytes + texts, size + texts)

    def _settle(self, commit: Commit, task: int) -> Verb[None]:
        """Consume, take back or cancel mail of the task."""
        if commit.settled:
            yield from self.sql.consume(task, commit.settled, "acked", None)
        if commit.unset:
            text = _UNSET.format(self.sql.among("$2", "bigint"))
            if (yield Change(text, (task, self.sql.list(commit.unset)))) != len(commit.unset):
                raise StoreConflict(f"deliveries {commit.unset} are not all set aside")
        if commit.cancel_mail:
            yield Change(_CANCEL_JOURNALS, (task,))
            yield Change(_CANCEL_MAIL, (task,))

    def _add_texts(self, texts: Mapping[str, str], task: int) -> Verb[int]:
        """Add the texts that the task does not have; return their bytes."""
        known = _KNOWN_TEXTS.format(self.sql.among("$2"))
        rows = yield Query(known, (task, self.sql.list([*texts])))
        new = texts.keys() - {found for (found,) in rows}
        if not new:
            return 0
        added = sum(text_size(texts[found]) for found in new)
        yield Batch(_ADD_TEXT, [(task, found, texts[found]) for found in new])
        yield Change(_ADD_BYTES, (added, task))
        return added

    def _events(self, whole: Commit, short: Commit, task: TaskPlace) -> Batch:
        key = (whole.task.task_id, *whole.owner)
        values = []
        for seq, event in enumerate(whole.events, task.first_event):
            size = text_size(event.extra + event.description)
            kind, timestamp, description, extra, texts = short.events[seq - task.first_event]
            times = self.sql.times(timestamp)
            row = kind, extra, str(seq), *times, task.key, seq, description, size, texts
            values.append((*key, *row))
        return Batch(self.sql.add_event, values)

    def _update_snapshots(self, owner: Owner, task_id: str, task: int) -> Verb[None]:
        """Bring the documented rows of those agents up to date whose history has grown."""
        grown: dict[str, list[str]] = {}
        newest: dict[str, int] = {}
        for agent, entries, number in (yield Query(_GROWN, (task,))):
            grown.setdefault(agent, []).append(entries)
            newest[agent] = number
        values = []
        for agent, added in grown.items():
            insides = (text.strip()[1:-1].strip() for text in added)
            entries = self.sql.json(f"[{','.join(filter(None, insides))}]")
            shape = _tool_format(added)
            values.append((*owner, shape, task_id, agent, entries, task, newest[agent]))
        yield Batch(self.sql.put_snapshot, values)


def _records(commit: Commit) -> list[str]:
    """Return the texts that a commit stores with its task."""
    records = [mail.payload for mail in commit.deliveries]
    for event in commit.events:
        records += (event.extra, event.description)
    for history in commit.histories:
        records += (history.entries, history.entries)  # they are in the snapshot, too
    for call in commit.calls:
        records += (call.call, call.shown, call.answer or "")
        records += (call.description, call.decision or "")
    if commit.outbox:
        records += [mail.wrapper for mail in commit.outbox]
    if isinstance(commit, TurnCommit) and commit.journal:
        records += [fact.payload for fact in commit.journal]
    if commit.response is not None:
        records.append(commit.response)
    return records


def lifted(commit: Commit) -> ShortCommit:
    """Take the long texts out of a commit."""
    lifter, short = Lifter(), copy(commit)
    short.deliveries = lifter.rows(commit.deliveries, payload="payload")
    short.events = lifter.rows(commit.events, event_data="extra", description="description")
    short.histories = lifter.rows(commit.histories, entries="entries")
    short.calls = lifter.rows(commit.calls, call="call", shown="shown", answer="answer")
    short.outbox = lifter.rows(commit.outbox, wrapper="wrapper")
    if isinstance(short, TurnCommit):
        short.journal = lifter.rows(short.journal, payload="payload")
    (short.response,), texts = lifter.columns(response=commit.response)
    return ShortCommit(short, lifter.texts, texts)


def _write_mail(commit: Commit, task: int) -> Verb[None]:
    """Write what leaves the task: mail for peers, letters, what is learned and told."""
    if commit.outbox_changes:
        yield from change_outbox(commit.outbox_changes, task)
    if commit.answered:
        yield Batch(_ANSWERED, [(task, *request) for request in commit.answered])
    if commit.close_requests:
        yield Change(_CLOSE_REQUESTS, (task,))
    if commit.outbox:
        yield Batch(_ADD_OUTBOX, [(task, *mail[1:-2], mail.texts) for mail in commit.outbox])
    if commit.desk is not None:
        yield from add_letters(commit.desk)
    if commit.feedback:
        yield from add_feedback(commit.owner, commit.feedback)
    if commit.webhooks:
        yield from add_webhooks(commit.owner.swarm, commit.webhooks)


def _tool_format(lists: Iterable[str]) -> str | None:
    """Return the shape of histories by the first entry that an assistant or a tool wrote.

    That is ``"completions"`` or ``"responses"``; None when there is no such entry.
    """
    for entry in (entry for text in lists for entry in json.loads(text)):
        if not isinstance(entry, dict):
            continue
        if entry.get("type") is not None and entry.get("role") not in ("user", "system"):
            return "responses"
        if entry.get("role") in ("assistant", "tool"):
            return "completions"
    return None
