"""Statements of a test, run in a transaction of any store."""

import json
from typing import Any

from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.commit import Commit
from mail.db.driver import Change, Query, Statement, Verb
from mail.db.records import Owner, TaskRow
from mail.db.store import Store


async def change(store: Store, text: str, *values: object) -> int:
    """Run a statement and return how many rows it changed."""
    return int(await _run(store, Change(text, values)))


async def rows(store: Store, text: str, *values: object) -> list[Any]:
    """Run a query and return its rows."""
    return list(await _run(store, Query(text, values)))


async def put_held(store: Store, owner: Owner, task_id: str, *held: CallRow) -> None:
    """Store calls of a task; make the task if there is none."""
    task = await store.load_task(owner, task_id)
    new = task is None
    if task is None:
        task = TaskRow(task_id, str(owner), (), "2026-01-01T00:00:00+00:00", "x", TaskState.PAUSED)
    await store.commit(Commit(owner, task, new, calls=held))


def held_call(approval_id: str, args: object = None, **more: Any) -> CallRow:
    """Return an open call that needs an approval; ``more`` are other fields of it."""
    shown = json.dumps({"name": "send", "arguments": json.dumps(args or {})})
    fields = {"kind": "approval", "approval_id": approval_id, **more}
    return CallRow("x", approval_id, "{}", shown, **fields)


async def _run(store: Store, statement: Statement) -> Any:
    def verb() -> Verb[Any]:
        return (yield statement)

    return await store.driver.transaction(verb)
