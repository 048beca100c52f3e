"""SQLite's dialect: its differences from PostgreSQL, see `mail.db.driver.Dialect`."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.driver import Change, Dialect, Insert, Matching, Query, Row, RowChange, TaskPlace, Verb
from mail.db.records import MemoryRow, Owner, TaskRow
from mail.db.rows import (
    OWNED,
    OWNER_COLUMNS,
    columns,
    insert,
    list_text,
    namespace_text,
    reader,
)
from mail.db.tasks import as_event
from mail.db.texts import text_size
from mail.errors import ClaimLost

_as_task: Final = reader(TaskRow)

_NOW: Final = "strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')"

_FIND_TASK: Final = (
    f"SELECT key, next_event, bytes, state, node, epoch FROM tasks WHERE {OWNED} AND task_id = $4"
)

_TASK: Final = (
    *("task_owner", "task_contributors", "remote_swarms", "start_time", "updated_at"),
    *("entrypoint", "steps", "max_steps", "awaited", "finish_asked", "title", "usage"),
    *("handled", "next_event", "bytes", "node", "epoch"),
)
_WITH_STATE: Final = (*_TASK, "is_running", "completed", "state")


def _change(names: Sequence[str]) -> str:
    values = ", ".join(f"{name} = ${number}" for number, name in enumerate(names, 1))
    return f"UPDATE tasks SET {values} WHERE key = ${len(names) + 1}"


_CHANGE_TASK: Final = _change(_TASK)
"""An update that leaves the state alone writes no index."""
_CHANGE_STATE: Final = _change(_WITH_STATE)
_ADD_TASK: Final = insert("tasks", *_WITH_STATE, OWNER_COLUMNS, "task_id", "created_at")

_CONSUME: Final = """
UPDATE messages SET state = $1, reason = $2 WHERE seq = $3 AND task = $4 AND state = 'ready'
"""

_DROP_JOURNAL: Final = "DELETE FROM journal WHERE message = $1"


class SQLiteDialect(Dialect):
    """Times and JSON are text, truth is a number; all of a table's columns can be updated."""

    task_columns = (
        "task_id, task_owner, task_contributors, start_time, entrypoint, state, remote_swarms, "
        "steps, max_steps, awaited, finish_asked, title, usage, handled"
    )
    event_columns = "event_type, created_at, seq, description, event_data"
    event_time_columns = "event_type, created_at, seq, '', '{}'"
    event_size = (
        "coalesce(size, length(CAST(event_data AS BLOB)) + length(CAST(description AS BLOB)))"
    )
    response = "response"
    add_event = """
        INSERT INTO task_events (
            task_id, swarm_name, caller_role, caller_id, event_type, event_data, event_id,
            created_at, task, seq, description, size, texts
        ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"""
    put_snapshot = f"""
        INSERT INTO agent_histories (
            swarm_name, caller_role, caller_id, tool_format, task_id, agent_name, history, task,
            through, created_at, updated_at)
        VALUES ($1, $2, $3, coalesce($4, 'completions'), $5, $6, $7, $8, $9, {_NOW}, {_NOW})
        ON CONFLICT (task, agent_name)
        DO UPDATE SET tool_format = coalesce($4, tool_format), updated_at = excluded.updated_at,
            through = excluded.through, history =
            substr(history, 1, length(history) - 1) || ',' || substr(excluded.history, 2)"""
    put_memory = f"""
        INSERT INTO memories ({OWNER_COLUMNS}, {columns(MemoryRow)}, size)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (swarm_name, caller_role, caller_id, namespace, key)
        DO UPDATE SET value = excluded.value, created_at = excluded.created_at,
            updated_at = excluded.updated_at, size = excluded.size"""
    this_memory = "namespace = $4 AND key = $5"
    matching = Matching("desk_words MATCH {}", '"', " AND ", " OR ", " NOT ", "instr", "rowid")
    row = "rowid"
    lock = ""

    put_response = f"""
        INSERT INTO task_responses
            (task_id, swarm_name, caller_role, caller_id, response, task, texts, created_at)
        VALUES ($1, $2, $3, $4, $6, $7, $8, {_NOW})
        ON CONFLICT (task) DO UPDATE SET response = excluded.response, texts = excluded.texts,
            created_at = excluded.created_at"""
    size = "length(CAST({} AS BLOB))"  # octet_length came with SQLite 3.43
    hashed = "{}"
    some = "rowid IN ({})"
    alive = "FALSE"  # one process has the file, and what is left is another one's
    time = "{}"
    catalogue = """
        SELECT t.name, c.name, '', c.pk, CASE WHEN c.pk THEN s.seq END
        FROM sqlite_master AS t JOIN pragma_table_xinfo(t.name) AS c
        LEFT JOIN sqlite_sequence AS s ON s.name = t.name
        WHERE t.name IN (SELECT value FROM json_each($1)) AND c.hidden = 0
        UNION ALL VALUES ('desk_words', 'rowid', '', 1, NULL)"""
    numbered = ""

    def as_task(self, row: Row) -> TaskRow:
        return _as_task(row)

    def as_event(self, task_id: str, row: Row) -> TaskEvent:
        return as_event(task_id, row)

    def times(self, text: str) -> tuple[object, ...]:
        return (text,)

    def json(self, text: str) -> str:
        return text

    def memory_id(self, namespace: tuple[str, ...], key: str) -> tuple[str, ...]:
        return namespace_text(namespace), key

    def memory_values(self, owner: Owner, row: MemoryRow) -> tuple[object, ...]:
        return *owner, namespace_text(row.namespace), *row[1:], text_size(row.value)

    def among(self, parameter: str, kind: str = "text") -> str:
        return f"IN (SELECT value FROM json_each({parameter}))"

    def list(self, values: Sequence[object]) -> object:
        # SQLite cuts texts within JSON at NUL.
        return json.dumps([value for value in values if "\0" not in str(value)])

    def put_task(self, owner: Owner, task: TaskRow, change: RowChange) -> Verb[TaskPlace | None]:
        # Nobody else writes meanwhile. To find it first takes half of what RETURNING does.
        found = yield Query(_FIND_TASK, (*owner, task.task_id))
        if bool(found) is change.new:
            return None
        new, claim = change.new, change.claim
        key, first_event, taken, state, node, epoch = found[0] if found else (0, 1, 0, None, "", 0)
        if claim is not None:
            if claim.epoch != epoch:
                raise ClaimLost(task.task_id)
            node, epoch = change.node, claim.next_epoch
        taken += change.size
        now = datetime.now(UTC).isoformat()
        values: tuple[object, ...] = (
            task.task_owner,
            list_text(task.task_contributors),
            list_text(task.remote_swarms),
            task.start_time,
            now,
            task.entrypoint,
            task.steps,
            task.max_steps,
            task.awaited,
            task.finish_asked,
            task.title,
            task.usage,
            task.handled,
            first_event + change.events,
            taken,
            node,
            epoch,
        )
        if state == task.state.value:
            yield Change(_CHANGE_TASK, (*values, key))
            return TaskPlace(key, first_event, taken)
        is_running, completed = task.state is TaskState.RUNNING, task.state is TaskState.COMPLETED
        values = (*values, is_running, completed, task.state.value)
        if new:
            (key,) = yield Insert(_ADD_TASK, "key", [(*values, *owner, task.task_id, now)])
        else:
            yield Change(_CHANGE_STATE, (*values, key))
        return TaskPlace(key, first_event, taken)

    def continue_numbers(self, table: str, column: str, last: int) -> Verb[None]:
        yield Change("DELETE FROM sqlite_sequence WHERE name = $1", (table,))
        yield Change("INSERT INTO sqlite_sequence (name, seq) VALUES ($1, $2)", (table, last))

    def consume(self, task: int, seqs: Sequence[int], state: str, reason: str | None) -> Verb[int]:
        consumed = 0
        for seq in seqs:
            if (yield Change(_CONSUME, (state, reason, seq, task))):
                yield Change(_DROP_JOURNAL, (seq,))
                consumed += 1
        return consumed
