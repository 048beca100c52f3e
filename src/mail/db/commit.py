"""The two verbs that change a task; each call is one transaction, all or nothing.

Both return a `Receipt` with the numbers that the store gave out; the caller finds out from it that
a task has ready mail. Transactions are committed in the order of the calls.
"""

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Final

from mail.db.calls import put_calls
from mail.db.driver import Batch, Change, Insert, Query, TaskPlace, Verb, Verbs
from mail.db.keys import put_key
from mail.db.ledger import write_ledger
from mail.db.letters import add_letters, note_shown
from mail.db.outbox import change_outbox
from mail.db.post import Post, Receipt, TurnCommit
from mail.db.preferences import add_feedback
from mail.db.records import InboxRow, Owner
from mail.db.rows import INBOX_COLUMNS, OUTBOX_COLUMNS, join_lists, tool_format
from mail.db.texts import Lifter, text_size
from mail.db.webhooks import add_webhooks
from mail.errors import MailTaken, StoreConflict

_TAKE_MAIL: Final = f"""
INSERT INTO inbox (swarm_name, {INBOX_COLUMNS}) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
"""

_IS_READY: Final = "SELECT 1 FROM messages WHERE seq = $1 AND task = $2 AND state = 'ready' {}"

_UNSET: Final = "UPDATE messages SET state = 'acked' WHERE task = $1 AND state = 'dead' AND seq {}"

_CANCEL_JOURNALS: Final = """
DELETE FROM journal WHERE message IN (SELECT seq FROM messages WHERE task = $1 AND state = 'ready')
"""

_CANCEL_MAIL: Final = "UPDATE messages SET state = 'cancelled' WHERE task = $1 AND state = 'ready'"

_ADD_MESSAGE: Final = """
INSERT INTO messages (task, recipient, tier, interrupt, state, attempts, control, payload, texts)
VALUES ($1, $2, $3, $4, 'ready', $5, $6, $7, $8)
"""

_ADD_HISTORY: Final = """
INSERT INTO history_entries (task, agent, entries, texts) VALUES ($1, $2, $3, $4)
"""

_KNOWN_TEXTS: Final = "SELECT hash FROM task_texts WHERE task = $1 AND hash {}"

_ADD_TEXT: Final = "INSERT INTO task_texts (task, hash, text) VALUES ($1, $2, $3)"

_ADD_BYTES: Final = "UPDATE tasks SET bytes = bytes + $1 WHERE key = $2"

_ADD_OUTBOX: Final = f"""
INSERT INTO outbox (task, {OUTBOX_COLUMNS}, texts)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
"""

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
_QUICK: Final = 64 * 1024
"""Characters of a commit whose long texts are found in about a millisecond."""


class Records:
    """The records of a commit without their long texts.

    Attributes:
        deliveries, events, histories, calls, outbox, journal, response: Of each row its columns
            with records, and its ``texts``; see `mail.db.texts.Lifter`.
        texts: The long texts by their hashes.
        bytes: About what the records take, without the long texts.
    """

    def __init__(self, post: Post) -> None:
        lifter = Lifter()
        row, self.texts = lifter.row, lifter.texts
        self.deliveries = [row(payload=mail.payload) for mail in post.deliveries]
        self.events = [row(event_data=e.extra, description=e.description) for e in post.events]
        self.histories = [row(entries=history.entries) for history in post.histories]
        self.calls = [row(call=c.call, shown=c.shown, answer=c.answer) for c in post.calls]
        self.outbox = [row(wrapper=mail.wrapper) for mail in post.outbox]
        journal = post.journal if isinstance(post, TurnCommit) else ()
        self.journal = [row(payload=fact.payload) for fact in journal]
        self.response = [] if post.response is None else [row(response=post.response)]
        self.bytes = self._size(post)

    def _size(self, post: Post) -> int:
        rows = [*self.deliveries, *self.events, *self.calls, *self.outbox, *self.journal]
        rows += self.histories + self.histories  # they are in the snapshot, too
        records = [record or "" for *columns, _ in rows + self.response for record in columns]
        for call in post.calls:
            records += (call.description, call.decision or "")
        # All at once, which takes less than a look at each.
        return text_size("".join(records)) + _ROW_BYTES * len(records)


