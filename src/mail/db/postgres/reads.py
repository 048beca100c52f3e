"""The statements behind the verbs that read. Each is one statement, so it sees one moment."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.base import (
    NEWEST_EVENTS,
    CallRow,
    Delivery,
    JournalRow,
    MemoryRow,
    Owner,
    TaskRow,
    TokenRow,
)
from mail.db.postgres.values import Connection, moment_text, unescape_nul
from mail.db.postgres.writes import memory_digest
from mail.db.rows import (
    as_deliveries,
    as_event,
    as_memory,
    as_namespaces,
    as_task,
    as_token,
    namespace_range,
)
from mail.db.words import best_matches, distinct_words

__all__ = [
    "all_mail",
    "begun",
    "calls",
    "events",
    "find_token",
    "get_memory",
    "history",
    "journal",
    "latest_time",
    "list_tasks",
    "list_tokens",
    "load_task",
    "memory_namespaces",
    "open_owners",
    "owners",
    "response",
    "search_memories",
    "waiting_mail",
]

_OWNED: Final = "swarm_name = $1 AND caller_role = $2 AND caller_id = $3"

_TASK_COLUMNS: Final = """
task_id, task_owner, coalesce(task_contributors, '[]'), start_time, entrypoint, state,
coalesce(remote_swarms, '[]'), steps, max_steps, awaited, finish_asked, title, usage, start_text
"""

_THE_TASK: Final = f"(SELECT key FROM tasks WHERE {_OWNED} AND task_id = $4)"

_LOAD_TASK: Final = f"SELECT {_TASK_COLUMNS} FROM tasks WHERE {_OWNED} AND task_id = $4"

_OWNERS: Final = """
SELECT DISTINCT swarm_name, caller_role COLLATE "C", caller_id COLLATE "C" FROM tasks
WHERE swarm_name = $1 ORDER BY 2, 3
"""

_OPEN_OWNERS: Final = """
SELECT DISTINCT swarm_name, caller_role, caller_id FROM tasks
WHERE (is_running OR (state = 'paused' AND awaited)) AND swarm_name = $1 ORDER BY 1, 2, 3
"""

_MAIL_COLUMNS: Final = "recipient, tier, interrupt, payload, control, seq, attempts"

_WAITING_MAIL: Final = f"""
SELECT {_MAIL_COLUMNS} FROM messages WHERE task = {_THE_TASK} AND state = 'ready'
ORDER BY tier, seq
"""

_ALL_MAIL: Final = f"SELECT {_MAIL_COLUMNS} FROM messages WHERE task = {_THE_TASK} ORDER BY seq"

_HISTORY: Final = f"""
SELECT entries FROM history_entries WHERE task = {_THE_TASK} AND agent = $5 ORDER BY id
"""

_JOURNAL: Final = f"""
SELECT journal.key, journal.state, journal.payload FROM journal
JOIN messages ON messages.seq = journal.message JOIN tasks ON tasks.key = messages.task
WHERE {_OWNED} AND journal.message = $4
ORDER BY journal.id
"""

_BEGUN: Final = f"""
SELECT seq FROM messages WHERE task = {_THE_TASK} AND state = 'ready'
    AND EXISTS (SELECT 1 FROM journal WHERE message = messages.seq)
