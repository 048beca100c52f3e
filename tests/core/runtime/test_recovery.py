"""A process dies anywhere; the next one finishes the task with the same answer.

A "process" is a runtime whose store raises at a chosen commit and never works again: nothing after
that point is kept, as if the process had ended there. Subprocess kills are in tests/e2e.
"""

import asyncio
from random import Random

import pytest

from mail.core.actions import ActionCore
from mail.core.call_context import current_call
from mail.core.runtime import RunRequest, RuntimeSettings
from mail.core.tasks import TaskState
from mail.core.usage import Usage
from mail.db.records import Owner
from mail.testing import KillingStore, KillPoint, agent_from, tool_calls
from tests.support.swarm import SWARM, last_body, runtime_of, supervisor, user_message, worker
from tests.support.times import WanderingClock, check_times


class Died(BaseException):
    """Stands for the end of the process."""


class World:
    """What outlives a process: how often the model was asked and the action ran."""

    def __init__(self, idempotent: bool) -> None:
        self.model: list[str] = []
        self.actions = 0
        self.idempotent = idempotent

    def ask_model(self, about: str) -> None:
        self.model.append(about)
        current_call().report("m", Usage(total_tokens=10))

    async def count(self, args):
        # Also when the reply that calls it comes from the journal.
        assert (current_call().owner or ())[1:] == ("user", "alice")
        self.actions += 1
        return "counted"

    def runtime(self, store):
        def lead(messages, choice):
            text = last_body(messages)
            self.ask_model("lead: " + text.split("<subject>")[1].split("<")[0])
            if "Report" in text:
                answer = text.split("<body>")[1].split("<")[0]
                return [("task_complete", {"finish_message": answer})]
            return [("send_request", {"target": "worker", "subject": "Job", "body": "count"})]

        def work(messages, choice):
            text = last_body(messages)
            self.ask_model("work: " + text.split("<subject>")[1].split("<")[0])
            results = [m["content"] for m in messages if m.get("role") == "tool"]
            if results:
                reply = {"target": "supervisor", "subject": "Report", "body": results[-1]}
                return [("send_response", reply)]
            return [("count", {})]

        action = ActionCore(function=self.count, name="count", idempotent=self.idempotent)
        return runtime_of(
            {
                "supervisor": supervisor(agent_from(lead, "lead")),
                "worker": worker(agent_from(work, "work"), actions={"count": action}),
            },
            store=store,
            clock=WanderingClock(Random(len(self.model))),
            settings=RuntimeSettings(max_steps=4),  # none is left for counting a message twice
        )


def dead(point: KillPoint) -> None:
    point._matches = lambda post: (_ for _ in ()).throw(Died())
    raise Died


async def live_and_die(world: World, store, when: str, nth: int) -> bool:
    """Run a task in a process that dies at its n-th commit; tell whether it got that far."""
    died = asyncio.Event()

    def die() -> None:
        died.set()
        dead(point)

    point = KillPoint(when, lambda post: True, nth, die=die)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    runtime = world.runtime(KillingStore(store, point))

    async def live() -> None:
        run = await runtime.open_run(RunRequest(message=user_message()))
        await run.result(60)

    living, death = asyncio.create_task(live()), asyncio.create_task(died.wait())
    await asyncio.wait((living, death), return_when=asyncio.FIRST_COMPLETED)
    if not died.is_set():
        await living
        await runtime.shutdown()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.01)
    return died.is_set()


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 9))
async def test_dying_at_any_commit_loses_and_doubles_nothing(store, when, nth, idempotent) -> None:
    world = World(idempotent)
    died = await live_and_die(world, store, when, nth)
    second = world.runtime(store)
    await second.start()
    if await second.read_task("task-1") is None:
        assert (when, nth) == ("before", 1)
        await second.submit_and_wait(user_message())
    events = [event async for event in second.replay("task-1")]
    task = await second.read_task("task-1")
    assert task is not None and task.status is TaskState.COMPLETED
    assert events[-1].kind == "task_complete"
    unknown = "the server stopped while this action was running" in events[-1].data["response"]
    if unknown:
        assert not idempotent
    else:
        assert events[-1].data["response"] == "SUCCESS: counted"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    check_times(events)
    asked = world.model
    repeated = len(asked) - len(set(asked))
    assert repeated <= 1, asked
    assert world.actions <= (2 if idempotent else 1)
    done = [event.extra["tool_call_id"] for event in events if event.kind == "action_complete"]
    assert len(done) == len(set(done))
    messages = [m["id"] for m in task.get_messages()]
    assert len(messages) == len(set(messages))
    assert task.task_message_queue == []
    # A call whose reply was lost is made again; what was lost with the process is not counted.
    assert task.total_usage == Usage(calls=len(set(asked)), total_tokens=10 * len(set(asked)))
    assert [event.kind for event in events].count("model_usage") == len(set(asked))
    for agent in ("supervisor", "worker"):
        history = [
            entry
            for row in await store.history(second._context.owner, "task-1", agent)
            for entry in __import__("json").loads(row)
        ]
        calls = [c["id"] for e in history for c in e.get("tool_calls", ())]
        results = [e["tool_call_id"] for e in history if e.get("role") == "tool"]
        assert calls == results
    assert died or nth > 6
    await second.shutdown()


