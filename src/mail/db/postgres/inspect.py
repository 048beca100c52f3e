"""What a PostgreSQL database looks like to a server that would use it; nothing is changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal, NamedTuple

import asyncpg

from mail.db.migrate import packaged_migrations
from mail.db.postgres.connect import in_store_terms
from mail.db.postgres.dialect import Connection
from mail.db.postgres.migrate import check_encoding, foreign_tables, schema_version
from mail.db.postgres.swarm_lock import claim_holder
from mail.errors import StoreError

_SECONDS: Final = 5.0
_MAY_CREATE: Final = """
SELECT current_schema() IS NOT NULL
    AND has_schema_privilege(current_schema(), 'CREATE')
"""


class Seen(NamedTuple):
    """The number of the schema, remarks as (status, text), the number of tokens, the registry."""

    version: int
    remarks: list[tuple[Literal["warning", "error"], str]]
    tokens: int | None
    registry: str | None = None


async def look_at_database(dsn: str, swarm: str) -> Seen:
    """Look at the database in a transaction that cannot write.

    Raises:
        StoreError: it cannot be reached or does not let us in.
    """
    async with _read_only(dsn) as connection:
        return await _look(connection, swarm)


async def server_of_swarm(dsn: str, swarm: str) -> str | None:
    """Return words about the server that serves a swarm from the database, None without one.

    Raises:
        StoreError: it cannot be reached or does not let us in.
    """
    async with _read_only(dsn) as connection:
        return await claim_holder(connection, swarm)


@asynccontextmanager
async def _read_only(dsn: str) -> AsyncIterator[Connection]:
    with in_store_terms("cannot connect to the database"):
        try:
            connection = await asyncpg.connect(
                dsn,
                timeout=_SECONDS,
                command_timeout=_SECONDS,
                server_settings={"application_name": "mail"},
            )
        except ValueError:  # asyncpg's own about the URL quote it
            raise StoreError("the database URL is invalid") from None
    try:
        with in_store_terms("cannot inspect the database"):
            async with connection.transaction(readonly=True):
                yield connection
    finally:
        connection.terminate()


async def _look(connection: Connection, swarm: str) -> Seen:
    remarks: list[tuple[Literal["warning", "error"], str]] = []
    try:
        await check_encoding(connection)
    except StoreError as error:
        remarks.append(("error", str(error)))
    foreign = await foreign_tables(connection, packaged_migrations("postgresql"))
    if foreign:
        what = "; ".join(foreign)
        text = f"{what}: use a database, or a schema (?search_path=), of MAIL's own"
        return Seen(0, [*remarks, ("error", text)], None)
    version = await schema_version(connection)
    if version == 0 and not await connection.fetchval(_MAY_CREATE):
        remarks.append(("error", "the database user may not create tables in the schema"))
    holder = await claim_holder(connection, swarm)
    if holder is not None:
        text = f"swarm '{swarm}' is served from it by {holder}; a second server is refused"
        remarks.append(("warning", text))
    tokens = registry = None
    if await _has(connection, "tokens"):
        tokens = await connection.fetchval("SELECT count(*) FROM tokens")
    if await _has(connection, "swarm_registry"):
        text = "SELECT content FROM swarm_registry WHERE swarm_name = $1"
        registry = await connection.fetchval(text, swarm)
    return Seen(version, remarks, int(tokens or 0), registry)


async def _has(connection: Connection, table: str) -> bool:
    return bool(await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table))
