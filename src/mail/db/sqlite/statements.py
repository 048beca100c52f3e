"""SQLite's dialect, and its transactions: the verbs that take several statements.

All SQL is constant text, so sqlite3's statement cache prepares each statement once.
"""

import json
import sqlite3
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple, TypeVar, cast

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.approvals_statements import ApprovalStatements, approval_steps
from mail.db.base import (
    Delivery,
    JournalRow,
    MemoryRow,
    OutboxChange,
    Owner,
    Post,
    Receipt,
    TaskRow,
    TurnCommit,
)
from mail.db.desk_statements import DeskStatements, Matching, post_steps, shown_steps
from mail.db.files_statements import FileStatements
from mail.db.preferences_statements import PreferenceStatements, feedback_steps
from mail.db.rows import (
    CALL_COLUMNS,
    MEMORY_COLUMNS,
    OUTBOX_COLUMNS,
    OWNER_COLUMNS,
    as_event,
    as_task,
    join_lists,
    key_size,
    list_text,
    namespace_text,
    tool_format,
)
from mail.db.sqlite.writer import Work
from mail.db.statements import PUT_INBOX, PUT_KEY, Row, Statements, Step
from mail.db.texts import Parcel, Records, packed, text_size
from mail.db.webhooks_statements import WebhookStatements, webhook_steps
from mail.errors import DeskConflict, KeyTaken, MailTaken, StoreConflict

T = TypeVar("T")


class SQLiteStatements(
    Statements,
    DeskStatements,
    FileStatements,
    PreferenceStatements,
    ApprovalStatements,
    WebhookStatements,
):
    """The verbs of `mail.db.base.Store` in SQLite."""

    _TASK_KEY = "id"
    _TASK = (
        "task_id, task_owner, task_contributors, start_time, entrypoint, state, remote_swarms, "
        "steps, max_steps, awaited, finish_asked, title, usage, handled"
    )
    _RUNNING = "is_running = 1"
    _OPEN = "is_running = 1 OR (state = 'paused' AND awaited = 1)"
    _RESPONSE = "response"
    _EVENT = "event_type, created_at, seq, description, event_data"
    _BYTES = "length(CAST({} AS BLOB))"  # octet_length came with SQLite 3.43
    _EVENT_BYTES = (
        "coalesce(size, length(CAST(event_data AS BLOB)) + length(CAST(description AS BLOB)))"
    )
    _EVENT_TIME = "event_type, created_at, seq, '', '{}'"
    _THIS_MEMORY = "namespace = $4 AND key = $5"
    _AMONG = "hash IN (SELECT value FROM json_each($5))"
    _ROW = "rowid"
    _SOME = "rowid IN ({})"
    _TIME = "{}"
    _MATCHING = Matching("desk_words MATCH {}", '"', " AND ", " OR ", " NOT ", "instr", "rowid")
    _ADD_LATE_EVENT = """
        INSERT INTO task_events (
            task_id, swarm_name, caller_role, caller_id, event_type, event_data, event_id,
            created_at, task, seq, description, size)
        SELECT task_id, swarm_name, caller_role, caller_id, $5, $6, CAST(next_event - 1 AS TEXT),
            $7, id, next_event - 1, $8, $9
        FROM tasks WHERE swarm_name = $1 AND caller_role = $2 AND caller_id = $3 AND task_id = $4
        RETURNING seq"""

    @abstractmethod
    async def _read(self, work: Work[T]) -> T:
        """Run some statements that only read."""

    @abstractmethod
    def _write(self, work: Work[T]) -> Awaitable[T]:
        """Run some statements in a transaction; await their result, which is committed then."""

    async def _fetch(self, make: Callable[[Iterable[Row]], T], text: str, *values: object) -> T:
        return await self._read(lambda db: make(db.execute(_numbered(text), values)))

    async def _fetch_whole(
        self,
        make: Callable[[Iterable[Row]], T],
        records: Records,
        text: str,
        *values: object,
        task: str = "",
    ) -> T:
        def work(db: sqlite3.Cursor) -> T:
            rows = db.execute(_numbered(text), values).fetchall()
            hashes = records.hashes(rows)
            if not hashes:
                return make(records.whole(rows, {}))
            query = _numbered(self._texts(task or self._the_task))
            texts = dict(db.execute(query, (*values[:4], json.dumps(hashes))))
            return make(records.whole(rows, texts))

        return await self._read(work)

    async def _change(self, text: str, *values: object) -> list[Row]:
        return await self._write(lambda db: db.execute(_numbered(text), values).fetchall())

    async def _change_all(
        self, texts: Sequence[str], *values: object, conflict: str = ""
    ) -> list[Row]:
        def work(db: sqlite3.Cursor) -> list[Row]:
            rows: list[Row] = []
            for text in texts:
                rows = db.execute(_numbered(text), values).fetchall()
            if conflict and not rows:
                raise StoreConflict(conflict)
            return rows

        return await self._write(work)

    async def _run(self, steps: Sequence[Step]) -> list[list[Row]]:
        return await self._write(partial(_run, tuple(steps)))

    def _as_task(self, row: Row) -> TaskRow:
        return as_task(row)

    def _as_event(self, task_id: str, row: Row) -> TaskEvent:
        return as_event(task_id, row)

    def _memory_id(self, namespace: tuple[str, ...], key: str) -> tuple[str, ...]:
        return namespace_text(namespace), key

    def _put_memory_step(self, owner: Owner, row: MemoryRow) -> Step:
        return Step(_PUT_MEMORY, each=_memory_values(owner, [row]))

    async def post(self, post: Post) -> Receipt:
        return await self._write(partial(_post, await packed(post, self._packer())))

    async def commit_turn(self, turn: TurnCommit) -> Receipt:
        return await self._write(partial(_commit_turn, await packed(turn, self._packer())))

    async def put_memories(self, owner: Owner, rows: Sequence[MemoryRow]) -> None:
        await self._write(partial(_put_memories, owner, tuple(rows)))

    async def change_outbox(self, changes: Sequence[OutboxChange]) -> None:
        await self._write(partial(_change_outbox, tuple(changes), None))


