"""Taking up a task: what it costs does not depend on what has happened in it."""

from pathlib import Path
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.ledger import LedgerPart, Question
from mail.db.records import EventRow, Owner, TaskRow
from mail.db.sqlite import connect
from mail.db.sqlite.driver import SQLiteStore
from mail.testing import tool_calls
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker

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
        await store.commit(old_task(owner, task_id, count))
    seen: list[tuple[str, int]] = []
    execute = connect._execute

    def noted(connection: Any, statement: Any) -> Any:
        result = execute(connection, statement)
        seen.append((statement.text, len(result) if isinstance(result, list) else 0))
        return result

    costs = []
    monkeypatch.setattr(connect, "_execute", noted)
    for task_id in ("first", "small", "large"):  # with the first the swarm begins its work
        seen.clear()
        message = await swarm.submit_and_wait(user_message("go on", task_id), timeout=60)
        assert message["message"]["subject"] == "::task_complete::"
        costs.append(sorted(seen))
    assert costs[1] == costs[2]
    await swarm.shutdown()
    await store.close()


async def test_an_answer_names_the_open_request_of_an_earlier_run(tmp_path: Path) -> None:
    ask = {"target": "worker", "subject": "s", "body": "asked"}

    async def lead(messages: list[dict[str, Any]], choice: object) -> Any:
        first = ("send_request", ask), ("task_complete", {"finish_message": "first"})
        second = [("task_complete", {"finish_message": "second"})]
        return None, tool_calls(*(first if len(messages) == 1 else second))

    async def work(messages: list[dict[str, Any]], choice: object) -> Any:
        if "asked" in last_body(messages):
            return None, tool_calls(("await_message", {"reason": "later"}))
        return None, tool_calls(
            ("send_response", {"target": "supervisor", "subject": "s", "body": "answered"})
        )

    agents = {"supervisor": supervisor(lead), "worker": worker(work)}
    refs = {}
    for text, to in (
        ("begin", "supervisor"),
        ("go on", "worker"),
    ):  # each with a process of its own
        store = SQLiteStore(tmp_path / "mail.db")
        await store.open()
        swarm = runtime_of(agents, store=store)
        await swarm.submit_and_wait(user_message(text, "t1", to), timeout=20)
        await swarm.await_queue_empty()
        for event in await store.events(swarm._context.owner, "t1"):
            if event.kind == "new_message":
                message = event.extra["full_message"]
                refs[message["message"]["body"]] = message["message"].get("request_id")
        await swarm.shutdown()
        await store.close()
    assert refs["answered"] == refs["asked"]


def old_task(owner: Owner, task_id: str, events: int) -> Commit:
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
    return Commit(owner, row, new=True, events=log, ledger=LedgerPart(questions, peering="{}"))
