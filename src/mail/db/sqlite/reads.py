"""The statements behind the verbs that read. Each function runs on a read-only connection."""

import sqlite3
from collections.abc import Sequence
from typing import Final

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
from mail.db.rows import (
    as_deliveries,
    as_event,
    as_memory,
    as_namespaces,
    as_task,
    as_token,
    namespace_range,
    namespace_text,
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

_OWNED: Final = "swarm_name = ? AND caller_role = ? AND caller_id = ?"

_TASK_COLUMNS: Final = """
task_id, task_owner, task_contributors, start_time, entrypoint, state, remote_swarms, steps,
max_steps, awaited, finish_asked, title, usage
"""

_THE_TASK: Final = f"(SELECT id FROM tasks WHERE {_OWNED} AND task_id = ?)"

_LOAD_TASK: Final = f"SELECT {_TASK_COLUMNS} FROM tasks WHERE {_OWNED} AND task_id = ?"

_OWNERS: Final = """
SELECT DISTINCT swarm_name, caller_role, caller_id FROM tasks WHERE swarm_name = ? ORDER BY 1, 2, 3
"""

_OPEN_OWNERS: Final = """
SELECT DISTINCT swarm_name, caller_role, caller_id FROM tasks
WHERE (is_running = 1 OR (state = 'paused' AND awaited = 1)) AND swarm_name = ? ORDER BY 1, 2, 3
"""

_MAIL_COLUMNS: Final = "recipient, tier, interrupt, payload, control, seq, attempts"

_WAITING_MAIL: Final = f"""
SELECT {_MAIL_COLUMNS} FROM messages WHERE task = {_THE_TASK} AND state = 'ready'
ORDER BY tier, seq
"""

_ALL_MAIL: Final = f"SELECT {_MAIL_COLUMNS} FROM messages WHERE task = {_THE_TASK} ORDER BY seq"

_HISTORY: Final = f"""
SELECT entries FROM history_entries WHERE task = {_THE_TASK} AND agent = ? ORDER BY id
"""

_JOURNAL: Final = """
SELECT key, journal.state, journal.payload FROM journal
JOIN messages ON messages.seq = journal.message JOIN tasks ON tasks.id = messages.task
WHERE journal.message = ? AND swarm_name = ? AND caller_role = ? AND caller_id = ?
ORDER BY journal.id
"""

_BEGUN: Final = f"""
SELECT seq FROM messages WHERE task = {_THE_TASK} AND state = 'ready'
    AND EXISTS (SELECT 1 FROM journal WHERE message = messages.seq)
ORDER BY seq
"""

_EVENTS: Final = f"""
SELECT event_type, created_at, seq, description, event_data FROM task_events
WHERE task = {_THE_TASK} AND seq > ? ORDER BY seq LIMIT ?
"""

_TIMES: Final = f"""
SELECT created_at FROM task_events WHERE task = {_THE_TASK} ORDER BY seq DESC LIMIT {NEWEST_EVENTS}
"""

_CALLS: Final = f"""
SELECT agent, call_id, call, shown, answer, control FROM calls WHERE task = {_THE_TASK}
ORDER BY id
"""

_RESPONSE: Final = f"SELECT response FROM task_responses WHERE task = {_THE_TASK}"

_MEMORY_COLUMNS: Final = "namespace, key, value, created_at, updated_at"

_GET_MEMORY: Final = f"""
SELECT {_MEMORY_COLUMNS} FROM memories WHERE {_OWNED} AND namespace = ? AND key = ?
"""

_NEWEST_MEMORIES: Final = f"""
SELECT {_MEMORY_COLUMNS} FROM memories WHERE {_OWNED} AND namespace >= ? AND namespace < ?
ORDER BY updated_at DESC
"""

_NAMESPACES: Final = f"SELECT DISTINCT namespace FROM memories WHERE {_OWNED}"

_TOKEN: Final = "token_hash, role, caller_id, created_at, label, expires_at, revoked_at"  # noqa: S105 - columns

_FIND_TOKEN: Final = f"SELECT {_TOKEN} FROM tokens WHERE token_hash = ?"

_LIST_TOKENS: Final = f"SELECT {_TOKEN} FROM tokens ORDER BY created_at, id"


def load_task(connection: sqlite3.Connection, owner: Owner, task_id: str) -> TaskRow | None:
    """See `mail.db.base.Store.load_task`."""
    row = connection.execute(_LOAD_TASK, (*owner, task_id)).fetchone()
    return None if row is None else as_task(row)


def list_tasks(
    connection: sqlite3.Connection,
    owner: Owner,
    states: Sequence[TaskState],
    limit: int | None,
    before: str | None,
) -> list[TaskRow]:
    """See `mail.db.base.Store.list_tasks`."""
    text = f"SELECT {_TASK_COLUMNS} FROM tasks WHERE {_OWNED}"
    values: list[object] = [*owner]
    if before is not None:
        text += f" AND id < {_THE_TASK}"
        values += [*owner, before]
    if tuple(states) == (TaskState.RUNNING,):
        # Written out, not bound: only so may the partial index be used.
        text += " AND is_running = 1"
    elif states:
        text += f" AND state IN ({', '.join('?' * len(states))})"
        values += [state.value for state in states]
    values.append(_limit(limit))
    rows = connection.execute(f"{text} ORDER BY id DESC LIMIT ?", values)
    return [as_task(row) for row in rows]


def owners(connection: sqlite3.Connection, swarm: str) -> list[Owner]:
    """See `mail.db.base.Store.owners`."""
    return [Owner(*row) for row in connection.execute(_OWNERS, (swarm,))]


def open_owners(connection: sqlite3.Connection, swarm: str) -> list[Owner]:
    """See `mail.db.base.Store.open_owners`."""
    return [Owner(*row) for row in connection.execute(_OPEN_OWNERS, (swarm,))]


def waiting_mail(connection: sqlite3.Connection, owner: Owner, task_id: str) -> list[Delivery]:
    """See `mail.db.base.Store.waiting_mail`."""
    return as_deliveries(task_id, connection.execute(_WAITING_MAIL, (*owner, task_id)))


def all_mail(connection: sqlite3.Connection, owner: Owner, task_id: str) -> list[Delivery]:
    """See `mail.db.base.Store.all_mail`."""
    return as_deliveries(task_id, connection.execute(_ALL_MAIL, (*owner, task_id)))


def history(connection: sqlite3.Connection, owner: Owner, task_id: str, agent: str) -> list[str]:
    """See `mail.db.base.Store.history`."""
    return [row[0] for row in connection.execute(_HISTORY, (*owner, task_id, agent))]


def journal(connection: sqlite3.Connection, owner: Owner, seq: int) -> list[JournalRow]:
    """See `mail.db.base.Store.journal`."""
    return [JournalRow(*row) for row in connection.execute(_JOURNAL, (seq, *owner))]


def begun(connection: sqlite3.Connection, owner: Owner, task_id: str) -> list[int]:
    """See `mail.db.base.Store.begun`."""
    return [row[0] for row in connection.execute(_BEGUN, (*owner, task_id))]


def events(
    connection: sqlite3.Connection, owner: Owner, task_id: str, after: int, limit: int | None
) -> list[TaskEvent]:
    """See `mail.db.base.Store.events`."""
    rows = connection.execute(_EVENTS, (*owner, task_id, after, _limit(limit)))
    return [as_event(task_id, row) for row in rows]


def latest_time(connection: sqlite3.Connection, owner: Owner, task_id: str) -> str:
    """See `mail.db.base.Store.latest_time`."""
    rows = connection.execute(_TIMES, (*owner, task_id))
    return max((created_at or "" for (created_at,) in rows), default="")


def calls(connection: sqlite3.Connection, owner: Owner, task_id: str) -> list[CallRow]:
    """See `mail.db.base.Store.calls`."""
    rows = connection.execute(_CALLS, (*owner, task_id))
    return [CallRow(*row) for row in rows]


def response(connection: sqlite3.Connection, owner: Owner, task_id: str) -> str | None:
    """See `mail.db.base.Store.response`."""
    row = connection.execute(_RESPONSE, (*owner, task_id)).fetchone()
    return None if row is None else str(row[0])


def get_memory(
    connection: sqlite3.Connection, owner: Owner, namespace: tuple[str, ...], key: str
) -> MemoryRow | None:
    """See `mail.db.base.Store.get_memory`."""
    row = connection.execute(_GET_MEMORY, (*owner, namespace_text(namespace), key)).fetchone()
    return None if row is None else as_memory(row)


def search_memories(
    connection: sqlite3.Connection,
    owner: Owner,
    prefix: tuple[str, ...],
    query: str,
    limit: int,
    offset: int,
) -> list[MemoryRow]:
    """See `mail.db.base.Store.search_memories`."""
    found: tuple[object, ...] = (*owner, *namespace_range(prefix))
    words = distinct_words(query)
    if words:
        # SQLite folds the case of ASCII only, so the comparison is done here.
        newest = connection.execute(_NEWEST_MEMORIES, found)
        rows = best_matches(newest, words, limit + offset)[offset:]
    else:
        page = f"{_NEWEST_MEMORIES} LIMIT ? OFFSET ?"
        rows = connection.execute(page, (*found, limit, offset)).fetchall()
    return [as_memory(row) for row in rows]


def memory_namespaces(connection: sqlite3.Connection, owner: Owner) -> list[tuple[str, ...]]:
    """See `mail.db.base.Store.memory_namespaces`."""
    rows = connection.execute(_NAMESPACES, owner)
    return as_namespaces(row[0] for row in rows)


def find_token(connection: sqlite3.Connection, token_hash: str) -> TokenRow | None:
    """See `mail.db.base.Store.find_token`."""
    row = connection.execute(_FIND_TOKEN, (token_hash,)).fetchone()
    return None if row is None else as_token(row)


def list_tokens(connection: sqlite3.Connection) -> list[TokenRow]:
    """See `mail.db.base.Store.list_tokens`."""
    return [as_token(row) for row in connection.execute(_LIST_TOKENS)]


def _limit(limit: int | None) -> int:
    return -1 if limit is None else limit
