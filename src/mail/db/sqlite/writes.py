"""The statements behind the verbs that write. Each function runs inside a transaction.

All SQL is constant text, so sqlite3's statement cache prepares each statement once.
"""

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from mail.core.tasks import TaskState
from mail.db.base import (
    CallRow,
    Delivery,
    EventRow,
    JournalRow,
    MemoryRow,
    Owner,
    Post,
    Receipt,
    TaskRow,
    TokenRow,
    TurnCommit,
)
from mail.db.rows import join_lists, list_text, namespace_text, tool_format
from mail.db.sqlite.idempotency import put_key
from mail.errors import StoreConflict

__all__ = [
    "apply_post",
    "apply_turn",
    "change_attempts",
    "delete_memory",
    "put_memories",
    "put_token",
    "update_snapshots",
]

_INSERT_TASK: Final = """
INSERT INTO tasks (
    task_owner, task_contributors, remote_swarms, is_running, completed, start_time, updated_at,
    state, entrypoint, steps, max_steps, awaited, finish_asked, title, next_event,
    swarm_name, caller_role, caller_id, task_id, created_at, usage
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 1 + ?15,
    ?16, ?17, ?18, ?19, ?7, ?20)
"""

_CHANGES: Final = """
SET task_owner = ?1, task_contributors = ?2, remote_swarms = ?3, is_running = ?4,
    completed = ?5, start_time = ?6, updated_at = ?7, state = ?8, entrypoint = ?9, steps = ?10,
    max_steps = ?11, awaited = ?12, finish_asked = ?13, title = ?14, next_event = next_event + ?15,
    usage = ?20
"""

_RETURNING: Final = "RETURNING id, next_event"

_NEW_TASK: Final = f"{_INSERT_TASK} ON CONFLICT DO NOTHING {_RETURNING}"

_UPSERT_TASK: Final = f"""
{_INSERT_TASK}
ON CONFLICT (swarm_name, caller_role, caller_id, task_id) DO UPDATE {_CHANGES} {_RETURNING}
"""

_UPDATE_TASK: Final = f"""
UPDATE tasks {_CHANGES}
WHERE swarm_name = ?16 AND caller_role = ?17 AND caller_id = ?18 AND task_id = ?19 {_RETURNING}
"""

