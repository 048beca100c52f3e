"""What owners take of a store, and how records go: `mail.db.sweep.SweepVerbs`."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.desk import DeskPost, LetterRow, PageRow
from mail.db.files import FileRow
from mail.db.ledger import LedgerPart, Question
from mail.db.preferences import KEPT_VERSIONS, PreferenceChange, VersionRow, new_feedback
from mail.db.records import (
    HistoryRow,
    IdempotencyRow,
    InboxRow,
    JournalRow,
    OutboxRow,
    Owner,
    StoredUse,
)
from mail.db.store import Store
from mail.errors import StoreConflict
from tests.support.databases import Database

if TYPE_CHECKING:
    from mail.db.sweep import AgedKind

Rows = Any

TABLES = (
    "tasks",
    "messages",
    "journal",
    "task_events",
    "task_responses",
    "history_entries",
    "agent_histories",
    "calls",
    "outbox",
    "task_texts",
    "questions",
)
LONG_AGO = "0001-01-01T00:00:00+00:00"
KEY = IdempotencyRow("k1", "f" * 64, "2026-01-01T10:00:00+00:00", "t1", 0, "m1", "{}")


async def fill(store: Store, rows: Rows, owner: Owner, task_id: str = "t1") -> None:
    """Give an owner a completed task with records of every kind."""
    long = "x" * 9000
    once = KEY._replace(key=task_id, task_id=task_id)
    first, second = (
        await store.commit(
            rows.post(
                task_id,
                owner=owner,
                deliveries=(rows.mail(task_id), rows.mail(task_id)),
                once=once,
            )
        )
    ).seqs
    journal = (JournalRow("reply", "done", "{}"),)
    await store.commit(rows.turn(first, task_id, owner=owner, done=False, journal=journal))
    await store.commit(
        rows.turn(
            second,
            task_id,
            owner=owner,
            task=rows.task(task_id, state=TaskState.COMPLETED),
            events=tuple(rows.event(extra=f'{{"n":{n}}}') for n in range(200)),
            histories=(HistoryRow("supervisor", f'["{long}"]'),),
            calls=(CallRow("supervisor", "c1", "{}", "{}"),),
            ledger=LedgerPart((Question("supervisor", "writer", "r1", number=1),)),
            outbox=(OutboxRow(task_id, "beta", "m1", "supervisor", "request", "r1", "{}", ""),),
            response='{"a":1}',
            snapshot=True,
        )
    )


def counts(database: Database) -> dict[str, int]:
    return {table: database.query(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}  # noqa: S608 - constants


async def purge(store: Store) -> int:
    steps = 0
    while await store.purge():
        steps += 1
    return steps


class TestUse:
    async def test_nothing_is_nothing(self, store: Store, rows: Rows) -> None:
        assert await store.stored_use(rows.alice) == StoredUse(0, 0, 0)

    async def test_tasks_and_memories_count_for_their_owner(self, store: Store, rows: Rows) -> None:
        receipt = await store.commit(rows.post("t1", deliveries=(rows.mail(payload='{"a":1}'),)))
        await store.commit(rows.post("t2", task=rows.task("t2", state=TaskState.PAUSED)))
        await store.commit(rows.post("t3", task=rows.task("t3", state=TaskState.FAILED)))
        before = await store.stored_use(rows.alice)
        assert before == StoredUse(receipt.bytes, 3, 2)
        await store.put_memories(rows.alice, [rows.memory("k", '"' + "ä" * 500 + '"')])
        await store.put_memories(rows.alice, [rows.memory("k", '"' + "ö" * 600 + '"')])
        after = await store.stored_use(rows.alice)
        assert after.bytes - before.bytes == 1202
        assert await store.stored_use(rows.bob) == StoredUse(0, 0, 0)

    async def test_versions_of_memories_and_feedback_count(self, store: Store, rows: Rows) -> None:
        made = "2026-01-01T00:00:00+00:00"

        async def change(number: int, **more: Any) -> int:
            version = VersionRow("likes", number, "ä" * 500, made, "person")
            await store.change_preference(
                PreferenceChange(owner=rows.alice, name="likes", versions=(version,), **more)
            )
            return (await store.stored_use(rows.alice)).bytes

        assert [await change(number) for number in (1, 2, 3)] == [1000, 2000, 3000]
        teach = new_feedback(
            approval_id="a1",
            memory="likes",
            task_id="t1",
            type="edit",
            action="send",
            args="ö" * 300,
            change="c" * 40,
            task_text="t" * 7,
            now=made,
        )
        receipt = await store.commit(rows.post("t1", feedback=(teach,)))
        taken = (await store.stored_use(rows.alice)).bytes
        assert taken - receipt.bytes == 3000 + 600 + 40 + 7 + len("[]")
        assert await store.stored_use(rows.bob) == StoredUse(0, 0, 0)
        for number in range(4, KEPT_VERSIONS + 4):
            taken = await change(number)
        assert taken - receipt.bytes == KEPT_VERSIONS * 1000 + 600 + 40 + 7 + len("[]")
        gone = VersionRow("likes", KEPT_VERSIONS + 4, "", made, "deleted")
        await store.change_preference(
            PreferenceChange(owner=rows.alice, name="likes", versions=(gone,), forget=True)
        )
        assert (await store.stored_use(rows.alice)).bytes == receipt.bytes

    async def test_idempotency_keys_count_until_they_are_dropped(
        self, store: Store, rows: Rows
    ) -> None:
        made = "2026-01-01T00:00:00+00:00"
        await store.put_key(rows.alice, IdempotencyRow("k" * 100, "f", made, answer="a" * 4000))
        kept = await store.stored_use(rows.alice)
        assert 4_200 <= kept.bytes <= 5_000
        assert await store.stored_use(rows.bob) == StoredUse(0, 0, 0)
        task = rows.task("t1", state=TaskState.COMPLETED)
        once = IdempotencyRow("k2", "f", made, "t1")
        receipt = await store.commit(rows.post("t1", task=task, once=once))
        both = await store.stored_use(rows.alice)
        assert 0 < both.bytes - kept.bytes - receipt.bytes < 1_000
        await store.delete_task(rows.alice, "t1")
        left = await store.stored_use(rows.alice)
        assert left.bytes == both.bytes - receipt.bytes
        await store.drop_aged("idempotency", "2026-01-02", 10)
        assert await store.stored_use(rows.alice) == StoredUse(0, 0, 0)


class TestDeletion:
    async def test_a_deleted_task_is_unknown_at_once(self, store: Store, rows: Rows) -> None:
        await fill(store, rows, rows.alice)
        await fill(store, rows, rows.bob)
        await store.delete_task(rows.alice, "t1")
        assert await store.load_task(rows.alice, "t1") is None
        assert await store.list_tasks(rows.alice) == []
        assert await store.events(rows.alice, "t1") == []
        assert await store.history(rows.alice, "t1", "supervisor") == []
        assert await store.all_mail(rows.alice, "t1") == []
        assert await store.response(rows.alice, "t1") is None
        left = await store.stored_use(rows.alice)
        assert left == StoredUse(left.bytes, 0, 0)
        assert left.bytes < 500  # its key
        assert await store.owners("example") == [rows.bob]
        assert len(await store.events(rows.bob, "t1")) == 200
        with pytest.raises(StoreConflict):
            await store.delete_task(rows.alice, "t1")

    async def test_its_id_can_be_used_again_at_once(self, store: Store, rows: Rows) -> None:
        await fill(store, rows, rows.alice)
        await store.delete_task(rows.alice, "t1")
        seq = await rows.begin(store, new=True, events=(rows.event("tool_call"),))
        done = rows.task(state=TaskState.COMPLETED)
        await store.commit(rows.turn(seq, task=done, response='{"b":2}'))
        await purge(store)
        assert [event.kind for event in await store.events(rows.alice, "t1")] == ["tool_call"]
        assert await store.response(rows.alice, "t1") == '{"b":2}'
        assert await store.load_task(rows.alice, "t1") == done

    async def test_its_keys_stay_and_name_no_task(self, store: Store, rows: Rows) -> None:
        await fill(store, rows, rows.alice)
        await fill(store, rows, rows.bob)
        await store.delete_task(rows.alice, "t1")
        found = await store.find_key(rows.alice, "t1")
        assert found == IdempotencyRow("t1", KEY.fingerprint, KEY.created_at)
        kept = await store.find_key(rows.bob, "t1")
        assert kept is not None
        assert kept.task_id == "t1"

    async def test_a_running_task_is_not_deleted(self, store: Store, rows: Rows) -> None:
        await rows.begin(store)
        with pytest.raises(StoreConflict):
            await store.delete_task(rows.alice, "t1")
        with pytest.raises(StoreConflict):
            await store.delete_task(rows.bob, "t1")
        assert await store.load_task(rows.alice, "t1") == rows.task()

    async def test_a_paused_task_is_deleted_unless_only_ended_ones_are(
        self, store: Store, rows: Rows
    ) -> None:
        await store.commit(rows.post(task=rows.task(state=TaskState.PAUSED)))
        with pytest.raises(StoreConflict):
            await store.delete_task(rows.alice, "t1", ended=True)
        await store.delete_task(rows.alice, "t1")
        assert await store.load_task(rows.alice, "t1") is None

    async def test_a_late_commit_of_a_deleted_task_is_refused(
        self, store: Store, rows: Rows
    ) -> None:
        seq = await rows.begin(store)
        await store.commit(rows.post(task=rows.task(state=TaskState.PAUSED)))
        await store.delete_task(rows.alice, "t1")
        with pytest.raises(StoreConflict):
            await store.commit(rows.turn(seq))
        await rows.begin(store, new=True)
        with pytest.raises(StoreConflict):
            await store.commit(rows.turn(seq))

    async def test_purging_removes_every_record_in_steps(
        self, durable: Store, database: Database, rows: Rows
    ) -> None:
        await fill(durable, rows, rows.bob)
        others = counts(database)
        assert all(others.values())
        await fill(durable, rows, rows.alice)
        await durable.delete_task(rows.alice, "t1")
        assert await purge(durable) == 4  # 200 events, 64 at a time
        assert counts(database) == others
        assert not await durable.purge()

    async def test_purging_goes_on_where_a_dead_process_stopped(
        self, durable: Store, database: Database, rows: Rows
    ) -> None:
        await fill(durable, rows, rows.alice)
        await durable.delete_task(rows.alice, "t1")
        assert await durable.purge()
        await durable.close()
        second = database.store()
        await second.open()
        assert await purge(second) == 3
        assert not any(counts(database).values())
        await second.close()

    async def test_deleting_leaves_the_work_of_others_alone(
        self, durable: Store, rows: Rows
    ) -> None:
        """A task's records go in several commits: those of others come between."""
        await fill(durable, rows, rows.alice)
        await durable.delete_task(rows.alice, "t1")
        steps = 0
        while await durable.purge():
            steps += 1
            await rows.begin(durable, f"b{steps}", owner=rows.bob)
        assert len(await durable.list_tasks(rows.bob)) == steps == 4


