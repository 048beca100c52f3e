"""The statements behind the verbs that write. Each function runs inside a transaction.

All SQL is constant text, so each connection prepares each statement once. Times of the rows
themselves are the database's (``now()``).
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from mail.core.tasks import TaskState
from mail.db.base import (
    Delivery,
    HistoryRow,
    JournalRow,
    MemoryRow,
    Owner,
    Post,
    Receipt,
    TaskRow,
    TokenRow,
    TurnCommit,
)
from mail.db.postgres.idempotency import put_key
from mail.db.postgres.values import Connection, escape_nul, jsonb_text, moment
from mail.db.rows import join_lists, list_text, namespace_text, tool_format
from mail.errors import StoreConflict

__all__ = [
    "apply_post",
    "apply_turn",
    "change_attempts",
    "delete_memory",
    "memory_digest",
    "put_memories",
    "put_token",
    "update_snapshots",
]

_INSERT_TASK: Final = """
INSERT INTO tasks (
    task_owner, task_contributors, remote_swarms, is_running, completed, start_time, start_text,
    state, entrypoint, steps, max_steps, awaited, finish_asked, title, next_event,
    swarm_name, caller_role, caller_id, task_id, usage
) VALUES ($1, $2, $3, $4, $5, coalesce($6, now()), $7, $8, $9, $10, $11, $12, $13, $14,
    1 + $15::bigint, $16, $17, $18, $19, $20)
"""

_CHANGES: Final = """
SET task_owner = $1, task_contributors = $2, remote_swarms = $3, is_running = $4, completed = $5,
    start_time = coalesce($6, now()), start_text = $7, state = $8, entrypoint = $9, steps = $10,
    max_steps = $11, awaited = $12, finish_asked = $13, title = $14,
    next_event = tasks.next_event + $15::bigint, usage = $20, updated_at = now()
"""

_RETURNING: Final = "RETURNING tasks.key, tasks.next_event"

_NEW_TASK: Final = f"{_INSERT_TASK} ON CONFLICT DO NOTHING {_RETURNING}"

_UPSERT_TASK: Final = f"""
{_INSERT_TASK}
ON CONFLICT (task_id, swarm_name, caller_role, caller_id) DO UPDATE {_CHANGES} {_RETURNING}
"""

_UPDATE_TASK: Final = f"""
UPDATE tasks {_CHANGES}
WHERE swarm_name = $16 AND caller_role = $17 AND caller_id = $18 AND task_id = $19 {_RETURNING}
"""

_CONSUME: Final = """
WITH consumed AS (
    UPDATE messages SET state = $1, reason = $2
    WHERE seq = ANY($3::bigint[]) AND task = $4 AND state = 'ready' RETURNING seq
), dropped AS (
    DELETE FROM journal WHERE message IN (SELECT seq FROM consumed)
)
SELECT count(*) FROM consumed
"""

_LOCK_READY: Final = """
SELECT 1 FROM messages WHERE seq = $1 AND task = $2 AND state = 'ready' FOR UPDATE
"""

_PUT_JOURNAL: Final = """
INSERT INTO journal (message, key, state, payload) VALUES ($1, $2, $3, $4)
ON CONFLICT (message, md5(key)) DO UPDATE SET state = excluded.state, payload = excluded.payload
"""

_CANCEL_MAIL: Final = """
WITH cancelled AS (
    UPDATE messages SET state = 'cancelled' WHERE task = $1 AND state = 'ready' RETURNING seq
)
DELETE FROM journal WHERE message IN (SELECT seq FROM cancelled)
"""

_ADD_MESSAGE: Final = """
INSERT INTO messages (task, recipient, tier, interrupt, state, attempts, control, payload)
VALUES ($1, $2, $3, $4, 'ready', $5, $6, $7) RETURNING seq
"""

_ADD_HISTORY: Final = "INSERT INTO history_entries (task, agent, entries) VALUES ($1, $2, $3)"

_ADD_EVENT: Final = """
INSERT INTO task_events (
    task_id, swarm_name, caller_role, caller_id, event_type, event_data, event_id, created_at,
    time_text, task, seq, description
) VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8, now()), $9, $10, $11, $12)
"""

_PUT_CALL: Final = """
INSERT INTO calls (task, agent, call_id, call, shown, answer, control)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (task, md5(agent), md5(call_id))
DO UPDATE SET call = excluded.call, shown = excluded.shown, answer = excluded.answer,
    control = excluded.control
