"""Whole tasks through a runtime on the memory store."""

import asyncio

import pytest

from mail.core.actions import ActionCore
from mail.core.runtime import RunRequest
from mail.core.tasks import TaskState
from mail.errors import AgentError, ProtocolError, UnknownAgent, UnknownTask
from mail.testing import agent_from, replies
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker


def done(text: str) -> list[tuple[str, dict]]:
    return [("task_complete", {"finish_message": text})]


def request(target: str, body: str = "do it") -> tuple[str, dict]:
    return "send_request", {"target": target, "subject": "Job", "body": body}


def response(target: str, body: str = "did it") -> tuple[str, dict]:
    return "send_response", {"target": target, "subject": "Re: Job", "body": body}


async def test_a_lone_supervisor_answers() -> None:
    runtime = runtime_of({"supervisor": supervisor(replies(done("42")), ())})
    message = await runtime.submit_and_wait(user_message())
    assert message["msg_type"] == "broadcast_complete"
    assert message["message"]["subject"] == "::task_complete::"
    assert message["message"]["body"] == "42"
    task = await runtime.read_task("task-1")
    assert task is not None and task.completed and not task.is_running
    assert [event.kind for event in task.events] == [
        "new_message",
        "tool_call",
        "task_complete_call",
        "new_message",
        "task_complete",
    ]
    assert [event.seq for event in task.events] == [1, 2, 3, 4, 5]
    assert runtime.idle
    await runtime.shutdown()


async def test_a_supervisor_delegates_to_a_worker_with_an_action() -> None:
    seen: list[str] = []

    async def lookup(args: dict) -> str:
        return f"sunny in {args['city']}"

    def work(messages, tool_choice):
        seen.append(last_body(messages))
        if "Action completed" in seen[-1]:
            return [response("supervisor", messages[-2]["content"].removeprefix("SUCCESS: "))]
        return [("lookup", {"city": "Paris"})]

    def lead(messages, tool_choice):
        text = last_body(messages)
        return (
            done(f"It is {text.split('<body>')[1].split('</body>')[0]}")
            if "Re: Job" in text
            else [request("worker")]
        )

    action = ActionCore(function=lookup, name="lookup", parameters={})
    runtime = runtime_of(
        {
            "supervisor": supervisor(agent_from(lead)),
            "worker": worker(agent_from(work), actions={"lookup": action}),
        }
    )
    message = await runtime.submit_and_wait(user_message())
    assert message["message"]["body"] == "It is sunny in Paris"
    kinds = [event.kind for event in runtime.get_events_by_task_id("task-1")]
    assert kinds.count("action_call") == kinds.count("action_complete") == 1
    task = await runtime.read_task("task-1")
    assert task is not None
    response_mail = task.get_messages_by_type("response")
    request_mail = [
        m
        for m in task.get_messages_by_type("request")
        if m["message"]["sender"]["address"] == "supervisor"
    ]
    answer = next(m for m in response_mail if m["message"]["sender"]["address"] == "worker")
    assert answer["message"]["request_id"] == request_mail[0]["message"]["request_id"]
    await runtime.shutdown()


async def test_streamed_events_end_with_the_terminal_event_and_carry_ids() -> None:
    runtime = runtime_of({"supervisor": supervisor(replies(done("42")), ())})
    events = [event async for event in runtime.submit_and_stream(user_message())]
    assert events[-1].kind == "task_complete"
    assert events[-1].data["response"] == "42"
    assert events[-1].data["status"] == "completed"
    assert [event.id for event in events] == ["1", "2", "3", "4", "5"]
    replayed = [event async for event in runtime.replay("task-1", after=2)]
    assert [event.seq for event in replayed] == [3, 4, 5]
    await runtime.shutdown()


async def test_a_finished_task_goes_on_with_the_next_message() -> None:
    runtime = runtime_of(
        {"supervisor": supervisor(replies(done("one"), done("two"), done("three")), ())}
    )
    bodies = [
        (await runtime.submit_and_wait(user_message(), resume_from=resume))["message"]["body"]
        for resume in (None, None, "user_response")
    ]
    assert bodies == ["one", "two", "three"]
    await runtime.shutdown()


async def test_two_callers_of_one_running_task_both_get_the_answer_to_their_own_message() -> None:
    gate = asyncio.Event()

    async def slow(messages, tool_choice):
        await gate.wait()
        return await replies(done(last_body(messages).split("<body>")[1].split("<")[0]))(
            messages, tool_choice
        )

    runtime = runtime_of({"supervisor": supervisor(slow, ())})
    first = asyncio.create_task(runtime.submit_and_wait(user_message("one")))
    await asyncio.sleep(0)
    second = asyncio.create_task(runtime.submit_and_wait(user_message("two")))
    for _ in range(10):
        await asyncio.sleep(0)
    gate.set()
    assert (await first)["message"]["body"] == "one"
    assert (await second)["message"]["body"] == "two"
    await runtime.shutdown()


