"""What PostgreSQL's types cannot hold as it is: NUL in texts, odd JSON, the wording of times.

And the records that are made of such columns.
"""

import json
import math
import re
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any, Final, TypeAlias

from mail.core.events import TaskEvent
from mail.db.records import TaskRow
from mail.db.rows import as_event, as_task

Connection: TypeAlias = Any
"""An `asyncpg.Connection`, from a pool or not; asyncpg ships no types."""
Pool: TypeAlias = Any
"""An `asyncpg.Pool`."""

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


def task_of(row: Any) -> TaskRow:
    """Make a task of its columns, in the order of `TaskRow`, and ``start_text``."""
    *columns, start_text = row
    columns[3] = moment_text(columns[3]) if start_text is None else start_text
    task = as_task(columns)
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
