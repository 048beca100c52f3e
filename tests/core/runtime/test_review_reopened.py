"""Tasks that are reopened while turns of the run before are still at it."""

import asyncio

import pytest

from mail.core.actions import ActionCore
from mail.core.runtime import RunRequest
from mail.core.tasks import TaskState
from mail.testing import tool_calls
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker


def done(text: str) -> tuple[str, dict]:
    return "task_complete", {"finish_message": text}


@pytest.mark.parametrize("when", ["before", "during", "after"])
async def test_a_turn_that_outlives_its_run_is_run_once(store, when) -> None:
    acting, release = asyncio.Event(), asyncio.Event()
    worked: list[str] = []

    async def slow(args):
        acting.set()
        await release.wait()
        return "slow result"

    async def lead(messages, choice):
        body = last_body(messages)
        prefix = f"l{len(messages)}"
        if "first" in body:
            job = ("send_request", {"target": "worker", "subject": "Job", "body": "x"})
            return None, tool_calls(job, ("help", {}), prefix=prefix)
        if "Report" in body:
            return None, tool_calls(done("reported"), prefix=prefix)
        if "second" in body:
            return None, tool_calls(("await_message", {}), prefix=prefix)
        await acting.wait()
        return None, tool_calls(done("early"), prefix=prefix)

    async def work(messages, choice):
        worked.append(last_body(messages).split("<subject>")[1].split("<")[0])
        if len(messages) == 1:
            return None, tool_calls(("slow", {}), prefix="w1")
        report = ("send_response", {"target": "supervisor", "subject": "Report", "body": "x"})
        return None, tool_calls(report, prefix="w2")

    core = worker(work)
    core.actions = {"slow": ActionCore(function=slow, name="slow")}
    runtime = runtime_of({"supervisor": supervisor(lead), "worker": core}, store=store)
    first = await runtime.submit_and_wait(user_message("first"), timeout=30)
    assert first["message"]["body"] == "early"
    if when == "before":
        release.set()
        await asyncio.sleep(0.05)
    opening = asyncio.create_task(runtime.open_run(RunRequest(message=user_message("second"))))
    if when == "during":
        await asyncio.sleep(0)
        release.set()
    run = await opening
    release.set()
    result = await run.result(5)
    assert result.message["message"]["body"] == "reported"
    assert worked == ["Job", "::action_complete::"]
    assert runtime.idle
    await runtime.shutdown()


async def test_a_turn_of_a_cancelled_run_changes_nothing_in_the_next(store) -> None:
    acting, release, asked = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(args):
        acting.set()
        await release.wait()
        return "slow result"

    async def lead(messages, choice):
        return None, tool_calls(("slow", {}), done("of the cancelled run"), prefix="l")

    async def work(messages, choice):
        asked.set()
        await asyncio.sleep(0.05)
        report = ("send_response", {"target": "supervisor", "subject": "Report", "body": "x"})
        return None, tool_calls(report, prefix="w")

    core = supervisor(lead)
    core.actions = {"slow": ActionCore(function=slow, name="slow")}
    runtime = runtime_of({"supervisor": core, "worker": worker(work)}, store=store)
    first = await runtime.open_run(RunRequest(message=user_message("first")))
    await acting.wait()
    await runtime.cancel_task("task-1")
    assert (await first.result(5)).status is TaskState.CANCELLED
    second = await runtime.open_run(RunRequest(message=user_message("second", to="worker")))
    await asked.wait()
    await asyncio.sleep(0.1)  # the worker has answered; the supervisor is still in its old turn
    release.set()
    result = await second.result(5)
    assert result.status is TaskState.COMPLETED
    events = (await runtime.read_task("task-1")).events
    assert [event.kind for event in events].count("task_complete") == 1
    assert runtime.idle
    await runtime.shutdown()