"""

_PUT_RESPONSE: Final = """
INSERT INTO task_responses
    (task_id, swarm_name, caller_role, caller_id, response, response_text, task)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (task_id, swarm_name, caller_role, caller_id)
DO UPDATE SET response = excluded.response, response_text = excluded.response_text,
    created_at = excluded.created_at, task = excluded.task
"""

_PUT_MEMORY: Final = """
INSERT INTO memories (
    swarm_name, caller_role, caller_id, digest, namespace, key, value, created_at, updated_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (swarm_name, caller_role, caller_id, digest)
DO UPDATE SET value = excluded.value, created_at = excluded.created_at,
    updated_at = excluded.updated_at
"""

_DELETE_MEMORY: Final = """
DELETE FROM memories
WHERE swarm_name = $1 AND caller_role = $2 AND caller_id = $3 AND digest = $4
"""

_CHANGE_ATTEMPTS: Final = """
UPDATE messages SET attempts = greatest(0, attempts + $1::bigint)
FROM tasks
WHERE seq = $2 AND messages.state = 'ready' AND tasks.key = messages.task
    AND swarm_name = $3 AND caller_role = $4 AND caller_id = $5
RETURNING attempts
"""

_PUT_TOKEN: Final = """
INSERT INTO tokens (token_hash, role, caller_id, label, created_at, expires_at, revoked_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (token_hash)
DO UPDATE SET role = excluded.role, caller_id = excluded.caller_id, label = excluded.label,
    created_at = excluded.created_at, expires_at = excluded.expires_at,
    revoked_at = excluded.revoked_at
"""  # noqa: S105 - SQL, not a password


async def apply_post(connection: Connection, post: Post) -> Receipt:
    """Write a commit from outside a turn; see `mail.db.base.Store.post`."""
    known = await _put_task(connection, _NEW_TASK if post.new else _UPSERT_TASK, post)
    if known is None:
        raise StoreConflict(f"task '{post.task.task_id}' already exists")
    if post.once is not None:
        await put_key(connection, post.owner, post.once._replace(first_event=known[1]))
    return await _write(connection, post, *known)


async def apply_turn(connection: Connection, turn: TurnCommit) -> Receipt:
    """Write a step of a turn; see `mail.db.base.Store.commit_turn`."""
    known = await _put_task(connection, _UPDATE_TASK, turn)
    if known is None:
        raise StoreConflict(f"delivery {turn.seq} is not waiting: its task is unknown")
    if turn.done:
        state = "acked" if turn.dead is None else "dead"
        if await connection.fetchval(_CONSUME, state, turn.dead, [turn.seq], known[0]) != 1:
            raise StoreConflict(f"delivery {turn.seq} is not waiting")
    else:
        await _write_journal(connection, turn.seq, known[0], turn.journal)
    return await _write(connection, turn, *known)


async def change_attempts(connection: Connection, owner: Owner, seq: int, change: int) -> int:
    """Add to the attempts of a waiting delivery and return the new count."""
    count = await connection.fetchval(_CHANGE_ATTEMPTS, change, seq, *owner)
    if count is None:
        raise StoreConflict(f"delivery {seq} is not waiting")
    return int(count)


async def put_memories(connection: Connection, owner: Owner, rows: Sequence[MemoryRow]) -> None:
    """Insert or replace memories."""
    values = [
        (
            *owner,
            memory_digest(row.namespace, row.key),
            namespace_text(row.namespace),
            row.key,
            row.value,
            row.created_at,
            row.updated_at,
        )
        for row in rows
    ]
    await connection.executemany(_PUT_MEMORY, values)


async def delete_memory(
    connection: Connection, owner: Owner, namespace: tuple[str, ...], key: str
) -> None:
    """Remove a memory if it is there."""
    await connection.execute(_DELETE_MEMORY, *owner, memory_digest(namespace, key))


async def put_token(connection: Connection, token: TokenRow) -> None:
    """Insert or replace a token."""
    await connection.execute(
        _PUT_TOKEN,
        token.token_hash,
        token.role,
        token.id,
        token.label,
        token.created_at,
        token.expires_at,
        token.revoked_at,
    )


def memory_digest(namespace: tuple[str, ...], key: str) -> str:
    """Return what stands for a namespace and a key, however long they are, in the index."""
    return hashlib.sha256(f"{namespace_text(namespace)}{key}".encode()).hexdigest()


async def _put_task(connection: Connection, statement: str, post: Post) -> tuple[int, int] | None:
    """Write the task row; return its key and the number of the commit's first event."""
    row: TaskRow = post.task
    started, started_text = moment(row.start_time)
    found = await connection.fetchrow(
        statement,
        row.task_owner,
        list_text([escape_nul(text) for text in row.task_contributors]),
        list_text([escape_nul(text) for text in row.remote_swarms]),
        row.state is TaskState.RUNNING,
        row.state is TaskState.COMPLETED,
        started,
        started_text,
        row.state.value,
        row.entrypoint,
        row.steps,
        row.max_steps,
        row.awaited,
        row.finish_asked,
        row.title,
        len(post.events),
        *post.owner,
        row.task_id,
        row.usage,
    )
    return None if found is None else (found[0], found[1] - len(post.events))


async def _write_journal(
    connection: Connection, seq: int, task: int, journal: Sequence[JournalRow]
) -> None:
    if await connection.fetchval(_LOCK_READY, seq, task) is None:
        raise StoreConflict(f"delivery {seq} is not waiting")
    await connection.executemany(_PUT_JOURNAL, [(seq, *row) for row in journal])


async def _write(connection: Connection, post: Post, task: int, first_event: int) -> Receipt:
    """Write what posts and turns have in common."""
    if post.settled:
        await connection.fetchval(_CONSUME, "acked", None, list(post.settled), task)
    if post.cancel_mail:
        await connection.execute(_CANCEL_MAIL, task)
    if post.histories:
        await _add_histories(connection, task, post.histories)
    seqs = await _add_messages(connection, task, post.deliveries) if post.deliveries else ()
    if post.events:
        await _add_events(connection, post, task, first_event)
    if post.calls:
        await connection.executemany(_PUT_CALL, [(task, *row) for row in post.calls])
    if post.memories:
        await put_memories(connection, post.owner, post.memories)
    if post.response is not None:
        shown = jsonb_text(post.response)
        key = (post.task.task_id, *post.owner)
        await connection.execute(_PUT_RESPONSE, *key, shown, post.response, task)
    if post.snapshot:
        await update_snapshots(connection, post.owner, post.task.task_id, task)
    return Receipt(first_event, seqs)


async def _add_histories(
    connection: Connection, task: int, histories: Sequence[HistoryRow]
) -> None:
    await connection.executemany(
        _ADD_HISTORY, [(task, row.agent, row.entries) for row in histories]
    )


async def _add_messages(
    connection: Connection, task: int, deliveries: Sequence[Delivery]
) -> tuple[int, ...]:
    values = [
        (
            task,
            mail.recipient,
            mail.tier,
            mail.interrupt,
            mail.attempts,
            mail.control,
            mail.payload,
        )
        for mail in deliveries
    ]
    return tuple(row[0] for row in await connection.fetchmany(_ADD_MESSAGE, values))


async def _add_events(connection: Connection, post: Post, task: int, first: int) -> None:
    key = (post.task.task_id, *post.owner)
    values = [
        (
            *key,
            event.kind,
            event.extra,
            str(seq),
            *moment(event.timestamp),
            task,
            seq,
            event.description,
        )
        for seq, event in enumerate(post.events, first)
    ]
    await connection.executemany(_ADD_EVENT, values)


_ADDED: Final = """
SELECT agent, entries, e.id FROM history_entries AS e
LEFT JOIN agent_histories AS h ON h.task = e.task AND h.agent_name = e.agent
WHERE e.task = $1 AND e.id > coalesce(h.through, 0) ORDER BY agent, e.id
"""

_PUT: Final = """
INSERT INTO agent_histories (swarm_name, caller_role, caller_id, tool_format, task_id, agent_name,
    history, task, through)
VALUES ($1, $2, $3, coalesce($4, 'completions'), $5, $6, $7, $8, $9)
ON CONFLICT (task, agent_name)
DO UPDATE SET tool_format = coalesce($4, agent_histories.tool_format),
    history = agent_histories.history || excluded.history, updated_at = now(), through = $9
"""


async def update_snapshots(connection: Connection, owner: Owner, task_id: str, task: int) -> None:
    """Bring the rows of those agents up to date whose history has grown."""
    grown: dict[str, list[str]] = {}
    newest: dict[str, int] = {}
    for agent, entries, number in await connection.fetch(_ADDED, task):
        grown.setdefault(agent, []).append(entries)
        newest[agent] = number
    rows = [
        (
            *owner,
            tool_format(added),
            task_id,
            agent,
            jsonb_text(join_lists(added)),
            task,
            newest[agent],
        )
        for agent, added in grown.items()
    ]
    await connection.executemany(_PUT, rows)
