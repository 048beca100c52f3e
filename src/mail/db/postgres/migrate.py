"""Migrations on PostgreSQL: in order, once, all or nothing, one process at a time."""

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from mail.db.migrate import Migration, check_current, pending_migrations
from mail.db.postgres.connect import run_verb
from mail.db.postgres.dialect import Connection
from mail.db.postgres.nodes import nodes_at_work
from mail.errors import StoreError, StoreLocked

DOCUMENTED_TABLES: Final = ("agent_histories", "tasks", "task_events", "task_responses")
"""The tables that people may query, which ``mail db-init`` names one by one."""

_LOCK: Final = 7_206_245_136
"""Any number that other programs on the database will hardly take."""

_MIGRATION_SECONDS: Final = 3600.0

_NO_TASKS: Final = "SELECT to_regclass('tasks') IS NULL"

_LOCK_HOLDER: Final = """
SELECT pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32 | objid::bigint) = $1
"""

_VERSIONS: Final = """
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT NOW()
)
"""


async def schema_version(connection: Connection) -> int:
    """Return the number of the last applied migration, 0 for a database without any."""
    if await connection.fetchval("SELECT to_regclass('schema_version') IS NULL"):
        return 0
    return int(await connection.fetchval("SELECT max(version) FROM schema_version") or 0)


async def migrate(
    connection: Connection,
    migrations: Sequence[Migration],
    *,
    upgrade: bool = True,
) -> int:
    """Bring a database up to date.

    Args:
        connection: The database.
        migrations: All that this program knows.
        upgrade: Change a database that has tables of ours; False is for short-lived commands.

    Returns:
        How many migrations were applied.

    Raises:
        StoreLocked: a server is at work on the database, which is not up to date.
        StoreError: the schema is newer than this program knows, or older and not to be upgraded, or
            another program's tables are in the way.
        asyncpg.PostgresError: a migration failed; nothing was changed.
    """
    if foreign := await foreign_tables(connection, migrations):
        raise StoreError(f"{'; '.join(foreign)}: {_ADVICE}")
    current = await schema_version(connection)
    if not pending_migrations(current, migrations):
        return 0
    if not upgrade and not await connection.fetchval(_NO_TASKS):
        check_current(current, migrations, "mail db-init")
    transaction = connection.transaction()
    await transaction.start()
    try:
        applied = await _apply_pending(connection, migrations)
    except BaseException:
        with suppress(Exception):  # on a broken connection; what broke it is what counts
            await transaction.rollback()
        raise
    await transaction.commit()
    return applied


async def _apply_pending(connection: Connection, migrations: Sequence[Migration]) -> int:
    # Another process may be at it, and take as long as it may.
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK, timeout=_MIGRATION_SECONDS)
    await connection.execute("SET LOCAL TIME ZONE 'UTC'")
    await connection.execute(_VERSIONS)
    # Asked again behind the lock: another process may have migrated meanwhile.
    pending = pending_migrations(await schema_version(connection), migrations)
    if pending and not await connection.fetchval(_NO_TASKS):
        await _check_unserved(connection)
    for migration in pending:
        await connection.execute(migration.script, timeout=_MIGRATION_SECONDS)
        if migration.step is not None:
            await run_verb(migration.step, connection, seconds=_MIGRATION_SECONDS)
        await connection.execute(
            "INSERT INTO schema_version (version, name) VALUES ($1, $2)",
            migration.version,
            migration.name,
        )
    return len(pending)


async def _check_unserved(connection: Connection) -> None:
    """Refuse to upgrade what a server is using: it could not be started again.

    Raises:
        StoreLocked: naming the server.
    """
    users = [str(node) for node in await nodes_at_work(connection)]
    users = users or await _servers_before_nodes(connection)
    if users:
        raise StoreLocked(
            f"the database is in use by {', '.join(users)}; stop that before you upgrade the "
            "database"
        )