class CommitVerbs(Verbs):
    """Commits of tasks."""

    async def post(self, post: Post) -> Receipt:
        """Commit something from outside a turn.

        Raises:
            StoreConflict: ``post.new`` and the task exists, or a delivery in ``post.unset`` is not
                set aside.
            KeyTaken: the owner has used the key in ``post.once`` before.
            DeskConflict: what is in ``post.desk`` is refused; see `LetterVerbs.post_letters`.
            MailTaken: the mail in ``post.inbox`` was taken before; this comes before the others.
        """
        records = await self._records(post)
        return await self.driver.transaction(partial(self._post, post, records))

    def _post(self, post: Post, records: Records) -> Verb[Receipt]:
        yield from _take_mail(post.owner.swarm, post.inbox)
        size = (post.owner, post.task, len(post.events), records.bytes)
        task = None if post.new else (yield from self.sql.change_task(*size))
        task = task or (yield from self.sql.add_task(*size))
        if task is None:
            raise StoreConflict(f"task '{post.task.task_id}' already exists")
        if post.once is not None:
            yield from put_key(post.owner, post.once._replace(first_event=task.first_event))
        return (yield from self._write(post, records, task))

    async def commit_turn(self, turn: TurnCommit) -> Receipt:
        """Commit a step of a turn.

        Raises:
            StoreConflict: the delivery is not waiting any more (already consumed or dropped).
            DeskConflict: what is in ``turn.desk`` is refused; see `LetterVerbs.post_letters`.
            MailTaken: the mail in ``turn.inbox`` was taken before; this comes before the others.
        """
        records = await self._records(turn)
        return await self.driver.transaction(partial(self._commit_turn, turn, records))

    async def _records(self, post: Post) -> Records:
        """Take the long texts out of the records; of a large commit while others go on."""
        if sum(map(len, _texts_of(post))) <= _QUICK:
            return Records(post)
        return await asyncio.get_running_loop().run_in_executor(self._lifter, Records, post)

    @cached_property
    def _lifter(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="mail-store-lifter")

    def _commit_turn(self, turn: TurnCommit, records: Records) -> Verb[Receipt]:
        yield from _take_mail(turn.owner.swarm, turn.inbox)
        size = (turn.owner, turn.task, len(turn.events), records.bytes)
        task = yield from self.sql.change_task(*size)
        if task is None:
            raise StoreConflict(f"delivery {turn.seq} is not waiting: its task is unknown")
        if turn.done:
            state = "acked" if turn.dead is None else "dead"
            ready = yield from self.sql.consume(task.key, (turn.seq,), state, turn.dead)
        else:
            ready = yield Query(_IS_READY.format(self.sql.lock), (turn.seq, task.key))
        if not ready:
            raise StoreConflict(f"delivery {turn.seq} is not waiting")
        if turn.journal and not turn.done:
            facts = zip(turn.journal, records.journal, strict=True)
            values = [(turn.seq, fact.key, fact.state, *record) for fact, record in facts]
            yield Batch(self._put_journal, values)
        if turn.shown:
            yield from note_shown(turn.owner.swarm, turn.shown)
        return (yield from self._write(turn, records, task))

    def _write(self, post: Post, records: Records, task: TaskPlace) -> Verb[Receipt]:
        """Write what posts and turns have in common."""
        key = task.key
        added = (yield from self._add_texts(records.texts, key)) if records.texts else 0
        if post.settled or post.unset or post.cancel_mail:
            yield from self._settle(post, key)
        if post.histories:
            histories = zip(post.histories, records.histories, strict=True)
            yield Batch(_ADD_HISTORY, [(key, row.agent, *record) for row, record in histories])
        seqs = (yield from _add_messages(post, records, key)) if post.deliveries else ()
        if post.events:
            yield from self._add_events(post, records, task)
        if post.ledger is not None:
            yield from write_ledger(post.ledger, key)
        if post.calls:
            yield from put_calls(self.sql, key, post.calls, records.calls)
        if post.memories:
            values = [self.sql.memory_values(post.owner, row) for row in post.memories]
            yield Batch(self.sql.put_memory, values)
        for response in records.response:
            yield from self.sql.put_response(post.owner, post.task.task_id, key, *response)
        if post.snapshot and self.driver.durable:
            yield from self._update_snapshots(post.owner, post.task.task_id, key)
        yield from _write_mail(post, records, key)
        return Receipt(task.first_event, seqs, task.bytes + added)

    def _settle(self, post: Post, task: int) -> Verb[None]:
        """Consume, take back or cancel mail of the task."""
        if post.settled:
            yield from self.sql.consume(task, post.settled, "acked", None)
        if post.unset:
            text = _UNSET.format(self.sql.among("$2", "bigint"))
            if (yield Change(text, (task, self.sql.list(post.unset)))) != len(post.unset):
                raise StoreConflict(f"deliveries {post.unset} are not all set aside")
        if post.cancel_mail:
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

    def _add_events(self, post: Post, records: Records, task: TaskPlace) -> Verb[None]:
        key = (post.task.task_id, *post.owner)
        values = []
        rows = zip(post.events, records.events, strict=True)
        for seq, (event, (extra, description, texts)) in enumerate(rows, task.first_event):
            size = text_size(event.extra + event.description)
            short = event if texts is None else event._replace(extra=extra, description=description)
            values.append(self.sql.event_values(key, seq, short, task.key, size, texts))
        yield Batch(self.sql.add_event, values)

    @cached_property
    def _put_journal(self) -> str:
        return f"""
            INSERT INTO journal (message, key, state, payload, texts) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (message, {self.sql.hashed("key")})
            DO UPDATE SET state = excluded.state, payload = excluded.payload,
                texts = excluded.texts"""

    def _update_snapshots(self, owner: Owner, task_id: str, task: int) -> Verb[None]:
        """Bring the documented rows of those agents up to date whose history has grown."""
        grown: dict[str, list[str]] = {}
        newest: dict[str, int] = {}
        for agent, entries, number in (yield Query(_GROWN, (task,))):
            grown.setdefault(agent, []).append(entries)
            newest[agent] = number
        values = []
        for agent, added in grown.items():
            entries = self.sql.json(join_lists(added))
            shape = tool_format(added)
            values.append((*owner, shape, task_id, agent, entries, task, newest[agent]))
        yield Batch(self.sql.put_snapshot, values)


