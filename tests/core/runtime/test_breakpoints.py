"""Breakpoint tools pause a task; results resume it."""

import asyncio
import json

import pytest

from mail.core.actions import ActionCore
from mail.core.runtime import RunRequest
from mail.core.tasks import TaskState
from mail.errors import AlreadyAnswered, BreakpointError, TaskPaused
from mail.testing import agent_from
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker

RESUME = "breakpoint_tool_call"


def review(*names: str) -> list[tuple[str, dict]]:
    return [("human_review", {"draft": name}) for name in names]


def finish_with_results(messages, choice):
    results = [m["content"] for m in messages if m.get("role") == "tool"]
    return [("task_complete", {"finish_message": " | ".join(results)})]


def lone(*steps):
    left = iter(steps)
    return agent_from(lambda m, c: next(left, None) or finish_with_results(m, c))


def make(function, **options):
    core = supervisor(function, ())
    core.actions = {"human_review": ActionCore(function=None, name="human_review")}
    return runtime_of({"supervisor": core}, breakpoint_tools=["human_review"], **options)


async def test_a_breakpoint_pauses_and_a_text_resumes() -> None:
    runtime = make(lone(review("a")))
    run = await runtime.open_run(RunRequest(message=user_message()))
    result = await run.result(5)
    assert result.status is TaskState.PAUSED
    assert result.message["message"]["subject"] == "::breakpoint_tool_call::"
    [call] = json.loads(result.message["message"]["body"])
    assert call["name"] == "human_review"
    assert json.loads(call["arguments"]) == {"draft": "a"}
    assert call["id"] == call["call_id"] == "call_0_0"
    assert result.breakpoints == [call]
    task = await runtime.read_task("task-1")
    assert task is not None and not task.is_running and not task.completed
    with pytest.raises(TaskPaused, match="call_0_0"):
        await runtime.submit_and_wait(user_message("hello?"))
    events = len((await runtime.read_task("task-1")).events)
    answer = await runtime.submit_and_wait(
        user_message(""), resume_from=RESUME, breakpoint_tool_call_result="approved"
    )
    assert answer["message"]["body"] == "approved"
    assert events == [e.kind for e in (await runtime.read_task("task-1")).events].index(
        "breakpoint_action_complete"
    )
    await runtime.shutdown()


@pytest.mark.parametrize(
    "payload",
    [
        {"content": "yes"},
        {"call_id": "call_0_0", "content": "yes"},
        [{"call_id": "call_0_0", "content": "yes"}],
        json.dumps({"call_id": "call_0_0", "content": "yes"}),
        json.dumps([{"call_id": "call_0_0", "content": "yes"}]),
        "yes",
    ],
)
async def test_every_documented_payload_resumes_a_single_call(payload) -> None:
    runtime = make(lone(review("a")))
    await runtime.submit_and_wait(user_message())
    answer = await runtime.submit_and_wait(
        user_message(""), resume_from=RESUME, breakpoint_tool_call_result=payload
    )
    assert answer["message"]["body"] == "yes"
    await runtime.shutdown()


async def test_parallel_calls_are_answered_in_parts_and_never_twice() -> None:
    runtime = make(lone(review("a", "b")))
    await runtime.submit_and_wait(user_message())

    async def resume(payload):
        run = await runtime.open_run(
            RunRequest(
                message=user_message(""), resume_from=RESUME, breakpoint_tool_call_result=payload
            )
        )
        return await run.result(5)

    with pytest.raises(BreakpointError, match="'call_0_0', 'call_0_1'"):
        await resume({"content": "which?"})
    with pytest.raises(BreakpointError, match="no open breakpoint call 'nope'"):
        await resume([{"call_id": "nope", "content": "x"}])
    partial = await resume([{"call_id": "call_0_1", "content": "second"}])
    assert partial.status is TaskState.PAUSED
    assert [call["call_id"] for call in partial.breakpoints] == ["call_0_0"]
    with pytest.raises(AlreadyAnswered):
        await resume([{"call_id": "call_0_1", "content": "again"}])
    final = await resume({"content": "first"})
    assert final.status is TaskState.COMPLETED
    assert sorted(final.message["message"]["body"].split(" | ")) == ["first", "second"]
    await runtime.shutdown()


