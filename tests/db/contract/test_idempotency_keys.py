"""What every store must do with idempotency keys: `mail.db.keys.KeyVerbs`."""

import asyncio
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.memory import MemoryStore
from mail.db.records import IdempotencyRow, MemoryRow, Owner
from mail.db.store import Store
from mail.errors import KeyTaken

Rows = Any


def once(key: str = "k1", **changes: Any) -> IdempotencyRow:
    """Return a key's row as a route hands it in."""
    made = IdempotencyRow(key, fingerprint="f" * 64, created_at="2026-01-01T10:00:00+00:00")
    return made._replace(**changes)


class TestIdempotencyKeys:
    async def test_a_key_comes_with_the_commit_and_names_its_first_event(
        self, store: Store, rows: Rows
    ) -> None:
        assert await store.find_key(rows.alice, "k1") is None
        await rows.begin(store, events=(rows.event(), rows.event()))
        row = once(task_id="t1", message_id="m1", answer='{"id":"résp"}')
        receipt = await store.commit(rows.post(events=(rows.event(),), once=row))
        assert receipt.first_event == 3
        assert await store.find_key(rows.alice, "k1") == row._replace(first_event=3)

    async def test_a_taken_key_leaves_nothing_of_the_commit(self, store: Store, rows: Rows) -> None:
        await rows.begin(store, events=(rows.event(),), once=once(task_id="t1"))
        for task_id in ("t1", "t2"):
            again = rows.post(
                task=rows.task(task_id, title="again"),
                deliveries=(rows.mail(task_id),),
                events=(rows.event(),),
                memories=(MemoryRow(("a",), "k", "1", rows.now, rows.now),),
                once=once(task_id=task_id, fingerprint="0" * 64),
            )
            with pytest.raises(KeyTaken):
                await store.commit(again)
        assert await store.load_task(rows.alice, "t1") == rows.task()
        assert await store.load_task(rows.alice, "t2") is None
        assert len(await store.all_mail(rows.alice, "t1")) == 1
        assert len(await store.events(rows.alice, "t1")) == 1
        assert await store.get_memory(rows.alice, ("a",), "k") is None
        assert await store.find_key(rows.alice, "k1") == once(task_id="t1", first_event=1)

    async def test_of_many_commits_with_one_key_one_is_made(self, store: Store, rows: Rows) -> None:
        posts = [rows.post(f"t{n}", new=True, once=once(task_id=f"t{n}")) for n in range(20)]
        results = await asyncio.gather(*(store.commit(p) for p in posts), return_exceptions=True)
        assert sum(isinstance(result, KeyTaken) for result in results) == len(posts) - 1
        [made] = await store.list_tasks(rows.alice)
        found = await store.find_key(rows.alice, "k1")
        assert found is not None
        assert found.task_id == made.task_id

    async def test_owners_do_not_share_keys(self, store: Store, rows: Rows) -> None:
        await store.put_key(rows.alice, once(fingerprint="a"))
        await store.put_key(rows.bob, once(fingerprint="b"))
        await store.commit(rows.post(owner=Owner("other", "user", "alice"), once=once()))
        found = [await store.find_key(owner, "k1") for owner in (rows.alice, rows.bob)]
        assert found == [once(fingerprint="a"), once(fingerprint="b")]

    async def test_a_key_is_put_once(self, store: Store, rows: Rows) -> None:
        await store.put_key(rows.alice, once(answer='{"status":200}'))
        with pytest.raises(KeyTaken):
            await store.put_key(rows.alice, once(answer="{}"))
        with pytest.raises(KeyTaken):
            await store.commit(rows.post(once=once()))
        assert await store.find_key(rows.alice, "k1") == once(answer='{"status":200}')
        assert await store.find_key(rows.alice, "K1") is None

    async def test_old_keys_go_and_the_oldest_first(self, store: Store, rows: Rows) -> None:
        for hour in (12, 10, 11, 13):
            row = once(f"k{hour}", created_at=f"2026-01-01T{hour}:00:00+00:00")
            await store.put_key(rows.bob if hour % 2 else rows.alice, row)
        await rows.begin(store, once=once("early", created_at="2026-01-01T09:00:00+00:00"))
        assert await store.drop_aged("idempotency", "2026-01-01T13:00:00+00:00", 2) == 2
        assert await store.find_key(rows.alice, "early") is None
        assert await store.find_key(rows.alice, "k10") is None
        assert await store.find_key(rows.bob, "k11") is not None
        assert await store.drop_aged("idempotency", "2026-01-01T13:00:00+00:00", 10) == 2
        assert await store.drop_aged("idempotency", "2026-01-01T13:00:00+00:00", 10) == 0
        assert await store.find_key(rows.bob, "k13") is not None
        assert await store.load_task(rows.alice, "t1") is not None
        await store.put_key(rows.alice, once("early"))


class TestForgettingKeys:
    async def test_memory_forgets_the_keys_of_forgotten_tasks(self, rows: Rows) -> None:
        store = MemoryStore(keep_finished=2)
        done = TaskState.COMPLETED
        for n in range(4):
            made = rows.post(task=rows.task(f"t{n}", state=done), once=once(f"k{n}"))
            made.once = made.once._replace(task_id=f"t{n}")
            await store.commit(made)
        found = [(await store.find_key(rows.alice, f"k{n}")) is not None for n in range(4)]
        assert found == [False, False, True, True]

    async def test_memory_does_not_count_deleted_tasks_among_those_it_keeps(
        self, rows: Rows
    ) -> None:
        store = MemoryStore(keep_finished=2)
        for task_id in ("a", "b"):
            await store.commit(rows.post(task=rows.task(task_id, state=TaskState.COMPLETED)))
        await store.delete_task(rows.alice, "b")
        await store.commit(rows.post(task=rows.task("c", state=TaskState.COMPLETED)))
        assert {row.task_id for row in await store.list_tasks(rows.alice)} == {"a", "c"}
