"""The PostgreSQL store beyond the contract: broken connections, batches, odd values, secrets."""

import asyncio
import json
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from mail.core.tasks import TaskState
from mail.db.postgres import driver as postgres
from mail.db.postgres import writer as postgres_writer
from mail.db.postgres.connect import as_store_error
from mail.db.postgres.driver import PostgresStore
from mail.db.postgres.writer import _OutcomeUnknown
from mail.db.records import HistoryRow
from mail.errors import ConfigError, StoreError
from tests.support.databases import Hold
from tests.support.postgres import PASSWORD, Cluster, query

Rows = Any


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.schema()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url)
    await made.open()
    yield made
    await made.close()


def break_connections(url: str) -> int:
    """End all connections of the stores of a test; return how many there were."""
    return len(
        query(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'mail-server'",
        )
    )


class TestLostConnections:
    async def test_the_next_commit_and_the_next_read_go_through(
        self, store: PostgresStore, url: str, rows: Rows
    ) -> None:
        await store.commit(rows.post("before"))
        assert await asyncio.to_thread(break_connections, url) >= 5
        await store.commit(rows.post("after"))
        assert await asyncio.to_thread(break_connections, url) >= 1
        assert len(await store.list_tasks(rows.alice)) == 2

    async def test_who_falls_silent_in_a_transaction_holds_up_nobody(
        self, store: PostgresStore, url: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        short = postgres_writer._BEGIN.replace("6.0 s", "300 ms")
        monkeypatch.setattr(postgres_writer, "_BEGIN", short)
        await store.commit(rows.post("t1"))
        lock, spoke = "UPDATE tasks SET epoch = epoch RETURNING epoch", []

        async def work(connection: Any) -> None:
            await connection.execute(lock)
            spoke.append(True)
            await asyncio.sleep(3 if len(spoke) == 1 else 0)

        silent = asyncio.create_task(store.driver._session.writer.run(work))
        while not spoke:
            await asyncio.sleep(0.01)
        assert len(await asyncio.to_thread(query, url, lock)) == 1
        assert not silent.done()
        await silent  # what it did is undone, and done again
        assert len(spoke) == 2

    async def test_commits_under_way_are_written_once(
        self, store: PostgresStore, url: str, rows: Rows
    ) -> None:
        async def work(number: int) -> None:
            for step in range(15):
                post = rows.post(f"t{number}", events=(rows.event(description=str(step)),))
                receipt = await store.commit(post)
                assert receipt.first_event == step + 1
                written.set()

        async def disturb() -> None:
            while not done.is_set():
                await asyncio.to_thread(break_connections, url)
                written.clear()
                await asyncio.sleep(0.25)
                if not done.is_set():
                    await written.wait()  # a busy machine may need longer to connect and to write

        done, written = asyncio.Event(), asyncio.Event()
        disturbing = asyncio.create_task(disturb())
        try:
            await asyncio.gather(*(work(number) for number in range(8)))
        finally:
            done.set()
            written.set()
            await disturbing
        for number in range(8):
            events = await store.events(rows.alice, f"t{number}")
            assert [event.description for event in events] == [str(step) for step in range(15)]

    @pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "lost"])
    async def test_a_commit_without_an_answer_is_neither_lost_nor_doubled(
        self, store: PostgresStore, url: str, rows: Rows, arrives: bool
    ) -> None:
        mail = (rows.mail(),)
        await store.commit(rows.post("first"))
        broken = BrokenCommit(store, arrives=arrives)
        receipt = await store.commit(rows.post(deliveries=mail, events=(rows.event(),)))
        assert broken.commits == 1
        assert receipt.first_event == 1
        assert [m.seq for m in await store.all_mail(rows.alice, "t1")] == list(receipt.seqs)
        turn = await store.commit(rows.turn(receipt.seqs[0], events=(rows.event(),)))
        assert turn.first_event == 2
        assert len(await store.events(rows.alice, "t1")) == 2

    async def test_a_commit_without_an_answer_waits_for_the_database(
        self, cluster: Cluster, store: PostgresStore, rows: Rows
    ) -> None:
        await store.commit(rows.post("first"))
        broken = BrokenCommit(store, arrives=True, then=lambda: cluster.stop(signal.SIGINT))
        posting = asyncio.create_task(store.commit(rows.post(events=(rows.event(),), new=True)))
        try:
            # Its last checkpoint may take half a minute on a busy disk.
            await asyncio.to_thread(broken.done.wait, 90)
            with pytest.raises(StoreError):
                await store.load_task(rows.alice, "t1")
            assert not posting.done()
        finally:
            await asyncio.to_thread(cluster.start)
        assert (await posting).first_event == 1
        assert len(await store.events(rows.alice, "t1")) == 1

    async def test_a_batch_of_unknown_outcome_is_not_written_again(
        self, store: PostgresStore, rows: Rows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def unknown() -> bool:  # as when the store is closed before the database is back
            raise _OutcomeUnknown("nobody can be asked")

        hold = Hold(store)
        await hold.until_busy()
        broken = BrokenCommit(store, arrives=True)
        assert store.driver._session is not None
        monkeypatch.setattr(store.driver._session.writer, "_was_committed", unknown)
        posts = [asyncio.create_task(store.commit(rows.post(f"t{n}", new=True))) for n in range(2)]
        await asyncio.sleep(0)
        await hold.release()
        results = await asyncio.gather(*posts, return_exceptions=True)
        assert [type(result) for result in results] == [_OutcomeUnknown] * 2
        assert broken.commits == 1
        assert len(await store.list_tasks(rows.alice)) == 2

    async def test_readers_leave_the_writer_a_connection(
        self, store: PostgresStore, url: str, rows: Rows
    ) -> None:
        await store.commit(rows.post("first"))
        async with locked(url, "task_responses"):
            readings = [asyncio.create_task(store.response(rows.alice, "first")) for _ in range(40)]
            await until_waiting(url, 18)
            assert store.driver._session is not None
            store.driver._session.writer._connection.terminate()
            async with asyncio.timeout(10):
                await store.commit(rows.post("second"))
            assert not any(reading.done() for reading in readings)
        assert await asyncio.gather(*readings) == [None] * 40


class TestSilence:
    """The server hangs: connections stay, and nobody answers."""

    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (postgres, postgres_writer):
            monkeypatch.setattr(module, "ANSWER_SECONDS", 0.3)
        monkeypatch.setattr(postgres_writer, "_ASK_SECONDS", 0.3)
        monkeypatch.setattr(postgres_writer, "_PATIENCE", 0.0)

    async def test_reads_and_writes_are_refused_and_go_on_afterwards(
        self, cluster: Cluster, store: PostgresStore, rows: Rows
    ) -> None:
        await store.commit(rows.post("first"))
        await asyncio.to_thread(cluster.freeze)
        try:
            readings = [store.load_task(rows.alice, "first") for _ in range(40)]
            posts = [store.commit(rows.post(f"t{n}", new=True)) for n in range(100)]
            results = await asyncio.gather(*readings, *posts, return_exceptions=True)
        finally:
            await asyncio.to_thread(cluster.thaw)
        assert {type(result) for result in results} == {StoreError}
        assert all("did not answer in time" in str(result) for result in results)
        await store.commit(rows.post("t0", new=True))
        assert [task.task_id for task in await store.list_tasks(rows.alice)] == ["t0", "first"]

    async def test_who_waits_behind_an_unanswered_commit_is_refused(
        self, cluster: Cluster, store: PostgresStore, rows: Rows
    ) -> None:
        await store.commit(rows.post("first"))
        broken = BrokenCommit(store, arrives=True, then=cluster.freeze)
        posting = asyncio.create_task(store.commit(rows.post("second", new=True)))
        try:
            # Its last checkpoint may take half a minute on a busy disk.
            await asyncio.to_thread(broken.done.wait, 90)
            behind = [store.commit(rows.post(f"t{n}", new=True)) for n in range(100)]
            results = await asyncio.gather(*behind, return_exceptions=True)
            assert not posting.done()
        finally:
            await asyncio.to_thread(cluster.thaw)
        assert {type(result) for result in results} == {StoreError}
        assert (await posting).first_event == 1
        await store.commit(rows.post("t0", new=True))
        names = [task.task_id for task in await store.list_tasks(rows.alice)]
        assert names == ["t0", "second", "first"]

    async def test_closing_does_not_wait_for_it(
        self,
        cluster: Cluster,
        store: PostgresStore,
        rows: Rows,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(postgres, "_CLOSE_SECONDS", 0.5)
        await asyncio.to_thread(cluster.freeze)
        try:
            reading = asyncio.create_task(store.load_task(rows.alice, "t1"))
            await asyncio.sleep(0)
            async with asyncio.timeout(20):
                await store.close()
                with pytest.raises(StoreError):
                    await reading
        finally:
            await asyncio.to_thread(cluster.thaw)

    async def test_requests_one_after_the_other_are_not_refused_later_and_later(
        self, cluster: Cluster, store: PostgresStore, rows: Rows
    ) -> None:
        await store.commit(rows.post("first"))
        await asyncio.to_thread(cluster.stop, signal.SIGINT)
        try:
            async with asyncio.timeout(25):  # the attempts of all would take more than 30 s
                for number in range(20):
                    with pytest.raises(StoreError):
                        await store.load_task(rows.alice, "first")
                    with pytest.raises(StoreError):
                        await store.commit(rows.post(f"t{number}", new=True))
        finally:
            await asyncio.to_thread(cluster.start)
        await store.commit(rows.post("t0", new=True))
        assert break_connections(store.driver._dsn) > 0
        await store.commit(rows.post("t1", new=True))  # tried again, as before
        assert len(await store.list_tasks(rows.alice)) == 3


class BrokenCommit:
    """Breaks the store's writing connection at its next COMMIT, before or after it arrives."""

    def __init__(self, store: PostgresStore, *, arrives: bool, then: Any = None) -> None:
        self.commits = 0
        self.done = threading.Event()
        self._arrives = arrives
        self._then = then
        session = store.driver._session
        assert session is not None
        self._real = session.writer._connection
        session.writer._connection = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def execute(self, statement: str, *values: Any, **options: Any) -> Any:
        if statement != "COMMIT":
            return await self._real.execute(statement, *values, **options)
        self.commits += 1
        if self._arrives:
            await self._real.execute(statement)
        if self._then is not None:
            await asyncio.to_thread(self._then)
        with suppress(asyncpg.InterfaceError):  # the pool may have noticed already
            self._real.terminate()
        self.done.set()
        raise ConnectionResetError("the connection broke")


@asynccontextmanager
async def locked(url: str, table: str) -> AsyncIterator[None]:
    """Let nobody else read a table."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {table}")
            yield
    finally:
        await connection.close()


async def until_waiting(url: str, count: int) -> None:
    """Wait until so many statements wait for a lock."""
    async with asyncio.timeout(30):
        while await asyncio.to_thread(query, url, _WAITING) != [(count,)]:
            pass


_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND application_name = 'mail-server'
"""


class TestClosing:
    @pytest.mark.parametrize("exclusive", [True, False])
    async def test_reads_that_were_asked_for_are_done(
        self, url: str, rows: Rows, exclusive: bool
    ) -> None:
        store = PostgresStore(url, exclusive=exclusive)
        await store.open()
        await store.commit(rows.post())
        readings = [asyncio.create_task(store.load_task(rows.alice, "t1")) for _ in range(60)]
        await asyncio.sleep(0)
        await store.close()
        async with asyncio.timeout(20):
            assert await asyncio.gather(*readings) == [rows.task()] * 60

    async def test_what_takes_too_long_is_broken_off(
        self, url: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgres, "_CLOSE_SECONDS", 0.2)
        store = PostgresStore(url)
        await store.open()
        await store.commit(rows.post())
        async with locked(url, "tasks"):
            under_way = [
                *(asyncio.create_task(store.load_task(rows.alice, "t1")) for _ in range(30)),
                asyncio.create_task(store.commit(rows.post("t2"))),
            ]
            await until_waiting(url, 19)
            under_way.append(asyncio.create_task(store.commit(rows.post("t3"))))
            await asyncio.sleep(0)
            async with asyncio.timeout(20):
                await store.close()
                results = await asyncio.gather(*under_way, return_exceptions=True)
        assert {(type(r), str(r)) for r in results} == {(StoreError, "the store is closed")}
        assert len(results) == 32
        await store.open()
        assert [row.task_id for row in await store.list_tasks(rows.alice)] == ["t1"]
        await store.close()

    async def test_a_server_that_stays_away_is_not_waited_for(
        self, cluster: Cluster, store: PostgresStore, rows: Rows
    ) -> None:
        await store.commit(rows.post())
        await asyncio.to_thread(cluster.stop, signal.SIGINT)
        try:
            under_way = [
                asyncio.create_task(store.load_task(rows.alice, "t1")),
                *(asyncio.create_task(store.commit(rows.post(f"t{n}"))) for n in range(300)),
            ]
            await asyncio.sleep(0)
            async with asyncio.timeout(20):
                await store.close()
                results = await asyncio.gather(*under_way, return_exceptions=True)
        finally:
            await asyncio.to_thread(cluster.start)
        assert {type(result) for result in results} == {StoreError}

    async def test_a_commit_whose_outcome_nobody_tells_is_unknown(
        self,
        cluster: Cluster,
        store: PostgresStore,
        rows: Rows,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(postgres, "_CLOSE_SECONDS", 0.5)
        await store.commit(rows.post("first"))
        broken = BrokenCommit(store, arrives=True, then=lambda: cluster.stop(signal.SIGINT))
        posting = asyncio.create_task(store.commit(rows.post()))
        try:
            # Its last checkpoint may take half a minute on a busy disk.
            await asyncio.to_thread(broken.done.wait, 90)
            async with asyncio.timeout(20):
                await store.close()
                with pytest.raises(StoreError, match="unknown"):
                    await posting
        finally:
            await asyncio.to_thread(cluster.start)

    def test_a_lost_connection_is_named(self) -> None:
        lost = asyncpg.ConnectionDoesNotExistError("connection was closed")
        assert str(as_store_error(lost)).endswith(": ConnectionDoesNotExistError (08003)")


class TestBatches:
    async def test_what_queues_up_shares_commits_of_at_most_64(
        self, store: PostgresStore, url: str, rows: Rows
    ) -> None:
        hold = Hold(store)
        await hold.until_busy()
        posts = [asyncio.create_task(store.commit(rows.post(f"t{n}"))) for n in range(100)]
        await asyncio.sleep(0)
        await hold.release()
        await asyncio.gather(*posts)
        counts = query(url, "SELECT count(*) FROM tasks GROUP BY updated_at ORDER BY updated_at")
        assert counts == [(64,), (36,)]


class TestValues:
    async def test_a_refusal_has_no_cause_that_repeats_values(
        self, store: PostgresStore, rows: Rows
    ) -> None:
        with pytest.raises(StoreError) as caught:
            await store.commit(rows.post(task=rows.task(steps=2**70, title="hunter2")))
        assert caught.value.__cause__ is None

    async def test_what_jsonb_refuses_does_not_stop_a_snapshot(
        self, store: PostgresStore, url: str, rows: Rows
    ) -> None:
        odd = json.dumps([{"role": "tool", "x": "a\0b \ud83d", "n": [float("nan"), 2.5, 2]}])
        post = rows.post(histories=(HistoryRow("a", odd),), response=odd, snapshot=True)
        await store.commit(post)
        assert await store.history(rows.alice, "t1", "a") == [odd]
        assert await store.response(rows.alice, "t1") == odd
        ((history,),) = query(url, "SELECT history::text FROM agent_histories")
        assert json.loads(history) == [
            {"role": "tool", "x": "a\ufffdb \ufffd", "n": [None, 2.5, 2]}
        ]


class TestOpening:
    @pytest.mark.parametrize(
        ("durability", "default", "expected"),
        [("full", "", "on"), ("full", "&synchronous_commit=off", "on"), ("normal", "", "off")],
    )
    async def test_durability_decides_whether_a_commit_waits_for_the_disk(
        self, url: str, durability: Any, default: str, expected: str
    ) -> None:
        store = PostgresStore(url + default, durability=durability)
        await store.open()

        async def look(connection: Any) -> Any:
            return await connection.fetchval("SHOW synchronous_commit")

        assert await store.driver._session.writer.run(look) == expected
        await store.close()

    async def test_a_failure_to_connect_tells_no_secret(self, cluster: Cluster) -> None:
        right = cluster.url("postgres")
        for url in (
            right.replace(PASSWORD, "hunter2"),
            cluster.url("no_such_database"),
            right.replace(f":{cluster.port}/", ":1/"),
            right + "?sslmode=hunter2",
        ):
            with pytest.raises(StoreError) as caught:
                await PostgresStore(url).open()
            assert caught.value.__cause__ is None
            assert PASSWORD not in str(caught.value) and "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        "rest", ["u:hunter2@h:5432", "u:hun/ter2@h/d", "u:hunter2#@h/d", "h:x/d"]
    )
    def test_a_url_that_cannot_be_right_is_refused_at_once(self, rest: str) -> None:
        with pytest.raises(ConfigError, match="%40") as caught:
            PostgresStore(f"postgresql://{rest}")
        assert "hun" not in str(caught.value)


async def test_a_task_that_ends_while_it_is_deleted_leaves_nothing_behind(
    store: PostgresStore, url: str, rows: Rows
) -> None:
    await rows.begin(store, task=rows.task(state=TaskState.PAUSED))
    server = await asyncpg.connect(url)
    async with server.transaction():  # as the server cancels it, beside a command
        await server.execute("UPDATE tasks SET state = 'cancelled'")
        await server.execute(
            "INSERT INTO task_responses "
            "(task_id, swarm_name, caller_role, caller_id, response, response_text, task) "
            "SELECT task_id, swarm_name, caller_role, caller_id, '{}', '{}', key FROM tasks"
        )
        deleting = asyncio.create_task(store.delete_task(rows.alice, "t1"))
        await until_waiting(url, 1)
    await server.close()
    await deleting
    while await store.purge():
        pass
    assert query(url, "SELECT count(*) FROM tasks") == [(0,)]
    assert query(url, "SELECT count(*) FROM task_responses") == [(0,)]
