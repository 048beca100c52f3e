"""The request to finish belongs to one run: it goes when that run ends, however it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from mail.core.actions import ActionCore
from mail.core.runtime import MAILRuntime, RunRequest, RuntimeSettings
from mail.core.runtime.turn import Phase
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.store import Store
from mail.errors import ModelError
from mail.testing import tool_calls
from tests.core.runtime.metered import ask, kinds_of
from tests.support.stores import HookedStore
from tests.support.swarm import last_body, runtime_of, supervisor, user_message

REVIEW = ("review", {})
Reply = tuple[None, list[Any]]


def done(text: str) -> tuple[str, dict[str, str]]:
    return "task_complete", {"finish_message": text}


class Pair:
    """A lead that is asked to finish at once, and a mate that may end the task before it does.

    The lead's first turn asks the mate, and its second calls for a third, which is one step too
    many. ``asked`` is set when the lead is forced to finish; ``finish`` says what it does then.
    """

    def __init__(
        self, store: Store, finish: Callable[[], Awaitable[Reply]], *, mate: Any = None
    ) -> None:
        self.go, self.asked = asyncio.Event(), asyncio.Event()
        self.choices: list[str] = []
        self._finish = finish
        self._mate = mate or done("the mate's answer")
        lead, mate_core = supervisor(self._lead, ("mate",)), supervisor(self._work, ("supervisor",))
        lead.actions = {"slow": ActionCore(function=self._slow, name="slow")}
        mate_core.actions = {"review": ActionCore(function=None, name="review")}
        self.go_slow = asyncio.Event()
        self.runtime = runtime_of(
            {"supervisor": lead, "mate": mate_core},
            store=store,
            breakpoint_tools=["review"],
            settings=RuntimeSettings(max_steps=3),
        )

    async def _lead(self, messages: list[dict[str, Any]], choice: Any) -> Reply:
        prefix = f"lead{len(self.choices)}"
        self.choices.append(choice if isinstance(choice, str) else "forced")
        if len(self.choices) == 1:
            return None, tool_calls(*ask("mate"), ("help", {}), prefix=prefix)
        if len(self.choices) == 2:
            return None, tool_calls(("help", {}), prefix=prefix)
        if isinstance(choice, dict):
            self.asked.set()
            return await self._finish()
        left_over = "<subject>Question" not in last_body(messages)
        call = ("await_message", {}) if left_over else done("the second answer")
        return None, tool_calls(call, prefix=prefix)

    async def _work(self, messages: list[dict[str, Any]], choice: Any) -> Reply:
        await self.go.wait()
        call = self._mate if len(messages) == 1 else done("resumed")
        return None, tool_calls(call, prefix=f"mate{len(messages)}")

    async def _slow(self, arguments: object) -> str:
        self.asked.set()
        await self.go_slow.wait()
        return "slow result"


async def forever() -> Reply:
    await asyncio.Event().wait()
    raise AssertionError


async def waiting_requests(runtime: MAILRuntime) -> list[str]:
    """Return the requests to finish that the store still holds."""
    mail = await runtime._context.store.waiting_mail(runtime._context.owner, "task-1")
    return [row.control for row in mail if "finish" in (row.control or "")]


async def test_a_run_that_ends_otherwise_takes_the_waiting_request_along(store) -> None:
    pair = Pair(store, forever)
    run = await pair.runtime.open_run(RunRequest(message=user_message("one")))
    await pair.asked.wait()
    pair.go.set()
    result = await run.result(5)
    assert result.message["message"]["body"] == "the mate's answer"
    assert await waiting_requests(pair.runtime) == []
    second = await pair.runtime.submit_and_wait(user_message("two"))
    assert second["message"]["body"] == "the second answer"
    assert pair.choices.count("forced") == 1
    await pair.runtime.shutdown(grace=0)


async def test_a_waiting_message_goes_on_unforced_after_the_run(store) -> None:
    pair = Pair(store, forever)
    first = await pair.runtime.open_run(RunRequest(message=user_message("one")))
    await pair.asked.wait()
    second = await pair.runtime.open_run(RunRequest(message=user_message("two")))
    pair.go.set()
    assert (await first.result(5)).message["message"]["body"] == "the mate's answer"
    assert (await second.result(5)).status is TaskState.COMPLETED
    assert pair.choices.count("forced") == 1
    assert await waiting_requests(pair.runtime) == []
    assert (await kinds_of(pair.runtime)).count("task_complete") == 2
    await pair.runtime.shutdown(grace=0)


async def test_a_pause_takes_the_request_along_and_the_resumed_run_is_not_forced(store) -> None:
    async def later() -> Reply:
        raise ModelError("busy", status=429, retry_after=60)

    pair = Pair(store, later, mate=REVIEW)
    run = await pair.runtime.open_run(RunRequest(message=user_message("one")))
    await pair.asked.wait()
    pair.go.set()
    assert (await run.result(5)).status is TaskState.PAUSED
    assert await waiting_requests(pair.runtime) == []
    resumed = RunRequest(
        message=user_message(""),
        resume_from="breakpoint_tool_call",
        breakpoint_tool_call_result="fine",
    )
    assert (await (await pair.runtime.open_run(resumed)).result(5)).status is TaskState.COMPLETED
    assert pair.choices.count("forced") == 1
    await pair.runtime.shutdown(grace=0)


async def test_a_request_that_was_put_off_ends_with_the_run(store) -> None:
    async def later() -> Reply:
        raise ModelError("busy", status=429, retry_after=60)

    pair = Pair(store, later)
    run = await pair.runtime.open_run(RunRequest(message=user_message("one")))
    await pair.asked.wait()
    pair.go.set()
    assert (await run.result(5)).message["message"]["body"] == "the mate's answer"
    assert await waiting_requests(pair.runtime) == []
    await pair.runtime.shutdown(grace=0)


async def test_a_request_on_its_way_ends_with_the_run(store) -> None:
    storing, release = asyncio.Event(), asyncio.Event()

    async def hold(post: Commit) -> None:
        if any("finish" in (mail.control or "") for mail in post.deliveries):
            storing.set()
            await release.wait()

    pair = Pair(HookedStore(store, after=hold), forever)
    run = await pair.runtime.open_run(RunRequest(message=user_message("one")))
    await storing.wait()
    pair.go.set()
    task = pair.runtime._context.active_tasks.get("task-1")
    assert task is not None
    mate = task.turns["mate"]
    async with asyncio.timeout(20):
        while mate.phase is Phase.MODEL:  # then its commit waits its turn
            await asyncio.sleep(0)
    release.set()
    assert (await run.result(5)).message["message"]["body"] == "the mate's answer"
    async with asyncio.timeout(20):
        while await waiting_requests(pair.runtime):
            await asyncio.sleep(0.001)
    answer = await pair.runtime.submit_and_wait(user_message("two"))
    assert answer["message"]["body"] == "the second answer"
    assert pair.choices.count("forced") <= 1  # a turn on it has been stopped
    await pair.runtime.shutdown(grace=0)


async def test_a_request_that_is_acted_on_does_not_end_the_next_run(store) -> None:
    async def act() -> Reply:
        pair.asked.clear()
        return None, tool_calls(("slow", {}), prefix="finish")

    pair = Pair(store, act)
    first = await pair.runtime.open_run(RunRequest(message=user_message("one")))
    await pair.asked.wait()
    while not pair.asked.is_set():  # cleared by the reply, set again by the action
        await asyncio.sleep(0)
    pair.go.set()
    assert (await first.result(5)).message["message"]["body"] == "the mate's answer"
    second = await pair.runtime.open_run(RunRequest(message=user_message("two"), max_steps=None))
    pair.go_slow.set()
    assert (await second.result(5)).status is TaskState.COMPLETED
    bodies = [
        event.extra["response"]
        for event in (await pair.runtime.read_task("task-1")).events
        if event.kind == "task_complete"
    ]
    assert len(bodies) == 2 and not any("limit" in body for body in bodies)
    await pair.runtime.shutdown(grace=0)


async def test_an_old_request_in_the_store_is_not_obeyed_after_a_restart(store) -> None:
    """Versions before this left such letters behind."""
    pair = Pair(store, forever)
    run = await pair.runtime.open_run(RunRequest(message=user_message("one")))
    await pair.asked.wait()
    [control] = await waiting_requests(pair.runtime)
    [row] = [
        row
        for row in await store.waiting_mail(pair.runtime._context.owner, "task-1")
        if row.control == control
    ]
    pair.go.set()
    await run.result(5)
    task = await store.load_task(pair.runtime._context.owner, "task-1")
    await store.commit(Commit(owner=pair.runtime._context.owner, task=task, deliveries=(row,)))
    await pair.runtime.shutdown(grace=0)
    other = Pair(store, forever)
    other.choices += ["earlier", "earlier"]
    await other.runtime.submit_and_wait(user_message("two"))
    assert "forced" not in other.choices
    assert await waiting_requests(other.runtime) == []
    await other.runtime.shutdown(grace=0)