def _numbered(text: str) -> str:
    """Return a statement with its parameters as SQLite numbers them."""
    return text.replace("$", "?")


def _run(steps: Sequence[Step], db: sqlite3.Cursor) -> list[list[Row]]:
    """Run statements, and return the rows of each."""
    found: list[list[Row]] = []
    for step in steps:
        text, rows = _numbered(step.text), []
        if step.each is None:
            rows = db.execute(text, step.values).fetchall()
        else:
            db.executemany(text, step.each)
        if step.conflict and not rows:
            raise DeskConflict(step.conflict)
        found.append(rows)
    return found


_FIND_TASK: Final = """
SELECT id, next_event, bytes, state FROM tasks
WHERE swarm_name = ? AND caller_role = ? AND caller_id = ? AND task_id = ?
"""

_ADD_TASK: Final = """
INSERT INTO tasks (
    task_owner, task_contributors, remote_swarms, start_time, updated_at, entrypoint, steps,
    max_steps, awaited, finish_asked, title, usage, handled, next_event, bytes, is_running,
    completed, state, swarm_name, caller_role, caller_id, task_id, created_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
    ?18, ?19, ?20, ?21, ?22, ?5)
ON CONFLICT DO NOTHING
"""

_CHANGES: Final = """
SET task_owner = ?1, task_contributors = ?2, remote_swarms = ?3, start_time = ?4, updated_at = ?5,
    entrypoint = ?6, steps = ?7, max_steps = ?8, awaited = ?9, finish_asked = ?10, title = ?11,
    usage = ?12, handled = ?13, next_event = ?14, bytes = ?15
"""

_CHANGE_TASK: Final = f"UPDATE tasks {_CHANGES} WHERE id = ?16"

_CHANGE_STATE: Final = f"""
UPDATE tasks {_CHANGES}, is_running = ?16, completed = ?17, state = ?18 WHERE id = ?19
"""

_CONSUME: Final = """
UPDATE messages SET state = ?, reason = ? WHERE seq = ? AND task = ? AND state = 'ready'
"""

_UNSET: Final = "UPDATE messages SET state = 'acked' WHERE seq = ? AND task = ? AND state = 'dead'"

_IS_READY: Final = "SELECT 1 FROM messages WHERE seq = ? AND task = ? AND state = 'ready'"

_DROP_JOURNAL: Final = "DELETE FROM journal WHERE message = ?"

_PUT_JOURNAL: Final = """
INSERT INTO journal (message, key, state, payload) VALUES (?, ?, ?, ?)
ON CONFLICT (message, key) DO UPDATE SET state = excluded.state, payload = excluded.payload
"""

_CANCEL_JOURNALS: Final = """
DELETE FROM journal WHERE message IN (SELECT seq FROM messages WHERE task = ? AND state = 'ready')
"""

