"""The SQLite store beyond the contract: durability, group commit, locking, damage."""

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mail.core.tasks import TaskState
from mail.db.desk import DeskPost, LetterFilter, LetterRow
from mail.db.desk_search import LetterQuery
from mail.db.records import Owner, TokenRow
from mail.db.sqlite.driver import SQLiteStore
from mail.db.sqlite.writer import Work
from mail.errors import StoreError, StoreLocked
from tests.db.process import beside
from tests.support.databases import Hold

Rows = Any


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "mail.db")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that owns the same file and posts without end; each line is acknowledged."""
    yield from _process(tmp_path, "write")


@pytest.fixture
def deleter(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that deletes a task with 20,000 events and tells of each step."""
    yield from _process(tmp_path, "delete")


def _process(folder: Path, work: str) -> Iterator[subprocess.Popen[str]]:
    with beside(folder / "mail.db", work) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


async def write(store: SQLiteStore, work: Work[Any]) -> Any:
    """Hand the writer a unit of work that the store itself has no verb for."""
    return await store.driver._session.writer.run(work)


async def pragma(store: SQLiteStore, text: str) -> Any:
    """Run a pragma on the writer's connection."""
    return await write(
        store, lambda cursor: (cursor.execute(f"PRAGMA {text}").fetchone() or [0])[0]
    )


def query(store: SQLiteStore, text: str, *values: object) -> list[Any]:
    """Look into the file from outside."""
    connection = sqlite3.connect(store.path)
    try:
        return connection.execute(text, values).fetchall()
    finally:
        connection.close()


class TestDurability:
    @pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
    async def test_the_setting_selects_the_sync_level_on_wal(
        self, tmp_path: Path, durability: Any, level: int
    ) -> None:
        store = SQLiteStore(tmp_path / "mail.db", durability=durability)
        await store.open()
        assert store.durable
        assert await pragma(store, "journal_mode") == "wal"
        # PRAGMA synchronous reads the same inside a transaction; it cannot be changed there.
        assert await pragma(store, "synchronous") == level
        await store.close()

    async def test_closing_moves_the_log_into_the_file(self, tmp_path: Path, rows: Rows) -> None:
        store = SQLiteStore(tmp_path / "mail.db")
        await store.open()
        await store.commit(rows.post())
        await store.close()
        left = await asyncio.to_thread(os.listdir, tmp_path)
        assert sorted(left) == ["mail.db", "mail.db.lock"]

    async def test_what_was_acknowledged_survives_kill_9(
        self, tmp_path: Path, child: subprocess.Popen[str], rows: Rows
    ) -> None:
        assert child.stdout is not None
        acknowledged = [child.stdout.readline().strip() for _ in range(300)]
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        acknowledged += [line.strip() for line in child.stdout if line.endswith("\n")]
        store = SQLiteStore(tmp_path / "mail.db")
        await store.open()
        kept = {row.task_id for row in await store.list_tasks(rows.alice)}
        assert set(acknowledged) <= kept
        # Four callers wait at a time: at most so many commits were not acknowledged yet.
        assert len(kept) - len(acknowledged) <= 4
        for task_id in kept:
            assert [e.seq for e in await store.events(rows.alice, task_id)] == [1, 2]
        letters = await store.letters("example", "bob", LetterFilter(), limit=100_000)
        names = {row.letter_id for row, _ in letters}
        assert {f"{task_id}-alone" for task_id in acknowledged} <= names
        assert {name for name in names if not name.endswith("-alone")} == kept
        found = await store.letters_by_id("example", sorted(names))
        assert all([row.name for row in receipts] == ["bob", "cyd"] for _, receipts in found)
        assert await store.letter_bytes("example", "ann") == 751 * len(names)
        await store.close()

    async def test_a_deletion_cut_off_by_kill_9_is_finished_later(
        self, tmp_path: Path, deleter: subprocess.Popen[str], rows: Rows
    ) -> None:
        assert deleter.stdout is not None
        assert deleter.stdout.readline() == "purged\n"
        os.kill(deleter.pid, signal.SIGKILL)
        deleter.wait()
        store = SQLiteStore(tmp_path / "mail.db")
        await store.open()
        assert await store.list_tasks(rows.alice) == []
        ((left,),) = query(store, "SELECT count(*) FROM task_events")
        assert 0 < left < 20_000
        while await store.purge():
            pass
        for table in ("task_events", "tasks"):
            assert query(store, f"SELECT count(*) FROM {table}") == [(0,)]  # noqa: S608
        await store.close()


