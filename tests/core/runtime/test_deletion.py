"""Deleting a task: nothing is left in the store or in memory, whatever the task was doing."""

import asyncio

import pytest

from mail.core.actions import ActionCore
from mail.core.runtime import RunRequest
from mail.core.tasks import TaskState
from mail.db.records import StoredUse
from mail.errors import TaskRunning, UnknownTask
from mail.testing import agent_from, tool_calls
from tests.support.swarm import runtime_of, supervisor, user_message

DONE = ("task_complete", {"finish_message": "done"})


async def done(messages, choice):
    return None, tool_calls(DONE)


async def nothing_left(runtime) -> None:
    store, owner = runtime._context.store, runtime._context.owner
    assert await runtime.read_task("task-1") is None
    assert await store.stored_use(owner) == StoredUse(0, 0, 0)
    assert runtime.get_task_by_id("task-1") is None
    assert runtime.get_events_by_task_id("task-1") == []
    assert runtime.idle


async def test_a_finished_task_is_gone_and_its_id_starts_anew(store) -> None:
    seen = []

    def answer(messages, choice):
        seen.append(len(messages))
        return [DONE]

    runtime = runtime_of({"supervisor": supervisor(agent_from(answer), ())}, store=store)
    await runtime.submit_and_wait(user_message())
    await runtime.delete_task("task-1")
    await nothing_left(runtime)
    with pytest.raises(UnknownTask):
        await runtime.delete_task("task-1")
    await runtime.submit_and_wait(user_message())
    assert seen[0] == seen[1]
    task = await runtime.read_task("task-1")
    assert task.status is TaskState.COMPLETED
    assert [event.seq for event in task.events] == [*range(1, len(task.events) + 1)]
    await runtime.shutdown()


async def test_a_running_task_is_deleted_only_when_it_may_be_cancelled(store) -> None:
    started = asyncio.Event()

    async def endless(messages, choice):
        started.set()
        await asyncio.sleep(3600)

    runtime = runtime_of({"supervisor": supervisor(endless, ())}, store=store)
    run = await runtime.open_run(RunRequest(message=user_message(), streamed=True))
    await started.wait()
    with pytest.raises(TaskRunning, match="cancel"):
        await runtime.delete_task("task-1")
    assert (await runtime.read_task("task-1")).is_running
    await runtime.delete_task("task-1", cancel=True)
    assert (await run.result(5)).status is TaskState.CANCELLED
    async with asyncio.timeout(20):
        assert [event async for event in run.events()]
    await nothing_left(runtime)
    await runtime.shutdown()


async def test_a_paused_task_is_deleted(store) -> None:
    def asks(messages, choice):
        return [("review", {})]

    lead = supervisor(agent_from(asks), ())
    lead.actions = {"review": ActionCore(function=None, name="review")}
    runtime = runtime_of({"supervisor": lead}, store=store, breakpoint_tools=["review"])
    run = await runtime.open_run(RunRequest(message=user_message()))
    assert (await run.result(5)).status is TaskState.PAUSED
    await runtime.delete_task("task-1")
    await nothing_left(runtime)
    await runtime.shutdown()


async def test_an_action_that_outlives_its_task_stores_nothing(store) -> None:
    """Its id cannot be used again before the action has ended."""
    started, go = asyncio.Event(), asyncio.Event()

    async def act(args):
        started.set()
        await go.wait()
        return "late"

    def acts(messages, choice):
        acted = any(entry.get("role") == "tool" for entry in messages)
        return [DONE] if acted else [("act", {})]

    lead = supervisor(agent_from(acts), ())
    lead.actions = {"act": ActionCore(function=act, name="act")}
    runtime = runtime_of({"supervisor": lead}, store=store)
    await runtime.open_run(RunRequest(message=user_message()))
    await started.wait()
    await runtime.delete_task("task-1", cancel=True)
    assert await runtime.read_task("task-1") is None
    with pytest.raises(TaskRunning, match="being deleted"):
        await runtime.open_run(RunRequest(message=user_message()))
    go.set()
    await runtime.await_queue_empty()
    await nothing_left(runtime)
    await runtime.submit(user_message())
    await runtime.await_queue_empty()
    assert (await runtime.read_task("task-1")).status is TaskState.COMPLETED
    await runtime.shutdown()


async def test_a_stream_of_a_deleted_task_ends(store) -> None:
    runtime = runtime_of({"supervisor": supervisor(done, ())}, store=store)
    run = await runtime.open_run(RunRequest(message=user_message(), streamed=True))
    await run.result(5)
    await runtime.delete_task("task-1")
    async with asyncio.timeout(20):
        assert [event async for event in run.events()]
    with pytest.raises(UnknownTask):
        [event async for event in runtime.replay("task-1")]
    assert runtime.idle
    await runtime.shutdown()
