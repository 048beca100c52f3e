"""PostgreSQL's dialect: its differences from SQLite, see `mail.db.driver.Dialect`.

Times are timestamps, with their text beside them where a timestamp would not give it back; JSON is
JSONB in the documented tables. ``created_at`` and ``updated_at`` are the database's time. NUL
in texts and odd JSON cannot be stored as they are: functions at the end write and read such values.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any, Final, TypeAlias

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.driver import Dialect, Matching, Query, Row, RowChange, TaskPlace, Verb
from mail.db.records import MemoryRow, Owner, TaskRow
from mail.db.rows import (
    OWNED,
    OWNER_COLUMNS,
    columns,
    list_text,
    namespace_text,
    reader,
)
from mail.db.tasks import as_event
from mail.db.texts import text_size
from mail.errors import ClaimLost

Connection: TypeAlias = Any
"""An `asyncpg.Connection`, from a pool or not; asyncpg ships no types."""
Pool: TypeAlias = Any
"""An `asyncpg.Pool`."""

_as_task: Final = reader(TaskRow)

_ADD_TASK: Final = """
INSERT INTO tasks (
    task_owner, task_contributors, remote_swarms, is_running, completed, start_time, start_text,
    state, entrypoint, steps, max_steps, awaited, finish_asked, title, next_event,
    swarm_name, caller_role, caller_id, task_id, usage, bytes, handled, node, epoch
) VALUES ($1, $2, $3, $4, $5, coalesce($6, now()), $7, $8, $9, $10, $11, $12, $13, $14,
    1 + $15::bigint, $16, $17, $18, $19, $20, $21, $22, $23, coalesce($24, 0))
ON CONFLICT DO NOTHING RETURNING key, next_event, bytes
"""

_CHANGE_TASK: Final = """
UPDATE tasks
SET task_owner = $1, task_contributors = $2, remote_swarms = $3, is_running = $4, completed = $5,
    start_time = coalesce($6, now()), start_text = $7, state = $8, entrypoint = $9, steps = $10,
    max_steps = $11, awaited = $12, finish_asked = $13, title = $14,
    next_event = next_event + $15::bigint, usage = $20, updated_at = now(),
    bytes = bytes + $21::bigint, handled = $22,
    node = CASE WHEN $24::bigint IS NULL THEN node ELSE $23 END, epoch = coalesce($24, epoch)
WHERE swarm_name = $16 AND caller_role = $17 AND caller_id = $18 AND task_id = $19
    AND epoch = coalesce($25, epoch)