class Noting(World):
    """An action that writes down how far it is; what it does follows from the second note."""

    def __init__(self) -> None:
        super().__init__(idempotent=True)
        self.noted: list[str] = []

    async def count(self, args):
        call = current_call()
        self.noted.append(call.noted)
        if not call.noted:
            await call.note("near")
            await call.note("done")
            self.actions += 1
        return "counted"


@pytest.mark.parametrize(("nth", "when", "found"), [(1, "after", "near"), (2, "after", "done")])
async def test_an_action_reads_after_a_crash_what_it_has_noted(store, nth, when, found) -> None:
    world = Noting()

    def is_note(post):
        return any('"note"' in row.payload for row in getattr(post, "journal", ()))

    point = KillPoint(when, is_note, nth, die=lambda: dead(point))
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    runtime = world.runtime(KillingStore(store, point))
    await runtime.start()
    await runtime.submit(user_message())
    async with asyncio.timeout(10):
        while point._matches is is_note:
            await asyncio.sleep(0.01)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.01)
    second = world.runtime(store)
    await second.start()
    [*_, last] = [event async for event in second.replay("task-1")]
    assert last.data["response"] == "SUCCESS: counted"
    assert world.noted == ["", found] and world.actions == 0
    await second.shutdown()


async def test_mail_that_kills_the_process_again_and_again_is_put_aside(store) -> None:
    settings, asked = RuntimeSettings(max_attempts=3), asyncio.Event()

    async def deadly(messages, choice):
        asked.set()
        raise Died

    for _ in range(4):
        asked.clear()
        runtime = runtime_of({"supervisor": supervisor(deadly, ())}, store=store, settings=settings)
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await runtime.start()
        if await runtime.read_task("task-1") is None:
            await runtime.submit(user_message())
        async with asyncio.timeout(10):
            while not asked.is_set() and not (await runtime.read_task("task-1")).completed:
                await asyncio.sleep(0.005)
    survivor = runtime_of({"supervisor": supervisor(deadly, ())}, store=store, settings=settings)
    await survivor.start()
    events = [event async for event in survivor.replay("task-1")]
    assert events[-1].kind == "task_error"
    assert "crashed 3 times" in events[-1].data["response"]
    await survivor.shutdown()


async def test_neighbours_of_what_kills_the_process_are_not_put_aside(store) -> None:
    """They are in work at each of its crashes, until it is in work alone."""
    died, tasks = asyncio.Event(), ["poison", *(f"task-{number}" for number in range(6))]

    async def work(messages, choice):
        if "poison" in last_body(messages):
            died.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0.05)
        return None, tool_calls(("task_complete", {"finish_message": "done"}))

    async def states(runtime) -> list[TaskState]:
        return [(await runtime.read_task(task_id)).status for task_id in tasks]

    deaths = 0
    while True:
        died.clear()
        runtime = runtime_of({"supervisor": supervisor(work, ())}, store=store)
        await runtime.start()
        if await runtime.read_task("poison") is None:
            for task_id in tasks:
                await runtime.submit(user_message(f"{task_id}", task_id=task_id))
        async with asyncio.timeout(10):
            while not died.is_set() and TaskState.RUNNING in await states(runtime):
                await asyncio.sleep(0.005)
        if not died.is_set():
            break
        deaths += 1
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # and nothing of it is stored any more
        await asyncio.sleep(0.01)
    assert await states(runtime) == [TaskState.FAILED, *[TaskState.COMPLETED] * 6]
    assert deaths == 6
    [aside] = await store.mail_aside(Owner(SWARM, "user", "alice"), "poison")
    assert "crashed 5 times" in aside.reason
    await runtime.shutdown()


async def test_attempts_count_process_deaths_and_nothing_else(store) -> None:
    settings = RuntimeSettings(max_attempts=1)
    started = asyncio.Event()

    async def endless(messages, choice):
        started.set()
        await asyncio.sleep(3600)

    for _ in range(4):  # orderly restarts in the middle of a model call
        started.clear()
        runtime = runtime_of(
            {"supervisor": supervisor(endless, ())}, store=store, settings=settings
        )
        await runtime.start()
        if await runtime.read_task("task-1") is None:
            await runtime.submit(user_message())
        await started.wait()
        await runtime.shutdown(grace=0)
    [mail] = await store.waiting_mail(runtime._context.owner, "task-1")
    assert mail.attempts == 0


