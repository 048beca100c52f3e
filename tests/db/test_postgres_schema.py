"""PostgreSQL's tables: the documented ones, migrations, and databases that 1.3.6 wrote."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import asyncpg
import pytest

from mail.core.runtime import MAILRuntime
from mail.core.tasks import TaskState
from mail.core.tools import AgentToolCall
from mail.db.migrate import Migration, packaged_migrations
from mail.db.postgres import connect as postgres_connect
from mail.db.postgres import migrate as postgres_migrate
from mail.db.postgres.driver import PostgresStore
from mail.db.postgres.migrate import DOCUMENTED_TABLES, migrate, schema_version
from mail.db.records import HistoryRow, Owner
from mail.errors import StoreError
from tests.support.postgres import Cluster, execute, query
from tests.support.swarm import supervisor, user_message

Rows = Any

ONE = Migration(1, "0001_one", "CREATE TABLE a (x INT);\nINSERT INTO a VALUES (1);")
TWO = Migration(2, "0002_two", "ALTER TABLE a ADD COLUMN y INT;\nCREATE TABLE b (x INT);\n")
BAD = Migration(2, "0002_bad", "CREATE TABLE b (x INT);\nCREATE TABLE a (x INT);\n")

# What version 1.3.6 makes (its first agent_histories had times without a zone).
TABLES_OF_136 = """
CREATE TABLE agent_histories (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(), swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL, caller_id TEXT NOT NULL, tool_format TEXT NOT NULL,
    task_id TEXT NOT NULL, agent_name TEXT NOT NULL, history JSONB NOT NULL,
    created_at TIMESTAMP DEFAULT NOW(), updated_at TIMESTAMP DEFAULT NOW());
CREATE INDEX idx_agent_histories_task_id ON agent_histories (task_id);
CREATE TABLE tasks (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(), task_id TEXT NOT NULL, swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL, caller_id TEXT NOT NULL, task_owner TEXT NOT NULL,
    task_contributors JSONB DEFAULT '[]', remote_swarms JSONB DEFAULT '[]',
    is_running BOOLEAN DEFAULT FALSE, completed BOOLEAN DEFAULT FALSE,
    start_time TIMESTAMP WITH TIME ZONE NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT NOW(),
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT NOW(),
    UNIQUE (task_id, swarm_name, caller_role, caller_id));
CREATE INDEX idx_tasks_lookup ON tasks (swarm_name, caller_role, caller_id);
CREATE TABLE task_events (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(), task_id TEXT NOT NULL, swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL, caller_id TEXT NOT NULL, event_type TEXT, event_data TEXT,
    event_id TEXT, created_at TIMESTAMP WITH TIME ZONE DEFAULT NOW());
CREATE INDEX idx_task_events_created ON task_events (created_at);
CREATE TABLE task_responses (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(), task_id TEXT NOT NULL, swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL, caller_id TEXT NOT NULL, response JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT NOW(),
    UNIQUE (task_id, swarm_name, caller_role, caller_id));
"""

ROWS_OF_136 = """
INSERT INTO tasks (task_id, swarm_name, caller_role, caller_id, task_owner, task_contributors,
    remote_swarms, is_running, completed, start_time) VALUES
('newer', 'example', 'user', 'alice', 'user:alice@example', NULL, NULL, NULL, FALSE,
    '2025-03-02T10:00:00+00:00'),
('older', 'example', 'user', 'alice', 'user:alice@example', '["user:alice@example"]', '["beta"]',
    TRUE, TRUE, '2025-03-01T10:00:00.25+00:00');
INSERT INTO agent_histories (swarm_name, caller_role, caller_id, tool_format, task_id, agent_name,
    history, created_at) VALUES
('example', 'user', 'alice', 'completions', 'older', 'supervisor',
    '[{"role": "user", "content": "hi"}]', '2025-03-01T10:00:01'),
('example', 'user', 'alice', 'completions', 'older', 'supervisor',
    '[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]',
    '2025-03-01T10:00:02'),
('example', 'user', 'bob', 'completions', 'lost', 'supervisor', '[]', '2025-03-01T10:00:02');
INSERT INTO task_events (task_id, swarm_name, caller_role, caller_id, event_type, event_data,
    event_id, created_at) VALUES
('older', 'example', 'user', 'alice', 'tool_call', '{"timestamp": "2025-03-01T10:00:00+00:00", '
    '"description": "first", "task_id": "older", "extra_data": {"tool_name": "help"}}',
    'x', '2025-03-01T10:00:01+00:00'),
('older', 'example', 'user', 'alice', NULL, 'no json', NULL, '2025-03-01T10:00:03+00:00'),
('older', 'example', 'user', 'alice', 'task_complete', '{"response": "yo"}', NULL,
    '2025-03-01T10:00:02+00:00'),
