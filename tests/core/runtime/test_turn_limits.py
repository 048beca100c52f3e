"""How many turns are at work at the same time: all of them, or as many as a limit allows."""

import asyncio
from collections import Counter

import pytest

from mail.core.runtime import MAILRuntime, RunRequest
from mail.core.runtime.settings import RuntimeSettings, TurnLimit
from mail.testing import tool_calls
from tests.support.swarm import last_body, runtime_of, supervisor, user_message

DONE = ("task_complete", {"finish_message": "done"})


class Office:
    """Agents that work until they are let go, and count who is at work."""

    def __init__(self) -> None:
        self.at_work: Counter[str] = Counter()
        self.most = 0
        self.begun: list[str] = []
        self.gate = asyncio.Semaphore(0)
        self.changed = asyncio.Condition()

    def runtime(self, name: str, **settings: object) -> MAILRuntime:
        async def work(messages, choice):
            self.at_work[name] += 1
            self.begun.append(name)
            self.most = max(self.most, self.at_work.total())
            async with self.changed:
                self.changed.notify_all()
            try:
                await self.gate.acquire()
            finally:
                self.at_work[name] -= 1
            return None, tool_calls(DONE)

        agents = {"supervisor": supervisor(work, ())}
        return runtime_of(agents, settings=RuntimeSettings(**settings))

    async def until_at_work(self, count: int) -> None:
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(lambda: self.at_work.total() >= count)

    def let_go(self, count: int) -> None:
        for _ in range(count):
            self.gate.release()


async def give(runtime: MAILRuntime, tasks: int) -> list[asyncio.Task]:
    runs = [
        await runtime.open_run(RunRequest(message=user_message(task_id=f"task-{number}")))
        for number in range(tasks)
    ]
    return [asyncio.create_task(run.result(10)) for run in runs]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_library_runs_every_turn_that_there_is() -> None:
    office = Office()
    runtime = office.runtime("only")
    waiting = await give(runtime, 200)
    await office.until_at_work(200)
    office.let_go(200)
    await asyncio.gather(*waiting)
    await runtime.shutdown()


async def test_turns_begin_while_other_callers_of_a_crowd_are_still_let_in() -> None:
    accepted: list[int] = []

    async def work(messages, choice):
        accepted.append(len(runtime._context.active_tasks.rows()))
        return None, tool_calls(DONE)

    runtime = runtime_of({"supervisor": supervisor(work, ())})
    await runtime.start()
    callers = [runtime.submit_and_wait(user_message(task_id=f"task-{n}")) for n in range(100)]
    answers = await asyncio.gather(*callers)
    assert {answer["message"]["body"] for answer in answers} == {"done"}
    assert accepted[0] < 20
    await runtime.shutdown()


async def test_who_leaves_before_being_let_in_holds_nobody_up() -> None:
    runtime = Office().runtime("only")
    await runtime.start()
    messages = [user_message(task_id=f"task-{n}") for n in range(60)]
    callers = [asyncio.create_task(runtime.submit(message)) for message in messages]
    await asyncio.sleep(0)
    for caller in callers[20:40]:
        caller.cancel()
    done = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(result) for result in done[20:40]] == [asyncio.CancelledError] * 20
    assert done[:20] == [None] * 20 and done[40:] == [None] * 20
    assert {row.task_id for row in runtime._context.active_tasks.rows()} == {
        f"task-{n}" for n in (*range(20), *range(40, 60))
    }
    await runtime.shutdown(grace=0)


async def test_a_limit_of_its_own_holds() -> None:
    office = Office()
    runtime = office.runtime("only", max_concurrent_turns=3)
    waiting = await give(runtime, 10)
    await office.until_at_work(3)
    await settle()
    office.let_go(10)
    await asyncio.gather(*waiting)
    assert office.most == 3
    await runtime.shutdown()


async def test_runtimes_share_a_limit_and_the_one_with_fewer_turns_goes_first() -> None:
    office, limit = Office(), TurnLimit(6)
    busy, late = (office.runtime(name, turn_limit=limit) for name in ("busy", "late"))
    waiting = await give(busy, 50)
    await office.until_at_work(6)
    waiting += await give(late, 10)
    await settle()
    assert office.at_work == {"busy": 6}
    office.begun.clear()
    for place in range(3):
        office.let_go(1)
        await settle()
        assert office.begun == ["late"] * (place + 1)
    assert office.at_work == {"busy": 3, "late": 3}
    office.let_go(100)
    await asyncio.gather(*waiting)
    assert office.most == 6
    await busy.shutdown()
    await late.shutdown()


async def test_a_runtime_below_its_own_limit_leaves_the_rest_to_others() -> None:
    office, limit = Office(), TurnLimit(6)
    small = office.runtime("small", turn_limit=limit, max_concurrent_turns=1)
    big = office.runtime("big", turn_limit=limit)
    waiting = await give(small, 5) + await give(big, 20)
    await office.until_at_work(6)
    assert office.at_work == {"small": 1, "big": 5}
    office.let_go(25)
    await asyncio.gather(*waiting)
    await small.shutdown()
    await big.shutdown()


async def test_an_interrupted_turn_gives_its_place_back_at_once() -> None:
    """Its function does not listen to the cancellation, and works on for nobody."""
    limit, deaf, stubborn = TurnLimit(1), asyncio.Event(), asyncio.Event()

    async def work(messages, choice):
        if "Stop" not in last_body(messages):
            deaf.set()
            while not stubborn.is_set():
                try:
                    await stubborn.wait()
                except asyncio.CancelledError:
                    continue
        return None, tool_calls(DONE)

    settings = RuntimeSettings(turn_limit=limit)
    runtime = runtime_of({"supervisor": supervisor(work, ())}, settings=settings)
    first = await runtime.open_run(RunRequest(message=user_message()))
    await deaf.wait()
    stop = await runtime.open_run(RunRequest(message=user_message("Stop", kind="interrupt")))
    await stop.result(5)
    assert limit._free == 0  # the first message goes on where it was, in the one place
    stubborn.set()
    await first.result(5)
    await settle()
    assert limit._free == 1
    await runtime.shutdown()


@pytest.mark.parametrize("begun", [True, False])
async def test_a_runtime_that_stops_gives_its_places_back(begun: bool) -> None:
    office, limit = Office(), TurnLimit(2)
    first, second = (office.runtime(name, turn_limit=limit) for name in ("first", "second"))
    waiting = await give(first, 2)
    if begun:
        await office.until_at_work(2)
    others = await give(second, 2)
    await first.shutdown(grace=0)
    await office.until_at_work(2)
    assert office.at_work["second"] == 2
    office.let_go(2)
    await asyncio.gather(*others)
    await asyncio.gather(*waiting, return_exceptions=True)
    await second.shutdown()
    await settle()
    assert limit._free == 2
