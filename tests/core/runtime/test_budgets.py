"""A budget stops a task before the call that would exceed it, and leaves everything in order."""

import asyncio

import pytest

from mail.core.actions import ActionCore
from mail.core.call_context import current_call
from mail.core.runtime import RunRequest, RuntimeSettings
from mail.core.tasks import TaskState
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
HELP = [("help", {})]


def limited(tokens: int | None = None, **more) -> RuntimeSettings:
    return RuntimeSettings(task_token_limit=tokens, **more)


class Talker:
    """A supervisor that goes on asking for help; each of its calls uses the same."""

    def __init__(self, usage) -> None:
        self.usage, self.calls = usage, 0

    async def __call__(self, messages, choice):
        self.calls += 1
        current_call().report(MODEL, self.usage)
        return None, tool_calls(*HELP, prefix=f"t{self.calls}")


async def run_out(runtime, body="Hello", **request):
    run = await runtime.open_run(RunRequest(message=user_message(body), **request))
    result = await run.result(5)
    assert result.status is TaskState.FAILED and result.over_budget
    assert result.message["message"]["subject"] == "::task_error::"
    return result.reason


@pytest.mark.parametrize(
    ("limit", "prompt", "calls"),
    [(300, 0, 3), (301, 0, 4), (350, 60, 3), (350, 0, 4), (1, 0, 1), (360, 60, 3), (361, 60, 4)],
)
async def test_tokens_stop_a_task_before_the_call_that_would_exceed_them(
    store, limit, prompt, calls
) -> None:
    talker = Talker(tokens(100, prompt=prompt))
    runtime = runtime_of(
        {"supervisor": supervisor(talker, ())}, store=store, settings=limited(limit)
    )
    reason = await run_out(runtime)
    assert talker.calls == calls
    assert f"the task has used {calls * 100:,} tokens" in reason
    assert f"{limit:,} (task_token_limit)" in reason
    assert (await check_books(runtime)).calls == calls
    await check_history(store, runtime, ["supervisor"])
    kinds = await kinds_of(runtime)
    assert kinds[-1] == "task_error" and kinds.count("task_error") == 1
    assert runtime.idle
    await runtime.shutdown()


async def test_the_reason_has_numbers_that_people_can_read() -> None:
    talker = Talker(tokens(6_200, prompt=6_000))
    runtime = runtime_of({"supervisor": supervisor(talker, ())}, settings=limited(18_000))
    reason = await run_out(runtime)
    assert reason == (
        "the task has used 12,400 tokens, and the next call of agent 'supervisor' needs at least "
        "6,000 more; its budget is 18,000 (task_token_limit), so no further model calls are made "
        "for it. Raise the limit or start a new task."
    )
    assert (await runtime.read_task("task-1")).events[-1].data["response"] == reason
    await runtime.shutdown()


@pytest.mark.parametrize(("limit", "calls", "shown"), [(0.3, 3, "$0.30"), (0.35, 4, "$0.40")])
async def test_money_stops_a_task(store, limit, calls, shown) -> None:
    talker = Talker(tokens(100, cost=0.1))
    runtime = runtime_of(
        {"supervisor": supervisor(talker, ())},
        store=store,
        settings=RuntimeSettings(task_cost_limit=limit),
    )
    reason = await run_out(runtime)
    assert talker.calls == calls
    assert f"have cost {shown}" in reason and f"${limit:.2f} (task_cost_limit)" in reason
    await runtime.shutdown()


async def test_an_unknown_price_is_said_once_and_stops_nothing(caplog) -> None:
    lead = metered(replies(HELP, [DONE]), tokens(100))
    settings = RuntimeSettings(task_cost_limit=0.0001)
    runtime = runtime_of({"supervisor": supervisor(lead, ())}, settings=settings)
    answer = await runtime.submit_and_wait(user_message())
    assert answer["message"]["body"] == "done"
    warnings = [record for record in caplog.records if "price" in record.message]
    assert len(warnings) == 1 and MODEL in warnings[0].message
    await runtime.shutdown()


async def test_without_a_budget_nothing_stops() -> None:
    lead = metered(replies(HELP, [DONE]), tokens(10**12, cost=10.0**9))
    runtime = runtime_of({"supervisor": supervisor(lead, ())})
    assert (await runtime.submit_and_wait(user_message()))["message"]["body"] == "done"
    await runtime.shutdown()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("limit", "prompt"), [(250, 0), (350, 200)])
