"""Faults of stores, actions and agents: nobody waits for ever, nothing is left behind."""

import asyncio
from typing import Any

import pytest

from mail.core.actions import ActionCore
from mail.core.runtime import RunRequest
from mail.core.tasks import TaskState
from mail.errors import ShuttingDown, StoreConflict, StoreError
from mail.testing import tool_calls
from tests.support.federation import until
from tests.support.stores import HookedStore
from tests.support.swarm import runtime_of, supervisor, user_message

DONE = ("task_complete", {"finish_message": "done"})


def always(*calls):
    async def agent(messages, choice):
        return None, tool_calls(*calls, prefix=f"c{len(messages)}")

    return agent


@pytest.mark.parametrize("how", ["text", "error"])
async def test_text_that_no_store_can_hold_fails_or_answers_but_never_hangs(store, how) -> None:
    async def odd(messages, choice):
        if how == "error":
            raise OSError("no such file: \udcff")
        return "half an emoji \ud83d", []

    runtime = runtime_of({"supervisor": supervisor(odd, ())}, store=store)
    run = await runtime.open_run(RunRequest(message=user_message()))
    result = await run.result(5)
    assert "\ud83d" not in result.message["message"]["body"]
    assert result.status is (TaskState.FAILED if how == "error" else TaskState.COMPLETED)
    assert runtime.idle
    await runtime.shutdown()


async def test_a_completion_message_that_is_no_json_is_an_agent_error(store) -> None:
    async def odd(messages, choice):
        calls = tool_calls(DONE)
        calls[0].completion["extra"] = object()
        return None, calls

    runtime = runtime_of({"supervisor": supervisor(odd, ())}, store=store)
    run = await runtime.open_run(RunRequest(message=user_message()))
    assert (await run.result(5)).status is TaskState.FAILED
    assert runtime.idle
    await runtime.shutdown()


async def test_an_action_that_is_cancelled_from_within_is_a_tool_error(store) -> None:
    async def cancelled(args):
        raise asyncio.CancelledError

    async def lead(messages, choice):
        if any(m.get("role") == "tool" for m in messages):
            return None, tool_calls(DONE, prefix="b")
        return None, tool_calls(("flaky", {}), prefix="a")

    core = supervisor(lead, ())
    core.actions = {"flaky": ActionCore(function=cancelled, name="flaky")}
    runtime = runtime_of({"supervisor": core}, store=store)
    run = await runtime.open_run(RunRequest(message=user_message()))
    assert (await run.result(5)).message["message"]["body"] == "done"
    await runtime.shutdown()


class BadReads(HookedStore):
    """Fails the next reads of a history or a journal."""

    def __init__(self, store: Any, failures: int) -> None:
        super().__init__(store)
        self.failures = failures

    async def history(self, *args: Any) -> list[str]:
        """Fail, or read."""
        if self.failures:
            self.failures -= 1
            raise StoreError("the disk is tired")
        rows: list[str] = await self._store.history(*args)
        return rows


async def test_a_read_that_fails_before_the_call_is_tried_again(store, monkeypatch) -> None:
    monkeypatch.setattr("mail.core.runtime.turn_runner._STORE_PAUSE", 0.01)
    runtime = runtime_of({"supervisor": supervisor(always(DONE), ())}, store=BadReads(store, 0))
    await runtime.submit_and_wait(user_message())
    runtime._context.store.failures = 2  # type: ignore[attr-defined]
    run = await runtime.open_run(RunRequest(message=user_message("again")))
    assert (await run.result(5)).message["message"]["body"] == "done"
    assert runtime.idle
    await runtime.shutdown()


async def test_a_conflict_after_a_failure_does_not_leave_the_runtime_degraded(store) -> None:
    async def fail(post) -> None:
        if post.task.task_id == "task-1" and post.response:
            raise StoreError("the disk is full")

    runtime = runtime_of(
        {"supervisor": supervisor(always(DONE), ())}, store=HookedStore(store, before=fail)
    )
    run = await runtime.open_run(RunRequest(message=user_message()))
    await until(lambda: runtime.degraded)
    refused = asyncio.Event()

    async def conflict(post) -> None:
        if post.task.task_id == "task-1":
            refused.set()
            raise StoreConflict("gone")

    runtime._context.store.before = conflict  # type: ignore[attr-defined]
    await refused.wait()
    runtime._context.store.before = None  # type: ignore[attr-defined]
    await until(lambda: runtime.degraded is None)
    answer = await runtime.submit_and_wait(user_message(task_id="task-2"), timeout=30)
    assert answer["message"]["body"] == "done"
    run.waiter.leave()
    await runtime.shutdown()


async def test_a_caller_that_gives_up_while_its_message_is_stored_loses_nothing(store) -> None:
    answered = asyncio.Event()

    async def lead(messages, choice):
        answered.set()
        return None, tool_calls(DONE)

    runtime = runtime_of({"supervisor": supervisor(lead, ())}, store=store)
    await runtime.start()
    caller = asyncio.create_task(runtime.submit_and_wait(user_message()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    async with asyncio.timeout(20):
        await answered.wait()
        while not runtime.idle:
            await asyncio.sleep(0.001)
    task = await runtime.read_task("task-1")
    assert task is not None and task.status is TaskState.COMPLETED
    await runtime.shutdown()


async def test_a_caller_that_waited_at_the_door_of_a_stopping_runtime_is_told(store) -> None:
    runtime = runtime_of({"supervisor": supervisor(always(DONE), ())}, store=store)
    await runtime.start()
    task = runtime._context.active_tasks
    async with runtime._submissions.hold("task-1", new=True):
        waiting = asyncio.create_task(runtime.open_run(RunRequest(message=user_message())))
        await asyncio.sleep(0.01)
        await runtime.shutdown()
    with pytest.raises(ShuttingDown):
        await waiting
    assert len(task) == 0
