"""Resuming: which call a result is for, for whom the agent worked, and older databases."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from mail.core.runtime import RunRequest
from mail.core.tasks import TaskState
from mail.db.migrate import migrate, packaged_migrations, schema_version
from mail.db.sqlite.driver import SQLiteStore
from mail.db.store import Store
from mail.errors import AlreadyAnswered, ModelError
from mail.testing import agent_from, tool_calls
from tests.core.runtime.metered import DONE, ask, check_history
from tests.core.runtime.reviews import (
    PEERS,
    REVIEW,
    answering,
    lone,
    pause,
    resume,
    swarm_of,
    two_peers,
)
from tests.support.sql import change
from tests.support.swarm import last_body, supervisor, user_message, worker

# --- several agents -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_equal_ids_of_two_agents_are_told_apart(store: Store, order) -> None:
    runtime = two_peers(store=store)
    calls = await pause(runtime)
    assert sorted(calls) == ["same_0", "same_0_2"]
    first, second = (calls[index] for index in order)
    half = await resume(runtime, answering(first, first))
    assert half.status is TaskState.PAUSED
    assert [call["call_id"] for call in half.breakpoints] == [second]
    with pytest.raises(AlreadyAnswered, match=f"'{first}'.*open calls: '{second}'"):
        await resume(runtime, answering(first, "again"))
    whole = await resume(runtime, answering(second, second))
    assert whole.status is TaskState.COMPLETED
    told = dict(part.split(":") for part in whole.message["message"]["body"].split(" & "))
    # The one that was stored first kept the id.
    assert sorted(told.values()) == ["same_0", "same_0_2"]
    await check_history(store, runtime, ["supervisor", *PEERS])
    for agent in PEERS:
        rows = "".join(await store.history(runtime._context.owner, "task-1", agent))
        assert rows.count('"tool_call_id":"same_0"') == 1
        assert f'"content":"{told[agent]}"' in rows
    await runtime.shutdown()


async def test_both_agents_are_answered_at_once(store: Store) -> None:
    runtime = two_peers(store=store)
    calls = await pause(runtime)
    result = await resume(runtime, [answering(call, call) for call in reversed(calls)])
    assert result.status is TaskState.COMPLETED
    await check_history(store, runtime, ["supervisor", *PEERS])
    await runtime.shutdown()


async def test_an_agent_that_uses_an_id_again_gets_a_new_one() -> None:
    async def work(messages, choice):
        paused = sum(m.get("role") == "tool" for m in messages)
        return None, tool_calls(REVIEW if paused < 2 else DONE, prefix="same")

    runtime = swarm_of({"supervisor": supervisor(work, ())})
    assert await pause(runtime) == ["same_0"]
    again = await resume(runtime, answering("same_0", "first"))
    assert [call["call_id"] for call in again.breakpoints] == ["same_0_2"]
    with pytest.raises(AlreadyAnswered):
        await resume(runtime, answering("same_0", "first"))
    assert (await resume(runtime, "second")).status is TaskState.COMPLETED
    task = await runtime.read_task("task-1")
    named = [e.extra["call_ids"] for e in task.events if e.kind == "breakpoint_tool_call"]
    assert named == [["same_0"], ["same_0_2"]]
    await runtime.shutdown()


# --- for whom -------------------------------------------------------------------------------------


async def test_a_resumed_agent_that_fails_is_reported_to_whoever_asked(store: Store) -> None:
    async def work(messages, choice):
        if messages[-1].get("role") == "tool":
            raise ModelError("out of tokens", status=400)
        return None, tool_calls(REVIEW, prefix="w")

    def lead(messages, choice):
        text = last_body(messages)
        if "out of tokens" in text:
            return [("task_complete", {"finish_message": "the worker failed"})]
        return ask("worker")

    def process():
        agents = {"supervisor": supervisor(agent_from(lead)), "worker": worker(work)}
        return swarm_of(agents, store=store)

    first = process()
    await pause(first)
    await first.shutdown()
    second = process()
    result = await resume(second, "yes")
    assert result.status is TaskState.COMPLETED
    assert result.message["message"]["body"] == "the worker failed"
    await second.shutdown()


async def test_plain_text_of_a_resumed_agent_reaches_whoever_asked(store: Store) -> None:
    async def work(messages, choice):
        if messages[-1].get("role") == "tool":
            return f"I say {messages[-1]['content']}", []
        return None, tool_calls(REVIEW, prefix="w")

    heard = []

    def lead(messages, choice):
        text = last_body(messages)
        if "I say" not in text:
            return ask("worker")
        heard.append(text)
        return [DONE]

    runtime = swarm_of(
        {"supervisor": supervisor(agent_from(lead)), "worker": worker(work)}, store=store
    )
    await pause(runtime)
    assert (await resume(runtime, "yes")).status is TaskState.COMPLETED
    [text] = heard
    assert "<subject>Re: your request</subject>" in text and "I say yes" in text
    task = await runtime.read_task("task-1")
    mail = [e.extra["full_message"] for e in task.events if e.kind == "new_message"]
    [request] = [m["message"] for m in mail if m["msg_type"] == "request"][1:]
    [response] = [m["message"] for m in mail if m["msg_type"] == "response"]
    assert response["request_id"] == request["request_id"]
    await runtime.shutdown()


async def test_plain_text_of_a_resumed_entrypoint_answers_the_user() -> None:
    runtime = lone([REVIEW], "That is all.")
    await pause(runtime)
    result = await resume(runtime, "yes")
    assert (result.status, result.message["message"]["body"]) == ("completed", "That is all.")
    await runtime.shutdown()


async def test_a_resumed_entrypoint_that_fails_fails_the_run() -> None:
    runtime = lone([REVIEW], ModelError("out of tokens", status=400))
    await pause(runtime)
    result = await resume(runtime, "yes")
    assert result.status is TaskState.FAILED and "out of tokens" in result.reason
    await runtime.shutdown()


async def test_an_agent_whose_call_was_closed_still_knows_what_it_did(store: Store) -> None:
    """The task goes on for a second message, in the process in which it began."""
    paused, seen = asyncio.Event(), []

    async def lead(messages, choice):
        if len(messages) == 1:
            return None, tool_calls(*ask("worker"), ("help", {}), prefix="a")
        if "::help::" in last_body(messages):
            await paused.wait()
            return None, tool_calls(DONE, prefix="b")
        if "second" in last_body(messages):
            return None, tool_calls(*ask("worker"), prefix="c")
        return None, tool_calls(DONE, prefix=f"d{len(messages)}")

    async def work(messages, choice):
        seen.append(list(messages))
        if len(seen) == 1:
            return None, tool_calls(REVIEW, prefix="w")
        return "I know", []

    runtime = swarm_of({"supervisor": supervisor(lead), "worker": worker(work)}, store=store)
    first = await runtime.open_run(RunRequest(message=user_message("first")))
    second = await runtime.open_run(RunRequest(message=user_message("second")))
    async with asyncio.timeout(20):
        while runtime.get_task_by_id("task-1").status is not TaskState.PAUSED:
            await asyncio.sleep(0)
    paused.set()
    assert (await first.result(5)).status is TaskState.COMPLETED
    assert (await second.result(5)).status is TaskState.COMPLETED
    assert [message["role"] for message in seen[1]] == ["user", "assistant", "tool", "user"]
    await check_history(store, runtime, ["supervisor", "worker"])
    await runtime.shutdown()


# --- databases of before --------------------------------------------------------------------------


def copy_into_an_old_database(new: Path, old: Path) -> None:
    """Copy a database into one of the schema before calls knew for whom their agents worked."""
    database = sqlite3.connect(old, isolation_level=None)
    migrate(database, packaged_migrations()[:2])
    database.execute("ATTACH ? AS new", (str(new),))
    for (table,) in database.execute(
        "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall():
        if table != "schema_version":
            columns = [row[1] for row in database.execute(f"PRAGMA main.table_info({table})")]
            names = ", ".join(columns)
            database.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM new.{table}")  # noqa: S608
    assert schema_version(database) == 2
    database.close()


async def test_a_task_that_an_older_version_paused_is_resumed(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "new.db")
    await store.open()
    first = two_peers(store=store)
    calls = await pause(first)
    await first.shutdown()
    await store.close()
    copy_into_an_old_database(tmp_path / "new.db", tmp_path / "old.db")
    store = SQLiteStore(tmp_path / "old.db")
    await store.open()
    second = two_peers(store=store)
    rows = await store.calls(second._context.owner, "task-1")
    assert [row.control for row in rows] == [None, None]
    half = await resume(second, answering(calls[1], "B"))
    assert half.status is TaskState.PAUSED
    whole = await resume(second, answering(calls[0], "A"))
    assert whole.status is TaskState.COMPLETED
    await check_history(store, second, ["supervisor", *PEERS])
    await second.shutdown()
    await store.close()


async def test_equal_open_ids_of_an_older_version_are_answered_one_by_one() -> None:
    runtime = two_peers()
    await pause(runtime)
    task = runtime._context.active_tasks.get("task-1")
    assert task is None
    await change(runtime._context.store, "UPDATE calls SET call_id = 'same_0'")
    assert (await resume(runtime, answering("same_0", "A"))).status is TaskState.PAUSED
    assert (await resume(runtime, answering("same_0", "B"))).status is TaskState.COMPLETED
    with pytest.raises(AlreadyAnswered):
        await resume(runtime, answering("same_0", "C"))
    await runtime.shutdown()