async def test_a_pause_survives_a_restart(store) -> None:
    first = make(lone(review("a")), store=store)
    await first.submit_and_wait(user_message())
    await first.shutdown()
    second = make(agent_from(finish_with_results), store=store)
    task = await second.read_task("task-1")
    assert task is not None and [call["call_id"] for call in task.breakpoints] == ["call_0_0"]
    answer = await second.submit_and_wait(
        user_message(""), resume_from=RESUME, breakpoint_tool_call_result="later"
    )
    assert answer["message"]["body"] == "later"
    with pytest.raises(AlreadyAnswered):
        await second.submit_and_wait(
            user_message(""),
            resume_from=RESUME,
            breakpoint_tool_call_result={"call_id": "call_0_0", "content": "x"},
        )
    await second.shutdown()


async def test_other_calls_of_the_turn_run_and_do_not_wake_the_paused_agent() -> None:
    ran = []

    async def note(args):
        ran.append(args)
        return "noted"

    core = supervisor(lone([*review("a"), ("note", {"text": "x"})]), ())
    core.actions = {
        "human_review": ActionCore(function=None, name="human_review"),
        "note": ActionCore(function=note, name="note"),
    }
    runtime = runtime_of({"supervisor": core}, breakpoint_tools=["human_review"])
    await runtime.submit_and_wait(user_message())
    assert len(ran) == 1
    task = await runtime.read_task("task-1")
    assert task.task_message_queue == []
    answer = await runtime.submit_and_wait(
        user_message(""), resume_from=RESUME, breakpoint_tool_call_result="ok"
    )
    assert sorted(answer["message"]["body"].split(" | ")) == ["SUCCESS: noted", "ok"]
    await runtime.shutdown()


async def test_two_paused_agents_are_resumed_in_either_order() -> None:
    def ask(target):
        return "send_request", {"target": target, "subject": "Job", "body": "do it"}

    answers: list[str] = []

    def lead(messages, choice):
        text = last_body(messages)
        if "Question" in text:
            return [ask("one"), ask("two")]
        answers.append(text.split("<body>")[1].split("<")[0])
        if len(answers) == 2:
            return [("task_complete", {"finish_message": " & ".join(answers)})]
        return [("await_message", {})]

    def pausing(name):
        def work(messages, choice):
            results = [m["content"] for m in messages if m.get("role") == "tool"]
            if not results:
                return [("human_review", {"of": name})]
            reply = {"target": "supervisor", "subject": "Re", "body": f"{name}:{results[0]}"}
            return [("send_response", reply)]

        core = worker(agent_from(work, name))
        core.actions = {"human_review": ActionCore(function=None, name="human_review")}
        return core

    runtime = runtime_of(
        {
            "supervisor": supervisor(agent_from(lead), ("one", "two")),
            "one": pausing("one"),
            "two": pausing("two"),
        },
        breakpoint_tools=["human_review"],
    )
    run = await runtime.open_run(RunRequest(message=user_message()))
    paused = await run.result(5)
    by_agent = {json.loads(c["arguments"])["of"]: c["call_id"] for c in paused.breakpoints}
    assert set(by_agent) == {"one", "two"}
    await asyncio.sleep(0)
    again = await (
        await runtime.open_run(
            RunRequest(
                message=user_message(""),
                resume_from=RESUME,
                breakpoint_tool_call_result=[{"call_id": by_agent["two"], "content": "B"}],
            )
        )
    ).result(5)
    assert again.status is TaskState.PAUSED
    assert [json.loads(c["arguments"])["of"] for c in again.breakpoints] == ["one"]
    final = await runtime.submit_and_wait(
        user_message(""), resume_from=RESUME, breakpoint_tool_call_result="A"
    )
    assert final["message"]["body"] == "two:B & one:A"
    await runtime.shutdown()
