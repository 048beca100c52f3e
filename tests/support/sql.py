"""Statements of a test, run in a transaction of any store."""

from typing import Any

from mail.core.tasks import TaskState
from mail.db.approvals import ApprovalRow, put_approvals
from mail.db.driver import Change, Query, Statement, Verb
from mail.db.post import Post
from mail.db.records import Owner, TaskRow
from mail.db.store import Store


async def change(store: Store, text: str, *values: object) -> int:
    """Run a statement and return how many rows it changed."""
    return int(await _run(store, Change(text, values)))


async def rows(store: Store, text: str, *values: object) -> list[Any]:
    """Run a query and return its rows."""
    return list(await _run(store, Query(text, values)))


async def put_held(store: Store, owner: Owner, task_id: str, *held: ApprovalRow) -> None:
    """Store approvals of a task without their calls; make the task if there is none."""
    if await store.load_task(owner, task_id) is None:
        task = TaskRow(task_id, str(owner), (), "2026-01-01T00:00:00+00:00", "x", TaskState.PAUSED)
        await store.post(Post(owner, task))
    ((key,),) = await rows(store, "SELECT key FROM tasks WHERE task_id = $1", task_id)
    await store.driver.transaction(lambda: put_approvals(key, held))


async def _run(store: Store, statement: Statement) -> Any:
    def verb() -> Verb[Any]:
        return (yield statement)

    return await store.driver.transaction(verb)