RETURNING key, next_event, bytes
"""

_TEXT_BESIDE: Final = {
    "tasks": ("start_time", "start_text"),
    "task_events": ("created_at", "time_text"),
    "task_responses": ("response", "response_text"),
}
"""Columns of the documented tables, and those with the text that they may not give back."""

LEASE_SECONDS: Final = 6.0
"""A process that has said nothing for so long is dead; see `mail.db.postgres.nodes`."""

_FIND_TASK: Final = f"SELECT 1 FROM tasks WHERE {OWNED} AND task_id = $4"

_CONSUME: Final = """
WITH consumed AS (
    UPDATE messages SET state = $1, reason = $2
    WHERE seq = ANY($3::bigint[]) AND task = $4 AND state = 'ready' RETURNING seq
), dropped AS (
    DELETE FROM journal WHERE message IN (SELECT seq FROM consumed)
)
SELECT count(*) FROM consumed
"""


class PostgresDialect(Dialect):
    """The documented tables are those of version 1.3.6; its rows are read, too."""

    task_columns = (
        "task_id, task_owner, coalesce(task_contributors, '[]'), start_time, entrypoint, state, "
        "coalesce(remote_swarms, '[]'), steps, max_steps, awaited, finish_asked, title, usage, "
        "handled, start_text"
    )
    event_columns = "event_type, created_at, seq, description, event_data, time_text"
    # What 1.3.6 stored has no description, and its data tell the time.
    event_time_columns = (
        "event_type, created_at, seq, CASE WHEN description IS NOT NULL THEN '' END, "
        "CASE WHEN description IS NULL THEN event_data ELSE '{}' END, time_text"
    )
    event_size = (
        "coalesce(size, "
        "coalesce(octet_length(event_data), 0) + coalesce(octet_length(description), 0))"
    )
    response = "coalesce(response_text, response::text)"
    add_event = """
        INSERT INTO task_events (
            task_id, swarm_name, caller_role, caller_id, event_type, event_data, event_id,
            created_at, time_text, task, seq, description, size, texts
        ) VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8, now()), $9, $10, $11, $12, $13, $14)"""
    put_snapshot = """
        INSERT INTO agent_histories (
            swarm_name, caller_role, caller_id, tool_format, task_id, agent_name, history, task,
            through)
        VALUES ($1, $2, $3, coalesce($4, 'completions'), $5, $6, $7, $8, $9)
        ON CONFLICT (task, agent_name)
        DO UPDATE SET tool_format = coalesce($4, agent_histories.tool_format),
            history = agent_histories.history || excluded.history, updated_at = now(),
            through = excluded.through"""
    put_memory = f"""
        INSERT INTO memories ({OWNER_COLUMNS}, digest, {columns(MemoryRow)}, size)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (swarm_name, caller_role, caller_id, digest)
        DO UPDATE SET value = excluded.value, created_at = excluded.created_at,
            updated_at = excluded.updated_at, size = excluded.size"""
    this_memory = "digest = $4"
    matching = Matching(
        "lexemes @@ CAST({}::text AS tsquery)", "'", " & ", " | ", " & !", "strpos", "rowid + 0"
    )
    row = "ctid"
    lock = "FOR UPDATE"

    put_response = """
        INSERT INTO task_responses
            (task_id, swarm_name, caller_role, caller_id, response, response_text, task, texts)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (task_id, swarm_name, caller_role, caller_id)
        DO UPDATE SET response = excluded.response, response_text = excluded.response_text,
            created_at = excluded.created_at, task = excluded.task, texts = excluded.texts"""
    size = "octet_length({})"
    hashed = "md5({})"
    some = "ctid = ANY(ARRAY({}))"
    alive = f"""EXISTS (
        SELECT 1 FROM nodes
        WHERE nodes.id = {{}} AND beat_at > now() - interval '{LEASE_SECONDS} seconds')"""
    time = "CAST({}::text AS TIMESTAMP WITH TIME ZONE)"
    catalogue = """
        SELECT relname, attname, format_type(atttypid, NULL), attnum = ANY(indkey),
            CASE WHEN attidentity <> '' THEN coalesce(
                pg_sequence_last_value(pg_get_serial_sequence(relname, attname)::regclass), 0) END
        FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
        LEFT JOIN pg_index ON indrelid = pg_class.oid AND indisprimary
        WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
            AND relname = ANY($1::text[]) AND attnum > 0 AND NOT attisdropped
            AND attgenerated = ''"""
    numbered = "OVERRIDING SYSTEM VALUE"

    def as_task(self, row: Row) -> TaskRow:
        return task_of(row)

    def as_event(self, task_id: str, row: Row) -> TaskEvent:
        return event_of(task_id, row)

    def times(self, text: str) -> tuple[object, ...]:
        return moment(text)

    def json(self, text: str) -> str:
        return jsonb_text(text)

    def memory_id(self, namespace: tuple[str, ...], key: str) -> tuple[str, ...]:
        # However long they are, the index takes their hash.
        return (hashlib.sha256(f"{namespace_text(namespace)}{key}".encode()).hexdigest(),)

    def memory_values(self, owner: Owner, row: MemoryRow) -> tuple[object, ...]:
        namespace, key, *rest = row
        digest = self.memory_id(namespace, key)
        return *owner, *digest, namespace_text(namespace), key, *rest, text_size(row.value)

    def among(self, parameter: str, kind: str = "text") -> str:
        return f"= ANY({parameter}::{kind}[])"

    def list(self, values: Sequence[object]) -> object:
        # The text codec does not see what is in an array.
        return [escape_nul(value) if isinstance(value, str) else value for value in values]

    def put_task(self, owner: Owner, task: TaskRow, change: RowChange) -> Verb[TaskPlace | None]:
        claim, events = change.claim, change.events
        values: tuple[object, ...] = (
            task.task_owner,
            list_text([escape_nul(text) for text in task.task_contributors]),
            list_text([escape_nul(text) for text in task.remote_swarms]),
            task.state is TaskState.RUNNING,
            task.state is TaskState.COMPLETED,
            *moment(task.start_time),
            task.state.value,
            task.entrypoint,
            task.steps,
            task.max_steps,
            task.awaited,
            task.finish_asked,
            task.title,
            events,
            *owner,
            task.task_id,
            task.usage,
            change.size,
            task.handled,
            change.node,
            claim and claim.next_epoch,
        )
        if change.new:
            found = yield Query(_ADD_TASK, values)
        else:
            found = yield Query(_CHANGE_TASK, (*values, claim and claim.epoch))
        if not found:
            if not change.new and (yield Query(_FIND_TASK, (*owner, task.task_id))):
                raise ClaimLost(task.task_id)
            return None
        ((key, next_event, taken),) = found
        return TaskPlace(key, next_event - events, taken)

    def portable(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        row = {name: _portable(name, value) for name, value in row.items()}
        if table == "memories":
            del row["digest"]
        elif table in _TEXT_BESIDE:
            column, beside = _TEXT_BESIDE[table]
            text = row.pop(beside)
            row[column] = row[column] if text is None else text
        return row

    def stored(self, table: str, types: Mapping[str, str], row: dict[str, Any]) -> dict[str, Any]:
        stored = {name: _stored(types[name], name, value) for name, value in row.items()}
        if table == "memories":
            namespace = tuple(json.loads(row["namespace"]))
            (stored["digest"],) = self.memory_id(namespace, row["key"])
        elif table in _TEXT_BESIDE:
            column, beside = _TEXT_BESIDE[table]
            stored[beside] = row[column]
            if column != "response" and row[column] is not None:
                stored[column], stored[beside] = moment(row[column])
                stored[column] = stored[column] or datetime.now(UTC)
        return stored

    def continue_numbers(self, table: str, column: str, last: int) -> Verb[None]:
        yield Query(
            "SELECT setval(pg_get_serial_sequence($1, $2), nullif(greatest("
            f"$3::bigint, (SELECT max({column}) FROM {table})), 0))",
            (table, column, last),
        )

    def consume(self, task: int, seqs: Sequence[int], state: str, reason: str | None) -> Verb[int]:
        ((count,),) = yield Query(_CONSUME, (state, reason, seqs, task))
        return int(count)


_MARK: Final = "\x1a"
_MARKED: Final = re.compile("\x1a([01])")
_NOT_JSONB: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f]|\\u0000|\\u[dD][89a-fA-F]|NaN|Infinity|[eE]\+?\d{3}"
)


def escape_nul(text: str) -> str:
    """Return a text without NUL, which PostgreSQL refuses: a rare control sign stands for it."""
    if "\0" in text or _MARK in text:
        return text.replace(_MARK, _MARK + "1").replace("\0", _MARK + "0")
    return text


def unescape_nul(text: str) -> str:
    """Undo `escape_nul`."""
    if _MARK not in text:
        return text
    return _MARKED.sub(lambda found: "\0" if found[1] == "0" else _MARK, text)


def encode_text(text: str) -> bytes:
    """Return a text as PostgreSQL gets it. Raises UnicodeEncodeError on unpaired surrogates."""
    return escape_nul(text).encode()


def decode_text(data: bytes) -> str:
    """Undo `encode_text`."""
    return unescape_nul(data.decode())


def moment(text: str) -> tuple[datetime | None, str | None]:
    """Return a time for a timestamp column, and the text itself where that would not give it back.

    Returns:
        The time in UTC; None when the text is no time with a zone.
    """
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            return None, text
        found = found.astimezone(UTC)  # as it comes back
    except (ValueError, OverflowError):  # no time, or none of the years 1 to 9999 in UTC
        return None, text
    # asyncpg takes the ends of the calendar for infinity, which comes back without a zone.
    plain = moment_text(found) == text and found.year not in (MINYEAR, MAXYEAR)
    return found, None if plain else text


def moment_text(found: datetime) -> str:
    """Return the text of a time that came from a timestamp column (they come in UTC)."""
    return found.isoformat()


def jsonb_text(text: str) -> str:
    """Return JSON that a JSONB column takes: signs and numbers that it refuses are replaced."""
    if not _NOT_JSONB.search(text):
        return text
    return json.dumps(_tamed(json.loads(text, strict=False)), ensure_ascii=False)


def _tamed(value: Any) -> Any:
    if isinstance(value, str):
        whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return whole.replace("\0", "\ufffd")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_tamed(item) for item in value]
    if isinstance(value, dict):
        return {_tamed(key): _tamed(item) for key, item in value.items()}
    return value


_LISTS: Final = frozenset({"task_contributors", "remote_swarms"})


def _portable(column: str, value: Any) -> Any:
    if column in _LISTS and value is not None:
        return list_text([unescape_nul(text) for text in json.loads(value)])
    if isinstance(value, datetime):
        return moment_text(value)
    return int(value) if isinstance(value, bool) else value


def _stored(kind: str, column: str, value: Any) -> Any:
    if value is None:
        return None
    if column in _LISTS:
        return list_text([escape_nul(text) for text in json.loads(value)])
    if kind == "jsonb":
        return jsonb_text(value)
    if kind == "timestamp with time zone":
        return moment(value)[0]
    return bool(value) if kind == "boolean" else value


def task_of(row: Any) -> TaskRow:
    """Make a task of its columns, in the order of `TaskRow`, and ``start_text``."""
    *values, start_text = row
    values[3] = moment_text(values[3]) if start_text is None else start_text
    task = _as_task(values)
    # The lists are JSONB, which the text codec does not see.
    return task._replace(
        task_contributors=tuple(map(unescape_nul, task.task_contributors)),
        remote_swarms=tuple(map(unescape_nul, task.remote_swarms)),
    )


def event_of(task_id: str, row: Any) -> TaskEvent:
    """Make an event of its columns and ``time_text``."""
    kind, created_at, seq, description, data, time_text = row
    # In the tables of 1.3.6 the time may be missing.
    if time_text is None:
        time_text = "" if created_at is None else moment_text(created_at)
    if description is None:
        return _event_of_136(task_id, kind, time_text, seq, data)
    return as_event(task_id, (kind, time_text, seq, description, data))


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
