"""What every store must do with named memories: `mail.db.preferences.PreferenceRecords`."""

from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.preferences import (
    KEPT_FEEDBACK,
    KEPT_VERSIONS,
    PREFERENCE_KEY,
    WAITING_FEEDBACK,
    FeedbackRow,
    PreferenceChange,
    VersionRow,
    new_feedback,
    preference_namespace,
)
from mail.db.records import MemoryRow
from mail.db.store import Store
from mail.errors import StoreConflict

Rows = Any


def version(
    number: int, value: str = "v", name: str = "likes", source: Any = "person"
) -> VersionRow:
    return VersionRow(name, number, value, "2026-01-01T10:00:00+00:00", source)


def feedback(approval_id: str = "a1", memory: str = "likes", **changes: Any) -> FeedbackRow:
    row = new_feedback(
        approval_id=approval_id,
        memory=memory,
        task_id="t1",
        type="edit",
        action="send",
        args={"text": "long\0"},
        change={"text": "short"},
        now="2026-01-01T10:00:00+00:00",
    )
    return row._replace(**changes)


class TestPreferences:
    def change(self, rows: Rows, *versions: VersionRow, **more: Any) -> PreferenceChange:
        fields: dict[str, Any] = {"owner": rows.alice, "name": "likes", "versions": versions}
        return PreferenceChange(**fields | more)

    async def test_versions_follow_one_another(self, store: Store, rows: Rows) -> None:
        await store.change_preference(self.change(rows, version(1, "a"), version(2, "b")))
        with pytest.raises(StoreConflict):
            await store.change_preference(self.change(rows, version(2, "other")))
        with pytest.raises(StoreConflict):
            await store.change_preference(self.change(rows, version(4, "other")))
        assert await store.preference_versions(rows.alice, "likes") == [
            version(2, "b"),
            version(1, "a"),
        ]
        assert await store.preferences(rows.alice) == [version(2, "b")]
        assert await store.preferences(rows.bob) == []

    async def test_the_newest_are_kept(self, store: Store, rows: Rows) -> None:
        for number in range(1, KEPT_VERSIONS + 3):
            await store.change_preference(self.change(rows, version(number)))
        kept = [row.version for row in await store.preference_versions(rows.alice, "likes")]
        assert kept == list(range(KEPT_VERSIONS + 2, 2, -1))

    async def test_the_value_goes_with_the_version(self, store: Store, rows: Rows) -> None:
        space = preference_namespace(rows.alice.swarm, "likes")
        value = MemoryRow(space, PREFERENCE_KEY, '{"text": "a"}', rows.now, rows.now)
        await store.change_preference(self.change(rows, version(1), memory=value))
        with pytest.raises(StoreConflict):
            lost = value._replace(value="{}")
            await store.change_preference(self.change(rows, version(1), memory=lost))
        assert await store.get_memory(rows.alice, space, PREFERENCE_KEY) == value

    async def test_forgetting_leaves_a_number_and_nothing_else(
        self, store: Store, rows: Rows
    ) -> None:
        space = preference_namespace(rows.alice.swarm, "likes")
        value = MemoryRow(space, PREFERENCE_KEY, "{}", rows.now, rows.now)
        await store.change_preference(self.change(rows, version(1), memory=value))
        await store.commit(rows.post(feedback=(feedback(), feedback("a2", "other"))))
        gone = version(2, "", source="deleted")
        await store.change_preference(self.change(rows, gone, forget=True))
        assert await store.get_memory(rows.alice, space, PREFERENCE_KEY) is None
        assert await store.preference_versions(rows.alice, "likes") == [gone]
        assert await store.waiting_feedback(rows.alice) == {"other": 1}


