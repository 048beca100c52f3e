"""What every store must do with events: `mail.db.tasks.EventVerbs`."""

import asyncio
from typing import Any

import pytest

from mail.db.store import Store
from mail.errors import StoreConflict

Rows = Any


class TestEvents:
    async def test_numbers_are_contiguous_within_a_task(self, store: Store, rows: Rows) -> None:
        receipts = []
        for count in (2, 0, 1):
            receipts.append(await store.commit(rows.post(events=(rows.event(),) * count)))
            await store.commit(rows.post("other", events=(rows.event(),) * 2))
        assert [receipt.first_event for receipt in receipts] == [1, 3, 3]
        assert [event.seq for event in await store.events(rows.alice, "t1")] == [1, 2, 3]
        assert [event.seq for event in await store.events(rows.alice, "other")] == [*range(1, 7)]

    async def test_every_field_round_trips(self, store: Store, rows: Rows) -> None:
        row = rows.event("tool_call", description="höhere [/red]\n", extra='{"a": [1, null]}')
        await store.commit(rows.post(events=(row,)))
        (event,) = await store.events(rows.alice, "t1")
        assert (event.task_id, event.kind, event.timestamp) == ("t1", "tool_call", rows.now)
        assert (event.description, event.extra) == ("höhere [/red]\n", {"a": [1, None]})

    async def test_reading_after_a_number_with_a_limit(self, store: Store, rows: Rows) -> None:
        await store.commit(rows.post(events=(rows.event(),) * 6))
        numbers = [e.seq for e in await store.events(rows.alice, "t1", after=2, limit=3)]
        assert numbers == [3, 4, 5]
        assert [e.seq for e in await store.events(rows.alice, "t1", after=4)] == [5, 6]
        assert await store.events(rows.alice, "t1", after=6) == []
        assert await store.events(rows.bob, "t1") == []

    async def test_the_latest_time_is_the_greatest_of_the_newest(
        self, store: Store, rows: Rows
    ) -> None:
        assert await store.latest_time(rows.alice, "t1") == ""
        times = [f"2026-01-01T12:00:00.{number:06}+00:00" for number in (1, 3, 2)]
        events = tuple(rows.event()._replace(timestamp=time) for time in times)
        await store.commit(rows.post(events=events))
        await store.commit(rows.post("other", events=(rows.event(),)))
        assert await store.latest_time(rows.alice, "t1") == times[1]
        assert await store.latest_time(rows.bob, "t1") == ""

    async def test_a_refused_commit_leaves_no_gap(self, store: Store, rows: Rows) -> None:
        seq = await rows.begin(store, events=(rows.event(),))
        with pytest.raises(StoreConflict):
            await store.commit(rows.turn(seq + 100, events=(rows.event(),) * 3))
        receipt = await store.commit(rows.turn(seq, events=(rows.event(),)))
        assert receipt.first_event == 2
        assert [event.seq for event in await store.events(rows.alice, "t1")] == [1, 2]

    async def test_parallel_commits_number_without_gap_or_double(
        self, store: Store, rows: Rows
    ) -> None:
        posts = [rows.post(events=(rows.event(),) * (n % 3 + 1)) for n in range(200)]
        receipts = await asyncio.gather(*(store.commit(post) for post in posts))
        taken = [
            number
            for post, receipt in zip(posts, receipts, strict=True)
            for number in range(receipt.first_event, receipt.first_event + len(post.events))
        ]
        assert taken == [*range(1, len(taken) + 1)]
        assert [event.seq for event in await store.events(rows.alice, "t1")] == taken

    async def test_a_page_ends_at_its_bytes_and_has_one_event_at_least(
        self, store: Store, rows: Rows
    ) -> None:
        sizes = (10, 10, 5000, 10, 10, 4000, 10)
        events = tuple(rows.event(extra='{"a": "' + "x" * (size - 9) + '"}') for size in sizes)
        await store.commit(rows.post(events=events))
        pages, after = [], 0
        while page := await store.events(rows.alice, "t1", after, max_bytes=30):
            pages.append([event.seq for event in page])
            assert [event.size for event in page] == [sizes[event.seq - 1] for event in page]
            after = page[-1].seq
        assert pages == [[1, 2], [3], [4, 5], [6], [7]]
        limited = await store.events(rows.alice, "t1", after=3, limit=1, max_bytes=30)
        assert [event.seq for event in limited] == [4]
        assert await store.events(rows.alice, "none", max_bytes=30) == []
        assert await store.events(rows.bob, "t1", max_bytes=30) == []

    async def test_bytes_are_those_of_utf_8(self, store: Store, rows: Rows) -> None:
        event = rows.event(description="ü" * 10, extra='{"a": "' + "漢" * 10 + '"}')
        await store.commit(rows.post(events=(event,) * 4))
        whole = await store.events(rows.alice, "t1")
        assert [event.size for event in whole] == [20 + 30 + 9] * 4
        for room, count in ((117, 1), (118, 2), (176, 2), (177, 3)):
            assert len(await store.events(rows.alice, "t1", max_bytes=room)) == count
