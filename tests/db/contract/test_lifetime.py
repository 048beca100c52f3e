"""What every store must do when it is opened and closed."""

import asyncio
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.records import HistoryRow, JournalRow
from mail.db.store import Store
from mail.errors import StoreError
from tests.support.databases import Database

Rows = Any


class TestLifetime:
    async def test_opening_twice_is_harmless(self, store: Store, rows: Rows) -> None:
        await store.commit(rows.post())
        await asyncio.gather(store.open(), store.open())
        assert await store.load_task(rows.alice, "t1") == rows.task()

    async def test_closing_twice_is_harmless(self, store: Store, rows: Rows) -> None:
        await store.close()
        await store.close()

    async def test_closing_waits_for_what_was_handed_in(self, store: Store, rows: Rows) -> None:
        posts = [asyncio.create_task(store.commit(rows.post(f"t{n}"))) for n in range(100)]
        await asyncio.sleep(0)
        await store.close()
        assert len(await asyncio.gather(*posts)) == 100


class TestDurableStores:
    async def test_everything_is_there_after_close_and_reopen(
        self, database: Database, durable: Store, rows: Rows
    ) -> None:
        task = rows.task(state=TaskState.PAUSED, steps=3, title="T", awaited=True)
        post = rows.post(
            task=task,
            deliveries=(rows.mail(control='{"a": 1}'),),
            events=(rows.event(),) * 3,
            histories=(HistoryRow("a", "[1]"),),
            calls=(CallRow("a", "c", "{}", "{}", control="{}"),),
            response='{"b": 1, "a": 2.50}',
        )
        (seq,) = (await durable.commit(post)).seqs
        journal = JournalRow("reply", "done", "{}")
        await durable.commit(rows.turn(seq, task=task, done=False, journal=(journal,)))
        await durable.count_attempt(rows.alice, seq)

        async def everything(of: Store) -> list[Any]:
            owner = rows.alice
            return [
                await of.load_task(owner, "t1"),
                await of.waiting_mail(owner, "t1"),
                await of.events(owner, "t1"),
                await of.history(owner, "t1", "a"),
                await of.calls(owner, "t1"),
                await of.journal(owner, seq),
                await of.response(owner, "t1"),
                await of.open_owners("example"),
            ]

        before = await everything(durable)
        assert before[0] == task and before[1][0].attempts == 1 and len(before[2]) == 3
        await durable.close()
        again = database.store()
        await again.open()
        assert await everything(again) == before
        later = await again.commit(rows.post(deliveries=(rows.mail(),), events=(rows.event(),)))
        assert later.first_event == 4
        assert later.seqs[0] > seq
        await again.close()

    async def test_a_store_that_is_not_open_says_so(self, database: Database, rows: Rows) -> None:
        store = database.store()
        for _ in range(2):
            for verb in (store.commit(rows.post()), store.load_task(rows.alice, "t1")):
                with pytest.raises(StoreError, match="not open"):
                    await verb
            await store.open()
            await store.close()

    async def test_it_outlives_event_loops(self, database: Database, rows: Rows) -> None:
        store = database.store()
        assert store.durable
        await asyncio.to_thread(asyncio.run, store.open())
        await asyncio.to_thread(asyncio.run, store.commit(rows.post()))
        assert await store.load_task(rows.alice, "t1") == rows.task()
        await store.close()
