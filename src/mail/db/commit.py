"""The two verbs that change a task; each call is one transaction, all or nothing.

Both return a `Receipt` with the numbers that the store gave out; the caller finds out from it that
a task has ready mail. Transactions are committed in the order of the calls.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Final

from mail.db.calls import put_calls
from mail.db.driver import Batch, Change, Insert, Query, TaskPlace, Verb, Verbs
from mail.db.keys import put_key
from mail.db.letters import add_letters, note_shown
from mail.db.outbox import change_outbox
from mail.db.packing import Parcel, packed
from mail.db.post import Post, Receipt, TurnCommit
from mail.db.preferences import add_feedback
from mail.db.records import InboxRow, Owner
from mail.db.rows import INBOX_COLUMNS, OUTBOX_COLUMNS, join_lists, tool_format
from mail.db.texts import text_size
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
INSERT INTO messages (task, recipient, tier, interrupt, state, attempts, control, payload)
VALUES ($1, $2, $3, $4, 'ready', $5, $6, $7)
"""

_ADD_HISTORY: Final = "INSERT INTO history_entries (task, agent, entries) VALUES ($1, $2, $3)"

_ADD_TEXT: Final = """
INSERT INTO task_texts (task, hash, text) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
"""

_ADD_BYTES: Final = "UPDATE tasks SET bytes = bytes + $1 WHERE key = $2"

_ADD_OUTBOX: Final = f"""
INSERT INTO outbox (task, {OUTBOX_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
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
        parcel = await packed(post, self._packer)
        return await self.driver.transaction(partial(self._post, parcel))

    async def commit_turn(self, turn: TurnCommit) -> Receipt:
        """Commit a step of a turn.

        Raises:
            StoreConflict: the delivery is not waiting any more (already consumed or dropped).
            DeskConflict: what is in ``turn.desk`` is refused; see `LetterVerbs.post_letters`.
            MailTaken: the mail in ``turn.inbox`` was taken before; this comes before the others.
        """
        parcel = await packed(turn, self._packer)
        return await self.driver.transaction(partial(self._commit_turn, turn, parcel))

    @cached_property
    def _packer(self) -> ThreadPoolExecutor:
        """The thread that makes large commits ready."""
        return ThreadPoolExecutor(1, thread_name_prefix="mail-store-packer")

    def _post(self, parcel: Parcel) -> Verb[Receipt]:
        post = parcel.opened().post
        yield from _take_mail(post.owner.swarm, post.inbox)
        size = (post.owner, post.task, len(post.events), parcel.bytes)
        task = None if post.new else (yield from self.sql.change_task(*size))
        task = task or (yield from self.sql.add_task(*size))
        if task is None:
            raise StoreConflict(f"task '{post.task.task_id}' already exists")
        if post.once is not None:
            yield from put_key(post.owner, post.once._replace(first_event=task.first_event))
        return (yield from self._write(parcel, task))

    def _commit_turn(self, turn: TurnCommit, parcel: Parcel) -> Verb[Receipt]:
        post = parcel.opened().post
        yield from _take_mail(post.owner.swarm, post.inbox)
        size = (post.owner, post.task, len(post.events), parcel.bytes)
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
        if isinstance(post, TurnCommit) and post.journal and not turn.done:
            yield Batch(self._put_journal, [(turn.seq, *row) for row in post.journal])
        if turn.shown:
            yield from note_shown(turn.owner.swarm, turn.shown)
        return (yield from self._write(parcel, task))

    def _write(self, parcel: Parcel, task: TaskPlace) -> Verb[Receipt]:
        """Write what posts and turns have in common."""
        post, key = parcel.post, task.key
        added = (yield from self._add_texts(parcel, key)) if parcel.texts else 0
        if post.settled or post.unset or post.cancel_mail:
            yield from self._settle(post, key)
        if post.histories:
            yield Batch(_ADD_HISTORY, [(key, *row) for row in post.histories])
        seqs = (yield from _add_messages(post, key)) if post.deliveries else ()
        if post.events:
            yield from self._add_events(parcel, task)
        if post.calls:
            yield from put_calls(self.sql, key, post.calls, parcel.call_sizes)
        if post.memories:
            values = [self.sql.memory_values(post.owner, row) for row in post.memories]
            yield Batch(self.sql.put_memory, values)
        if post.response is not None:
            yield from self.sql.put_response(post.owner, post.task.task_id, key, post.response)
        if post.snapshot and self.driver.durable:
            yield from self._update_snapshots(post.owner, post.task.task_id, key)
        yield from _write_mail(post, key)
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

    def _add_texts(self, parcel: Parcel, task: int) -> Verb[int]:
        """Add the texts that the task does not have; return their bytes."""
        added = 0
        for key, text in parcel.texts.items():
            if (yield Change(_ADD_TEXT, (task, key, text))):
                added += text_size(text)
        yield Change(_ADD_BYTES, (added, task))
        return added

    def _add_events(self, parcel: Parcel, task: TaskPlace) -> Verb[None]:
        post = parcel.post
        key = (post.task.task_id, *post.owner)
        numbered = enumerate(post.events, task.first_event)
        values = [
            self.sql.event_values(key, seq, event, task.key, size)
            for (seq, event), size in zip(numbered, parcel.event_sizes, strict=True)
        ]
        yield Batch(self.sql.add_event, values)

    @cached_property
    def _put_journal(self) -> str:
        return f"""
            INSERT INTO journal (message, key, state, payload) VALUES ($1, $2, $3, $4)
            ON CONFLICT (message, {self.sql.hashed("key")})
            DO UPDATE SET state = excluded.state, payload = excluded.payload"""

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


def _take_mail(swarm: str, row: InboxRow | None) -> Verb[None]:
    """Note the mail of a peer, if there is any; first, so that a repeated one is told as such."""
    if row is not None and not (yield Change(_TAKE_MAIL, (swarm, *row))):
        raise MailTaken


def _add_messages(post: Post, task: int) -> Verb[tuple[int, ...]]:
    values = [
        (task, mail.recipient, mail.tier, mail.interrupt, mail.attempts, mail.control, mail.payload)
        for mail in post.deliveries
    ]
    return tuple((yield Insert(_ADD_MESSAGE, "seq", values)))


def _write_mail(post: Post, task: int) -> Verb[None]:
    """Write what leaves the task: mail for peers, letters, what is learned and told."""
    if post.outbox_changes:
        yield from change_outbox(post.outbox_changes, task)
    if post.answered:
        yield Batch(_ANSWERED, [(task, *request) for request in post.answered])
    if post.close_requests:
        yield Change(_CLOSE_REQUESTS, (task,))
    if post.outbox:
        yield Batch(_ADD_OUTBOX, [(task, *row[1:-1]) for row in post.outbox])
    if post.desk is not None:
        yield from add_letters(post.desk)
    if post.feedback:
        yield from add_feedback(post.owner, post.feedback)
    if post.webhooks:
        yield from add_webhooks(post.owner.swarm, post.webhooks)