class TestGroupCommit:
    async def test_what_queues_up_shares_commits_of_at_most_64(
        self, store: SQLiteStore, rows: Rows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        statements: list[str] = []
        await write(store, lambda c: c.connection.set_trace_callback(statements.append))
        hold = Hold(store)
        await hold.until_busy()
        statements.clear()
        posts = [asyncio.create_task(store.commit(rows.post(f"t{n}"))) for n in range(100)]
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        wakeups: list[object] = []
        wake = loop.call_soon_threadsafe

        def counting(callback: Any, *args: Any, **kwargs: Any) -> Any:
            wakeups.append(callback)
            return wake(callback, *args, **kwargs)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
        await hold.release()
        await asyncio.gather(*posts)
        # The held unit's own commit, then 64, then 36; each wakes the loop once.
        assert statements.count("COMMIT") == 3
        assert len(wakeups) == 3
        assert len(await store.list_tasks(rows.alice)) == 100

    async def test_closing_commits_what_was_handed_in_just_before(
        self, store: SQLiteStore, rows: Rows
    ) -> None:
        post = asyncio.ensure_future(store.commit(rows.post()))
        asyncio.get_running_loop().call_soon(store.driver._close)  # before the loop's pass is over
        await post
        assert query(store, "SELECT task_id FROM tasks") == [("t1",)]


class TestFailures:
    async def test_a_full_disk_fails_the_commit_whole(self, store: SQLiteStore, rows: Rows) -> None:
        seq = (await store.commit(rows.post(deliveries=(rows.mail(),)))).seqs[0]
        pages = await pragma(store, "page_count")
        await pragma(store, f"max_page_count = {pages}")
        large = rows.turn(
            seq,
            task=rows.task(state=TaskState.COMPLETED),
            events=(rows.event(),),
            deliveries=(rows.mail(payload="x" * 100_000),),
        )
        with pytest.raises(StoreError, match="full"):
            await store.commit(large)
        assert await store.load_task(rows.alice, "t1") == rows.task()
        assert await store.events(rows.alice, "t1") == []
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t1")] == [seq]
        await pragma(store, "max_page_count = 1000000")
        assert (await store.commit(large)).first_event == 1

    async def test_small_commits_beside_one_too_large_go_through(
        self, store: SQLiteStore, rows: Rows
    ) -> None:
        await store.commit(rows.post())
        await pragma(store, f"max_page_count = {await pragma(store, 'page_count') + 10}")
        hold = Hold(store)
        await hold.until_busy()
        large = store.commit(rows.post("large", deliveries=(rows.mail(payload="x" * 200_000),)))
        commits = [
            asyncio.create_task(large),
            asyncio.create_task(store.commit(rows.post("small"))),
        ]
        await asyncio.sleep(0)
        await hold.release()
        failed, kept = await asyncio.gather(*commits, return_exceptions=True)
        assert isinstance(failed, StoreError)
        assert not isinstance(kept, BaseException)
        assert {row.task_id for row in await store.list_tasks(rows.alice)} == {"t1", "small"}

    async def test_a_foreign_write_lock_fails_the_commit_after_the_timeout(
        self, store: SQLiteStore, rows: Rows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.db.sqlite.writer.WAIT_SECONDS", 0.02)
        foreign = sqlite3.connect(store.path, isolation_level=None)
        foreign.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.commit(rows.post())
        foreign.execute("ROLLBACK")
        foreign.close()
        await store.commit(rows.post(new=True))

    async def test_a_missing_folder_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="nowhere for the database does not exist; create it"):
            await SQLiteStore(tmp_path / "nowhere" / "mail.db").open()

    def test_a_folder_is_no_file_and_gets_no_lock_beside_it(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        with pytest.raises(StoreError, match=r"data is a folder; name a file"):
            asyncio.run(SQLiteStore(tmp_path / "data").open())
        assert [path.name for path in tmp_path.iterdir()] == ["data"]

    @pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" * 99])
    async def test_a_file_that_is_no_database_is_refused(
        self, tmp_path: Path, content: bytes
    ) -> None:
        (tmp_path / "mail.db").write_bytes(content)
        store = SQLiteStore(tmp_path / "mail.db")
        for _ in range(2):
            with pytest.raises(StoreError, match=r"mail\.db"):
                await store.open()

    async def test_a_damaged_page_is_found_on_open(self, tmp_path: Path, rows: Rows) -> None:
        path = tmp_path / "mail.db"
        store = SQLiteStore(path)
        await store.open()
        for n in range(50):
            await store.commit(rows.post(f"t{n}", deliveries=(rows.mail(payload="x" * 500),)))
        (root,) = query(store, "SELECT rootpage FROM sqlite_master WHERE name = 'messages'")[0]
        await store.close()
        with path.open("r+b") as file:
            file.seek((root - 1) * 4096)
            file.write(b"\xff" * 4096)
        with pytest.raises(StoreError, match=r"damaged|malformed"):
            await store.open()


class TestOwnership:
    async def test_a_new_file_is_private(self, store: SQLiteStore, rows: Rows) -> None:
        await store.commit(rows.post())
        for name in ("mail.db", "mail.db.lock", "mail.db-wal", "mail.db-shm"):
            assert store.path.with_name(name).stat().st_mode & 0o777 == 0o600

    async def test_a_guest_reads_and_writes_beside_the_owner(
        self, store: SQLiteStore, rows: Rows
    ) -> None:
        await store.commit(rows.post())
        guest = SQLiteStore(store.path, exclusive=False)
        await guest.open()
        assert await guest.load_task(rows.alice, "t1") == rows.task()
        token = TokenRow(token_hash="h", role="user", id="alice", created_at=rows.now)
        await guest.put_token(token)
        assert await store.find_token("h") == token
        await guest.close()
        await store.commit(rows.post("t2"))
        with pytest.raises(StoreLocked):
            await SQLiteStore(store.path).open()


class TestDocumentedTables:
    COLUMNS: ClassVar = {
        "agent_histories": "id swarm_name caller_role caller_id tool_format task_id agent_name "
        "history created_at updated_at",
        "tasks": "id task_id swarm_name caller_role caller_id task_owner task_contributors "
        "remote_swarms is_running completed start_time created_at updated_at",
        "task_events": "id task_id swarm_name caller_role caller_id event_type event_data "
        "event_id created_at",
        "task_responses": "id task_id swarm_name caller_role caller_id response created_at",
    }

    @pytest.mark.parametrize("table", COLUMNS)
    def test_they_have_their_columns(self, store: SQLiteStore, table: str) -> None:
        there = {row[1] for row in query(store, f"PRAGMA table_xinfo({table})")}
        assert set(self.COLUMNS[table].split()) <= there


class TestPlans:
    """Queries that must not grow with what is finished use their indexes."""

    VERBS: ClassVar[dict[str, Callable[[SQLiteStore, Owner], Awaitable[Any]]]] = {
        "messages_ready": lambda store, owner: store.waiting_mail(owner, "t1"),
        "tasks_by_owner": lambda store, owner: store.list_tasks(owner, before="t1", limit=5),
        "tasks_running": lambda store, owner: store.list_tasks(
            owner, states=[TaskState.RUNNING], limit=5
        ),
        "sqlite_autoindex_idempotency": lambda store, owner: store.find_key(owner, "k"),
        "idempotency_by_age": lambda store, owner: store.drop_aged("idempotency", "2026", 5),
        "desk_pages_by_age": lambda store, owner: store.aged_between("keys", "", "2025", "2026"),
        "inbox_by_age": lambda store, owner: store.aged_between("inbox", "", "2025", "2026"),
        "desk_letters_by_age": lambda store, owner: store.aged_between(
            "letters", "example", "2025", "2026"
        ),
        "task_events_by_task": lambda store, owner: store.events(owner, "t1", 7, 5),
    }

    @pytest.mark.parametrize("index", VERBS)
    async def test_they_search_and_do_not_sort(
        self, store: SQLiteStore, rows: Rows, index: str
    ) -> None:
        plan = await self.plan(store, self.VERBS[index](store, rows.alice))
        assert index in plan
        assert "SCAN" not in plan
        assert "TEMP B-TREE" not in plan

    async def test_a_page_by_bytes_goes_from_one_event_to_the_next(
        self, store: SQLiteStore, rows: Rows
    ) -> None:
        plan = await self.plan(store, store.events(rows.alice, "t1", 7, 5, max_bytes=100))
        assert plan.count("task_events_by_task (task=? AND seq=?)") == 2
        assert "SCAN task_events" not in plan

    LETTERS: ClassVar[dict[str, Callable[[SQLiteStore], Awaitable[Any]]]] = {
        "r USING PRIMARY KEY (swarm_name=? AND name=?)": lambda store: store.letters(
            "example", "bob", LetterFilter()
        ),
        "r USING PRIMARY KEY (swarm_name=? AND name=? AND letter>? AND letter<?)": (
            lambda store: store.letters("example", "bob", LetterFilter(since="2026", before=9))
        ),
        "USING COVERING INDEX desk_letters_by_latest (swarm_name=? AND latest<?)": (
            lambda store: store.letters("example", "bob", LetterFilter(since="2026"))
        ),
        "MATERIALIZE page SEARCH r USING COVERING INDEX desk_receipts_unread": (
            lambda store: store.letters("example", "bob", LetterFilter(unread=True))
        ),
        "r USING COVERING INDEX desk_receipts_unread (swarm_name=? AND name=? AND shown_at=?)": (
            lambda store: store.unread_letters("example", "bob")
        ),
        "l USING COVERING INDEX desk_letters_by_thread (swarm_name=? AND thread_id=?)": (
            lambda store: store.letters("example", "bob", LetterFilter(thread_id="th"))
        ),
        "r USING INDEX desk_receipts_owed (swarm_name=? AND owed_to=?)": (
            lambda store: store.overdue_letters("example", "ann", "2027")
        ),
        "USING COVERING INDEX desk_letters_by_age (swarm_name=?": lambda store: store.drop_letters(
            "example", "2026", 100
        ),
        "sqlite_autoindex_desk_pages": lambda store: store.find_page("example", "bob", "r"),
        "desk_members_by_activity (swarm_name=? AND name=?)": (
            lambda store: store.list_threads("example", "bob")
        ),
        "desk_members_by_activity (swarm_name=? AND name=? AND (active_at,thread_id)<(?,?))": (
            lambda store: store.list_threads("example", "bob", after=("2026", "th"))
        ),
    }

    @pytest.mark.parametrize("search", LETTERS)
    async def test_a_mailbox_is_read_without_the_letters_of_others(
        self, store: SQLiteStore, search: str
    ) -> None:
        plan = await self.plan(store, self.LETTERS[search](store))
        assert search in plan
        assert not re.search(r"SCAN (desk_|r\b|m\b)", plan)
        page, *_ = re.split(r"SCAN (?:page|l)\b", plan)  # what comes then is bounded
        assert "TEMP B-TREE" not in page

    async def test_letters_of_a_task_are_read_without_those_of_others(
        self, store: SQLiteStore
    ) -> None:
        asked = store.letters_of_task("example", ("user:alice", "t"), "lead")
        plan = await self.plan(store, asked)
        assert "USING COVERING INDEX desk_letters_by_task (swarm_name=? AND task_owner=?" in plan
        assert not re.search(r"SCAN (desk_|r\b|l\b)", plan)

    async def test_running_owners_are_found_without_a_look_at_any_task(
        self, store: SQLiteStore
    ) -> None:
        plan = await self.plan(store, store.running_owners("example"))
        assert plan == "SEARCH tasks USING INDEX tasks_running (swarm_name=?)"

    @pytest.mark.parametrize("query", ["plan", '"the plan" -b*'])
    async def test_a_search_begins_at_the_index_of_words(
        self, store: SQLiteStore, query: str
    ) -> None:
        letter = LetterRow("l1", "ann", ("bob",), "direct", "the plan", "2026")
        await store.post_letters(DeskPost(swarm="example", letters=(letter,)))
        search = store.search_letters("example", "bob", LetterQuery.parse(query))
        plan = await self.plan(store, search)
        assert "SCAN desk_words VIRTUAL TABLE INDEX" in plan
        assert "SEARCH l USING INTEGER PRIMARY KEY (rowid=?)" in plan
        assert not re.search(r"SCAN (desk_(?!words VIRTUAL)|r\b|m\b|l\b)", plan)

    async def plan(self, store: SQLiteStore, verb: Awaitable[Any]) -> str:
        """Run a verb and return how SQLite goes about its statements."""
        seen: list[str] = []
        session = store.driver._session
        assert session is not None
        readers = [session.readers.get() for _ in range(2)]
        for connection in (session.connection, *readers):
            connection.set_trace_callback(seen.append)
        for connection in readers:
            session.readers.put(connection)
        await verb
        texts = [text for text in seen if not text.startswith(("BEGIN", "COMMIT", "--"))]
        plans = [query(store, f"EXPLAIN QUERY PLAN {text}") for text in texts]
        return " ".join(row[3] for rows in plans for row in rows)
