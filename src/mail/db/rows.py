"""Between records and rows: a column for each field, in the order of the fields.

`insert` writes the statement that adds records, `written` returns their values, and `reader` makes
records of what a query returns for `columns`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, Final, TypeVar, get_type_hints

from pydantic_core import from_json

R = TypeVar("R")

OWNER_COLUMNS: Final = "swarm_name, caller_role, caller_id"
"""The columns of a `mail.db.records.Owner`."""

OWNED: Final = "swarm_name = $1 AND caller_role = $2 AND caller_id = $3"
"""Of what belongs to the owner in the first three parameters."""

UNFINISHED: Final = "(is_running OR (state = 'paused' AND awaited))"
"""Of a task that runs, or whose callers were not told yet that it is paused."""

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
    changes: list[tuple[int, Callable[[Any], object]]] = []
    for place, name in enumerate(fields):
        hint = hints[name]
        if hint in _CONVERSIONS:
            changes.append((place, _CONVERSIONS[hint]))
        elif isinstance(hint, type) and issubclass(hint, Enum):
            changes.append((place, hint))

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


def list_text(texts: Sequence[str]) -> str:
    """Return texts as a JSON list."""
    return f"[{', '.join(map(_quoted, texts))}]"  # as `json.dumps`, but four times as fast


def namespace_text(namespace: tuple[str, ...]) -> str:
    """Return a namespace of memories as its key: a compact JSON list, in ASCII."""
    return f"[{','.join(map(_quoted, namespace))}]"
