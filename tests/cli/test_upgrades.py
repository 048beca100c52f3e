"""Short commands change no schema: not of a server that runs, and not of one that will."""

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import asyncpg
import pytest

from mail.cli.commands import main
from mail.db import open_store
from mail.db.migrate import Migration, migrate, packaged_migrations, schema_version
from mail.db.postgres import migrate as postgres
from mail.db.postgres.driver import PostgresStore
from mail.errors import StoreError, StoreLocked
from tests.support.postgres import Cluster, query

URL = "sqlite:///mail.db"
COMMANDS = [
    ["token", "create", "--role", "user", "--id", "alice"],
    ["token", "list"],
    ["token", "revoke", "12345678"],
    ["tasks", "list"],
    ["tasks", "show", "some-task"],
]
NEWEST = len(packaged_migrations())


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "MAIL_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def of_schema(version: int) -> None:
    """Make a database as another version of MAIL leaves it."""
    with closing(sqlite3.connect("mail.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection, packaged_migrations()[:version])
        for number in range(NEWEST + 1, version + 1):
            connection.execute("INSERT INTO schema_version VALUES (?, 'x', 'now')", (number,))


def files() -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in Path().iterdir()}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:2]))
@pytest.mark.parametrize(
    ("version", "words"),
    [
        (1, f"has schema 1, older than {NEWEST} of this version of MAIL; stop its server and run "
            "'mail server' of this version to upgrade it"),
        (NEWEST + 1, f"has schema {NEWEST + 1}, newer than {NEWEST} of this version of MAIL; "
                     "use a newer MAIL"),
    ],
)  # fmt: skip
def test_a_database_of_another_version_is_refused_and_left_as_it_is(
    capsys: pytest.CaptureFixture[str], version: int, words: str, command: list[str]
) -> None:
    of_schema(version)
    before = files()
    assert main([*command, "--store", URL]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"mail: the database {words}\n")
    assert files() == before


def test_beside_a_live_server_of_an_earlier_version_too(capsys: pytest.CaptureFixture[str]) -> None:
    of_schema(NEWEST - 1)
    with closing(sqlite3.connect("mail.db", isolation_level=None)) as older:
        older.execute("BEGIN IMMEDIATE")  # it is writing, and the command does not even wait
        assert main(["token", "list", "--store", URL]) == 1
        assert main([*COMMANDS[0], "--store", URL]) == 1
        older.execute("COMMIT")
        assert schema_version(older) == NEWEST - 1
    assert capsys.readouterr().err.count("run 'mail server' of this version") == 2


def test_what_owns_the_database_upgrades_it() -> None:
    of_schema(1)
    store = open_store(URL)
    asyncio.run(store.open())
    asyncio.run(store.close())
    assert main(["token", "list", "--store", URL]) == 0


def test_commands_that_only_read_leave_the_folder_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*COMMANDS[0], "--store", URL]) == 0
    before = files()
    for command in (["token", "list", "--json"], ["tasks", "list"]):
        assert main([*command, "--store", URL]) == 0
        assert files() == before
    assert "alice" in capsys.readouterr().out


def test_tokens_are_made_and_listed_beside_a_live_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = open_store(URL)
    asyncio.run(store.open())
    try:
        for identifier in ("alice", "bob"):
            create = ["token", "create", "--role", "user", "--id", identifier, "--store", URL]
            assert main(create) == 0
        capsys.readouterr()
        assert main(["token", "list", "--json", "--store", URL]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert {row["id"] for row in listed} == {"alice", "bob"}
        assert len(asyncio.run(store.list_tokens())) == 2
    finally:
        asyncio.run(store.close())


async def test_a_store_that_is_read_only_refuses_to_write() -> None:
    owner = open_store(URL)
    await owner.open()
    reader = open_store(URL, read_only=True)
    await reader.open()
    with pytest.raises(StoreError, match="readonly"):
        await reader.put_memories(("s", "user", "a"), [])  # type: ignore[arg-type]
        await reader.delete_memory(("s", "user", "a"), ("n",), "k")  # type: ignore[arg-type]
    await reader.close()
    await owner.close()


# --- PostgreSQL -------------------------------------------------------------


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.schema()


async def older(url: str, version: int) -> None:
    """Make the tables of an earlier version, with a task of the swarm 'alpha'."""
    connection = await asyncpg.connect(url)
    await postgres.migrate(connection, packaged_migrations("postgresql")[:version])
    await connection.execute(
        "INSERT INTO tasks (task_id, swarm_name, caller_role, caller_id, task_owner, start_time)"
        " VALUES ('t', 'alpha', 'user', 'alice', 'user:alice@alpha', now())"
    )
    await connection.close()


def version_of(url: str) -> int:
    return int(query(url, "SELECT max(version) FROM schema_version")[0][0])


async def in_thread(work: Callable[..., int], *arguments: object) -> int:
    return await asyncio.to_thread(work, *arguments)


async def test_short_commands_leave_a_postgresql_database_and_db_init_upgrades_it(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = len(packaged_migrations("postgresql"))
    await older(url, 1)
    for command in COMMANDS:
        assert await in_thread(main, [*command, "--store", url]) == 1
        said = capsys.readouterr().err
        assert said == (
            f"mail: the database has schema 1, older than {newest} of this version of MAIL; "
            "stop its server and run 'mail db-init' of this version to upgrade it\n"
        )
    assert version_of(url) == 1
    assert await in_thread(main, ["db-init", "--store", url]) == 0
    assert version_of(url) == newest
    assert await in_thread(main, ["token", "list", "--store", url]) == 0


def lock_of_old_servers(schema: str, swarm: str) -> int:
    """Return the number of the advisory lock that servers of earlier versions held."""
    digest = sha256(f"mail swarm\0{schema}\0{swarm}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


async def test_nobody_upgrades_a_postgresql_database_that_an_older_server_uses(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await older(url, 1)
    server = await asyncpg.connect(url)
    schema = await server.fetchval("SELECT current_schema()")
    await server.execute("SELECT pg_advisory_lock($1)", lock_of_old_servers(schema, "alpha"))
    session = await server.fetchval("SELECT pg_backend_pid()")
    assert await in_thread(main, ["db-init", "--store", url]) == 1
    assert capsys.readouterr().err == (
        f"ERROR: the database is in use by a server (session {session} of the database); stop that "
        "before you upgrade the database\n"
    )
    for swarm in ("alpha", "beta"):
        with pytest.raises(StoreLocked, match="before you upgrade"):
            await PostgresStore(url, swarm=swarm).open()
    assert version_of(url) == 1
    await server.close()
    own = PostgresStore(url, swarm="alpha")
    await own.open()
    await own.close()
    assert version_of(url) == len(packaged_migrations("postgresql"))


async def test_nobody_upgrades_a_postgresql_database_that_nodes_share(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = PostgresStore(url, swarm="alpha")
    await server.open()
    newest = packaged_migrations("postgresql")
    later = Migration(len(newest) + 1, "9999_later", "CREATE TABLE later (id TEXT PRIMARY KEY);")
    monkeypatch.setattr("mail.db.postgres.driver.packaged_migrations", lambda _: [*newest, later])
    with pytest.raises(StoreLocked, match=rf"in use by a server \(pid {os.getpid()} on .*upgrade"):
        await PostgresStore(url, swarm="alpha").open()
    await server.close()
    upgraded = PostgresStore(url, swarm="alpha")
    await upgraded.open()
    await upgraded.close()
    assert version_of(url) == len(newest) + 1