async def vanish(runtime) -> None:
    """End a process's work where it stands: nothing more is begun or committed."""
    runtime._scheduler.driving = False
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.01)


async def test_a_turn_that_was_begun_goes_on_before_mail_that_came_later(store) -> None:
    """Higher mail must not hide the journal of the turn that was under way."""
    running, runs = asyncio.Event(), 0
    seen: list[str] = []

    def lead(messages, choice):
        text = last_body(messages)
        seen.append(text.split("<subject>")[1].split("<")[0])
        if "Report" in text:
            return [("count", {})]
        if "second" in text:
            return [("task_complete", {"finish_message": "both seen"})]
        if "Question" in text:
            return [("send_request", {"target": "worker", "subject": "Job", "body": "work"})]
        return [("await_message", {})]

    def work(messages, choice):
        return [("send_response", {"target": "supervisor", "subject": "Report", "body": "done"})]

    async def count(args):
        nonlocal runs
        runs += 1
        running.set()
        await asyncio.sleep(3600)

    def process():
        core = supervisor(agent_from(lead))
        core.actions = {"count": ActionCore(function=count, name="count")}
        return runtime_of({"supervisor": core, "worker": worker(agent_from(work))}, store=store)

    first = process()
    await first.open_run(RunRequest(message=user_message()))
    await running.wait()
    await first.open_run(RunRequest(message=user_message("the second message")))
    await vanish(first)
    second = process()
    await second.start()
    events = [event async for event in second.replay("task-1")]
    assert runs == 1
    assert events[-1].data["response"] == "both seen"
    assert seen == ["Question", "Report", "::action_outcome_unknown::", "Question"]
    await second.shutdown()


async def test_every_users_message_is_answered_after_a_restart(store) -> None:
    thinking = asyncio.Event()

    async def lead(messages, choice):
        body = last_body(messages).split("<body>")[1].split("<")[0]
        if not thinking.is_set():
            thinking.set()
            await asyncio.sleep(3600)
        finish = [("task_complete", {"finish_message": f"answer to {body}"})]
        return await agent_from(lambda messages, choice: finish, body)(messages, choice)

    first = runtime_of({"supervisor": supervisor(lead, ())}, store=store)
    await first.open_run(RunRequest(message=user_message("one")))
    await thinking.wait()
    await first.open_run(RunRequest(message=user_message("two")))
    await vanish(first)
    second = runtime_of({"supervisor": supervisor(lead, ())}, store=store)
    await second.start()
    events = [event async for event in second.replay("task-1")]
    answers = [event.data["response"] for event in events if event.kind == "task_complete"]
    assert answers == ["answer to one", "answer to two"]
    task = await second.read_task("task-1")
    assert task is not None and task.task_message_queue == []
    await second.shutdown()


async def test_a_restart_at_the_step_limit_waits_for_the_finisher(store) -> None:
    thinking, release = asyncio.Event(), asyncio.Event()

    async def lead(messages, choice):
        if choice != "required":
            thinking.set()
            await release.wait()
            return await agent_from(
                lambda messages, choice: [("task_complete", {"finish_message": "finished"})], "end"
            )(messages, choice)
        jobs = [
            ("send_request", {"target": name, "subject": "Job", "body": "work"})
            for name in ("worker", "other")
        ]
        return await agent_from(lambda messages, choice: jobs, "lead")(messages, choice)

    def process():
        idle = agent_from(lambda messages, choice: [("await_message", {})])
        agents = {"supervisor": supervisor(lead, ("worker", "other"))}
        agents |= {name: worker(idle) for name in ("worker", "other")}
        settings = RuntimeSettings(max_steps=2, max_concurrent_turns=2)
        return runtime_of(agents, store=store, settings=settings)

    first = process()
    await first.open_run(RunRequest(message=user_message()))
    await thinking.wait()
    await vanish(first)
    thinking.clear()
    second = process()
    turns: list[str] = []
    run = second._scheduler.run_turn

    async def counted(turn):
        turns.append(turn.agent)
        await run(turn)

    second._scheduler.run_turn = counted
    await second.start()
    await thinking.wait()
    await asyncio.sleep(0.02)
    assert turns == ["supervisor"]
    release.set()
    events = [event async for event in second.replay("task-1")]
    assert events[-1].data["response"] == "finished"
    await second.shutdown()
