"""The step limit asks its finisher exactly once, whatever else goes on."""

import asyncio

import pytest

from mail.core.runtime import RunRequest
from mail.core.tasks import TaskState
from mail.testing import tool_calls
from tests.support.swarm import runtime_of, supervisor, user_message, worker


def send(target: str) -> tuple[str, dict]:
    return "send_request", {"target": target, "subject": "Job", "body": "do it"}


class Finisher:
    """A supervisor that sends jobs to all, and finishes when it is made to."""

    def __init__(self, *targets: str) -> None:
        self.targets, self.asked, self.gate = targets, 0, asyncio.Event()
        self.gate.set()

    async def __call__(self, messages, choice):
        prefix = f"s{len(messages)}"
        if isinstance(choice, dict):
            self.asked += 1
            await self.gate.wait()
            done = ("task_complete", {"finish_message": f"finished {self.asked}"})
            return None, tool_calls(done, prefix=prefix)
        return None, tool_calls(*map(send, self.targets), prefix=prefix)


async def wait(messages, choice):
    await asyncio.sleep(0)
    return None, tool_calls(("await_message", {}), prefix=f"w{len(messages)}")


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_mail_for_many_agents_at_the_limit_asks_once(store, limit) -> None:
    names = tuple(f"w{n}" for n in range(6))
    finisher = Finisher(*names)
    agents = {"supervisor": supervisor(finisher, names)} | {n: worker(wait) for n in names}
    runtime = runtime_of(agents, store=store)
    run = await runtime.open_run(RunRequest(message=user_message(), max_steps=limit))
    result = await run.result(5)
    assert result.message["message"]["body"] == "finished 1"
    await runtime.shutdown()


async def test_a_limit_of_nothing_still_answers(store) -> None:
    runtime = runtime_of({"supervisor": supervisor(Finisher(), ())}, store=store)
    run = await runtime.open_run(RunRequest(message=user_message(), max_steps=0))
    assert (await run.result(5)).status in (TaskState.COMPLETED, TaskState.FAILED)
    await runtime.shutdown()


async def test_a_message_that_comes_during_the_finish_is_for_the_next_run(store) -> None:
    finisher = Finisher("w0")
    finisher.gate.clear()
    runtime = runtime_of(
        {"supervisor": supervisor(finisher, ("w0",)), "w0": worker(wait)}, store=store
    )
    first = await runtime.open_run(RunRequest(message=user_message("one"), max_steps=1))
    while not finisher.asked:
        await asyncio.sleep(0.001)
    second = await runtime.open_run(RunRequest(message=user_message("two")))
    finisher.gate.set()
    assert (await first.result(5)).message["message"]["body"] == "finished 1"
    assert (await second.result(5)).message["message"]["body"] == "finished 2"
    events = (await runtime.read_task("task-1")).events
    assert [event.kind for event in events].count("task_complete") == 2
    await runtime.shutdown()