async def _servers_before_nodes(connection: Connection) -> list[str]:
    """Return words about servers of the versions that held a lock for each swarm, up to 1.3.6."""
    found = []
    schema = await connection.fetchval("SELECT coalesce(current_schema(), '')")
    for row in await connection.fetch("SELECT DISTINCT swarm_name FROM tasks"):
        digest = hashlib.sha256(f"mail swarm\0{schema}\0{row['swarm_name']}".encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        for holder in await connection.fetch(_LOCK_HOLDER, key):
            found.append(f"a server (session {holder['pid']} of the database)")
    return found


async def check_encoding(connection: Connection) -> None:
    """Refuse a database that cannot hold every text.

    Raises:
        StoreError: its encoding is not UTF8.
    """
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"the database's encoding is {encoding}, but MAIL needs UTF8: create another database "
            "with createdb --template=template0 --encoding=UTF8"
        )


def tables_by_subject(migrations: Sequence[Migration]) -> dict[str, list[str]]:
    """Return the tables that migrations make and leave, by the subject in each migration's name."""
    dropped = {table for each in migrations for table in _DROPPED.findall(each.script)}
    made = {
        migration.name.partition("_")[2].replace("_", " "): [
            table for _, table, _ in _CREATED.findall(migration.script) if table not in dropped
        ]
        for migration in migrations
    }
    return {subject: tables for subject, tables in made.items() if tables}


async def missing_tables(connection: Connection, migrations: Sequence[Migration]) -> list[str]:
    """Return which of the tables that migrations make are not there."""
    tables = [table for made in tables_by_subject(migrations).values() for table in made]
    found = await connection.fetch(
        "SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NULL", tables
    )
    return [row["name"] for row in found]


_CREATED: Final = re.compile(
    r"^CREATE TABLE (IF NOT EXISTS )?(\w+) \((.*?)\);$", re.DOTALL | re.MULTILINE
)
_DROPPED: Final = re.compile(r"^DROP TABLE (\w+);$", re.MULTILINE)
_COLUMN: Final = re.compile(
    r"^ +(\w+) (UUID|TEXT|JSONB|BOOLEAN|TIMESTAMP WITH TIME ZONE)\b", re.MULTILINE
)
_ADDED_LATER: Final = re.compile(r"\bADD COLUMN IF NOT EXISTS (\w+)")
_TIMES: Final = ("timestamp with time zone", "timestamp without time zone")
_AS_GOOD: Final = {"text": ("text", "character varying"), _TIMES[0]: _TIMES}
_COLUMNS: Final = """
SELECT relname, attname, format_type(atttypid, NULL) AS kind
FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
    AND relname = ANY($1::text[]) AND attnum > 0 AND NOT attisdropped
ORDER BY relname, attnum
"""
_ADVICE: Final = (
    "nothing was changed; give MAIL a database of its own, or a schema of its own (CREATE SCHEMA "
    "mail, and ?search_path=mail at the end of the URL), or rename the table"
)


async def foreign_tables(connection: Connection, migrations: Sequence[Migration]) -> list[str]:
    """Return words about each table that has a name of ours and is not ours.

    Before our first migration there may be the documented tables, as version 1.3.6 made them, and
    no other table of ours.
    """
    later = {name for each in migrations for name in _ADDED_LATER.findall(each.script)}
    expected = {
        table: {
            name: kind.lower()
            for name, kind in (_COLUMN.findall(body) if tolerated else [])
            if name not in later
        }
        for migration in migrations
        for tolerated, table, body in _CREATED.findall(migration.script)
    }
    there: dict[str, dict[str, str]] = {}
    for row in await connection.fetch(_COLUMNS, ["schema_version", *expected]):
        there.setdefault(row["relname"], {})[row["attname"]] = row["kind"]
    if there.get("schema_version", {}).get("version") == "integer":
        return []  # ours: what the other tables look like is the migrations' business
    found = []
    for table, columns in there.items():
        problems = [] if expected.get(table) else ["MAIL did not create it"]
        for name, kind in expected.get(table, {}).items():
            if name not in columns:
                problems.append(f"it has no column '{name}'")
            elif columns[name] not in _AS_GOOD.get(kind, (kind,)):
                problems.append(f"'{name}' is {columns[name]}, not {kind}")
        if problems:
            found.append(f"the table '{table}' is another program's ({', '.join(problems)})")
    return found