class TestFeedback:
    async def waiting(self, store: Store, rows: Rows, name: str = "likes") -> list[str]:
        found = await store.feedback_on(rows.alice, name, 1000, waiting=True)
        return [row.approval_id for row in found]

    def end(self, rows: Rows, row: FeedbackRow, **more: Any) -> PreferenceChange:
        ended = row._replace(state="learned", attempts=1, updated_at=rows.now)
        return PreferenceChange(owner=rows.alice, name=row.memory, feedback=ended, **more)

    async def test_commits_bring_it_once(self, store: Store, rows: Rows) -> None:
        seq = await rows.begin(store, feedback=(feedback(),))
        again = feedback(action="another")
        await store.commit(rows.turn(seq, feedback=(again, feedback("a2"))))
        found = await store.feedback_on(rows.alice, "likes", 10)
        assert [(row.approval_id, row.action) for row in found] == [("a2", "send"), ("a1", "send")]
        assert found[1]._replace(id=0) == feedback()
        assert await store.feedback_on(rows.bob, "likes", 10) == []

    async def test_a_refused_commit_brings_none(self, store: Store, rows: Rows) -> None:
        await rows.begin(store)
        with pytest.raises(StoreConflict):
            await store.commit(rows.post(new=True, feedback=(feedback(),)))
        assert await store.waiting_feedback(rows.alice) == {}

    async def test_the_first_of_each_memory_is_due(self, store: Store, rows: Rows) -> None:
        later = feedback("b1", "other", next_at="2026-01-02T00:00:00+00:00")
        brought = (feedback(), feedback("a2"), later, feedback("b2", "other"))
        await store.commit(rows.post(feedback=brought))
        await store.commit(rows.post(owner=rows.bob, feedback=(feedback("c1"),)))
        due = await store.due_feedback("example", "2026-01-01T12:00:00+00:00", 10)
        assert [(owner.id, row.approval_id) for owner, row in due] == [
            ("alice", "a1"),
            ("bob", "c1"),
        ]
        due = await store.due_feedback("example", "2026-01-03T12:00:00+00:00", 2)
        assert [row.approval_id for _, row in due] == ["a1", "b1"]
        assert list(await store.due_feedback("elsewhere", "2027", 10)) == []

    async def test_it_ends_with_the_version_or_not_at_all(self, store: Store, rows: Rows) -> None:
        await store.commit(rows.post(feedback=(feedback(),)))
        row = (await store.feedback_on(rows.alice, "likes", 1))[0]
        with pytest.raises(StoreConflict):
            await store.change_preference(self.end(rows, row, versions=(version(7),)))
        assert await self.waiting(store, rows) == ["a1"]
        await store.change_preference(self.end(rows, row, versions=(version(1),)))
        assert await self.waiting(store, rows) == []
        with pytest.raises(StoreConflict):
            await store.change_preference(self.end(rows, row, versions=(version(2),)))
        assert len(await store.preference_versions(rows.alice, "likes")) == 1
        await store.commit(rows.post(feedback=(feedback(),)))  # the answer is not a new one
        assert await self.waiting(store, rows) == []

    async def test_nobody_elses_can_be_ended(self, store: Store, rows: Rows) -> None:
        await store.commit(rows.post(owner=rows.bob, feedback=(feedback(),)))
        row = (await store.feedback_on(rows.bob, "likes", 1))[0]
        with pytest.raises(StoreConflict):
            await store.change_preference(self.end(rows, row))

    async def test_an_event_goes_to_the_log_of_the_task(self, store: Store, rows: Rows) -> None:
        await store.commit(rows.post(events=(rows.event(),), feedback=(feedback(),)))
        row = (await store.feedback_on(rows.alice, "likes", 1))[0]
        event = rows.event("memory_updated", description="done", extra='{"memory": "likes"}')
        number = await store.change_preference(self.end(rows, row, task_id="t1", event=event))
        assert number == 2
        receipt = await store.commit(rows.post(events=(rows.event("task_complete"),)))
        assert receipt.first_event == 3
        kinds = [(each.seq, each.kind) for each in await store.events(rows.alice, "t1")]
        assert kinds == [(1, "new_message"), (2, "memory_updated"), (3, "task_complete")]
        seen = (await store.events(rows.alice, "t1", 1, 1))[0]
        assert (seen.timestamp, seen.extra) == (event.timestamp, {"memory": "likes"})

    async def test_a_deleted_task_takes_its_feedback_along(self, store: Store, rows: Rows) -> None:
        paused = rows.task(state=TaskState.PAUSED)
        await store.commit(rows.post(task=paused, feedback=(feedback(),)))
        row = (await store.feedback_on(rows.alice, "likes", 1))[0]
        await store.delete_task(rows.alice, "t1")
        assert await store.feedback_on(rows.alice, "likes", 10) == []
        with pytest.raises(StoreConflict):
            await store.change_preference(self.end(rows, row))
        event = rows.event("memory_updated")
        late = PreferenceChange(owner=rows.alice, name="likes", task_id="t1", event=event)
        assert await store.change_preference(late) == 0

    async def test_there_is_not_too_much_of_it(self, store: Store, rows: Rows) -> None:
        many = [feedback(f"a{number}") for number in range(WAITING_FEEDBACK + 5)]
        await store.commit(rows.post(feedback=tuple(many)))
        kept = await self.waiting(store, rows)
        assert kept == [row.approval_id for row in reversed(many[5:])]
        for row in reversed(await store.feedback_on(rows.alice, "likes", KEPT_FEEDBACK + 3)):
            await store.change_preference(self.end(rows, row))
        found = await store.feedback_on(rows.alice, "likes", 1000)
        assert sum(row.state == "learned" for row in found) == KEPT_FEEDBACK
        assert len(await self.waiting(store, rows)) == WAITING_FEEDBACK - KEPT_FEEDBACK - 3

    def test_long_texts_are_cut(self) -> None:
        row = new_feedback(
            approval_id="a" * 1000,
            memory="likes",
            task_id="t1",
            type="response",
            action="send",
            args={"text": "x" * 100_000},
            change="y" * 100_000,
            now="",
        )
        assert max(map(len, (row.args, row.change, row.approval_id))) < 9000
