"""What every store with transactions must do when several share a commit, or one is refused."""

import asyncio
from typing import Any

import pytest

from mail.db.records import HistoryRow
from mail.db.store import Store
from mail.errors import StoreConflict, StoreError
from tests.support.databases import Hold

Rows = Any


class TestGroupCommit:
    async def test_only_the_faulty_units_of_a_batch_fail(self, durable: Store, rows: Rows) -> None:
        seqs = [
            (await durable.commit(rows.post(f"t{n}", deliveries=(rows.mail(),)))).seqs[0]
            for n in range(10)
        ]
        await durable.commit(rows.turn(seqs[3], "t3"))
        hold = Hold(durable)
        await hold.until_busy()
        turns = [
            rows.turn(seq, f"t{n}", events=(rows.event(),), deliveries=(rows.mail(),))
            for n, seq in enumerate(seqs)
        ]
        turns[5] = rows.turn(seqs[5], "t5", histories=(HistoryRow("a", "\udc00"),))
        commits = [asyncio.create_task(durable.commit(turn)) for turn in turns]
        await asyncio.sleep(0)
        await hold.release()
        results = await asyncio.gather(*commits, return_exceptions=True)
        failed = {n: type(r) for n, r in enumerate(results) if isinstance(r, BaseException)}
        assert failed == {3: StoreConflict, 5: StoreError}
        given = [r.seqs[0] for r in results if not isinstance(r, BaseException)]
        assert given == sorted(set(given))
        assert [m.seq for m in await durable.waiting_mail(rows.alice, "t5")] == [seqs[5]]

    async def test_a_cancelled_caller_is_committed_and_passed_over(
        self, durable: Store, rows: Rows
    ) -> None:
        hold = Hold(durable)
        await hold.until_busy()
        gone = asyncio.create_task(durable.commit(rows.post("gone")))
        there = asyncio.create_task(durable.commit(rows.post("there")))
        await asyncio.sleep(0)
        gone.cancel()
        await hold.release()
        await there
        assert gone.cancelled()
        assert len(await durable.list_tasks(rows.alice)) == 2

    async def test_callers_of_several_event_loops_share_the_store(
        self, durable: Store, rows: Rows
    ) -> None:
        async def many(prefix: str) -> int:
            posts = [rows.post(f"{prefix}{n}", events=(rows.event(),)) for n in range(50)]
            receipts = await asyncio.gather(*(durable.commit(post) for post in posts))
            found = await asyncio.gather(*(durable.load_task(rows.alice, f"{prefix}7"),) * 2)
            return len(receipts) + len(found)

        elsewhere = [asyncio.to_thread(asyncio.run, many(prefix)) for prefix in "ab"]
        assert await asyncio.gather(many("c"), *elsewhere) == [52, 52, 52]
        assert len(await durable.list_tasks(rows.alice)) == 150

    async def test_a_caller_whose_loop_is_gone_does_not_stop_the_writer(
        self, durable: Store, rows: Rows
    ) -> None:
        hold = Hold(durable)
        await hold.until_busy()

        async def leave() -> None:
            waiting = asyncio.create_task(durable.commit(rows.post("left")))
            await asyncio.sleep(0)
            waiting.cancel()

        await asyncio.to_thread(asyncio.run, leave())
        await hold.release()
        await durable.commit(rows.post("next"))
        assert len(await durable.list_tasks(rows.alice)) == 2

    async def test_lone_surrogates_are_refused_wherever_they_stand(
        self, durable: Store, rows: Rows
    ) -> None:
        bad = "bad \ud800"
        for post in (
            rows.post(bad),
            rows.post(task=rows.task("t1", title=bad)),
            rows.post("t2", deliveries=(rows.mail("t2", payload=bad),)),
            rows.post("t3", events=(rows.event(description=bad),)),
            rows.post("t4", response=bad),
        ):
            with pytest.raises(StoreError, match="surrogates"):
                await durable.commit(post)
        with pytest.raises(StoreError, match="surrogates"):
            await durable.load_task(rows.alice, bad)
        await durable.commit(rows.post("good"))
        assert [row.task_id for row in await durable.list_tasks(rows.alice)] == ["good"]

    async def test_a_number_too_large_is_refused_without_repeating_values(
        self, durable: Store, rows: Rows
    ) -> None:
        with pytest.raises(StoreError) as caught:
            await durable.commit(rows.post(task=rows.task(steps=2**70, title="hunter2")))
        assert str(2**70) not in str(caught.value) and "hunter2" not in str(caught.value)
        await durable.commit(rows.post("good"))
