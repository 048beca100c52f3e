"""What every store must do with histories: `mail.db.tasks.EventVerbs`."""

from typing import Any

from mail.db.records import HistoryRow
from mail.db.store import Store

Rows = Any


class TestHistories:
    async def test_histories_append_per_task_and_agent(self, store: Store, rows: Rows) -> None:
        seq = await rows.begin(store, histories=(HistoryRow("supervisor", '["a"]'),))
        both = (HistoryRow("supervisor", '["b"]'), HistoryRow("weather", '["w"]'))
        await store.commit(rows.turn(seq, histories=both))
        await store.commit(rows.post("t2", histories=(HistoryRow("supervisor", '["x"]'),)))
        assert await store.history(rows.alice, "t1", "supervisor") == ['["a"]', '["b"]']
        assert await store.history(rows.alice, "t1", "weather") == ['["w"]']
        assert await store.history(rows.bob, "t1", "supervisor") == []

    async def test_a_snapshot_changes_nothing_that_is_read(self, store: Store, rows: Rows) -> None:
        history = (HistoryRow("supervisor", '[{"role": "user"}]'),)
        await store.commit(rows.post(histories=history, snapshot=True))
        await store.commit(rows.post(histories=history, snapshot=True))
        assert await store.history(rows.alice, "t1", "supervisor") == ['[{"role": "user"}]'] * 2