_CONSUME: Final = """
UPDATE messages SET state = ?, reason = ? WHERE seq = ? AND task = ? AND state = 'ready'
"""

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
    task, seq, description
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_PUT_CALL: Final = """
INSERT INTO calls (task, agent, call_id, call, shown, answer, control)
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

_PUT_MEMORY: Final = """
INSERT INTO memories
    (swarm_name, caller_role, caller_id, namespace, key, value, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (swarm_name, caller_role, caller_id, namespace, key)
DO UPDATE SET value = excluded.value, created_at = excluded.created_at,
    updated_at = excluded.updated_at
"""

_DELETE_MEMORY: Final = """
DELETE FROM memories
WHERE swarm_name = ? AND caller_role = ? AND caller_id = ? AND namespace = ? AND key = ?
"""

_CHANGE_ATTEMPTS: Final = """
UPDATE messages SET attempts = max(0, attempts + ?)
WHERE seq = ? AND state = 'ready' AND EXISTS (
    SELECT 1 FROM tasks
    WHERE id = messages.task AND swarm_name = ? AND caller_role = ? AND caller_id = ?)
RETURNING attempts
"""

_PUT_TOKEN: Final = """
INSERT INTO tokens (token_hash, role, caller_id, label, created_at, expires_at, revoked_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (token_hash)
DO UPDATE SET role = excluded.role, caller_id = excluded.caller_id, label = excluded.label,
    created_at = excluded.created_at, expires_at = excluded.expires_at,
    revoked_at = excluded.revoked_at
"""  # noqa: S105 - SQL, not a password


def apply_post(cursor: sqlite3.Cursor, post: Post) -> Receipt:
    """Write a commit from outside a turn; see `mail.db.base.Store.post`."""
    now = _now()
    statement = _NEW_TASK if post.new else _UPSERT_TASK
    known = _put_task(cursor, statement, post, now)
    if known is None:
        raise StoreConflict(f"task '{post.task.task_id}' already exists")
    if post.once is not None:
        put_key(cursor, post.owner, post.once._replace(first_event=known[1]))
    return _write(cursor, post, *known, now)


def apply_turn(cursor: sqlite3.Cursor, turn: TurnCommit) -> Receipt:
    """Write a step of a turn; see `mail.db.base.Store.commit_turn`."""
    now = _now()
    known = _put_task(cursor, _UPDATE_TASK, turn, now)
    if known is None:
        raise StoreConflict(f"delivery {turn.seq} is not waiting: its task is unknown")
    if turn.done:
        _consume(cursor, turn, known[0])
    else:
        _write_journal(cursor, turn.seq, known[0], turn.journal)
    return _write(cursor, turn, *known, now)


def change_attempts(cursor: sqlite3.Cursor, owner: Owner, seq: int, change: int) -> int:
    """Add to the attempts of a waiting delivery and return the new count."""
    row = cursor.execute(_CHANGE_ATTEMPTS, (change, seq, *owner)).fetchone()
    if row is None:
        raise StoreConflict(f"delivery {seq} is not waiting")
    return int(row[0])


def put_memories(cursor: sqlite3.Cursor, owner: Owner, rows: Sequence[MemoryRow]) -> None:
    """Insert or replace memories."""
    cursor.executemany(
        _PUT_MEMORY,
        [
            (*owner, namespace_text(r.namespace), r.key, r.value, r.created_at, r.updated_at)
            for r in rows
        ],
    )


def delete_memory(
    cursor: sqlite3.Cursor, owner: Owner, namespace: tuple[str, ...], key: str
) -> None:
    """Remove a memory if it is there."""
    cursor.execute(_DELETE_MEMORY, (*owner, namespace_text(namespace), key))


def put_token(cursor: sqlite3.Cursor, token: TokenRow) -> None:
    """Insert or replace a token."""
    cursor.execute(
        _PUT_TOKEN,
        (
            token.token_hash,
            token.role,
            token.id,
            token.label,
            token.created_at,
            token.expires_at,
            token.revoked_at,
        ),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _put_task(
    cursor: sqlite3.Cursor, statement: str, post: Post, now: str
) -> tuple[int, int] | None:
    """Write the task row; return its key and the number of the commit's first event."""
    row: TaskRow = post.task
    state = row.state
    events = len(post.events)
    found = cursor.execute(
        statement,
        (
            row.task_owner,
            list_text(row.task_contributors),
            list_text(row.remote_swarms),
            1 if state is TaskState.RUNNING else 0,
            1 if state is TaskState.COMPLETED else 0,
            row.start_time,
            now,
            state.value,
            row.entrypoint,
            row.steps,
            row.max_steps,
            1 if row.awaited else 0,
            1 if row.finish_asked else 0,
            row.title,
            events,
            *post.owner,
            row.task_id,
            row.usage,
        ),
    ).fetchone()
    return None if found is None else (found[0], found[1] - events)


def _consume(cursor: sqlite3.Cursor, turn: TurnCommit, task: int) -> None:
    state = "acked" if turn.dead is None else "dead"
    if cursor.execute(_CONSUME, (state, turn.dead, turn.seq, task)).rowcount != 1:
        raise StoreConflict(f"delivery {turn.seq} is not waiting")
    cursor.execute(_DROP_JOURNAL, (turn.seq,))


def _write_journal(
    cursor: sqlite3.Cursor, seq: int, task: int, journal: Sequence[JournalRow]
) -> None:
    if cursor.execute(_IS_READY, (seq, task)).fetchone() is None:
        raise StoreConflict(f"delivery {seq} is not waiting")
    for row in journal:
        cursor.execute(_PUT_JOURNAL, (seq, row.key, row.state, row.payload))


def _write(cursor: sqlite3.Cursor, post: Post, task: int, first_event: int, now: str) -> Receipt:
    """Write what posts and turns have in common."""
    for seq in post.settled:
        if cursor.execute(_CONSUME, ("acked", None, seq, task)).rowcount == 1:
            cursor.execute(_DROP_JOURNAL, (seq,))
    if post.cancel_mail:
        cursor.execute(_CANCEL_JOURNALS, (task,))
        cursor.execute(_CANCEL_MAIL, (task,))
    for entry in post.histories:
        cursor.execute(_ADD_HISTORY, (task, entry.agent, entry.entries))
    seqs = _add_messages(cursor, task, post.deliveries) if post.deliveries else ()
    if post.events:
        _add_events(cursor, post, task, first_event)
    if post.calls:
        _put_calls(cursor, task, post.calls)
    if post.memories:
        put_memories(cursor, post.owner, post.memories)
    if post.response is not None:
        cursor.execute(_PUT_RESPONSE, (post.task.task_id, *post.owner, post.response, now, task))
    if post.snapshot:
        update_snapshots(cursor, post.owner, post.task.task_id, task, now)
    return Receipt(first_event, seqs)


def _add_messages(
    cursor: sqlite3.Cursor, task: int, deliveries: Sequence[Delivery]
) -> tuple[int, ...]:
    seqs = []
    for mail in deliveries:
        cursor.execute(
            _ADD_MESSAGE,
            (
                task,
                mail.recipient,
                mail.tier,
                1 if mail.interrupt else 0,
                mail.attempts,
                mail.control,
                mail.payload,
            ),
        )
        seqs.append(cursor.lastrowid or 0)
    return tuple(seqs)


def _add_events(cursor: sqlite3.Cursor, post: Post, task: int, first: int) -> None:
    task_id = post.task.task_id
    swarm, role, caller = post.owner
    event: EventRow
    for seq, event in enumerate(post.events, first):
        cursor.execute(
            _ADD_EVENT,
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
            ),
        )


def _put_calls(cursor: sqlite3.Cursor, task: int, calls: Sequence[CallRow]) -> None:
    for row in calls:
        cursor.execute(_PUT_CALL, (task, *row))


_NEWEST: Final = "SELECT agent, max(id) FROM history_entries WHERE task = ? GROUP BY agent"

_THROUGH: Final = "SELECT agent_name, through FROM agent_histories WHERE task = ?"

_SNAPSHOT: Final = """
SELECT tool_format, history FROM agent_histories WHERE task = ? AND agent_name = ?
"""

_ADDED: Final = """
SELECT entries FROM history_entries WHERE task = ? AND agent = ? AND id > ? ORDER BY id
"""

_PUT: Final = """
INSERT INTO agent_histories (swarm_name, caller_role, caller_id, tool_format, task_id, agent_name,
    history, created_at, updated_at, task, through)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10)
ON CONFLICT (task, agent_name)
DO UPDATE SET tool_format = ?4, history = ?7, updated_at = ?8, through = ?10
"""


def update_snapshots(
    cursor: sqlite3.Cursor, owner: Owner, task_id: str, task: int, now: str
) -> None:
    """Bring the rows of those agents up to date whose history has grown."""
    through = dict(cursor.execute(_THROUGH, (task,)).fetchall())
    for agent, newest in cursor.execute(_NEWEST, (task,)).fetchall():
        seen = through.get(agent, 0)
        if newest <= seen:
            continue
        old = cursor.execute(_SNAPSHOT, (task, agent)).fetchone()
        added = [row[0] for row in cursor.execute(_ADDED, (task, agent, seen)).fetchall()]
        shape = tool_format(added) or (old[0] if old else "completions")
        history = join_lists([old[1], *added] if old else added)
        cursor.execute(_PUT, (*owner, shape, task_id, agent, history, now, task, newest))