async def test_mail_in_flight_at_completion_is_stashed_and_restored() -> None:
    gate = asyncio.Event()
    lead = replies([request("worker")], done("early"), [request("worker", "again")], done("late"))

    async def work(messages, tool_choice):
        if len(messages) == 1:
            await gate.wait()
        return await replies([response("supervisor")])(messages, tool_choice)

    runtime = runtime_of({"supervisor": supervisor(lead), "worker": worker(work)})
    task = asyncio.create_task(runtime.submit_and_wait(user_message()))
    for _ in range(20):
        await asyncio.sleep(0)
    await runtime.submit(user_message("hurry"))
    assert (await task)["message"]["body"] == "early"
    stored = await runtime.read_task("task-1")
    assert stored is not None
    assert len(stored.task_message_queue) == 1
    gate.set()
    answer = await runtime.submit_and_wait(user_message("more"), resume_from="user_response")
    assert answer["message"]["body"] == "late"
    await runtime.shutdown()


async def test_an_unknown_recipient_is_refused_before_anything_starts() -> None:
    runtime = runtime_of({"supervisor": supervisor(replies(done("42")), ())})
    with pytest.raises(UnknownAgent, match="Did you mean 'supervisor'"):
        await runtime.submit_and_wait(user_message(to="superviser"))
    with pytest.raises(ProtocolError, match="resume_from"):
        await runtime.submit_and_wait(user_message(), resume_from="user_respone")
    with pytest.raises(UnknownTask):
        await runtime.submit_and_wait(user_message(), resume_from="user_response")
    assert await runtime.read_tasks() == []
    assert runtime.idle
    await runtime.shutdown()


async def test_a_stalled_task_asks_the_finisher_once_and_then_fails() -> None:
    lead = replies([("await_message", {})], [("help", {})])
    runtime = runtime_of({"supervisor": supervisor(lead, ())})
    message = await runtime.submit_and_wait(user_message())
    assert message["message"]["subject"] == "::task_error::"
    await runtime.shutdown()


async def test_the_step_limit_asks_once_and_then_ends_with_what_there_is() -> None:
    def chat(peer):
        return agent_from(lambda messages, choice: [request(peer, "and then?")])

    runtime = runtime_of(
        {"supervisor": supervisor(chat("worker")), "worker": worker(chat("supervisor"))}
    )
    run = await runtime.open_run(RunRequest(message=user_message(), max_steps=6))
    result = await run.result(10)
    assert (result.status, result.ended_by) == (TaskState.COMPLETED, "step_limit")
    assert result.message["message"]["subject"] == "::maximum_steps_reached::"
    assert "and then?" in result.message["message"]["body"]
    subjects = [
        event.extra["full_message"]["message"]["subject"]
        for event in runtime.get_events_by_task_id("task-1")
        if event.kind == "new_message"
    ]
    assert subjects.count("::maximum_steps_reached::") == 2
    await runtime.shutdown()


async def test_the_forced_finish_offers_the_finisher_task_complete() -> None:
    choices = []

    def lead(messages, choice):
        choices.append(choice)
        return done("enough") if isinstance(choice, dict) else [request("worker")]

    runtime = runtime_of(
        {
            "supervisor": supervisor(agent_from(lead)),
            "worker": worker(agent_from(lambda m, c: [request("supervisor")])),
        }
    )
    run = await runtime.open_run(RunRequest(message=user_message(), max_steps=5))
    result = await run.result(10)
    assert (result.message["message"]["body"], result.ended_by) == ("enough", "step_limit")
    assert choices[-1] == {"type": "function", "name": "task_complete"}
    await runtime.shutdown()


async def test_only_the_run_that_the_step_limit_ended_says_so() -> None:
    lead = replies([("help", {})], [("help", {})], [("task_complete", {"finish_message": "done"})])
    runtime = runtime_of({"supervisor": supervisor(lead, ())})
    cut = await runtime.open_run(RunRequest(message=user_message(), max_steps=1))
    assert (await cut.end(10)).ended_by == "step_limit"
    assert (await runtime.read_task("task-1")).ended_by == "step_limit"
    whole = await runtime.open_run(RunRequest(message=user_message("and on"), max_steps=5))
    assert (await whole.end(10)).ended_by is None
    assert (await runtime.read_task("task-1")).ended_by is None
    await runtime.shutdown()


async def test_a_finisher_that_fails_at_the_step_limit_says_so_too() -> None:
    def lead(messages, choice):
        if isinstance(choice, dict):
            raise AgentError("no words left")
        return [("help", {})]

    runtime = runtime_of({"supervisor": supervisor(agent_from(lead), ())})
    run = await runtime.open_run(RunRequest(message=user_message(), max_steps=1))
    end = await run.end(10)
    assert (end.status, end.ended_by) == (TaskState.FAILED, "step_limit")
    assert (await runtime.read_task("task-1")).ended_by == "step_limit"
    await runtime.shutdown()
