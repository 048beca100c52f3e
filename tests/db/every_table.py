"""Rows for every table, with values that kinds of databases hold in different ways."""

import itertools
import json
from collections.abc import Callable
from typing import Any, Final

from mail.db.driver import Batch, Query, Verb
from mail.db.store import Store

PROCESSES: Final = {"announcements", "duties", "nodes", "relayed", "schema_version", "writers"}
"""The tables whose rows are not moved."""

ROWS: Final = 130
TASKS: Final = 3
ODD: Final = (
    "NUL \0, mark \x1a0\x1a1, \\u0000, line\u2028end, snow \u2603, face \U0001f600, \"'\r\n\t"
)
LARGEST: Final = 2**63 - 1
EXACT: Final = "2026-01-02T03:04:05.678+02:00"
HISTORY: Final = json.dumps(
    [{"content": ODD, "z": 1, "a": [1.0, -0.0, 1e20, 12345678901234567890123, 1e-9, True, None]}]
)
LISTS: Final = json.dumps(["user:al\0ice@example", "agent:\x1a0\x1a1@other", "\\u0000"])

_SQLITE_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_POSTGRES_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"

_WITH_TIMES: Final = ("agent_histories", "swarm_registry", "task_responses", "tasks")
_OF_TABLES: Final[dict[tuple[str, str], Callable[[int], Any]]] = {
    ("database_id", "id"): "database {}".format,
    ("desk_words", "rowid"): int,
    ("swarm_registry", "swarm_name"): "swarm {}".format,
}
_OF_COLUMNS: Final[dict[str, Callable[[int], Any]]] = {
    **dict.fromkeys(("size", "bytes", "turn", "version"), lambda number: LARGEST - number),
    **dict.fromkeys(("created_at", "updated_at"), lambda number: EXACT if number % 2 else "never"),
    **dict.fromkeys(("task_contributors", "remote_swarms"), lambda _: LISTS),
    **dict.fromkeys(
        ("is_running", "completed", "awaited", "finish_asked", "interrupt", "told", "urgent"),
        lambda number: number % 2,
    ),
    "wants_ack": lambda number: number % 2,
    "task": lambda number: 1 + number % TASKS,
    "history": lambda _: HISTORY,
    "ledger": lambda _: 1,
    "namespace": lambda _: json.dumps(["notes", ODD], separators=(",", ":")),
    "node": lambda _: "",
    "peering": lambda _: None,
    "response": lambda _: json.dumps({"message": ODD, "number": 1.0}),
    "start_time": lambda _: EXACT,
    "state": lambda _: "paused",
    "swarm_name": lambda _: "example",
    "tool_format": lambda _: "responses",
    "words": lambda _: "\u00b7mark some words",
}


def value(table: str, column: str, kind: str, number: int) -> Any:
    """Return a value for a column of the row with this number, as it stands in a file."""
    if column in ("created_at", "updated_at") and table in _WITH_TIMES:
        return f"2026-01-02T03:04:05.{678 if number % 2 else '678901'}+00:00"
    if (table, column) in _OF_TABLES:
        return _OF_TABLES[table, column](number)
    if column in _OF_COLUMNS:
        return _OF_COLUMNS[column](number)
    return number if kind in ("INTEGER", "bigint", "smallint") else f"{column} {number} {ODD}"


async def fill(store: Store) -> dict[str, int]:
    """Put rows into every table of an open store; return how many there are of each."""

    def verb() -> Verb[dict[str, int]]:
        counts = {}
        columns: dict[str, dict[str, str]] = {}
        every = _SQLITE_TABLES if not store.shared else _POSTGRES_TABLES
        names = [name for (name,) in (yield Query(every))]
        for table, name, kind, *_ in (yield Query(store.sql.catalogue, (store.sql.list(names),))):
            columns.setdefault(table, {})[name] = kind
        for table in _in_order(columns):
            counts[table] = yield from _fill_table(store, table, columns[table])
        return counts

    return await store.driver.transaction(verb)


def _in_order(columns: dict[str, Any]) -> list[str]:
    first = ["tasks", "messages", "desk_letters"]
    mine = [
        name
        for name in columns
        if not name.startswith(("sqlite_", "desk_words_")) and name not in first
    ]
    return [*first, *(name for name in mine if name not in PROCESSES)]


def _fill_table(store: Store, table: str, types: dict[str, str]) -> Verb[int]:
    made = {"start_text", "time_text", "response_text", "digest"}
    moved = {name: kind for name, kind in types.items() if name not in made}
    if not store.shared:
        declared = yield Query(f"SELECT name, type FROM pragma_table_xinfo('{table}')")  # noqa: S608
        moved |= {name: kind for name, kind in declared if name in moved}
    if types.get("id") == "uuid":
        del moved["id"], types["id"]
    one = table in ("approval_counter", "database_id")
    count = 1 if one else TASKS if table in ("tasks", "task_responses") else ROWS
    if one:
        yield Batch(f"DELETE FROM {table}", [()])  # noqa: S608
    rows = [
        {name: value(table, name, kind, number) for name, kind in moved.items()}
        for number in itertools.islice(itertools.count(1), count)
    ]
    stored = [store.sql.stored(table, types, row) for row in rows]
    names = [*stored[0]]
    places = ", ".join(f"${number}" for number in range(1, len(names) + 1))
    text = f"INSERT INTO {table} ({', '.join(names)}) {store.sql.numbered} VALUES ({places})"  # noqa: S608
    yield Batch(text, [[row[name] for name in names] for row in stored])
    return count
