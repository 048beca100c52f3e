"""Databases of the schema before large texts: their rows are read and continued as they are."""

import sqlite3
from contextlib import closing
from typing import Any, Final

import asyncpg

from mail.core.tasks import TaskState
from mail.db.migrate import migrate, packaged_migrations
from mail.db.postgres.driver import PostgresStore
from mail.db.postgres.migrate import migrate as migrate_postgres
from mail.db.records import HistoryRow
from tests.support.databases import Database, PostgresDatabase, SQLiteDatabase

LONG: Final = "old " * 5000
ODD: Final = f'{{"body": "@text{{p:{"0" * 32}}} @text{{=}} {LONG}"}}'
OLD_ROWS: Final = (
    "INSERT INTO tasks ({key}, task_id, swarm_name, caller_role, caller_id, task_owner, start_time,"
    " created_at, updated_at, state, is_running, entrypoint, steps, awaited, finish_asked,"
    " next_event) VALUES (7, 't1', 'example', 'user', 'alice', 'user:alice@example', '2026-01-01',"
    " '2026-01-01', '2026-01-01', 'running', {true}, 'supervisor', 0, {false}, {false}, 2)",
    "INSERT INTO messages (task, recipient, tier, interrupt, state, payload)"
    " VALUES (7, 'supervisor', 2, {false}, 'ready', '{odd}')",
    "INSERT INTO task_events (task_id, swarm_name, caller_role, caller_id, event_type, event_data,"
    " event_id, created_at, task, seq, description) VALUES ('t1', 'example', 'user', 'alice',"
    " 'new_message', '{odd}', '1', '2026-01-01', 7, 1, '@text{{=}}')",
    "INSERT INTO history_entries (task, agent, entries) VALUES (7, 'supervisor', '[{odd}]')",
)


async def old_database(database: Database) -> None:
    """Give a database the schema before large texts, with a task in it."""
    if isinstance(database, PostgresDatabase):
        words = {"key": "key", "true": "TRUE", "false": "FALSE", "odd": ODD}
        connection = await asyncpg.connect(database.url)
        await migrate_postgres(connection, packaged_migrations("postgresql")[:3])
        for row in OLD_ROWS:
            await connection.execute(row.format(**words))
        await connection.close()
        return
    assert isinstance(database, SQLiteDatabase)
    words = {"key": "id", "true": "1", "false": "0", "odd": ODD}
    with closing(sqlite3.connect(database.path, isolation_level=None)) as file:
        migrate(file, packaged_migrations()[:4])
        for row in OLD_ROWS:
            file.execute(row.format(**words))


async def test_old_rows_are_read_and_continued(database: Database, rows: Any) -> None:
    await old_database(database)
    # Only what owns the database upgrades it.
    is_postgres = isinstance(database, PostgresDatabase)
    store = PostgresStore(database.url) if is_postgres else database.store()
    await store.open()
    try:
        (mail,) = await store.waiting_mail(rows.alice, "t1")
        (event,) = await store.events(rows.alice, "t1")
        assert mail.payload == ODD
        assert event.description == "@text{=}"
        assert event.extra["body"].endswith(LONG)
        assert await store.history(rows.alice, "t1", "supervisor") == [f"[{ODD}]"]
        ((before,),) = database.query("SELECT bytes FROM tasks")
        assert before == 4 * len(ODD) + len("[][]@text{=}")
        receipt = await store.commit_turn(
            rows.turn(
                mail.seq,
                task=rows.task(state=TaskState.COMPLETED),
                texts=(LONG,),
                histories=(HistoryRow("supervisor", f'["{LONG}"]'),),
                snapshot=True,
            )
        )
        assert len(LONG) < receipt.bytes - before < len(LONG) + 1000
        assert await store.history(rows.alice, "t1", "supervisor") == [f"[{ODD}]", f'["{LONG}"]']
    finally:
        await store.close()


OLD_THREADS: Final = """
INSERT INTO desk_threads (swarm_name, thread_id, title, creator, created_at) VALUES
    ('office', 'a', 't', 'ann', '2026-01-01'), ('office', 'b', 't', 'ann', '2026-01-01'),
    ('office', 'c', 't', 'ann', '2026-01-01');
INSERT INTO desk_members (swarm_name, thread_id, name, joined_at, added_by) VALUES
    ('office', 'a', 'ann', '2026-01-01', 'ann'), ('office', 'b', 'ann', '2026-01-01', 'ann'),
    ('office', 'c', 'ann', '2026-01-02', 'ann');
INSERT INTO desk_letters (swarm_name, letter_id, sender, kind, created_at, latest, payer, size,
    thread_id, reply_to, file_id, urgent, wants_ack, task_owner, task_id, subject, recipients, body)
VALUES
    ('office', 'a3', 'ann', 'thread', '2026-01-03', '2026-01-03', 'ann', 1,
        'a', '', '', {false}, {false}, '', '', '', '[]', 'x'),
    ('office', 'b4', 'ann', 'thread', '2026-01-04', '2026-01-04', 'ann', 1,
        'b', '', '', {false}, {false}, '', '', '', '[]', 'x'),
    ('office', 'a5', 'ann', 'thread', '2026-01-05', '2026-01-05', 'ann', 1,
        'a', '', '', {false}, {false}, '', '', '', '[]', 'x');
"""


async def test_threads_from_before_are_listed_by_their_newest_letters(database: Database) -> None:
    if isinstance(database, PostgresDatabase):
        connection = await asyncpg.connect(database.url)
        await migrate_postgres(connection, packaged_migrations("postgresql")[:17])
        await connection.execute(OLD_THREADS.format(false="FALSE"))
        await connection.close()
    else:
        assert isinstance(database, SQLiteDatabase)
        with closing(sqlite3.connect(database.path, isolation_level=None)) as file:
            migrate(file, packaged_migrations()[:17])
            file.executescript(OLD_THREADS.format(false="0"))
    is_postgres = isinstance(database, PostgresDatabase)
    store = PostgresStore(database.url) if is_postgres else database.store()
    await store.open()
    try:
        listed = await store.list_threads("office", "ann")
    finally:
        await store.close()
    assert [(row.thread_id, row.active_at) for row in listed] == [
        ("a", "2026-01-05"),
        ("b", "2026-01-04"),
        ("c", "2026-01-02"),
    ]
