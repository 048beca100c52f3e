"""Random conversations under random interleavings, and what must hold whatever happens.

Agents send, act, pause, fail and finish at random; clients post, resume, stream and cancel at the
same time, within limits and budgets. Afterwards every caller has its answer, every call in every
history has its result, and nothing that only an ended run wanted is left over. Seeded: a failure
names its seed. For more of them set ``INTERLEAVINGS`` (how many) in the environment.
"""

import asyncio
import os
import random
from typing import Any

import pytest

from mail.core.actions import ActionCore
from mail.core.call_context import current_call
from mail.core.runtime import MAILRuntime, RunRequest, RuntimeSettings
from mail.core.tasks import TaskState
from mail.db import open_store
from mail.errors import BreakpointError, ModelError, TaskPaused
from mail.testing import tool_calls
from tests.core.runtime.metered import MODEL, check_books, check_history, tokens
from tests.support.swarm import runtime_of, supervisor, user_message, worker
from tests.support.times import WanderingClock, check_times

NAMES = ("supervisor", "w1", "w2", "w3")
SEEDS = range(int(os.environ.get("INTERLEAVINGS", "40")))
Calls = list[tuple[str, dict[str, Any]]]


class Players:
    """Agents, an action and clients that do what the dice say."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.turns = 0
        self.runtime: MAILRuntime | None = None

    async def pause(self, *rounds: int) -> None:
        """Let others go first, so many times."""
        for _ in range(self.dice.choice(rounds)):
            await asyncio.sleep(0)

    def agent(self, name: str) -> Any:
        """Return an agent of the swarm."""
        core = (supervisor if name == "supervisor" else worker)(
            self._function(name), tuple(other for other in NAMES if other != name)
        )
        core.actions = {
            "act": ActionCore(function=self._act, name="act"),
            "review": ActionCore(function=None, name="review"),
        }
        core.enable_entrypoint = True
        return core

    def _function(self, name: str) -> Any:
        async def agent(messages: list[dict[str, Any]], choice: Any) -> Any:
            self.turns += 1
            prefix = f"{name}{self.turns}"
            await self.pause(0, 0, 1, 3)
            current_call().report(MODEL, tokens(self.dice.choice([0, 10, 50, 100])))
            await self.pause(0, 0, 1, 3, 10)
            luck = self.dice.random()
            if luck < 0.05:
                raise ModelError("no", status=400)
            if luck < 0.1:
                return None, []
            if isinstance(choice, dict) and luck < 0.8:
                return None, tool_calls(("task_complete", {"finish_message": "x"}), prefix=prefix)
            # The same ids for all agents now and then, as providers give them.
            shared = self.dice.random() < 0.2
            return None, tool_calls(*self._calls(name), prefix="same" if shared else prefix)

        return agent

    async def _act(self, arguments: object) -> str:
        await self.pause(0, 1, 5, 20)
        return "ok"

    def _calls(self, name: str) -> Calls:
        return [self._call(name) for _ in range(self.dice.choice([1, 1, 1, 2, 3]))]

    def _call(self, name: str) -> tuple[str, dict[str, Any]]:
        target = self.dice.choice([other for other in NAMES if other != name])
        letter = {"target": target, "subject": "s", "body": "b"}
        tools: list[tuple[float, str, dict[str, Any]]] = [
            (6, "send_request", letter),
            (3, "send_response", letter),
            (2, "help", {}),
            (2, "act", {}),
            (2, "review", {}),
            (1, "await_message", {}),
            (1, "nonsense", {}),
        ]
        if name == "supervisor":
            tools += [
                (1, "send_broadcast", {"subject": "s", "body": "b"}),
                (1.5, "send_interrupt", letter),
                (1, "task_complete", {"finish_message": "x"}),
            ]
        [(_, tool, arguments)] = self.dice.choices(tools, weights=[weight for weight, *_ in tools])
        return tool, arguments


async def client(players: Players, runtime: MAILRuntime, name: str) -> None:
    """Post messages, one after the other, and resume what is paused."""
    for number in range(players.dice.choice([1, 2, 3])):
        await players.pause(0, 0, 2, 10, 40)
        message = user_message(
            f"{name}.{number}",
            to=players.dice.choice(NAMES),
            kind=players.dice.choice(["request", "request", "interrupt"]),
        )
        request = RunRequest(message=message, streamed=players.dice.random() < 0.5)
        try:
            run = await runtime.open_run(request)
        except TaskPaused:
            resumed = await resume(players, runtime)
            if resumed is None:
                continue
            run = resumed
        if run.waiter.subscription is not None:
            kinds = [event.kind async for event in run.events()]
            assert kinds[-1] in ("task_complete", "task_error")
        await run.result(5)


async def resume(players: Players, runtime: MAILRuntime) -> Any:
    """Answer some of the open calls; None when somebody else was faster."""
    task = await runtime.read_task("task-1")
    open_calls = [call["call_id"] for call in task.breakpoints] if task else []
    if not open_calls:
        return None
    calls = [call for call in open_calls if players.dice.random() < 0.7] or open_calls[:1]
    results = [{"call_id": call, "content": "y"} for call in calls]
    await players.pause(0, 1, 5)
    try:
        return await runtime.open_run(
            RunRequest(
                message=user_message("r"),
                resume_from="breakpoint_tool_call",
                breakpoint_tool_call_result=results,
                streamed=players.dice.random() < 0.5,
            )
        )
    except BreakpointError:
        return None


async def cancel(players: Players, runtime: MAILRuntime) -> None:
    """Cancel the task in the middle, or do not."""
    if players.dice.random() < 0.3:
        await players.pause(20, 60, 100)
        if runtime.get_task_by_id("task-1") is not None:
            await runtime.cancel_task("task-1")


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens_nothing_hangs_and_nothing_is_left_over(seed: int) -> None:
    players = Players(seed)
    store = open_store("memory://")
    await store.open()
    runtime = runtime_of(
        {name: players.agent(name) for name in NAMES},
        store=store,
        breakpoint_tools=["review"],
        clock=WanderingClock(random.Random(seed)),
        settings=RuntimeSettings(
            task_token_limit=players.dice.choice([200, 500, 1000, 3000]),
            max_steps=players.dice.choice([3, 8, 20]),
            max_concurrent_turns=players.dice.choice([1, 2, 64]),
        ),
    )
    async with asyncio.timeout(30):
        await asyncio.gather(
            *(client(players, runtime, f"c{n}") for n in range(players.dice.choice([1, 2, 3]))),
            cancel(players, runtime),
        )
        while not runtime.idle:
            await asyncio.sleep(0.001)
    await check(runtime)
    await runtime.shutdown(grace=0)


async def check(runtime: MAILRuntime) -> None:
    """Check a task that has come to rest."""
    store, owner = runtime._context.store, runtime._context.owner
    task = await runtime.read_task("task-1")
    assert task is not None and task.status is not TaskState.RUNNING
    mail = await store.waiting_mail(owner, "task-1")
    assert not [row for row in mail if "finish" in (row.control or "")]
    if task.status is TaskState.PAUSED:
        assert task.breakpoints
    else:
        assert not task.breakpoints
        await check_history(store, runtime, NAMES)
    if task.status in (TaskState.COMPLETED, TaskState.FAILED):
        senders = [m["message"]["sender"]["address_type"] for m in task.task_message_queue]
        assert "user" not in senders
    names = [call.call_id for call in await store.calls(owner, "task-1")]
    assert len(names) == len(set(names))
    await check_books(runtime)
    check_times(task.events)