('older', 'example', 'user', 'alice', 'untimed', '{}', NULL, NULL),
('lost', 'example', 'user', 'bob', 'tool_call', '{}', NULL, NOW());
INSERT INTO task_responses (task_id, swarm_name, caller_role, caller_id, response) VALUES
('older', 'example', 'user', 'alice', '{"id": "m1"}'), ('lost', 'example', 'user', 'bob', '{}');
"""


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.schema()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url)
    await made.open()
    yield made
    await made.close()


class TestDocumentedTables:
    COLUMNS: ClassVar = {
        "agent_histories": {
            "id": "uuid",
            **dict.fromkeys(["swarm_name", "caller_role", "caller_id", "tool_format"], "text"),
            **dict.fromkeys(["task_id", "agent_name"], "text"),
            "history": "jsonb",
            **dict.fromkeys(["created_at", "updated_at"], "timestamp with time zone"),
        },
        "tasks": {
            "id": "uuid",
            **dict.fromkeys(["task_id", "swarm_name", "caller_role", "caller_id"], "text"),
            **dict.fromkeys(["task_owner", "title"], "text"),
            **dict.fromkeys(["task_contributors", "remote_swarms"], "jsonb"),
            **dict.fromkeys(["is_running", "completed"], "boolean"),
            **dict.fromkeys(["start_time", "created_at", "updated_at"], "timestamp with time zone"),
        },
        "task_events": {
            "id": "uuid",
            **dict.fromkeys(["task_id", "swarm_name", "caller_role", "caller_id"], "text"),
            **dict.fromkeys(["event_type", "event_data", "event_id"], "text"),
            "created_at": "timestamp with time zone",
        },
        "task_responses": {
            "id": "uuid",
            **dict.fromkeys(["task_id", "swarm_name", "caller_role", "caller_id"], "text"),
            "response": "jsonb",
            "created_at": "timestamp with time zone",
        },
    }

    async def test_they_have_their_columns_and_types(self, store: PostgresStore, url: str) -> None:
        found = query(
            url,
            "SELECT table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = current_schema()",
        )
        assert set(DOCUMENTED_TABLES) == set(self.COLUMNS)
        expected = {
            (table, column, kind)
            for table, columns in self.COLUMNS.items()
            for column, kind in columns.items()
        }
        assert expected <= set(found)
        assert await store.missing_tables() == []


class TestMigrations:
    async def test_they_run_once_in_order_and_whole(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        assert await schema_version(connection) == 0
        with pytest.raises(asyncpg.PostgresError):
            await migrate(connection, [ONE, BAD])
        assert await schema_version(connection) == 0
        assert await migrate(connection, [ONE]) == 1
        assert await migrate(connection, [ONE, TWO]) == 1
        assert await migrate(connection, [ONE, TWO]) == 0
        assert [tuple(row) for row in await connection.fetch("SELECT x, y FROM a")] == [(1, None)]
        with pytest.raises(StoreError, match="newer"):
            await migrate(connection, [ONE])
        await connection.close()

    async def test_several_openers_make_the_tables_once(self, url: str, rows: Rows) -> None:
        stores = [PostgresStore(url, exclusive=False) for _ in range(4)]
        await asyncio.gather(*(store.open() for store in stores))
        await stores[0].commit(rows.post())
        assert await stores[3].load_task(rows.alice, "t1") == rows.task()
        for store in stores:
            await store.close()
        versions = query(url, "SELECT version FROM schema_version ORDER BY 1")
        assert versions == [(m.version,) for m in packaged_migrations("postgresql")]

    async def test_a_connection_lost_meanwhile_is_replaced(self, url: str, rows: Rows) -> None:
        store = PostgresStore(url)
        async with migrating(url) as other:
            opening = asyncio.create_task(store.open())
            await until_waiting(url)
            await other.fetch(f"SELECT pg_terminate_backend(pid) {_WAITING}")
        await opening
        await store.commit(rows.post())
        await store.close()

    async def test_what_broke_one_is_told(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        script = "SELECT pg_terminate_backend(pg_backend_pid())"
        with pytest.raises(asyncpg.PostgresConnectionError, match="administrator"):
            await migrate(connection, [Migration(1, "0001_end", script)])

    async def test_another_process_may_take_longer_than_a_statement(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgres_connect, "_COMMAND_SECONDS", 0.5)
        monkeypatch.setattr(postgres_connect, "_ATTEMPTS", 1)
        store = PostgresStore(url)
        async with migrating(url) as other:
            opening = asyncio.create_task(store.open())
            await until_waiting(url)
            await other.execute("SELECT pg_sleep(1)")
            await until_waiting(url)
        await opening
        assert await store.missing_tables() == []
        await store.close()

    async def test_a_database_must_hold_every_text(self, cluster: Cluster) -> None:
        execute(
            cluster.url("postgres"),
            "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' "
            "LC_CTYPE 'C'",
        )
        with pytest.raises(StoreError, match=r"encoding is LATIN1.*--encoding=UTF8"):
            await PostgresStore(cluster.url("latin")).open()


_WAITING = (
    "FROM pg_stat_activity WHERE wait_event = 'advisory' AND application_name = 'mail-server'"
)


@asynccontextmanager
async def migrating(url: str) -> AsyncIterator[Any]:
    """Hold the lock that a migrating process holds."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", postgres_migrate._LOCK)
            yield connection
    finally:
        await connection.close()


