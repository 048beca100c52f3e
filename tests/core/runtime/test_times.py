"""When things happened: the times of events, their order, and how long replies and actions took."""

import asyncio
from random import Random

from mail.core.actions import ActionCore
from mail.core.call_context import current_call
from mail.core.events import TaskEvent
from mail.core.runtime import MAILRuntime, RunRequest
from mail.core.runtime.settings import RuntimeSettings
from mail.core.usage import Usage
from mail.db.commit import TurnCommit
from mail.db.store import Store
from mail.testing import FakeClock, KillingStore, KillPoint, tool_calls
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker
from tests.support.times import WanderingClock, check_times, moment

DONE = ("task_complete", {"finish_message": "done"})
ASK = ("send_request", {"target": "worker", "subject": "Job", "body": "do it"})
ANSWER = ("send_response", {"target": "supervisor", "subject": "Re: Job", "body": "did it"})
COUNT = ("count", {})
REAL = 0.02
"""Seconds that a model or an action really takes; the fake clock says more."""


class Slow:
    """Agents whose model takes 4 seconds and an action that takes 2, by a clock of the test's."""

    def __init__(self, clock: FakeClock, *turns: list) -> None:
        self.clock = clock
        self.turns = list(turns)

    async def lead(self, messages, choice):
        await asyncio.sleep(REAL)
        self.clock.advance(4)
        current_call().report("model", Usage(total_tokens=10))
        calls = self.turns.pop(0) if self.turns else [DONE]
        return None, tool_calls(*calls, prefix=f"call_{len(self.turns)}")

    async def work(self, messages, choice):
        self.clock.advance(1)
        return None, tool_calls(ANSWER, prefix="work")

    async def count(self, args):
        await asyncio.sleep(REAL)
        self.clock.advance(2)
        return "counted"

    def runtime(self, store: Store) -> MAILRuntime:
        action = {"count": ActionCore(function=self.count, name="count")}
        lead = supervisor(self.lead)
        lead.actions = action
        return runtime_of(
            {"supervisor": lead, "worker": worker(self.work)}, store=store, clock=self.clock
        )


async def events_of(runtime: MAILRuntime) -> list[TaskEvent]:
    task = await runtime.read_task("task-1")
    check_times(task.events)
    return task.events


def times(events: list[TaskEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.timestamp) for event in events]


async def test_events_bear_the_moment_of_what_they_tell(store) -> None:
    slow = Slow(FakeClock(), [COUNT, COUNT])
    runtime = slow.runtime(store)
    await runtime.submit_and_wait(user_message())
    assert times(await events_of(runtime)) == [
        ("new_message", moment(0)),
        ("model_usage", moment(4)),
        ("tool_call", moment(4)),
        ("tool_call", moment(4)),
        ("action_call", moment(4)),
        ("action_complete", moment(6)),
        ("action_call", moment(6)),
        ("action_complete", moment(8)),
        ("new_message", moment(8)),
        ("model_usage", moment(12)),
        ("tool_call", moment(12)),
        ("task_complete_call", moment(12)),
        ("new_message", moment(12)),
        ("task_complete", moment(12)),
    ]
    await runtime.shutdown()


async def test_replies_model_calls_and_actions_tell_how_long_they_took(store) -> None:
    slow = Slow(FakeClock(), [COUNT])
    runtime = slow.runtime(store)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await runtime.submit_and_wait(user_message())
    whole = (loop.time() - began) * 1e3
    measured = {
        event.kind: event.extra["duration_ms"]
        for event in await events_of(runtime)
        if "duration_ms" in event.extra
    }
    assert set(measured) == {"model_usage", "tool_call", "action_complete"}
    for duration in measured.values():
        assert REAL * 1e3 * 0.9 <= duration <= whole
    await runtime.shutdown()


async def test_a_failed_action_tells_how_long_it_took(store) -> None:
    slow = Slow(FakeClock(), [COUNT])

    async def fail(args):
        await asyncio.sleep(REAL)
        raise ValueError("no")

    slow.count = fail
    runtime = slow.runtime(store)
    await runtime.submit_and_wait(user_message())
    [error] = [event for event in await events_of(runtime) if event.kind == "action_error"]
    assert error.extra["duration_ms"] >= REAL * 1e3 * 0.9
    await runtime.shutdown()


async def test_a_message_is_sent_when_its_turn_ends(store) -> None:
    slow = Slow(FakeClock(), [ASK, COUNT])
    runtime = slow.runtime(store)
    await runtime.submit_and_wait(user_message())
    events = await events_of(runtime)
    [sent] = [
        event
        for event in events
        if event.kind == "new_message" and event.extra["full_message"]["message"]["body"] == "do it"
    ]
    assert sent.timestamp == moment(6)
    assert sent.extra["full_message"]["timestamp"] == moment(6)
    await runtime.shutdown()