async def test_a_follow_up_on_an_exhausted_task_fails_without_a_call(
    store, restart, limit, prompt
) -> None:
    def process(settings):
        return runtime_of({"supervisor": supervisor(talker, ())}, store=store, settings=settings)

    talker = Talker(tokens(100, prompt=prompt))
    runtime = process(limited(limit))
    await run_out(runtime)
    calls, queue = talker.calls, (await runtime.read_task("task-1")).task_message_queue
    for _ in range(3):
        if restart:
            await runtime.shutdown()
            runtime = process(limited(limit))
        assert "task_token_limit" in await run_out(runtime, "still there?")
        task = await runtime.read_task("task-1")
        assert talker.calls == calls
        assert task.task_message_queue == queue  # the message was answered, not kept
        assert task.status is TaskState.FAILED
    assert (await kinds_of(runtime)).count("task_error") == 4
    await runtime.shutdown()


async def test_a_higher_budget_lets_the_task_go_on_with_what_waits(store) -> None:
    talker = Talker(tokens(100))
    runtime = runtime_of({"supervisor": supervisor(talker, ())}, store=store, settings=limited(150))
    await run_out(runtime)
    await runtime.shutdown()
    seen: list[str] = []

    def lead(messages, choice):
        seen.append(last_body(messages).split("<subject>")[1].split("<")[0])
        return [DONE] if len(seen) == 2 else [("await_message", {})]

    richer = runtime_of(
        {"supervisor": supervisor(agent_from(lead), ())}, store=store, settings=limited(1000)
    )
    answer = await richer.submit_and_wait(user_message("go on"))
    assert answer["message"]["body"] == "done"
    assert seen == ["::help::", "Question"]  # the system's letter waited first
    await check_history(store, richer, ["supervisor"])
    await richer.shutdown()


@pytest.mark.parametrize("at_once", [10, 64])
async def test_fifty_agents_exceed_a_budget_by_no_more_than_what_is_in_flight(
    store, at_once
) -> None:
    """A broadcast to 50 agents, who all want to go on; turns end in mixed order."""
    names = tuple(f"w{n}" for n in range(50))
    limit, cost = 2_000, 100
    used = in_flight = started = overdue = 0

    async def work(messages, choice):
        nonlocal used, in_flight, started, overdue
        overdue += used >= limit  # a call that begins when there is nothing left
        started += 1
        in_flight += 1
        for _ in range(started % 7):
            await asyncio.sleep(0)
        used += cost
        peaks.append((used, in_flight))
        current_call().report(MODEL, tokens(cost))
        in_flight -= 1
        return None, tool_calls(*HELP, prefix=f"w{started}-{len(messages)}")

    async def lead(messages, choice):
        broadcast = ("send_broadcast", {"subject": "All", "body": "to work"})
        return None, tool_calls(broadcast, prefix=f"l{len(messages)}")

    peaks: list[tuple[int, int]] = []
    agents = {"supervisor": supervisor(lead, names)} | {name: worker(work) for name in names}
    runtime = runtime_of(agents, store=store, settings=limited(limit, max_concurrent_turns=at_once))
    await run_out(runtime)
    reached, still_out = next((total, out) for total, out in peaks if total >= limit)
    total = await check_books(runtime)
    assert overdue == 0
    assert total.calls == started
    assert total.total_tokens == used <= reached + cost * (still_out - 1)
    assert used < limit + cost * at_once
    await check_history(store, runtime, names)
    assert (await kinds_of(runtime)).count("task_error") == 1
    assert runtime.idle
    await runtime.shutdown()


async def test_an_action_under_way_is_not_killed(store) -> None:
    acting, release = asyncio.Event(), asyncio.Event()

    async def slow(args):
        acting.set()
        await release.wait()
        return "slow result"

    async def lead(messages, choice):
        if "Question" in last_body(messages):
            return None, tool_calls(*ask("actor", "talker"), prefix="l")
        raise AssertionError("must not be called again")

    async def talk(messages, choice):
        await acting.wait()
        current_call().report(MODEL, tokens(500))
        return None, tool_calls(ANSWER, prefix="t")

    actor = worker(metered(replies([("slow", {})]), tokens(10)))
    actor.actions = {"slow": ActionCore(function=slow, name="slow")}
    agents = {"supervisor": supervisor(lead, ("actor", "talker"))}
    agents |= {"actor": actor, "talker": worker(talk)}
    runtime = runtime_of(agents, store=store, settings=limited(500))
    run = await runtime.open_run(RunRequest(message=user_message(), streamed=True))
    async for event in run.events():
        if event.kind == "model_usage" and event.extra["caller"] == "talker":
            other = await runtime.open_run(RunRequest(message=user_message("and this?")))
            release.set()
    assert (await run.result(5)).over_budget and (await other.result(5)).over_budget
    senders = [
        mail["message"]["sender"]["address_type"]
        for mail in (await runtime.read_task("task-1")).task_message_queue
    ]
    assert sorted(senders) == ["agent", "system"]  # the user's message was answered
    kinds = await kinds_of(runtime)
    assert kinds[-1] == "task_error"
    assert "action_complete" in kinds
    assert (await check_books(runtime)).total_tokens == 510
    await check_history(store, runtime, ["supervisor", "actor", "talker"])
    await runtime.shutdown()


