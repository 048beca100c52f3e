"""What model calls use is in the task's account and in events: each call once, whatever happens."""

import asyncio

import pytest

from mail.core.actions import ActionCore
from mail.core.call_context import CallContext, current_call
from mail.core.runtime import RunRequest, RuntimeSettings
from mail.core.tasks import TaskState
from mail.core.usage import Usage
from mail.errors import ConfigError, ModelError
from mail.testing import agent_from, replies, tool_calls
from tests.core.runtime.metered import (
    DONE,
    MODEL,
    ask,
    check_books,
    check_history,
    kinds_of,
    metered,
    tokens,
)
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker

ANSWER = ("send_response", {"target": "supervisor", "subject": "Re", "body": "it is done"})


async def test_calls_are_summed_per_agent_and_for_the_task(store) -> None:
    lead = metered(replies(ask("worker"), [DONE]), tokens(100, prompt=70, cost=0.25))
    work = metered(replies([ANSWER]), tokens(30))
    runtime = runtime_of({"supervisor": supervisor(lead), "worker": worker(work)}, store=store)
    await runtime.submit_and_wait(user_message())
    task = await runtime.read_task("task-1")
    assert task.usage == {
        "supervisor": Usage(
            calls=2, prompt_tokens=140, completion_tokens=60, total_tokens=200, cost=0.5
        ),
        "worker": Usage(calls=1, completion_tokens=30, total_tokens=30),
    }
    record = task.to_record()["usage"]
    assert record["total"]["total_tokens"] == 230 and record["total"]["calls"] == 3
    assert record["agents"]["supervisor"]["cost"] == 0.5
    assert "cost" not in record["agents"]["worker"]
    assert (await runtime.read_tasks())[0].usage == task.usage
    assert runtime.get_task_by_id("task-1").usage == task.usage
    assert runtime.get_all_tasks()["task-1"].usage == task.usage
    await check_books(runtime)
    await runtime.shutdown()


async def test_an_event_for_each_call_precedes_the_tool_calls_of_its_reply(store) -> None:
    lead = metered(replies([("help", {}), *ask("worker")], [DONE]), tokens(5), tokens(10, cost=1.5))
    runtime = runtime_of(
        {"supervisor": supervisor(lead), "worker": worker(replies([ANSWER]))}, store=store
    )
    await runtime.submit_and_wait(user_message())
    task = await runtime.read_task("task-1")
    assert [event.kind for event in task.events][:6] == [
        "new_message",
        "model_usage",
        "model_usage",
        "tool_call",
        "tool_call",
        "help_called",
    ]
    first, second = (event for event in task.events[1:3])
    assert first.extra.pop("duration_ms") >= 0
    assert first.extra == {
        "caller": "supervisor",
        "model": MODEL,
        "usage": tokens(5).to_dict(),
        "task_usage": tokens(5).to_dict(),
    }
    assert second.extra["usage"] == tokens(10, cost=1.5).to_dict()
    assert second.extra["task_usage"]["total_tokens"] == 15
    assert second.extra["task_usage"]["calls"] == 2
    assert second.data["extra_data"] == second.extra
    assert MODEL in second.data["description"]
    await runtime.shutdown()


async def test_a_task_without_reports_has_zeros_and_no_events(store) -> None:
    runtime = runtime_of({"supervisor": supervisor(replies([DONE]), ())}, store=store)
    await runtime.submit_and_wait(user_message())
    task = await runtime.read_task("task-1")
    assert task.to_record()["usage"] == {"total": Usage.none().to_dict(), "agents": {}}
    assert "model_usage" not in [event.kind for event in task.events]
    row = await store.load_task(runtime._context.owner, "task-1")
    assert row.usage == "{}"
    await runtime.shutdown()


async def test_a_failed_turn_is_paid_for_all_the_same(store) -> None:
    async def broken(messages, choice):
        raise ModelError("the provider is out of credit")

    runtime = runtime_of(
        {"supervisor": supervisor(metered(broken, tokens(7), tokens(8)), ())}, store=store
    )
    await runtime.submit_and_wait(user_message())
    assert await kinds_of(runtime) == [
        "new_message",
        "model_usage",
        "model_usage",
        "agent_error",
        "task_error",
    ]
    assert (await check_books(runtime)).total_tokens == 15
    await runtime.shutdown()