class TestAge:
    async def test_only_ended_tasks_of_the_swarm_are_found_by_age(
        self, store: Store, rows: Rows
    ) -> None:
        for number, state in enumerate(TaskState):
            task = rows.task(f"t{number}", state=state)
            await store.commit(rows.post(task=task))
        other = Owner("other", "user", "alice")
        await store.commit(rows.post(owner=other, task=rows.task(state=TaskState.FAILED)))
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        earlier = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        ended = [
            (rows.alice, f"t{number}")
            for number, state in enumerate(TaskState)
            if state not in (TaskState.RUNNING, TaskState.PAUSED)
        ]
        assert await store.ended_tasks("example", later, 10) == ended
        assert await store.ended_tasks("example", later, 2) == ended[:2]
        assert await store.ended_tasks("example", earlier, 10) == []

    async def test_the_ends_of_what_goes_by_age_are_found(self, store: Store, rows: Rows) -> None:
        days = [f"2026-01-0{day}T10:00:00.000000+00:00" for day in range(1, 10)]
        for day in days[1:4]:
            key = IdempotencyRow(f"k{day}", "f", day)
            await store.commit(rows.post(once=key, inbox=InboxRow("beta", f"m{day}", "{}", day)))
            letter = LetterRow(f"l{day}", "ann", ("bob",), "direct", "x", day)
            await store.post_letters(DeskPost(swarm="example", letters=(letter,)))
            file = FileRow(f"f{day}", "ann", "aa", 1, "n", "text/plain", day, days[6])
            await store.add_file("example", file)
        await store.show_letters("example", "bob", (), days[4], PageRow("r", (), days[4]))
        last: dict[AgedKind, int] = {"keys": 4, "inbox": 3, "letters": 3, "files": 3}
        for kind, end in last.items():
            found = await store.aged_between(kind, "example", LONG_AGO, days[8])
            assert found == (days[1], days[end]), kind
            assert await store.aged_between(kind, "example", days[7], days[8]) is None
            assert await store.aged_between(kind, "example", LONG_AGO, days[0]) is None
            found = await store.aged_between(kind, "example", days[2], days[2])
            assert found == (days[1 if kind == "files" else 2], days[2]), kind
        for kind in ("letters", "files"):
            assert await store.aged_between(kind, "other", LONG_AGO, days[8]) is None

    async def test_the_ends_of_ended_tasks_are_those_of_their_last_changes(
        self, store: Store, rows: Rows
    ) -> None:
        before = datetime.now(UTC)
        later = (before + timedelta(hours=1)).isoformat()
        for state in (TaskState.RUNNING, TaskState.PAUSED):
            await store.commit(rows.post(state, task=rows.task(state, state=state)))
        assert await store.aged_between("tasks", "example", LONG_AGO, later) is None
        for state in (TaskState.COMPLETED, TaskState.FAILED):
            await store.commit(rows.post(state, task=rows.task(state, state=state)))
        found = await store.aged_between("tasks", "example", LONG_AGO, later)
        assert found is not None
        first, last = map(datetime.fromisoformat, found)
        assert before <= first < last <= datetime.now(UTC)
        assert await store.aged_between("tasks", "example", later, later) is None
        assert await store.aged_between("tasks", "other", LONG_AGO, later) is None

    async def test_a_moment_is_kept_by_name(self, store: Store) -> None:
        assert await store.sweep_moment("keys") is None
        await store.put_sweep_moment("keys", "2026-01-01T00:00:00+00:00")
        await store.put_sweep_moment("tasks", "2026-02-01T00:00:00+00:00")
        await store.put_sweep_moment("keys", "2026-03-01T00:00:00+00:00")
        assert await store.sweep_moment("keys") == "2026-03-01T00:00:00+00:00"
        assert await store.sweep_moment("tasks") == "2026-02-01T00:00:00+00:00"