_CANCEL_MAIL: Final = "UPDATE messages SET state = 'cancelled' WHERE task = ? AND state = 'ready'"

_ADD_MESSAGE: Final = """
INSERT INTO messages (task, recipient, tier, interrupt, state, attempts, control, payload)
VALUES (?, ?, ?, ?, 'ready', ?, ?, ?)
"""

_ADD_HISTORY: Final = "INSERT INTO history_entries (task, agent, entries) VALUES (?, ?, ?)"

_ADD_EVENT: Final = """
INSERT INTO task_events (
    task_id, swarm_name, caller_role, caller_id, event_type, event_data, event_id, created_at,
    task, seq, description, size
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_ADD_TEXT: Final = """
INSERT INTO task_texts (task, hash, text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING
"""

_ADD_BYTES: Final = "UPDATE tasks SET bytes = bytes + ? WHERE id = ? RETURNING bytes"


_PUT_CALL: Final = f"""
INSERT INTO calls (task, {CALL_COLUMNS})
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task, agent, call_id)
DO UPDATE SET call = excluded.call, shown = excluded.shown, answer = excluded.answer,
    control = excluded.control
"""

_PUT_RESPONSE: Final = """
INSERT INTO task_responses
    (task_id, swarm_name, caller_role, caller_id, response, created_at, task)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task) DO UPDATE SET response = excluded.response, created_at = excluded.created_at
"""

_PUT_MEMORY: Final = f"""
INSERT INTO memories ({OWNER_COLUMNS}, {MEMORY_COLUMNS}, size)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (swarm_name, caller_role, caller_id, namespace, key)
DO UPDATE SET value = excluded.value, created_at = excluded.created_at,
    updated_at = excluded.updated_at, size = excluded.size
