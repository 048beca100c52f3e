"""An interrupt acts: it cancels the recipient's running model call."""

import asyncio
import contextlib

from mail.core.actions import ActionCore
from mail.core.call_context import current_call
from mail.core.runtime import RunRequest
from mail.testing import agent_from, replies
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker


def send(tool: str, target: str, body: str) -> tuple[str, dict]:
    return tool, {"target": target, "subject": "Word", "body": body}


async def test_an_interrupt_cancels_the_model_call_and_is_seen_first() -> None:
    talking = asyncio.Event()
    seen: list[str] = []
    turns = iter([[send("send_request", "worker", "write a novel")]])

    async def lead(messages, choice):
        step = next(turns, None)
        if step is None:
            await talking.wait()
            if "stopped" in last_body(messages):
                step = [("task_complete", {"finish_message": "stopped it"})]
            else:
                step = [send("send_interrupt", "worker", "stop now")]
        return await replies(step)(messages, choice)

    async def work(messages, choice):
        body = last_body(messages)
        seen.append(body)
        if "stop now" in body:
            return await replies([send("send_response", "supervisor", "stopped")])(messages, choice)
        if len(seen) == 1:
            for word in ["once", "upon", "a", "time"]:
                current_call().sink.text(word + " ")
            talking.set()
            await asyncio.sleep(3600)
        return await replies([("await_message", {})])(messages, choice)

    runtime = runtime_of({"supervisor": supervisor(lead), "worker": worker(work)})
    run = await runtime.open_run(
        RunRequest(message=user_message(), streamed=True, stream_tokens=True)
    )
    other = asyncio.create_task(
        runtime.submit_and_wait(user_message("interrupt it", kind="interrupt"))
    )
    events = [event async for event in run.events()]
    await other
    kinds = [event.kind for event in events]
    assert "model_delta" in kinds
    interrupted = next(event for event in events if event.kind == "turn_interrupted")
    assert interrupted.extra["partial_text"] == "once upon a time "
    assert "model_delta" not in kinds[kinds.index("turn_interrupted") :]
    assert "stop now" in seen[1]
    assert (
        "write a novel"
        not in "".join(
            str(entry)
            for entry in (
                await runtime._context.store.history(runtime._context.owner, "task-1", "worker")
            )[:1]
        ).split("stop now")[0]
    )
    await runtime.shutdown()


async def test_an_agent_that_ignores_cancellation_is_abandoned_and_its_result_dropped() -> None:
    started, release = asyncio.Event(), asyncio.Event()
    calls = 0

    async def stubborn(messages, choice):
        nonlocal calls
        calls += 1
        if calls == 1:
            started.set()
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await release.wait()
            current_call().sink.text("too late")
            return await replies([("task_complete", {"finish_message": "stale"})])(messages, choice)
        body = last_body(messages)
        return await replies([("task_complete", {"finish_message": f"fresh {'halt' in body}"})])(
            messages, choice
        )

    runtime = runtime_of({"supervisor": supervisor(stubborn, ())})
    first = asyncio.create_task(runtime.submit_and_wait(user_message("slow")))
    await started.wait()
    answer = await runtime.submit_and_wait(user_message("halt", kind="interrupt"))
    assert answer["message"]["body"] == "fresh True"
    assert (await first)["message"]["body"] == "fresh False"
    release.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task = await runtime.read_task("task-1")
    assert task is not None and "stale" not in str([event.data for event in task.events])
    await runtime.shutdown()


async def test_a_running_action_is_not_killed_by_an_interrupt() -> None:
    running, release = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def slow_action(args):
        running.set()
        await release.wait()
        order.append("action ended")
        return "result"

    def lead(messages, choice):
        body = last_body(messages)
        order.append(body.split("<subject>")[1].split("<")[0])
        if "halt" in body:
            return [("await_message", {})]
        if "Action completed" in body:
            assert any(m.get("content") == "SUCCESS: result" for m in messages)
            return [("task_complete", {"finish_message": "kept"})]
        return [("slow_action", {})]

    action = ActionCore(function=slow_action, name="slow_action")
    core = supervisor(agent_from(lead), ())
    core.actions = {"slow_action": action}
    runtime = runtime_of({"supervisor": core})
    first = asyncio.create_task(runtime.submit_and_wait(user_message()))
    await running.wait()
    second = asyncio.create_task(runtime.submit_and_wait(user_message("halt", kind="interrupt")))
    for _ in range(10):
        await asyncio.sleep(0)
    release.set()
    assert (await first)["message"]["body"] == "kept"
    assert (await second)["message"]["body"] == "kept"
    assert order[:3] == ["Question", "action ended", "Question"]
    await runtime.shutdown()
