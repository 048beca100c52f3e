"""Pauses among other things that go on at the same time."""

import asyncio

import pytest

from mail.core.actions import ActionCore
from mail.core.runtime import RunRequest
from mail.core.runtime.mailbox import LaneKey
from mail.core.tasks import TaskState
from mail.errors import StoreError
from mail.testing import agent_from, tool_calls
from tests.support.stores import HookedStore
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker
from tests.support.waiting import until

RESUME = "breakpoint_tool_call"
REVIEW = ("human_review", {"draft": "x"})
DONE = ("task_complete", {"finish_message": "done"})


def send(target: str, tool: str = "send_request") -> tuple[str, dict]:
    return tool, {"target": target, "subject": "Job", "body": "do it"}


def runtime_with_review(agents, **options):
    for core in agents.values():
        core.actions = {"human_review": ActionCore(function=None, name="human_review")}
    return runtime_of(agents, breakpoint_tools=["human_review"], **options)


def resume(result: object = "ok") -> RunRequest:
    return RunRequest(
        message=user_message(""), resume_from=RESUME, breakpoint_tool_call_result=result
    )


async def test_no_turn_begins_while_the_pause_is_being_stored(store) -> None:
    asked: list[str] = []
    storing, release = asyncio.Event(), asyncio.Event()

    async def hold(post) -> None:
        if post.task.task_id == "task-1" and post.task.state is TaskState.PAUSED:
            storing.set()
            await release.wait()

    def lead(messages, choice):
        if "other task" in last_body(messages):
            return [DONE]
        return [send("worker"), REVIEW] if not asked else [DONE]

    async def slow_lead(messages, choice):
        return await agent_from(lead)(messages, choice)

    def work(messages, choice):
        asked.append("worker")
        return [("await_message", {})]

    agents = {"supervisor": supervisor(slow_lead), "worker": worker(agent_from(work))}
    runtime = runtime_with_review(agents, store=HookedStore(store, after=hold))
    await runtime.start()
    runtime._scheduler.driving = False
    await runtime.submit(user_message("for the worker", to="worker"))  # waits in its lane
    run = await runtime._submissions.accept(RunRequest(message=user_message()))
    mailbox, lane = runtime._context.mailbox, LaneKey("task-1", "worker")
    mailbox.block(lane)  # as if the worker's mail came in a moment later
    runtime._scheduler.driving = True
    runtime._scheduler.pump()
    await storing.wait()
    mailbox.unblock(lane)
    await runtime.submit_and_wait(user_message("other task", task_id="task-2"))
    assert asked == []
    release.set()
    assert (await run.future).status is TaskState.PAUSED
    await runtime.shutdown()


async def test_a_breakpoint_call_beside_task_complete_is_answered_not_left_open(store) -> None:
    seen: list[list[dict]] = []
    turns = iter([[REVIEW, DONE], [DONE]])

    async def lead(messages, choice):
        seen.append(list(messages))
        return None, tool_calls(*next(turns), prefix=f"t{len(messages)}")

    runtime = runtime_with_review({"supervisor": supervisor(lead, ())}, store=store)
    first = await (await runtime.open_run(RunRequest(message=user_message()))).result(5)
    assert first.status is TaskState.COMPLETED and first.breakpoints == []
    assert (await runtime.read_task("task-1")).breakpoints == []
    second = await (await runtime.open_run(RunRequest(message=user_message("more")))).result(5)
    assert second.status is TaskState.COMPLETED
    calls = [c["id"] for m in seen[1] for c in m.get("tool_calls", ())]
    results = [m["tool_call_id"] for m in seen[1] if m.get("role") == "tool"]
    assert sorted(calls) == sorted(results)
    await runtime.shutdown()


async def test_an_action_of_a_half_paused_process_is_not_run_twice(store) -> None:  # noqa: C901
    running, runs = asyncio.Event(), 0

    async def count(args):
        nonlocal runs
        runs += 1
        running.set()
        await asyncio.sleep(3600)

    async def lead(messages, choice):
        if any(m.get("content") == "ok" for m in messages):
            body = last_body(messages)
            if "Report" in body:
                return None, tool_calls(DONE, prefix="end")
            return None, tool_calls(("await_message", {}), prefix=f"l{len(messages)}")
        if len(messages) == 1:
            return None, tool_calls(send("worker"), ("help", {}), prefix="a")
        await running.wait()
        return None, tool_calls(REVIEW, prefix="b")

    async def work(messages, choice):
        if len(messages) == 1:
            return None, tool_calls(("count", {}), prefix="w1")
        report = ("send_response", {"target": "supervisor", "subject": "Report", "body": "done"})
        return None, tool_calls(report, prefix="w2")

    def process():
        agents = {"supervisor": supervisor(lead), "worker": worker(work)}
        for core in agents.values():
            core.actions = {"human_review": ActionCore(function=None, name="human_review")}
        agents["worker"].actions = {"count": ActionCore(function=count, name="count")}
        return runtime_of(agents, breakpoint_tools=["human_review"], store=store)

    first = process()
    await first.open_run(RunRequest(message=user_message()))
    while (task := first.get_task_by_id("task-1")) is None or task.status is TaskState.RUNNING:
        await asyncio.sleep(0.001)
    while (
        row := await store.load_task(first._context.owner, "task-1")
    ) is None or row.state != "paused":
        await asyncio.sleep(0.001)
    first._scheduler.driving = False
    for turn in asyncio.all_tasks() - {asyncio.current_task()}:
        turn.cancel()
    await asyncio.sleep(0.01)
    second = process()
    final = await (await second.open_run(resume())).result(5)
    assert final.status is TaskState.COMPLETED
    assert runs == 1
    await second.shutdown()


async def test_an_answer_is_refused_at_once_while_a_pause_cannot_be_stored(store) -> None:
    fails = False

    async def fail(post) -> None:
        if fails:
            raise StoreError("the disk is full")

    async def stored(post) -> None:
        nonlocal fails
        fails = post.task.awaited and post.task.state is TaskState.PAUSED  # half of the answers

    async def lead(messages, choice):
        done = any(m.get("role") == "tool" for m in messages)
        return None, tool_calls(*([DONE] if done else [REVIEW, REVIEW]), prefix="a")

    hooked = HookedStore(store, before=fail, after=stored)
    runtime = runtime_with_review({"supervisor": supervisor(lead, ())}, store=hooked)
    run = await (await runtime.open_run(RunRequest(message=user_message()))).result(5)
    first, second = ({"call_id": call["call_id"], "content": "ok"} for call in run.breakpoints)
    half = asyncio.create_task(runtime.open_run(resume(first)))
    await until(lambda: fails)
    with pytest.raises(StoreError):
        await asyncio.wait_for(runtime.open_run(resume(second)), 10)
    fails = False
    assert (await (await half).result(5)).status is TaskState.PAUSED
    last = await (await runtime.open_run(resume(second))).result(5)
    assert last.status is TaskState.COMPLETED
    await runtime.shutdown()
