"""Between records and rows: a column for each field, in the order of the fields.

`insert` writes the statement that adds records, `written` returns their values, and `reader` makes
records of what a query returns for `columns`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, Final, TypeVar, get_type_hints

from pydantic_core import from_json

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.records import IdempotencyRow
from mail.db.texts import text_size

R = TypeVar("R")

OWNER_COLUMNS: Final = "swarm_name, caller_role, caller_id"
"""The columns of a `mail.db.records.Owner`."""

OWNED: Final = "swarm_name = $1 AND caller_role = $2 AND caller_id = $3"
"""Of what belongs to the owner in the first three parameters."""

THE_TASK: Final = f"(SELECT key FROM tasks WHERE {OWNED} AND task_id = $4)"
"""The key of the task that ``$1`` to ``$4`` name."""

BURIED: Final = "swarm_name = '' AND caller_role = 'deleted'"
"""Of deleted tasks whose records are still there; see `mail.db.records.Owner.of_deleted`."""

LAST_WORDS: Final = "outbox.state = 'waiting' AND outbox.sender = ''"
"""Of mail for peers that is sent although its task was deleted."""

MANY: Final = 2**62
"""A limit that is none."""

_CONVERSIONS: Final[Mapping[object, Callable[[Any], object]]] = {
    bool: bool,  # a number in SQLite
    tuple[str, ...]: lambda text: tuple(from_json(text)),
    TaskState: TaskState,
}


def columns(kind: type[Any], *without: str) -> str:
    """Return the columns of a record's fields."""
    return ", ".join(name for name in kind._fields if name not in without)


def insert(table: str, *names: str) -> str:
    """Return a statement that adds a row to a table; some of its columns may be one text."""
    listed = ", ".join(names)
    places = ", ".join(f"${number}" for number in range(1, listed.count(",") + 2))
    return f"INSERT INTO {table} ({listed}) VALUES ({places})"


def written(record: Iterable[Any]) -> list[Any]:
    """Return the values of a record, with texts in a tuple as a JSON list."""
    return [list_text(value) if isinstance(value, tuple) else value for value in record]


def reader(kind: type[R]) -> Callable[[Iterable[Any]], R]:
    """Return a function that makes a record of its columns; the last fields may be left out."""
    hints = get_type_hints(kind)
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    changes = [
        (place, _CONVERSIONS[hints[name]])
        for place, name in enumerate(fields)
        if hints[name] in _CONVERSIONS
    ]

    def read(row: Iterable[Any]) -> R:
        values = list(row)
        for place, change in changes:
            values[place] = change(values[place])
        return kind(*values)

    return read


class Values(list[object]):
    """The values of a statement whose parameters depend on what is asked for."""

    def place(self, value: object) -> str:
        """Add a value and return its parameter."""
        self.append(value)
        return f"${len(self)}"


def as_event(task_id: str, row: Iterable[Any]) -> TaskEvent:
    """Make an event of event_type, created_at, seq, description and event_data."""
    kind, timestamp, seq, description, extra = row
    return TaskEvent(
        task_id=task_id,
        kind=kind,
        timestamp=timestamp,
        seq=seq,
        description=description,
        extra=json.loads(extra),
        size=text_size(extra) + text_size(description),
    )


def list_text(texts: Sequence[str]) -> str:
    """Return texts as a JSON list."""
    return f"[{', '.join(map(_quoted, texts))}]"  # as `json.dumps`, but four times as fast


def namespace_text(namespace: tuple[str, ...]) -> str:
    """Return a namespace of memories as its key: a compact JSON list, in ASCII."""
    return f"[{','.join(map(_quoted, namespace))}]"


_KEY_BYTES: Final = 300
"""Of an idempotency key's row: its fingerprint, its time, its owner, and these in indexes."""


def key_size(row: IdempotencyRow) -> int:
    """Return about how many bytes an idempotency key takes, which is in an index, too."""
    return _KEY_BYTES + 2 * text_size(row.key) + text_size(row.answer or "")