async def test_a_callers_message_has_the_time_at_which_it_was_accepted(store) -> None:
    runtime = Slow(FakeClock()).runtime(store)
    message = user_message()
    message["timestamp"] = "2031-05-05T05:05:05Z"
    await runtime.submit_and_wait(message)
    first = (await events_of(runtime))[0]
    assert first.timestamp == moment(0)
    assert first.extra["full_message"]["timestamp"] == "2031-05-05T05:05:05Z"
    await runtime.shutdown()


async def test_times_do_not_decrease_when_the_clock_is_set_back(store) -> None:
    slow = Slow(FakeClock(), [COUNT], [ASK], [COUNT])
    back = {"count": -3600, "work": -60}

    async def count(args):
        slow.clock.advance(back["count"])
        return "counted"

    slow.count = count
    runtime = slow.runtime(store)
    await runtime.submit_and_wait(user_message())
    slow.clock.advance(hours=-5)
    await runtime.submit_and_wait(user_message("And again"))
    events = await events_of(runtime)
    assert len({event.timestamp for event in events}) > 1
    assert max(event.timestamp for event in events) == moment(4)
    await runtime.shutdown()


async def test_a_restart_with_a_clock_that_is_behind_goes_on_from_the_latest_event(store) -> None:
    first = Slow(FakeClock(), [ASK]).runtime(store)
    await first.submit_and_wait(user_message())
    before = await events_of(first)
    await first.shutdown()

    clock = FakeClock()
    clock.advance(hours=-2)
    second = Slow(clock, [ASK]).runtime(store)
    await second.submit_and_wait(user_message("And again"))
    after = await events_of(second)
    assert after[: len(before)] == before
    assert {event.timestamp for event in after[len(before) :]} == {before[-1].timestamp}
    await second.shutdown()


class Died(BaseException):
    """Stands for the end of the process."""


async def test_a_turn_that_goes_on_after_a_restart_keeps_the_times_it_had(store) -> None:
    """The process dies behind the action's start; the reply is taken from the journal."""

    def die() -> None:
        raise Died

    def starts_action(post: object) -> bool:
        return isinstance(post, TurnCommit) and not post.done

    slow = Slow(FakeClock(), [ASK, COUNT])
    first = slow.runtime(KillingStore(store, KillPoint("after", starts_action, die=die)))
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    run = await first.open_run(RunRequest(message=user_message()))
    while first._scheduler.active:
        await asyncio.sleep(0.001)
    run.leave()

    clock = FakeClock()
    clock.advance(-600)
    second = Slow(clock).runtime(store)
    await second.start()
    while not second.idle:
        await asyncio.sleep(0.001)
    events = await events_of(second)
    replies = [event for event in events if event.kind == "tool_call"]
    assert [event.extra["tool_name"] for event in replies[:2]] == ["send_request", "count"]
    assert {event.timestamp for event in replies[:2]} == {moment(4)}
    assert [event.extra["tool_name"] for event in replies].count("count") == 1
    [lost] = [event for event in events if event.kind == "action_error"]
    assert "duration_ms" not in lost.extra  # nobody saw how long it ran
    assert lost.timestamp >= moment(4)
    await second.shutdown()


async def test_times_agree_with_numbers_while_agents_work_at_the_same_time() -> None:
    dice = Random(7)
    left = [False] + [True] * 12

    async def lead(messages, choice):
        await asyncio.sleep(dice.choice((0, 0.001, 0.002)))
        if "Hello" in last_body(messages):
            broadcast = {"subject": "All", "body": "go", "targets": []}
            return None, tool_calls(("send_broadcast", broadcast), COUNT)
        if left.pop():
            return None, tool_calls(("await_message", {}))
        return None, tool_calls(DONE)

    async def work(messages, choice):
        await asyncio.sleep(dice.choice((0, 0.001, 0.002)))
        return None, tool_calls(ANSWER, COUNT)

    async def count(args):
        await asyncio.sleep(dice.choice((0, 0.001)))
        if dice.random() < 0.2:
            raise ValueError("lost count")
        return "counted"

    actions = {"count": ActionCore(function=count, name="count")}
    names = [f"w{number}" for number in range(8)]
    agents = {name: worker(work, actions=actions) for name in names}
    agents["supervisor"] = supervisor(lead, tuple(names))
    agents["supervisor"].actions = actions
    runtime = runtime_of(
        agents, clock=WanderingClock(dice), settings=RuntimeSettings(max_steps=100)
    )
    await runtime.submit_and_wait(user_message())
    events = await events_of(runtime)
    assert len(events) > 50
    assert {"action_complete", "action_error", "new_message"} <= {event.kind for event in events}
    await runtime.shutdown()