async def until_waiting(url: str) -> None:
    """Wait until a store waits for the migration of another."""
    statement = f"SELECT count(*) {_WAITING}"
    async with asyncio.timeout(30):
        while await asyncio.to_thread(query, url, statement) != [(1,)]:
            pass


class TestDatabasesOf136:
    alice = Owner("example", "user", "alice")

    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[PostgresStore]:
        execute(url, TABLES_OF_136 + ROWS_OF_136)
        made = PostgresStore(url)
        await made.open()
        yield made
        await made.close()

    async def test_tasks_stay_readable(self, store: PostgresStore, url: str) -> None:
        newer, older = await store.list_tasks(self.alice)
        assert (newer.task_id, newer.state) == ("newer", TaskState.FAILED)
        assert (newer.task_contributors, newer.start_time) == ((), "2025-03-02T10:00:00+00:00")
        assert (older.task_id, older.state) == ("older", TaskState.COMPLETED)
        assert older.start_time == "2025-03-01T10:00:00.250000+00:00"
        assert (older.task_contributors, older.remote_swarms) == (
            ("user:alice@example",),
            ("beta",),
        )
        assert await store.open_owners("example") == []
        assert query(url, "SELECT count(*) FROM tasks WHERE is_running") == [(0,)]

    async def test_events_and_responses_stay_readable(self, store: PostgresStore) -> None:
        first, second, third, untimed = await store.events(self.alice, "older")
        assert (first.seq, first.kind, first.description) == (1, "tool_call", "first")
        assert (first.extra, first.timestamp) == (
            {"tool_name": "help"},
            "2025-03-01T10:00:00+00:00",
        )
        assert (second.seq, second.kind, second.extra) == (2, "task_complete", {"response": "yo"})
        assert (third.seq, third.description) == (3, "no json")
        assert (untimed.seq, untimed.kind, untimed.timestamp) == (4, "untimed", "")
        assert await store.response(self.alice, "older") == '{"id": "m1"}'
        assert await store.response(self.alice, "newer") is None

    async def test_the_newest_history_goes_on(
        self, store: PostgresStore, url: str, rows: Rows
    ) -> None:
        (history,) = await store.history(self.alice, "older", "supervisor")
        assert [entry["content"] for entry in json.loads(history)] == ["hi", "yo"]
        more = HistoryRow("supervisor", '[{"role": "assistant", "content": "more"}]')
        post = rows.post(
            new=False,
            task=rows.task("older", state=TaskState.COMPLETED),
            histories=(more,),
            events=(rows.event(),),
            response='{"id": "m2"}',
            snapshot=True,
        )
        assert (await store.commit(post)).first_event == 5
        assert await store.response(self.alice, "older") == '{"id": "m2"}'
        current = query(
            url,
            "SELECT jsonb_array_length(history) FROM agent_histories "
            "WHERE task IS NOT NULL AND task_id = 'older'",
        )
        assert current == [(3,)]
        # The older whole history and what belongs to no task stay where they were.
        assert query(url, "SELECT count(*) FROM agent_histories") == [(3,)]

    async def test_new_tasks_come_after_the_old_ones(
        self, store: PostgresStore, rows: Rows
    ) -> None:
        await store.commit(rows.post("new", new=True))
        listed = await store.list_tasks(self.alice)
        assert [row.task_id for row in listed] == ["new", "newer", "older"]

    async def test_a_conversation_goes_on(self, store: PostgresStore) -> None:
        seen: list[Any] = []

        async def answer(messages: list[dict[str, Any]], tool_choice: object) -> Any:
            seen.extend(messages)
            done = AgentToolCall(
                tool_name="task_complete",
                tool_args={"finish_message": "again"},
                tool_call_id="c1",
                completion={"role": "assistant", "content": ""},
            )
            return None, [done]

        agents = {"supervisor": supervisor(answer, ())}
        runtime = MAILRuntime(
            agents=agents,
            actions={},
            user_id="alice",
            user_role="user",
            swarm_name="example",
            entrypoint="supervisor",
            store=store,
        )
        reply = await runtime.submit_and_wait(user_message("and now?", "older"), timeout=20.0)
        assert reply["message"]["body"] == "again"
        assert [entry["content"] for entry in seen[:2]] == ["hi", "yo"]
        row = await store.load_task(self.alice, "older")
        assert row is not None and row.state is TaskState.COMPLETED
        await runtime.shutdown()

    async def test_a_task_that_had_only_loose_rows_takes_them_over(
        self, store: PostgresStore, rows: Rows
    ) -> None:
        bob = Owner("example", "user", "bob")
        await store.commit(rows.post("lost", owner=bob, new=True, response='{"id": "m3"}'))
        assert await store.response(bob, "lost") == '{"id": "m3"}'