def after_turn(runtime, agent: str, nth: int) -> asyncio.Event:
    """Return an event that is set when the n-th turn of an agent is over, refused or not."""
    over, left, run = asyncio.Event(), nth, runtime._scheduler.run_turn

    async def counted(turn):
        nonlocal left
        await run(turn)
        left -= turn.agent == agent
        if not left:
            over.set()

    runtime._scheduler.run_turn = counted
    return over


async def test_a_call_that_runs_may_still_finish_the_task(store) -> None:
    async def lead(messages, choice):
        if "Question" in last_body(messages):
            return None, tool_calls(*ask("worker"), *HELP, prefix="a")
        await refused.wait()
        return None, tool_calls(DONE, prefix="b")

    work = metered(replies(HELP), tokens(500))
    agents = {"supervisor": supervisor(lead), "worker": worker(work)}
    runtime = runtime_of(agents, store=store, settings=limited(100))
    refused = after_turn(runtime, "worker", 2)
    answer = await runtime.submit_and_wait(user_message(), timeout=30)
    assert answer["message"]["body"] == "done"
    assert (await runtime.read_task("task-1")).status is TaskState.COMPLETED
    assert (await check_books(runtime)).calls == 1
    assert runtime.idle
    await runtime.shutdown()


async def test_a_pause_comes_before_the_end_and_its_results_are_kept(store) -> None:
    """The call that exceeded the budget paused the task: nothing is to begin, nothing fails yet."""

    def paused(name: str):
        core = worker(metered(replies([("review", {"by": name})]), tokens(300)))
        core.actions = {"review": ActionCore(function=None, name="review")}
        return core

    lead = agent_from(lambda messages, choice: ask("one", "two"))
    agents = {"supervisor": supervisor(lead, ("one", "two"))}
    agents |= {name: paused(name) for name in ("one", "two")}
    runtime = runtime_of(agents, store=store, settings=limited(500), breakpoint_tools=["review"])
    run = await runtime.open_run(RunRequest(message=user_message()))
    result = await run.result(5)
    assert result.status is TaskState.PAUSED and len(result.breakpoints) == 2
    answer = {"call_id": result.breakpoints[0]["call_id"], "content": "fine"}
    reason = await run_out(
        runtime, resume_from="breakpoint_tool_call", breakpoint_tool_call_result=answer
    )
    assert "600 tokens" in reason
    task = await runtime.read_task("task-1")
    assert task.breakpoints == [] and task.total_usage.calls == 2
    await check_history(store, runtime, ["supervisor", "one", "two"])
    await runtime.shutdown()


class Finisher:
    """A supervisor that sends one job, and would finish if it were made to."""

    def __init__(self, then) -> None:
        self.choices, self.then = [], then

    async def __call__(self, messages, choice):
        self.choices.append(choice)
        current_call().report(MODEL, tokens(100))
        calls = ask("worker") if "Question" in last_body(messages) else self.then
        calls = [DONE] if choice != "required" else calls
        return None, tool_calls(*calls, prefix=f"f{len(self.choices)}")


@pytest.mark.parametrize("why", ["limit", "stall"])
async def test_the_request_to_finish_obeys_the_budget_and_does_not_stay_behind(store, why) -> None:
    def process(settings):
        idle = replies([("ignore_broadcast", {})])
        agents = {"supervisor": supervisor(finisher), "worker": worker(idle)}
        return runtime_of(agents, store=store, settings=settings)

    finisher = Finisher(HELP)
    steps = 1 if why == "limit" else None
    runtime = process(limited(100, max_steps=steps))
    await run_out(runtime)
    assert finisher.choices == ["required"]
    await runtime.shutdown()
    finisher.then = [DONE]
    richer = process(limited(1000))
    controls = [row.control for row in await store.waiting_mail(richer._context.owner, "task-1")]
    assert not any("finish" in (control or "") for control in controls)
    answer = await richer.submit_and_wait(user_message("go on"))
    assert answer["message"]["body"] == "done"
    await richer.shutdown()


@pytest.mark.parametrize("at_once", [1, 64])
async def test_every_caller_of_an_exhausted_task_is_told(store, at_once) -> None:
    """Users' messages to two agents wait while the call that uses up the budget runs."""
    thinking, go = asyncio.Event(), asyncio.Event()

    async def lead(messages, choice):
        current_call().report(MODEL, tokens(100))
        thinking.set()
        await go.wait()
        return None, tool_calls(*ask("worker"), *HELP, prefix=f"l{len(messages)}")

    agents = {"supervisor": supervisor(lead), "worker": worker(replies(HELP))}
    settings = limited(100, max_concurrent_turns=at_once)
    runtime = runtime_of(agents, store=store, settings=settings)
    runs = [await runtime.open_run(RunRequest(message=user_message("first")))]
    await thinking.wait()
    for name in ("supervisor", "worker", "supervisor"):
        message = user_message(f"more for {name}", to=name)
        runs.append(await runtime.open_run(RunRequest(message=message)))
    go.set()
    results = [await run.result(5) for run in runs]
    assert all(result.over_budget for result in results)
    assert (await check_books(runtime)).calls == 1
    assert (await runtime.read_task("task-1")).status is TaskState.FAILED
    assert runtime.idle
    for _ in range(4):  # what still waits does not keep anybody from an answer
        await run_out(runtime, "and now?")
    await runtime.shutdown()


