"""Two processes on one store: only one of them works on a task, and the other one lets go of it."""

import asyncio
from typing import Any

import pytest

from mail import metrics
from mail.core.runtime import MAILRuntime, RunRequest, runs
from mail.core.tasks import TaskState
from mail.db.store import Store
from mail.errors import BreakpointError
from mail.testing import tool_calls
from tests.support.swarm import runtime_of, supervisor, user_message


class Process:
    """A runtime of its own; its model answers when it is told to."""

    def __init__(self, store: Store, name: str) -> None:
        self.name, self.asked, self.cancelled = name, 0, 0
        self.may_answer = asyncio.Event()
        agents = {"supervisor": supervisor(self.answer, ())}
        self.runtime: MAILRuntime = runtime_of(agents, store=store)

    async def answer(self, messages: list[dict[str, Any]], choice: object) -> Any:
        self.asked += 1
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return None, tool_calls(("task_complete", {"finish_message": f"from {self.name}"}))

    async def is_asked(self) -> None:
        async with asyncio.timeout(10):
            while not self.asked:
                await asyncio.sleep(0.001)


async def kinds(runtime: MAILRuntime) -> list[str]:
    return [event.kind async for event in runtime.replay("task-1")]


async def test_who_is_overtaken_stores_nothing_and_whoever_waits_there_gets_the_answer(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a process is frozen, another one takes its task, and then it goes on."""
    monkeypatch.setattr(runs, "_LOOK_SECONDS", 0.1)
    refused = metrics.REFUSED.values[()]
    frozen, other = Process(store, "the first"), Process(store, "the other")
    run = await frozen.runtime.open_run(RunRequest(message=user_message()))
    streamed = await frozen.runtime.open_run(
        RunRequest(message=user_message("Another task", "task-2"), streamed=True)
    )
    await frozen.is_asked()
    await other.runtime.start()
    await other.is_asked()
    frozen.may_answer.set()
    answer = asyncio.create_task(run.end(30))
    async with asyncio.timeout(10):
        while frozen.runtime.open_tasks:
            await asyncio.sleep(0.001)
    assert "another server has taken up task 'task-1'" in caplog.text
    assert metrics.REFUSED.values[()] == refused + 2  # one for each of its tasks
    other.may_answer.set()
    assert (await answer).body == "from the other"
    events = [event async for event in streamed.events(0.05)]
    assert events[-1].extra["response"] == "from the other"
    assert [event.seq for event in events if event.seq] == list(range(1, len(events) + 1))
    assert (await kinds(other.runtime)).count("task_complete") == 1
    await frozen.runtime.shutdown()
    await other.runtime.shutdown()


async def test_what_is_under_way_of_a_lost_task_is_cancelled(store: Store) -> None:
    first, other = Process(store, "the first"), Process(store, "the other")
    await first.runtime.open_run(RunRequest(message=user_message()))
    await first.is_asked()
    await other.runtime.start()
    await other.is_asked()
    cancelled = await first.runtime.cancel_task("task-1")  # it finds out, and takes it back
    assert cancelled.status is TaskState.CANCELLED
    async with asyncio.timeout(10):
        while not first.cancelled:
            await asyncio.sleep(0.001)
    other.may_answer.set()
    await other.runtime.await_queue_empty()
    assert (await kinds(first.runtime))[-1] == "task_error"
    await first.runtime.shutdown()
    await other.runtime.shutdown()


async def test_processes_take_turns_with_a_task_that_rests(store: Store) -> None:
    processes = [Process(store, "the first"), Process(store, "the other")]
    for each in processes:
        each.may_answer.set()
        await each.runtime.start()
    for turn in range(6):
        each = processes[turn % 2]
        message = await each.runtime.submit_and_wait(user_message(f"Question {turn}"), timeout=10)
        assert message["message"]["body"] == f"from {each.name}"
    seqs = [event.seq async for event in processes[0].runtime.replay("task-1")]
    assert seqs == list(range(1, len(seqs) + 1))
    for each in processes:
        await each.runtime.shutdown()


async def test_a_refused_request_does_not_keep_a_dead_process_task_from_being_taken_up(
    store: Store,
) -> None:
    first, other = Process(store, "the first"), Process(store, "the other")
    await other.runtime.start()
    await first.runtime.open_run(RunRequest(message=user_message()))
    await first.is_asked()
    with pytest.raises(BreakpointError):
        await other.runtime.open_run(
            RunRequest(user_message(), "breakpoint_tool_call", {"call_id": "none", "content": ""})
        )
    assert not other.runtime.holds("task-1")  # so whoever looks for such tasks finds it
    for each in (first, other):
        each.may_answer.set()
    await other.runtime.take_up(["task-1"])
    await other.runtime.await_queue_empty()
    assert (await kinds(other.runtime))[-1] == "task_complete"
    for each in (first, other):
        await each.runtime.shutdown()
