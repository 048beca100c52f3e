"""A look at a store from outside, for commands beside a server: nothing is made or changed."""

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, NamedTuple

from mail.db.migrate import Migration, packaged_migrations, pending_migrations, schema_version
from mail.db.move import NOTED, PARTIAL
from mail.db.sqlite.connect import check_names, connect_read_only
from mail.db.sqlite.lock import users_of
from mail.db.urls import open_store
from mail.errors import StoreError

_POSTGRES_SECONDS: Final = 8.0
_MAY_CREATE: Final = """
SELECT current_schema() IS NOT NULL
    AND has_schema_privilege(current_schema(), 'CREATE')
"""
_EXISTS: Final = "SELECT to_regclass($1) IS NOT NULL"


class Remark(NamedTuple):
    """One thing that was seen.

    Attributes:
        status: ``"error"`` when a server could not start, ``"warning"`` when somebody should know.
        text: The fault, and the change that mends it; no secrets.
        tokens: The number of tokens in the store; None where that was not seen.
        registry: The registry of other swarms in the store, as JSON; None for none.
    """

    status: Literal["ok", "warning", "error"]
    text: str
    tokens: int | None = None
    registry: str | None = None


async def look_at_store(url: str, swarm: str) -> list[Remark]:
    """Look at the store of a server that is going to serve ``swarm``.

    Raises:
        ConfigError: the URL is wrong.
    """
    store = open_store(url, exclusive=False)
    path: Path | None = getattr(store, "path", None)
    if not store.durable:
        return [Remark("ok", "in memory: all data is lost when the server stops", 0)]
    if path is not None:
        return await asyncio.to_thread(_look_at_file, path, swarm)
    try:
        async with asyncio.timeout(_POSTGRES_SECONDS):
            return await _look_at_database(url, swarm)
    except TimeoutError:
        return [Remark("error", "cannot connect to the database: it did not answer in time")]
    except StoreError as error:
        return [Remark("error", str(error))]


async def live_server(url: str, swarm: str) -> str | None:
    """Return words about a server that uses a store for a swarm, None without one.

    Raises:
        ConfigError: the URL is wrong.
        StoreError: the store cannot be asked.
    """
    path: Path | None = getattr(open_store(url, exclusive=False), "path", None)
    if path is not None:
        users = await asyncio.to_thread(users_of, path, swarm)
        return next((user.process for user in users if user.swarm in (None, swarm)), None)
    from mail.db.postgres.connect import read_only
    from mail.db.postgres.nodes import nodes_at_work

    async with read_only(url) as connection:
        found = await nodes_at_work(connection)
    return next((str(node) for node in found if node.swarm in ("", swarm)), None)


def _look_at_file(path: Path, swarm: str) -> list[Remark]:
    """Look at an SQLite file."""
    folder = path.parent
    if not folder.is_dir():
        return [Remark("error", f"the folder {folder} for the database does not exist; create it")]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [Remark("error", f"the folder {folder} of the database is not writable")]
    if not path.exists():
        return [Remark("ok", f"{path} does not exist yet; the server will create it", 0)]
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        return [Remark("error", f"{path} is not a readable and writable file")]
    remarks = []
    try:
        check_names(path)
        users = users_of(path, swarm)
        for user in users:
            if user.swarm in (None, swarm):
                text = f"{path} is in use by {user}; a second server is refused"
                remarks.append(Remark("warning", text))
        told = _read_schema(path)
        if users and told.status == "warning":
            text = f"{told.text} once no other one has the file; {users[0]} has it"
            told = Remark("error", text, told.tokens)
        remarks.append(told)
    except sqlite3.Error as error:
        remarks.append(Remark("error", f"cannot use the database {path}: {error}"))
    except StoreError as error:
        remarks.append(Remark("error", str(error)))
    return remarks


def _read_schema(path: Path) -> Remark:
    """Say how far the schema of a file is, and how many tokens are in it."""
    with closing(connect_read_only(path)) as connection:
        version, tokens = schema_version(connection), 0
        if version and connection.execute(NOTED).fetchone():
            return Remark("error", f"{path}: {PARTIAL}")
        known = "SELECT count(*) FROM sqlite_master WHERE name = 'tokens'"
        if connection.execute(known).fetchone()[0]:
            tokens = connection.execute("SELECT count(*) FROM tokens").fetchone()[0]
    return _schema(version, packaged_migrations(), tokens, f"{path}: ")


async def _look_at_database(url: str, swarm: str) -> list[Remark]:
    """Look at a PostgreSQL database in a transaction that cannot write.

    Raises:
        StoreError: it cannot be reached or does not let us in.
    """
    from mail.db.postgres import migrate
    from mail.db.postgres.connect import read_only
    from mail.db.postgres.nodes import nodes_at_work

    migrations = packaged_migrations("postgresql")
    remarks = []
    async with read_only(url) as connection:
        try:
            await migrate.check_encoding(connection)
        except StoreError as error:
            remarks.append(Remark("error", str(error)))
        if foreign := await migrate.foreign_tables(connection, migrations):
            what = "; ".join(foreign)
            text = f"{what}: use a database, or a schema (?search_path=), of MAIL's own"
            return [*remarks, Remark("error", text), _schema(0, migrations, None)]
        version = await migrate.schema_version(connection)
        if version == 0 and not await connection.fetchval(_MAY_CREATE):
            text = "the database user may not create tables in the schema"
            remarks.append(Remark("error", text))
        if version and await connection.fetchval(NOTED):
            return [*remarks, Remark("error", PARTIAL)]
        others = ", ".join(
            str(node) for node in await nodes_at_work(connection) if node.swarm == swarm
        )
        if others:
            text = f"swarm '{swarm}' is served from it by {others}; this server joins in"
            remarks.append(Remark("ok", text))
        tokens, registry = 0, None
        if await connection.fetchval(_EXISTS, "tokens"):
            tokens = await connection.fetchval("SELECT count(*) FROM tokens")
        if await connection.fetchval(_EXISTS, "swarm_registry"):
            text = "SELECT content FROM swarm_registry WHERE swarm_name = $1"
            registry = await connection.fetchval(text, swarm)
    return [*remarks, _schema(version, migrations, tokens)._replace(registry=registry)]


def _schema(
    version: int, migrations: list[Migration], tokens: int | None, place: str = ""
) -> Remark:
    """Say how far a database's schema is."""
    try:
        pending = pending_migrations(version, migrations)
    except StoreError as error:
        return Remark("error", f"{place}{error}")
    if not pending:
        return Remark("ok", f"{place}schema {version}, up to date", tokens)
    names = ", ".join(migration.name for migration in pending)
    many = "migration is" if len(pending) == 1 else "migrations are"
    text = f"{place}{len(pending)} {many} pending ({names}); the server applies them at startup"
    return Remark("warning" if version else "ok", text, tokens)
