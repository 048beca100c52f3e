"""Taking up a task: what it costs does not depend on what has happened in it."""

from pathlib import Path
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.ledger import LedgerPart, Question
from mail.db.post import Post
from mail.db.records import EventRow, Owner, TaskRow
from mail.db.sqlite import driver as sqlite_driver
from mail.db.sqlite.driver import SQLiteStore
from mail.testing import tool_calls
from tests.support.swarm import runtime_of, supervisor, user_message

NOW = "2026-01-01T10:00:00.000000+00:00"


async def finish(messages: list[dict[str, Any]], choice: object) -> Any:
    return None, tool_calls(("task_complete", {"finish_message": "done"}))


async def test_a_task_with_50_000_events_is_taken_up_like_one_with_100(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "mail.db")
    await store.open()
    swarm = runtime_of({"supervisor": supervisor(finish, ())}, store=store)
    owner = swarm._context.owner
    for task_id, count in (("first", 100), ("small", 100), ("large", 50_000)):
        await store.post(old_task(owner, task_id, count))
    seen: list[tuple[str, int]] = []
    execute = sqlite_driver._execute

    def noted(connection: Any, statement: Any) -> Any:
        result = execute(connection, statement)
        seen.append((statement.text, len(result) if isinstance(result, list) else 0))
        return result

    costs = []
    monkeypatch.setattr(sqlite_driver, "_execute", noted)
    for task_id in ("first", "small", "large"):  # with the first the swarm begins its work
        seen.clear()
        message = await swarm.submit_and_wait(user_message("go on", task_id), timeout=60)
        assert message["message"]["subject"] == "::task_complete::"
        costs.append(sorted(seen))
    assert costs[1] == costs[2]
    await swarm.shutdown()
    await store.close()


def old_task(owner: Owner, task_id: str, events: int) -> Post:
    """Return a task that has ended, with open questions and mail of another swarm."""
    row = TaskRow(
        task_id=task_id,
        task_owner=str(owner),
        task_contributors=(str(owner),),
        start_time=NOW,
        entrypoint="supervisor",
        state=TaskState.COMPLETED,
        remote_swarms=("weather",),
    )
    questions = tuple(Question("supervisor", "worker", f"r{n}", number=n) for n in range(1, 9))
    log = tuple(EventRow("note", NOW, f"event {number}") for number in range(events))
    return Post(owner, row, new=True, events=log, ledger=LedgerPart(questions, peering="{}"))