async def test_an_interrupted_call_counts_if_it_was_reported(store) -> None:
    asked = asyncio.Event()

    async def lead(messages, choice):
        current_call().report(MODEL, tokens(40))
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return None, tool_calls(DONE)

    runtime = runtime_of({"supervisor": supervisor(lead, ())}, store=store)
    run = await runtime.open_run(RunRequest(message=user_message()))
    await asked.wait()
    await runtime.submit_and_wait(user_message("stop", kind="interrupt"))
    await run.result(5)
    kinds = await kinds_of(runtime)
    assert kinds[kinds.index("turn_interrupted") - 1] == "model_usage"
    total = await check_books(runtime)
    assert (total.calls, total.total_tokens) == (3, 120)
    await runtime.shutdown()


@pytest.mark.parametrize("how", ["completed", "cancelled"])
async def test_a_call_that_is_cut_off_by_the_end_of_its_task_counts(store, how) -> None:
    working = asyncio.Event()

    async def work(messages, choice):
        current_call().report(MODEL, tokens(40))
        working.set()
        await asyncio.Event().wait()

    async def lead(messages, choice):
        if "Question" in last_body(messages):
            return None, tool_calls(*ask("worker"), ("help", {}), prefix="a")
        await working.wait()
        if how == "cancelled":
            await asyncio.Event().wait()
        return None, tool_calls(DONE, prefix="b")

    runtime = runtime_of({"supervisor": supervisor(lead), "worker": worker(work)}, store=store)
    run = await runtime.open_run(RunRequest(message=user_message()))
    await working.wait()
    if how == "cancelled":
        await runtime.cancel_task("task-1")
    result = await run.result(5)
    assert result.status.value == how
    kinds = await kinds_of(runtime)
    assert kinds[-1] in ("task_complete", "task_error")
    assert "model_usage" in kinds
    assert (await check_books(runtime)).total_tokens == 40
    await runtime.shutdown()


async def test_a_turn_that_is_put_off_keeps_what_it_has_used(store) -> None:
    async def busy(messages, choice):
        raise ModelError("busy", status=429, retry_after=60)

    runtime = runtime_of({"supervisor": supervisor(metered(busy, tokens(9)), ())}, store=store)
    run = await runtime.open_run(RunRequest(message=user_message(), streamed=True))
    async for event in run.events():
        if event.kind == "model_usage":
            break
    task = await runtime.read_task("task-1")
    assert task.status is TaskState.RUNNING
    assert (await check_books(runtime)).total_tokens == 9
    await runtime.cancel_task("task-1")
    assert (await check_books(runtime)).total_tokens == 9
    await runtime.shutdown()


async def test_a_shutdown_in_the_middle_of_a_turn_loses_nothing(store) -> None:
    asked = asyncio.Event()

    async def slow(messages, choice):
        asked.set()
        await asyncio.Event().wait()

    first = runtime_of({"supervisor": supervisor(metered(slow, tokens(9)), ())}, store=store)
    await first.open_run(RunRequest(message=user_message()))
    await asked.wait()
    await first.shutdown(grace=0)
    second = runtime_of(
        {"supervisor": supervisor(metered(replies([DONE]), tokens(9)), ())}, store=store
    )
    await second.start()
    assert [event async for event in second.replay("task-1")][-1].kind == "task_complete"
    total = await check_books(second)
    assert (total.calls, total.total_tokens) == (2, 18)
    await second.shutdown()


async def test_a_shutdown_in_the_middle_of_an_action_doubles_nothing(store) -> None:
    acting = asyncio.Event()

    async def slow(args):
        acting.set()
        if first.shutdown_event.is_set():
            return "slow result"
        return await asyncio.Event().wait()

    def process():
        core = supervisor(metered(agent_from(lead), tokens(9)), ())
        core.actions = {"slow": ActionCore(function=slow, name="slow", idempotent=True)}
        return runtime_of({"supervisor": core}, store=store)

    def lead(messages, choice):
        return [("slow", {})] if len(messages) == 1 else [DONE]

    first = process()
    await first.open_run(RunRequest(message=user_message()))
    await acting.wait()
    await first.shutdown(grace=0)
    second = process()
    await second.start()
    assert [event async for event in second.replay("task-1")][-1].kind == "task_complete"
    assert (await check_books(second)).calls == 2
    await second.shutdown()


