"""Migrations: in order, once, all or nothing."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.migrate import Migration, migrate, packaged_migrations, schema_version
from mail.db.records import Owner
from mail.db.sqlite.driver import SQLiteStore
from mail.errors import StoreError

ONE = Migration(1, "0001_one", "-- a; comment\nCREATE TABLE a (x);\nINSERT INTO a VALUES ('1;2');")
TWO = Migration(2, "0002_two", "ALTER TABLE a ADD COLUMN y;\nCREATE TABLE b (x);\n")
BAD = Migration(2, "0002_bad", "CREATE TABLE b (x);\nCREATE TABLE a (x);\n")


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def tables(database: sqlite3.Connection) -> set[str]:
    return {row[0] for row in database.execute("SELECT name FROM sqlite_master")}


def test_the_packaged_migrations_are_numbered_without_gap() -> None:
    found = packaged_migrations()
    assert [migration.version for migration in found] == [*range(1, len(found) + 1)]


def test_pending_migrations_run_once_and_in_order(database: sqlite3.Connection) -> None:
    assert schema_version(database) == 0
    assert migrate(database, [ONE]) == 1
    assert migrate(database, [ONE, TWO]) == 1
    assert migrate(database, [ONE, TWO]) == 0
    assert schema_version(database) == 2
    assert database.execute("SELECT x, y FROM a").fetchall() == [("1;2", None)]
    names = database.execute("SELECT version, name FROM schema_version").fetchall()
    assert names == [(1, "0001_one"), (2, "0002_two")]


def test_a_failing_migration_leaves_nothing_behind(database: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.Error):
        migrate(database, [ONE, BAD])
    assert tables(database) == set()
    assert not database.in_transaction


def test_a_schema_of_the_future_is_refused(database: sqlite3.Connection) -> None:
    migrate(database, [ONE, TWO])
    with pytest.raises(StoreError, match="newer"):
        migrate(database, [ONE])
    assert not database.in_transaction


async def test_a_store_migrates_on_its_first_open_only(tmp_path: Path) -> None:
    schemas = []
    for _ in range(3):
        store = SQLiteStore(tmp_path / "mail.db")
        await store.open()
        await store.close()
        connection = sqlite3.connect(tmp_path / "mail.db")
        schemas.append(connection.execute("SELECT sql FROM sqlite_master").fetchall())
        schemas.append(connection.execute("SELECT * FROM schema_version").fetchall())
        connection.close()
    assert schemas[:2] * 3 == schemas
    assert len(schemas[1]) == len(packaged_migrations())


async def test_a_database_of_the_first_version_opens_and_keeps_its_tasks(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "mail.db", isolation_level=None)
    assert migrate(connection, packaged_migrations()[:1]) == 1
    connection.execute(
        "INSERT INTO tasks (task_id, swarm_name, caller_role, caller_id, task_owner, start_time,"
        " created_at, updated_at, state, entrypoint, steps, awaited, finish_asked, next_event)"
        " VALUES ('t1', 'example', 'user', 'alice', 'user:alice@example', 's', 'c', 'u',"
        " 'completed', 'supervisor', 0, 0, 0, 1)"
    )
    connection.close()
    store, alice = SQLiteStore(tmp_path / "mail.db"), Owner("example", "user", "alice")
    await store.open()
    row = await store.load_task(alice, "t1")
    assert row is not None and (row.state, row.usage) == (TaskState.COMPLETED, "{}")
    changed = row._replace(usage='{"a":{"calls":1}}')
    await store.commit(Commit(owner=alice, task=changed))
    assert await store.load_task(alice, "t1") == changed
    await store.close()
    connection = sqlite3.connect(tmp_path / "mail.db")
    assert schema_version(connection) == len(packaged_migrations())
    connection.close()
