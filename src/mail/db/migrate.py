"""Numbered schema migrations, applied in order; the database remembers which it has."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from mail.db.driver import Verb
from mail.db.old_texts import change_marks
from mail.db.sqlite.connect import run_verb
from mail.errors import StoreError

_VERSIONS = """
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at TEXT NOT NULL
)
"""


Step = Callable[[], Verb[None]]
"""What a script cannot say: a verb of `Query` and `Batch`, run behind it in its transaction."""

_STEPS: Final[Mapping[tuple[str, str], Step]] = MappingProxyType(
    {
        ("sqlite", "0022_text_places"): partial(change_marks, "response"),
        ("postgresql", "0021_text_places"): partial(change_marks, "response_text"),
    }
)


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