async def test_a_call_that_others_committed_before_a_crash_was_made_and_counts(store) -> None:
    """The account is the task's: another agent's commit takes an unfinished turn's calls along."""
    hanging, told = asyncio.Event(), asyncio.Event()

    async def slow(messages, choice):
        current_call().report(MODEL, tokens(50))
        hanging.set()
        if not told.is_set():
            await asyncio.Event().wait()
        return None, tool_calls(ANSWER, prefix="s")

    async def quick(messages, choice):
        await hanging.wait()
        return None, tool_calls(("ignore_broadcast", {}), prefix="q")

    async def lead(messages, choice):
        if "Question" in last_body(messages):
            return None, tool_calls(*ask("slow", "quick"), prefix="l")
        return None, tool_calls(DONE, prefix="m")

    def process():
        agents = {"supervisor": supervisor(lead, ("slow", "quick"))}
        agents |= {"slow": worker(slow), "quick": worker(quick)}
        return runtime_of(agents, store=store)

    first = process()
    run = await first.open_run(RunRequest(message=user_message(), streamed=True))
    async for event in run.events():
        if event.kind == "tool_call" and event.extra["caller"] == "quick":
            break
    first._scheduler.driving = False
    for turn in list(first._scheduler.active):  # as if the process had ended here
        turn.cancel()
    told.set()
    second = process()
    await second.start()
    assert [event async for event in second.replay("task-1")][-1].kind == "task_complete"
    task = await second.read_task("task-1")
    assert task.usage["slow"].calls == 2
    await second.shutdown()


async def test_a_report_may_come_from_another_thread(store) -> None:
    async def threaded(messages, choice):
        for _ in range(20):
            await asyncio.to_thread(current_call().report, MODEL, tokens(1))
        return None, tool_calls(DONE)

    runtime = runtime_of({"supervisor": supervisor(threaded, ())}, store=store)
    await runtime.submit_and_wait(user_message())
    assert (await check_books(runtime)).total_tokens == 20
    await runtime.shutdown()


async def test_whoever_asks_late_or_elsewhere_gets_the_same_context_of_the_call(store) -> None:
    seen: list[CallContext] = []

    async def lead(messages, choice):
        await asyncio.sleep(0.02)
        seen.extend([current_call(), await asyncio.to_thread(current_call)])
        current_call().report(MODEL, tokens(10))
        return None, tool_calls(DONE)

    runtime = runtime_of({"supervisor": supervisor(lead, ())}, store=store)
    await runtime.submit_and_wait(user_message())
    assert seen[0] is seen[1]
    events = [event async for event in runtime.replay("task-1")]
    [used] = [event for event in events if event.kind == "model_usage"]
    assert used.extra["duration_ms"] > 19  # the model was called when the agent was
    await runtime.shutdown()


async def test_a_total_that_was_left_out_is_the_sum_of_its_parts() -> None:
    usage = Usage(prompt_tokens=30, completion_tokens=12)
    runtime = runtime_of({"supervisor": supervisor(metered(replies([DONE]), usage), ())})
    await runtime.submit_and_wait(user_message())
    assert (await check_books(runtime)).total_tokens == 42
    await runtime.shutdown()


async def test_the_account_goes_on_in_the_next_run_and_after_a_restart(store) -> None:
    def process():
        agent = agent_from(lambda messages, choice: [DONE], f"c{len(made)}")
        made.append(agent)
        return runtime_of({"supervisor": supervisor(metered(agent, tokens(10)), ())}, store=store)

    made: list[object] = []
    first = process()
    for expected in (10, 20):
        await first.submit_and_wait(user_message())
        assert (await check_books(first)).total_tokens == expected
    await first.shutdown()
    second = process()
    await second.submit_and_wait(user_message())
    assert (await check_books(second)).total_tokens == 30
    await check_history(store, second, ["supervisor"])
    await second.shutdown()


async def test_the_ratio_for_compression_reaches_the_agent_function() -> None:
    seen: list[CallContext] = []

    async def lead(messages, choice):
        seen.append(current_call())
        return None, tool_calls(DONE)

    settings = RuntimeSettings(dynamic_ctx_ratio=0.75)
    runtime = runtime_of({"supervisor": supervisor(lead, ())}, settings=settings)
    await runtime.submit_and_wait(user_message())
    assert seen[0].dynamic_ctx_ratio == 0.75
    assert RuntimeSettings().dynamic_ctx_ratio == 0.0
    await runtime.shutdown()


@pytest.mark.parametrize(
    "wrong",
    [
        {"task_token_limit": 0},
        {"task_token_limit": -5},
        {"task_cost_limit": 0.0},
        {"task_cost_limit": float("nan")},
        {"task_cost_limit": float("inf")},
        {"dynamic_ctx_ratio": -0.1},
        {"dynamic_ctx_ratio": 1.5},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong) -> None:
    [name] = wrong
    with pytest.raises(ConfigError, match=name):
        RuntimeSettings(**wrong)
