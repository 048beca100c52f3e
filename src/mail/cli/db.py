"""``mail db-init`` and ``mail db``: create the tables of PostgreSQL; back up and move a database.

The output of ``db-init`` is documented. It runs in one transaction, so a database is never left
incomplete, and running it again changes nothing.
"""

import asyncio
import sys
from pathlib import Path

from mail.cli.common import DONE, FAILED, cleaned, configured, tell
from mail.cli.stores import STORE, missing_database, opened, server_settings
from mail.cli.table import CONFIG, JSON, Group, Namespace, argument, command, option
from mail.config.env import DATABASE_URL, setting
from mail.errors import ConfigError, StoreError, StoreLocked

_SCHEMES = ("postgresql:", "postgres:")


@command(
    option("--store", metavar="URL", told="database URL (default: DATABASE_URL, then mail.toml)"),
    CONFIG,
    JSON,
)
def db_init(arguments: Namespace) -> int:
    """Create the tables and verify them."""
    from mail.logs.setup import redact

    try:
        return asyncio.run(_initialise(arguments, _database_url(arguments)))
    except (ConfigError, StoreError) as error:
        print(cleaned("ERROR: " + " ".join(redact(str(error)).split())), file=sys.stderr)
        return FAILED


db = Group()


@db.add(
    "backup",
    "copy the SQLite database, also while a server uses it",
    argument("file", "the copy; it must not exist", type=Path),
    *STORE,
    JSON,
)
def backup(arguments: Namespace) -> int:
    """Copy the server's SQLite database to a file."""
    from mail.db.sqlite.connect import back_up
    from mail.db.sqlite.driver import SQLiteStore
    from mail.db.urls import open_store

    store = open_store(server_settings(arguments)[0], exclusive=False)
    if not isinstance(store, SQLiteStore):
        raise ConfigError("the store is in PostgreSQL: back it up with pg_dump")
    if not store.path.exists():
        raise missing_database(store.path)
    size = back_up(store.path, arguments.file)
    answer = {"file": str(arguments.file), "bytes": size}
    return tell(arguments, answer, f"{arguments.file}: {size:,} bytes")


@db.add(
    "export",
    "write all data of a database to a file, also while a server uses it",
    argument("file", "the file; it must not exist (- for standard output)"),
    *STORE,
    JSON,
)
async def export(arguments: Namespace) -> int:
    """Write the server's database to a file that `import_` reads."""
    from mail.db.move import export_file
    from mail.db.sqlite.connect import new_file

    async with opened(server_settings(arguments)[0]) as store:
        if arguments.file == "-":
            await export_file(store, sys.stdout.buffer)
            return DONE
        with new_file(Path(arguments.file)) as unfinished, unfinished.open("wb") as file:
            rows = await export_file(store, file)
    answer = {"file": arguments.file, "rows": rows}
    return tell(arguments, answer, f"{arguments.file}: {rows:,} rows")


@db.add(
    "import",
    "fill an empty database, SQLite or PostgreSQL, from such a file",
    argument("file", "the file", type=Path),
    *STORE,
    JSON,
)
async def import_(arguments: Namespace) -> int:
    """Fill the server's database, or go on with that, and check it."""
    from mail.db.inspect import live_server
    from mail.db.move import REGISTRY, import_file, whole_file
    from mail.db.urls import open_store

    url = server_settings(arguments)[0]
    header, end = whole_file(arguments.file)
    for swarm in header["swarms"]:
        if server := await live_server(url, swarm):
            raise StoreLocked(f"the database is in use by {server}; stop it first")
    store = open_store(url)
    await store.driver.open()
    try:
        rows = await import_file(store, arguments.file, header, end)
    finally:
        await store.close()
    if REGISTRY in end and not store.shared:
        text = "the file has registries of other swarms, which SQLite does not keep; see"
        print(f"mail: {text} docs/database.md", file=sys.stderr)
    return tell(arguments, {"rows": rows}, f"{rows:,} rows imported and checked")


async def _initialise(arguments: Namespace, url: str) -> int:
    from mail.db.migrate import packaged_migrations
    from mail.db.postgres.driver import PostgresStore
    from mail.db.postgres.migrate import DOCUMENTED_TABLES, tables_by_subject

    def say(line: str) -> None:
        if not arguments.json:
            print(line, flush=True)

    more = tables_by_subject(packaged_migrations("postgresql"))
    del more["documented"]
    store = PostgresStore(url, exclusive=False, upgrade=True)
    say("Connecting to database...")
    await store.open()
    try:
        say("Connected successfully")
        for table in DOCUMENTED_TABLES:
            say(f"Creating {table} table...\n  {table} table created")
        for subject, made in more.items():
            say(f"Creating {subject} tables...\n  {', '.join(made)} created")
        missing = await store.missing_tables()
    finally:
        await store.close()
    say("\nVerifying tables...")
    parts = {**{table: (table,) for table in DOCUMENTED_TABLES}, **more}
    for part, tables in parts.items():
        say(f"  {part}: {'MISSING' if set(tables) & set(missing) else 'OK'}")
    if missing:
        raise StoreError(f"there is no table {missing[0]}")
    found = {part: list(tables) for part, tables in parts.items()}
    return tell(arguments, {"tables": found}, "\nDatabase initialization complete!")


def _database_url(arguments: Namespace) -> str:
    """Return the URL of a PostgreSQL database.

    Raises:
        ConfigError: no URL is set, or it is not a PostgreSQL URL.
    """
    from mail.config.server import ServerConfig

    if arguments.store is not None:
        url, source = str(arguments.store), "--store"
    else:
        with configured(arguments.config):
            url, source = setting(DATABASE_URL) or "", DATABASE_URL
            if not url:
                filed = ServerConfig().store.url or ""
                url = filed if filed.lower().startswith(_SCHEMES) else ""
    if not url:
        raise ConfigError(
            "DATABASE_URL is not set; set it to the URL of a PostgreSQL database, or give --store"
        )
    if not url.lower().startswith(_SCHEMES):
        raise ConfigError(
            f"{source} is not a PostgreSQL URL; other stores create their tables themselves"
        )
    return "postgresql:" + url.partition(":")[2]