def _texts_of(post: Post) -> Iterable[str]:
    """Return the records that may hold long texts."""
    for mail in post.deliveries:
        yield mail.payload
    for event in post.events:
        yield event.extra
        yield event.description
    for history in post.histories:
        yield history.entries
    for call in post.calls:
        yield call.call
        yield call.answer or ""
    for row in post.outbox:
        yield row.wrapper
    if isinstance(post, TurnCommit):
        for fact in post.journal:
            yield fact.payload


def _take_mail(swarm: str, row: InboxRow | None) -> Verb[None]:
    """Note the mail of a peer, if there is any; first, so that a repeated one is told as such."""
    if row is not None and not (yield Change(_TAKE_MAIL, (swarm, *row))):
        raise MailTaken


def _add_messages(post: Post, records: Records, task: int) -> Verb[tuple[int, ...]]:
    values = [
        (task, mail.recipient, mail.tier, mail.interrupt, mail.attempts, mail.control, *record)
        for mail, record in zip(post.deliveries, records.deliveries, strict=True)
    ]
    return tuple((yield Insert(_ADD_MESSAGE, "seq", values)))


def _write_mail(post: Post, records: Records, task: int) -> Verb[None]:
    """Write what leaves the task: mail for peers, letters, what is learned and told."""
    if post.outbox_changes:
        yield from change_outbox(post.outbox_changes, task)
    if post.answered:
        yield Batch(_ANSWERED, [(task, *request) for request in post.answered])
    if post.close_requests:
        yield Change(_CLOSE_REQUESTS, (task,))
    if post.outbox:
        rows = zip(post.outbox, records.outbox, strict=True)
        values = [
            (task, *row._replace(wrapper=wrapper)[1:-1], texts) for row, (wrapper, texts) in rows
        ]
        yield Batch(_ADD_OUTBOX, values)
    if post.desk is not None:
        yield from add_letters(post.desk)
    if post.feedback:
        yield from add_feedback(post.owner, post.feedback)
    if post.webhooks:
        yield from add_webhooks(post.owner.swarm, post.webhooks)
