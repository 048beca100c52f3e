"""Claims of tasks: who commits proves that nobody else works on the task."""

from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.records import Owner, TaskClaim
from mail.db.store import Store
from mail.errors import ClaimLost, StoreConflict

HELD = TaskClaim(1, held=True)


async def begun(store: Store, rows: Any) -> None:
    """Begin a task as a process that works on it."""
    await store.commit(rows.post(claim=TaskClaim(), deliveries=(rows.mail(),)))


async def test_a_task_that_runs_is_its_beginners(store: Store, rows: Any) -> None:
    await begun(store, rows)
    await store.commit(rows.turn(1, done=False, claim=HELD))
    await store.commit(rows.turn(1, claim=HELD))


async def test_what_was_taken_from_a_process_cannot_be_committed_by_it(
    store: Store, rows: Any
) -> None:
    await begun(store, rows)
    row, claim = await store.claim_task(rows.alice, "t1") or (None, None)
    assert row == rows.task() and claim == TaskClaim(2, held=True)
    with pytest.raises(ClaimLost, match="another server works on task 't1'"):
        await store.commit(rows.turn(1, events=(rows.event(),), claim=HELD))
    assert await store.events(rows.alice, "t1") == []
    assert len(await store.waiting_mail(rows.alice, "t1")) == 1
    await store.commit(rows.turn(1, claim=claim))


async def test_a_task_that_rests_is_nobodys_and_the_first_to_commit_has_it(
    store: Store, rows: Any
) -> None:
    await begun(store, rows)
    paused = rows.task(state=TaskState.PAUSED)
    await store.commit(rows.post(task=paused, claim=HELD))
    found = [await store.claim_task(rows.alice, "t1") for _ in range(2)]
    assert found == [(paused, TaskClaim(1)), (paused, TaskClaim(1))]
    await store.commit(rows.post(claim=TaskClaim(1)))
    for late in (TaskClaim(1), HELD):
        with pytest.raises(ClaimLost):
            await store.commit(rows.post(claim=late))
    await store.commit(rows.post(claim=TaskClaim(2, held=True)))


async def test_only_one_of_those_who_take_a_task_at_once_has_it(store: Store, rows: Any) -> None:
    await begun(store, rows)
    assert await store._take(rows.alice, "t1", 1)
    with pytest.raises(ClaimLost):
        await store._take(rows.alice, "t1", 1)


async def test_of_others_tasks_there_is_no_claim(store: Store, rows: Any) -> None:
    await begun(store, rows)
    assert await store.claim_task(rows.bob, "t1") is None
    assert await store.claim_task(Owner("other", "user", "alice"), "t1") is None
    with pytest.raises(StoreConflict) as gone:
        await store.commit(rows.post("t2", new=False, claim=TaskClaim()))
    assert not isinstance(gone.value, ClaimLost)