ORDER BY seq
"""

_EVENTS: Final = f"""
SELECT event_type, created_at, seq, description, event_data, time_text FROM task_events
WHERE task = {_THE_TASK} AND seq > $5 ORDER BY seq LIMIT $6
"""

_TIMES: Final = f"""
SELECT created_at, time_text FROM task_events
WHERE task = {_THE_TASK} ORDER BY seq DESC LIMIT {NEWEST_EVENTS}
"""

_CALLS: Final = f"""
SELECT agent, call_id, call, shown, answer, control FROM calls WHERE task = {_THE_TASK}
ORDER BY id
"""

_RESPONSE: Final = f"""
SELECT coalesce(response_text, response::text) FROM task_responses WHERE task = {_THE_TASK}
"""

_MEMORY_COLUMNS: Final = "namespace, key, value, created_at, updated_at"

_GET_MEMORY: Final = f"SELECT {_MEMORY_COLUMNS} FROM memories WHERE {_OWNED} AND digest = $4"

_NEWEST_MEMORIES: Final = f"""
SELECT {_MEMORY_COLUMNS} FROM memories WHERE {_OWNED} AND namespace >= $4 AND namespace < $5
ORDER BY updated_at DESC, digest LIMIT $6 OFFSET $7
"""

_NAMESPACES: Final = f"SELECT DISTINCT namespace FROM memories WHERE {_OWNED}"

_TOKEN: Final = "token_hash, role, caller_id, created_at, label, expires_at, revoked_at"  # noqa: S105 - columns

_FIND_TOKEN: Final = f"SELECT {_TOKEN} FROM tokens WHERE token_hash = $1"

_LIST_TOKENS: Final = f"SELECT {_TOKEN} FROM tokens ORDER BY created_at, id"


async def load_task(connection: Connection, owner: Owner, task_id: str) -> TaskRow | None:
    """See `mail.db.base.Store.load_task`."""
    row = await connection.fetchrow(_LOAD_TASK, *owner, task_id)
    return None if row is None else _task(row)


async def list_tasks(
    connection: Connection,
    owner: Owner,
    states: Sequence[TaskState],
    limit: int | None,
    before: str | None,
) -> list[TaskRow]:
    """See `mail.db.base.Store.list_tasks`."""
    text = f"SELECT {_TASK_COLUMNS} FROM tasks WHERE {_OWNED}"
    values: list[object] = [*owner]
    if before is not None:
        text += f" AND key < {_THE_TASK}"
        values.append(before)
    if states:
        values.append([state.value for state in states])
        text += f" AND state = ANY(${len(values)})"
    values.append(limit)
    text += f" ORDER BY key DESC LIMIT ${len(values)}"
    return [_task(row) for row in await connection.fetch(text, *values)]


async def owners(connection: Connection, swarm: str) -> list[Owner]:
    """See `mail.db.base.Store.owners`."""
    return [Owner(*row) for row in await connection.fetch(_OWNERS, swarm)]


async def open_owners(connection: Connection, swarm: str) -> list[Owner]:
    """See `mail.db.base.Store.open_owners`."""
    return [Owner(*row) for row in await connection.fetch(_OPEN_OWNERS, swarm)]


async def waiting_mail(connection: Connection, owner: Owner, task_id: str) -> list[Delivery]:
    """See `mail.db.base.Store.waiting_mail`."""
    return as_deliveries(task_id, await connection.fetch(_WAITING_MAIL, *owner, task_id))


async def all_mail(connection: Connection, owner: Owner, task_id: str) -> list[Delivery]:
    """See `mail.db.base.Store.all_mail`."""
    return as_deliveries(task_id, await connection.fetch(_ALL_MAIL, *owner, task_id))


async def history(connection: Connection, owner: Owner, task_id: str, agent: str) -> list[str]:
    """See `mail.db.base.Store.history`."""
    return [row[0] for row in await connection.fetch(_HISTORY, *owner, task_id, agent)]


async def journal(connection: Connection, owner: Owner, seq: int) -> list[JournalRow]:
    """See `mail.db.base.Store.journal`."""
    return [JournalRow(*row) for row in await connection.fetch(_JOURNAL, *owner, seq)]


async def begun(connection: Connection, owner: Owner, task_id: str) -> list[int]:
    """See `mail.db.base.Store.begun`."""
    return [row[0] for row in await connection.fetch(_BEGUN, *owner, task_id)]


async def events(
    connection: Connection, owner: Owner, task_id: str, after: int, limit: int | None
) -> list[TaskEvent]:
    """See `mail.db.base.Store.events`."""
    rows = await connection.fetch(_EVENTS, *owner, task_id, after, limit)
    return [_event(task_id, row) for row in rows]


async def latest_time(connection: Connection, owner: Owner, task_id: str) -> str:
    """See `mail.db.base.Store.latest_time`."""
    rows = await connection.fetch(_TIMES, *owner, task_id)
    return max((_time(*row) for row in rows), default="")


async def calls(connection: Connection, owner: Owner, task_id: str) -> list[CallRow]:
    """See `mail.db.base.Store.calls`."""
    return [CallRow(*row) for row in await connection.fetch(_CALLS, *owner, task_id)]


async def response(connection: Connection, owner: Owner, task_id: str) -> str | None:
    """See `mail.db.base.Store.response`."""
    text = await connection.fetchval(_RESPONSE, *owner, task_id)
    return None if text is None else str(text)


async def get_memory(
    connection: Connection, owner: Owner, namespace: tuple[str, ...], key: str
) -> MemoryRow | None:
    """See `mail.db.base.Store.get_memory`."""
    row = await connection.fetchrow(_GET_MEMORY, *owner, memory_digest(namespace, key))
    return None if row is None else as_memory(row)


async def search_memories(
    connection: Connection,
    owner: Owner,
    prefix: tuple[str, ...],
    query: str,
    limit: int,
    offset: int,
) -> list[MemoryRow]:
    """See `mail.db.base.Store.search_memories`."""
    found = (*owner, *namespace_range(prefix))
    words = distinct_words(query)
    if not words:
        page = await connection.fetch(_NEWEST_MEMORIES, *found, limit, offset)
        return [as_memory(row) for row in page]
    # What a case is depends on the database's locale, so the comparison is done here.
    newest = await connection.fetch(_NEWEST_MEMORIES, *found, None, 0)
    return [as_memory(row) for row in best_matches(newest, words, limit + offset)[offset:]]


async def memory_namespaces(connection: Connection, owner: Owner) -> list[tuple[str, ...]]:
    """See `mail.db.base.Store.memory_namespaces`."""
    return as_namespaces(row[0] for row in await connection.fetch(_NAMESPACES, *owner))


async def find_token(connection: Connection, token_hash: str) -> TokenRow | None:
    """See `mail.db.base.Store.find_token`."""
    row = await connection.fetchrow(_FIND_TOKEN, token_hash)
    return None if row is None else as_token(row)


async def list_tokens(connection: Connection) -> list[TokenRow]:
    """See `mail.db.base.Store.list_tokens`."""
    return [as_token(row) for row in await connection.fetch(_LIST_TOKENS)]


def _task(row: Any) -> TaskRow:
    *columns, start_text = row
    columns[3] = moment_text(columns[3]) if start_text is None else start_text
    task = as_task(columns)
    # The lists are JSONB, which the text codec does not see.
    return task._replace(
        task_contributors=tuple(map(unescape_nul, task.task_contributors)),
        remote_swarms=tuple(map(unescape_nul, task.remote_swarms)),
    )


def _event(task_id: str, row: Any) -> TaskEvent:
    kind, created_at, seq, description, data, time_text = row
    time_text = _time(created_at, time_text)
    if description is None:
        return _event_of_136(task_id, kind, time_text, seq, data)
    return as_event(task_id, (kind, time_text, seq, description, data))


def _time(created_at: datetime | None, time_text: str | None) -> str:
    if time_text is None:  # in the tables of 1.3.6 the time may be missing
        return "" if created_at is None else moment_text(created_at)
    return time_text


def _event_of_136(
    task_id: str, kind: str | None, timestamp: str, seq: int, data: str | None
) -> TaskEvent:
    """Read an event that version 1.3.6 stored: its data is the whole payload of the stream."""
    try:
        payload = json.loads(data or "{}")
    except ValueError:
        payload = data
    if not isinstance(payload, dict):
        payload = {"description": str(payload)}
    extra = payload.get("extra_data")
    if not isinstance(extra, dict):
        extra = {key: value for key, value in payload.items() if key == "response"}
    return TaskEvent(
        task_id=task_id,
        kind=kind or "message",
        timestamp=str(payload.get("timestamp") or timestamp),
        seq=seq,
        description=str(payload.get("description", "")),
        extra=extra,
    )