"""

_PUT_KEY: Final = _numbered(PUT_KEY)

_PUT_INBOX: Final = _numbered(PUT_INBOX)

_ADD_OUTBOX: Final = f"""
INSERT INTO outbox (task, {OUTBOX_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_CHANGE_OUTBOX: Final = """
UPDATE outbox SET state = ?3, attempts = ?4, next_at = ?5, last_error = ?6, told = ?7
WHERE id = ?2 AND task = coalesce(?1, task)
"""

_DROP_OUTBOX: Final = "DELETE FROM outbox WHERE id = ?2 AND task = coalesce(?1, task)"

_ANSWER_OUTBOX: Final = """
DELETE FROM outbox WHERE task = ? AND kind = 'request' AND peer = ? AND ref = ?
"""

_CLOSE_OUTBOX: Final = """
DELETE FROM outbox WHERE task = ? AND kind = 'request' AND state <> 'dead'
"""


class _Task(NamedTuple):
    """The task row that a commit has written: its key, the first event, about how many bytes."""

    key: int
    first_event: int
    bytes: int


def _post(parcel: Parcel, db: sqlite3.Cursor) -> Receipt:
    post = parcel.opened().post
    _take_mail(db, post)
    now = _now()
    task = None if post.new else _change_task(db, parcel, now)
    task = task or _add_task(db, parcel, now)
    if task is None:
        raise StoreConflict(f"task '{post.task.task_id}' already exists")
    if post.once is not None:
        key = post.once._replace(first_event=task.first_event)
        if db.execute(_PUT_KEY, (*post.owner, *key, key_size(key))).fetchone() is None:
            raise KeyTaken
    return _write(db, parcel, task, now)


def _commit_turn(parcel: Parcel, db: sqlite3.Cursor) -> Receipt:
    turn = cast("TurnCommit", parcel.opened().post)
    _take_mail(db, turn)
    now = _now()
    task = _change_task(db, parcel, now)
    if task is None:
        raise StoreConflict(f"delivery {turn.seq} is not waiting: its task is unknown")
    if turn.done:
        _consume(db, turn, task.key)
    else:
        _write_journal(db, turn.seq, task.key, turn.journal)
    if turn.shown:
        _run(shown_steps(turn.owner.swarm, turn.shown), db)
    return _write(db, parcel, task, now)


def _take_mail(db: sqlite3.Cursor, post: Post) -> None:
    """Note the mail of a peer, if there is any; first, so that a repeated one is told as such."""
    if post.inbox is None:
        return
    if db.execute(_PUT_INBOX, (post.owner.swarm, *post.inbox)).fetchone() is None:
        raise MailTaken


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _add_task(db: sqlite3.Cursor, parcel: Parcel, now: str) -> _Task | None:
    """Write the row of a task; None if there is one."""
    post = parcel.post
    values = _task_values(post.task, now, 1 + len(post.events), parcel.bytes)
    key = (*post.owner, post.task.task_id)
    if db.execute(_ADD_TASK, (*values, *_state_values(post.task), *key)).rowcount != 1:
        return None
    return _Task(db.lastrowid or 0, 1, parcel.bytes)


def _change_task(db: sqlite3.Cursor, parcel: Parcel, now: str) -> _Task | None:
    """Write the row of a task that there is, if there is one.

    Nobody else writes meanwhile. To find it first takes half of what RETURNING does; an update that
    leaves the state alone writes no index.
    """
    post = parcel.post
    found = db.execute(_FIND_TASK, (*post.owner, post.task.task_id)).fetchone()
    if found is None:
        return None
    key, first_event, taken, state = found
    taken += parcel.bytes
    values = _task_values(post.task, now, first_event + len(post.events), taken)
    if state == post.task.state.value:
        db.execute(_CHANGE_TASK, (*values, key))
    else:
        db.execute(_CHANGE_STATE, (*values, *_state_values(post.task), key))
    return _Task(key, first_event, taken)


def _task_values(row: TaskRow, now: str, next_event: int, taken: int) -> tuple[object, ...]:
    return (
        row.task_owner,
        list_text(row.task_contributors),
        list_text(row.remote_swarms),
        row.start_time,
        now,
        row.entrypoint,
        row.steps,
        row.max_steps,
        int(row.awaited),
        int(row.finish_asked),
        row.title,
        row.usage,
        row.handled,
        next_event,
        taken,
    )


def _state_values(row: TaskRow) -> tuple[object, ...]:
    state = row.state
    return int(state is TaskState.RUNNING), int(state is TaskState.COMPLETED), state.value


def _consume(db: sqlite3.Cursor, turn: TurnCommit, task: int) -> None:
    state = "acked" if turn.dead is None else "dead"
    if db.execute(_CONSUME, (state, turn.dead, turn.seq, task)).rowcount != 1:
        raise StoreConflict(f"delivery {turn.seq} is not waiting")
    db.execute(_DROP_JOURNAL, (turn.seq,))


def _write_journal(db: sqlite3.Cursor, seq: int, task: int, journal: Sequence[JournalRow]) -> None:
    if db.execute(_IS_READY, (seq, task)).fetchone() is None:
        raise StoreConflict(f"delivery {seq} is not waiting")
    for row in journal:
        db.execute(_PUT_JOURNAL, (seq, row.key, row.state, row.payload))


def _write(db: sqlite3.Cursor, parcel: Parcel, known: _Task, now: str) -> Receipt:
    """Write what posts and turns have in common."""
    post, task = parcel.post, known.key
    taken = _add_texts(db, parcel.texts, known) if parcel.texts else known.bytes
    if post.settled or post.unset or post.cancel_mail:
        _settle(db, post, task)
    for entry in post.histories:
        db.execute(_ADD_HISTORY, (task, *entry))
    seqs = _add_messages(db, task, post.deliveries) if post.deliveries else ()
    if post.events:
        _add_events(db, parcel, task, known.first_event)
    if post.calls:
        db.executemany(_PUT_CALL, [(task, *row) for row in post.calls])
    if post.memories:
        _put_memories(post.owner, post.memories, db)
    if post.response is not None:
        db.execute(_PUT_RESPONSE, (post.task.task_id, *post.owner, post.response, now, task))
    if post.snapshot:
        _update_snapshots(db, post.owner, post.task.task_id, task, now)
    _write_mail(db, post, task)
    return Receipt(known.first_event, seqs, taken)


def _settle(db: sqlite3.Cursor, post: Post, task: int) -> None:
    """Consume, take back or cancel mail of the task."""
    for seq in post.settled:
        if db.execute(_CONSUME, ("acked", None, seq, task)).rowcount == 1:
            db.execute(_DROP_JOURNAL, (seq,))
    for seq in post.unset:
        if db.execute(_UNSET, (seq, task)).rowcount != 1:
            raise StoreConflict(f"delivery {seq} is not set aside")
    if post.cancel_mail:
        db.execute(_CANCEL_JOURNALS, (task,))
        db.execute(_CANCEL_MAIL, (task,))


def _write_mail(db: sqlite3.Cursor, post: Post, task: int) -> None:
    """Write what leaves the task: mail for peers, letters, what people are asked and told."""
    if post.approvals:
        _run(approval_steps(task, post.approvals), db)
    if post.outbox_changes:
        _change_outbox(post.outbox_changes, task, db)
    for peer, ref in post.answered:
        db.execute(_ANSWER_OUTBOX, (task, peer, ref))
    if post.close_requests:
        db.execute(_CLOSE_OUTBOX, (task,))
    for row in post.outbox:
        db.execute(_ADD_OUTBOX, (task, *row[1:-1]))
    if post.desk is not None:
        _run(post_steps(post.desk), db)
    if post.feedback:
        _run(feedback_steps(post.owner, post.feedback), db)
    if post.webhooks:
        _run(webhook_steps(post.owner.swarm, post.webhooks), db)


def _change_outbox(changes: Sequence[OutboxChange], task: int | None, db: sqlite3.Cursor) -> None:
    """Change mail for peers, of one task or of any."""
    for change in changes:
        if change.state == "done":
            db.execute(_DROP_OUTBOX, (task, change.id))
        else:
            db.execute(_CHANGE_OUTBOX, (task, *change))


def _add_texts(db: sqlite3.Cursor, texts: Mapping[str, str], task: _Task) -> int:
    """Add the texts that the task does not have; return what its records take then."""
    added = 0
    for key, text in texts.items():
        if db.execute(_ADD_TEXT, (task.key, key, text)).rowcount == 1:
            added += text_size(text)
    return int(db.execute(_ADD_BYTES, (added, task.key)).fetchone()[0])


def _add_messages(db: sqlite3.Cursor, task: int, deliveries: Sequence[Delivery]) -> tuple[int, ...]:
    seqs = []
    for mail in deliveries:
        db.execute(
            _ADD_MESSAGE,
            (
                task,
                mail.recipient,
                mail.tier,
                int(mail.interrupt),
                mail.attempts,
                mail.control,
                mail.payload,
            ),
        )
        seqs.append(db.lastrowid or 0)
    return tuple(seqs)


def _add_events(db: sqlite3.Cursor, parcel: Parcel, task: int, first: int) -> None:
    post = parcel.post
    task_id = post.task.task_id
    swarm, role, caller = post.owner
    rows = [
        (
            task_id,
            swarm,
            role,
            caller,
            event.kind,
            event.extra,
            str(seq),
            event.timestamp,
            task,
            seq,
            event.description,
            size,
        )
        for (seq, event), size in zip(
            enumerate(post.events, first), parcel.event_sizes, strict=True
        )
    ]
    db.executemany(_ADD_EVENT, rows)


def _put_memories(owner: Owner, rows: Sequence[MemoryRow], db: sqlite3.Cursor) -> None:
    db.executemany(_PUT_MEMORY, _memory_values(owner, rows))


def _memory_values(owner: Owner, rows: Sequence[MemoryRow]) -> list[tuple[object, ...]]:
    return [(*owner, namespace_text(row.namespace), *row[1:], text_size(row.value)) for row in rows]


_GROWN: Final = """
SELECT agent, newest, coalesce(through, 0), tool_format, history
FROM (SELECT agent, max(id) AS newest FROM history_entries WHERE task = ?1 GROUP BY agent)
LEFT JOIN agent_histories ON task = ?1 AND agent_name = agent
WHERE newest > coalesce(through, 0)
"""

_ADDED: Final = """
SELECT entries FROM history_entries WHERE task = ? AND agent = ? AND id > ? ORDER BY id
"""

_PUT_SNAPSHOT: Final = """
INSERT INTO agent_histories (swarm_name, caller_role, caller_id, tool_format, task_id, agent_name,
    history, created_at, updated_at, task, through)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10)
ON CONFLICT (task, agent_name)
DO UPDATE SET tool_format = ?4, history = ?7, updated_at = ?8, through = ?10
"""


def _update_snapshots(db: sqlite3.Cursor, owner: Owner, task_id: str, task: int, now: str) -> None:
    """Bring the rows of those agents up to date whose history has grown."""
    for agent, newest, seen, old_shape, old in db.execute(_GROWN, (task,)).fetchall():
        added = [row[0] for row in db.execute(_ADDED, (task, agent, seen)).fetchall()]
        shape = tool_format(added) or old_shape or "completions"
        history = join_lists(added if old is None else [old, *added])
        db.execute(_PUT_SNAPSHOT, (*owner, shape, task_id, agent, history, now, task, newest))
