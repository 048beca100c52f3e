"""Migrations on PostgreSQL: in order, once, all or nothing, one process at a time."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from mail.db.migrate import Migration, pending_migrations
from mail.db.postgres.foreign import check_foreign
from mail.db.postgres.values import Connection
from mail.errors import StoreError

__all__ = ["DOCUMENTED_TABLES", "check_encoding", "migrate", "missing_tables", "schema_version"]

DOCUMENTED_TABLES: Final = ("agent_histories", "tasks", "task_events", "task_responses")
"""The tables that the documents name, in the order in which ``mail db-init`` tells of them."""

_LOCK: Final = 7_206_245_136
"""Any number that other programs on the database will hardly take."""

_MIGRATION_SECONDS: Final = 3600.0

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
    return await _newest(connection)


async def _newest(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT max(version) FROM schema_version") or 0)


async def migrate(connection: Connection, migrations: Sequence[Migration]) -> int:
    """Bring a database up to date.

    Returns:
        How many migrations were applied.

    Raises:
        StoreError: the schema is newer than this program knows, or another program's tables are in
            the way.
        asyncpg.PostgresError: a migration failed; nothing was changed.
    """
    await check_foreign(connection, migrations)
    if not pending_migrations(await schema_version(connection), migrations):
        return 0
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
    pending = pending_migrations(await _newest(connection), migrations)
    for migration in pending:
        await connection.execute(migration.script, timeout=_MIGRATION_SECONDS)
        await connection.execute(
            "INSERT INTO schema_version (version, name) VALUES ($1, $2)",
            migration.version,
            migration.name,
        )
    return len(pending)


async def check_encoding(connection: Connection) -> None:
    """Refuse a database that cannot hold every text.

    Raises:
        StoreError: its encoding is not UTF8.
    """
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"the database's encoding is {encoding}, and MAIL needs UTF8: make another one, with "
            "createdb --template=template0 --encoding=UTF8"
        )


async def missing_tables(connection: Connection) -> list[str]:
    """Return which of the documented tables are not there."""
    return [
        table
        for table in DOCUMENTED_TABLES
        if await connection.fetchval("SELECT to_regclass($1) IS NULL", table)
    ]