async def test_after_a_crash_a_reply_in_the_journal_is_carried_out_and_nothing_more(store) -> None:
    acting, ran = asyncio.Event(), 0

    async def count(args):
        nonlocal ran
        ran += 1
        acting.set()
        if ran == 1:
            await asyncio.Event().wait()
        return "counted"

    def process():
        core = supervisor(metered(replies([("count", {})], HELP), tokens(100)), ())
        core.actions = {"count": ActionCore(function=count, name="count", idempotent=True)}
        return runtime_of({"supervisor": core}, store=store, settings=limited(100))

    first = process()
    await first.open_run(RunRequest(message=user_message()))
    await acting.wait()
    first._scheduler.driving = False
    for turn in list(first._scheduler.active):  # as if the process had ended here
        turn.cancel()
    second = process()
    await second.start()
    events = [event async for event in second.replay("task-1")]
    assert events[-1].kind == "task_error"
    assert "task_token_limit" in events[-1].data["response"]
    assert ran == 2
    assert "action_complete" in [event.kind for event in events]
    assert (await check_books(second)).calls == 1
    await check_history(store, second, ["supervisor"])
    await second.shutdown()


async def test_when_one_agent_has_no_room_left_no_other_begins(store) -> None:
    """The prompt of one agent would exceed the budget; the other's turn was claimed with it."""
    letters = small_calls = 0

    async def lead(messages, choice):
        nonlocal letters
        letters += 1
        if letters % 2:  # the question, and every second answer
            return None, tool_calls(*ask("big", "small"), prefix=f"l{letters}")
        return None, tool_calls(("await_message", {}), prefix=f"l{letters}")

    async def small(messages, choice):
        nonlocal small_calls
        small_calls += 1
        return None, tool_calls(ANSWER, prefix=f"s{small_calls}")

    big = agent_from(lambda messages, choice: [ANSWER], "b")
    agents = {"supervisor": supervisor(lead, ("big", "small"))}
    agents |= {
        "big": worker(metered(big, tokens(500, prompt=500))),
        "small": worker(small),
    }
    runtime = runtime_of(agents, store=store, settings=limited(1000))
    assert "agent 'big'" in await run_out(runtime)
    assert (letters, small_calls) == (3, 1)
    await runtime.shutdown()


async def test_a_task_that_is_cancelled_and_reopened_is_looked_at_anew(store) -> None:
    acting, release = asyncio.Event(), asyncio.Event()

    async def slow(args):
        acting.set()
        await release.wait()
        return "slow result"

    async def lead(messages, choice):
        if "Hello" in last_body(messages):
            return None, tool_calls(*ask("actor", "talker"), prefix="l")
        return None, tool_calls(DONE, prefix="d")

    async def talk(messages, choice):
        await acting.wait()
        current_call().report(MODEL, tokens(500, prompt=500))
        return None, tool_calls(*HELP, prefix="t")

    actor = worker(replies([("slow", {})]))
    actor.actions = {"slow": ActionCore(function=slow, name="slow")}
    agents = {"supervisor": supervisor(lead, ("actor", "talker"))}
    agents |= {"actor": actor, "talker": worker(talk)}
    runtime = runtime_of(agents, store=store, settings=limited(1000))
    refused = after_turn(runtime, "talker", 2)
    first = await runtime.open_run(RunRequest(message=user_message()))
    await refused.wait()
    await runtime.cancel_task("task-1")
    assert (await first.result(5)).status is TaskState.CANCELLED
    answer = await runtime.submit_and_wait(user_message("a smaller thing"), timeout=30)
    assert answer["message"]["body"] == "done"
    release.set()
    await runtime.shutdown()


async def test_other_tasks_have_budgets_of_their_own(store) -> None:
    def lead(messages, choice):
        return HELP if "long" in last_body(messages) else [DONE]

    runtime = runtime_of(
        {"supervisor": supervisor(metered(agent_from(lead), tokens(100)), ())},
        store=store,
        settings=limited(150),
    )
    for number in range(3):
        answer = await runtime.submit_and_wait(user_message("short", f"short-{number}"))
        assert answer["message"]["body"] == "done"
    await runtime.shutdown()
