"""Numbered schema migrations, applied in order; the database remembers which it has."""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from pydantic_core import to_json

from mail.db.driver import Batch, Query, Verb
from mail.db.sqlite.connect import run_verb
from mail.errors import StoreError

_VERSIONS: Final = """
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at TEXT NOT NULL
)
"""


Step = Callable[[], Verb[None]]
"""A step beyond SQL: a verb of `Query` and `Batch`, run behind the script in its transaction."""


class Migration(NamedTuple):
    """One ``NNNN_name.sql`` file, and what is to be done behind it."""

    version: int
    name: str
    script: str
    step: Step | None = None


def packaged_migrations(dialect: Literal["sqlite", "postgresql"] = "sqlite") -> list[Migration]:
    """Return the migrations that ship with the package, oldest first."""
    folder = resources.files("mail.db") / "sql" / dialect
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [
        Migration(int(name[:4]), name, f.read_text("utf-8"), _STEPS.get((dialect, name)))
        for f in files
        for name in [f.name.removesuffix(".sql")]
    ]


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the number of the last applied migration, 0 for an empty database."""
    known = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'"
    ).fetchone()
    if known is None:
        return 0
    (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    return int(version or 0)


def migrate(
    connection: sqlite3.Connection, migrations: Sequence[Migration], *, upgrade: bool = True
) -> int:
    """Bring a database (in autocommit mode) up to date, all or nothing.

    Args:
        connection: The database.
        migrations: All that this program knows.
        upgrade: Change a database that has tables; False is for programs beside its owner.

    Returns:
        How many migrations were applied.

    Raises:
        StoreError: the schema is newer than this program knows, or older and not to be upgraded.
        sqlite3.Error: a migration failed; nothing was changed.
    """
    current = schema_version(connection)
    if not pending_migrations(current, migrations):
        return 0
    if not upgrade and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        check_current(current, migrations, "mail server")
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again under the write lock: another process may have migrated meanwhile.
        pending = pending_migrations(schema_version(connection), migrations)
        for migration in pending:
            _apply(connection, migration)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return len(pending)


def pending_migrations(current: int, migrations: Sequence[Migration]) -> list[Migration]:
    """Return what a database with schema ``current`` lacks.

    Raises:
        StoreError: the schema is newer than this program knows.
    """
    newest = migrations[-1].version if migrations else 0
    if current > newest:
        raise StoreError(
            f"the database has schema {current}, newer than {newest} of this version of MAIL; "
            "use a newer MAIL"
        )
    return [migration for migration in migrations if migration.version > current]


def check_current(current: int, migrations: Sequence[Migration], command: str) -> None:
    """Refuse a database that this program would have to change before it can use it.

    Raises:
        StoreError: the schema is older or newer than this program's; the text says which command
            upgrades it.
    """
    if pending_migrations(current, migrations):
        raise StoreError(
            f"the database has schema {current}, older than {migrations[-1].version} of this "
            f"version of MAIL; stop its server and run '{command}' of this version to upgrade it"
        )


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute(_VERSIONS)
    for statement in _statements(migration.script):
        connection.execute(statement)
    if migration.step is not None:
        run_verb(migration.step, connection.cursor())
    connection.execute(
        "INSERT INTO schema_version VALUES (?, ?, ?)",
        (migration.version, migration.name, datetime.now(UTC).isoformat()),
    )


def _statements(script: str) -> Iterator[str]:
    """Split a script at the ends of its statements; ``executescript`` would commit first."""
    collected = ""
    for line in script.splitlines(keepends=True):
        collected += line
        if sqlite3.complete_statement(collected):
            yield collected
            collected = ""


_MARK: Final = re.compile(r"@text\{(?:=|([pxja]):([0-9a-f]{32}))\}")
_BATCH: Final = 100

_Row: TypeAlias = tuple[str | None, ...]


class _Table(NamedTuple):
    """A table with records.

    Attributes:
        name: The table's.
        key: The columns of its key, and for each a value below all.
        json: Its JSON records.
        plain: Its records that are text; they had marks only if the first JSON record had any.
    """

    name: str
    key: Mapping[str, object]
    json: tuple[str, ...]
    plain: tuple[str, ...] = ()


def change_marks(response: str) -> Verb[None]:
    """Put hashes in place of the marks that stood for long texts in earlier versions.

    A record with marks began with a space. A mark was ``@text{mode:hash}``; ``mode`` told how the
    text was written there: ``p`` as it is, ``x`` in XML, ``j`` in JSON or ``a`` in JSON that is
    ASCII, and within a JSON record all of that in JSON once more. What only looked like a mark was
    written with ``@text{=}`` in place of ``@text{``. What marks told goes to the column ``texts``:
    see `mail.db.texts`. No text is read, and no other row is touched.

    Args:
        response: The column with the JSON text of a final message.
    """
    for table in (
        _Table("messages", {"seq": 0}, ("payload",)),
        _Table("journal", {"id": 0}, ("payload",)),
        _Table("task_events", {"task": 0, "seq": 0}, ("event_data",), ("description",)),
        _Table("task_responses", {"task": 0}, (response,)),
        _Table("history_entries", {"id": 0}, ("entries",)),
        _Table("calls", {"id": 0}, ("call", "shown"), ("answer",)),
        _Table("outbox", {"id": 0}, ("wrapper",)),
    ):
        yield from _rewrite(table, " %", partial(_changed, table), ", texts")
    # The engine does not read these: nothing tells where their hashes stand.
    histories = _Table("agent_histories", {"task": 0, "agent_name": ""}, ("history",))
    yield from _rewrite(histories, "%@text{%", _changed_document)
    if response != "response":
        responses = _Table("task_responses", {"task": 0}, ("response",))
        yield from _rewrite(responses, "%@text{%", _changed_document)


def _rewrite(
    table: _Table, pattern: str, change: Callable[[_Row], _Row], more: str = ""
) -> Verb[None]:
    """Change the rows of a table with a JSON record that is like a pattern, some at a time."""
    columns, key = (*table.json, *table.plain), ", ".join(table.key)
    texts = ", ".join(f"CAST({column} AS TEXT)" for column in columns)
    after = ", ".join(f"${number}" for number in range(1, len(table.key) + 1))
    found = " OR ".join(f"CAST({column} AS TEXT) LIKE '{pattern}'" for column in table.json)
    select = f"""
        SELECT {key}, {texts} FROM {table.name}
        WHERE ({key}) > ({after}) AND ({found}) ORDER BY {key} LIMIT {_BATCH}"""
    changed = f"{', '.join(columns)}{more}".split(", ")
    values = ", ".join(f"{column} = ${number}" for number, column in enumerate(changed, 1))
    which = enumerate(table.key, len(changed) + 1)
    same = " AND ".join(f"{column} = ${number}" for number, column in which)
    update = f"UPDATE {table.name} SET {values} WHERE {same}"
    last = tuple(table.key.values())
    width = len(last)
    while rows := [tuple(row) for row in (yield Query(select, last))]:
        last = rows[-1][:width]
        yield Batch(update, [(*change(row[width:]), *row[:width]) for row in rows])


def _changed(table: _Table, row: _Row) -> _Row:
    """Return the columns of a row with hashes, and its ``texts``."""
    kept: list[str | None] = []
    places: dict[str, list[tuple[int, str]]] = {}
    marked = (row[0] or "")[:1] == " "
    for name, text in zip((*table.json, *table.plain), row, strict=True):
        is_json = name in table.json
        if text is None or not (text[:1] == " " if is_json else marked):
            kept.append(text)
            continue
        record, found = _without_marks(text[1:] if is_json else text, "j" if is_json else "")
        kept.append(record)
        if found:
            places["response" if name == "response_text" else name] = found
    return *kept, to_json(places).decode() if places else None


def _changed_document(row: _Row) -> _Row:
    return tuple(_without_marks(text or "", "")[0] for text in row)


def _without_marks(text: str, around: str) -> tuple[str, list[tuple[int, str]]]:
    """Return a record with hashes, and where they stand; all texts are also written ``around``."""
    parts: list[str] = []
    places: list[tuple[int, str]] = []
    start = length = 0
    for mark in _MARK.finditer(text):
        way, found = mark.groups()
        parts += (text[start : mark.start()], found or "@text{")
        length += mark.start() - start
        if found:
            places.append((length, way.replace("p", "") + around))
        length += len(parts[-1])
        start = mark.end()
    return "".join((*parts, text[start:])), places


_STEPS: Final[Mapping[tuple[str, str], Step]] = MappingProxyType(
    {
        ("sqlite", "0022_text_places"): partial(change_marks, "response"),
        ("postgresql", "0021_text_places"): partial(change_marks, "response_text"),
    }
)
