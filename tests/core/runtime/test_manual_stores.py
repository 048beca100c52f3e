"""Manual mode on stores that are slow or fail: what was accepted happens once, or not at all."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mail.core.runtime import MAILRuntime, RunRequest, RuntimeSettings
from mail.core.tasks import TaskState
from mail.db.commit import Commit, TurnCommit
from mail.db.records import Delivery, Owner, TaskRow
from mail.db.store import Store
from mail.errors import ShuttingDown, StoreError, TaskError, TaskPaused
from mail.testing import tool_calls
from tests.core.runtime.players import (
    GAME,
    REVIEW,
    Players,
    begin,
    finish,
    playing,
    resume,
    step,
    tell_all,
    until,
    waiting,
)
from tests.support.stores import HookedStore
from tests.support.swarm import runtime_of, supervisor, user_message, worker


class Gate:
    """Holds those that come to it until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, *_: object) -> None:
        self.reached.set()
        await self.open.wait()


class SickStore(HookedStore):
    """A store whose reads of a task can be slow, and whose reads of waiting mail can fail."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.door: Gate | None = None
        self.unreadable = False
        self.failures = 0

    async def load_task(self, owner: Owner, task_id: str) -> TaskRow | None:
        """See `mail.db.store.Store.load_task`."""
        row = await self._store.load_task(owner, task_id)
        if self.door is not None:
            await self.door()
        return row

    async def waiting_mail(self, owner: Owner, task_id: str) -> list[Delivery]:
        """See `mail.db.store.Store.waiting_mail`."""
        if self.unreadable:
            self.failures += 1
            raise StoreError("the disk is unwell")
        return await self._store.waiting_mail(owner, task_id)


@pytest.fixture
def players() -> Players:
    return Players()


@pytest.fixture
def sick(store: Store) -> SickStore:
    return SickStore(store)


@pytest.fixture
async def game(players: Players, sick: SickStore) -> AsyncIterator[MAILRuntime]:
    async with playing(players, store=sick) as made:
        yield made


def taken_back(post: Commit) -> bool:
    """Tell whether a commit takes a step back whose caller gave up."""
    return bool(post.settled) and not post.snapshot


# --- a store that fails -------------------------------------------------------------------------


async def test_a_step_waits_until_its_mail_can_be_read_again(
    game: MAILRuntime, players: Players, sick: SickStore
) -> None:
    await tell_all(game, "kept")
    players.lines["narrator"] = [finish("the first round is over")]
    await step(game, "narrator")
    sick.unreadable = True
    delayed = begin(game, "ann", "cid", payload="speak")
    await until(lambda: sick.failures)
    assert not players.shown["ann"]
    sick.unreadable = False
    assert (await delayed)["message"]["body"] == "ann has nothing to add"
    [shown] = players.shown["ann"]
    assert "kept" in shown and shown.endswith("speak")


async def test_giving_up_while_the_store_fails_does_not_stop_the_other_agents(
    game: MAILRuntime, players: Players, sick: SickStore
) -> None:
    failing = True

    async def before(post: Commit) -> None:
        if failing and taken_back(post):
            raise StoreError("the disk is full")

    sick.before = before
    ann = players.held("ann")
    first = begin(game, "ann", payload="first")
    await players.calls(1)
    given_up = begin(game, "ann", payload="given up")
    await until(lambda: waiting(game) == ["given up"])
    given_up.cancel()
    await until(lambda: game.degraded)
    other = begin(game, "bob", "ann")
    failing = False
    assert (await other)["message"]["sender"]["address"] == "bob"
    assert game.degraded is None
    ann.set()
    await first
    await game.await_queue_empty()
    assert players.shown["ann"] == ["first"]


async def test_a_cancelled_game_stays_cancelled_though_a_step_is_taken_back_late(
    game: MAILRuntime, players: Players, sick: SickStore
) -> None:
    failing, written = True, asyncio.Event()

    async def before(post: Commit) -> None:
        if failing and taken_back(post):
            raise StoreError("the disk is full")

    async def after(post: Commit) -> None:
        if taken_back(post):
            written.set()

    sick.before, sick.after = before, after
    ann = players.held("ann")
    first = begin(game, "ann")
    await players.calls(1)
    given_up = begin(game, "ann", payload="given up")
    await until(lambda: waiting(game) == ["given up"])
    given_up.cancel()
    await until(lambda: game.degraded)
    cancelling = asyncio.create_task(game.cancel_task(GAME))
    for _ in range(20):
        await asyncio.sleep(0)  # the game is cancelled when the step has been taken back
    ann.set()
    failing = False
    await written.wait()
    assert (await cancelling).status is TaskState.CANCELLED
    with pytest.raises(TaskError, match="cancelled"):
        await first
    task = await game.read_task(GAME)
    assert task is not None
    assert task.status is TaskState.CANCELLED


async def test_a_history_keeps_its_order_though_one_of_its_commits_was_tried_again(
    game: MAILRuntime, players: Players, sick: SickStore
) -> None:
    failures = ["the disk is full"]

    async def before(post: Commit) -> None:
        if isinstance(post, TurnCommit) and post.done and post.calls and failures:
            raise StoreError(failures.pop())

    sick.before = before
    players.lines |= {"bob": [REVIEW], "narrator": [finish("over")]}
    bob, narrator = players.held("bob"), players.held("narrator")
    stopped, ending = begin(game, "bob"), begin(game, "narrator")
    await players.calls(2)
    bob.set()
    await until(lambda: game.degraded)
    narrator.set()
    assert (await ending)["message"]["body"] == "over"
    with pytest.raises(TaskPaused):
        await stopped
    rows = await sick.history(game._context.owner, GAME, "bob")
    roles = [entry["role"] for row in rows for entry in json.loads(row)]
    assert roles == ["user", "assistant", "tool"]


# --- a store that is slow -----------------------------------------------------------------------


async def test_a_step_that_comes_while_a_pause_is_being_stored_never_happens(
    game: MAILRuntime, players: Players, sick: SickStore
) -> None:
    players.lines["ann"] = [REVIEW, "words of ann"]
    gate = Gate()

    async def before(post: Commit) -> None:
        if post.calls and not post.settled:
            await gate()

    sick.before = before
    stopped = begin(game, "ann", "narrator")
    await gate.reached.wait()
    late = begin(game, "bob", "narrator", payload="late")
    task = game._context.active_tasks.get(GAME)
    await until(lambda: task and task.arriving == 1)
    gate.open.set()
    for each in (stopped, late):
        with pytest.raises(TaskPaused):
            await each
    sick.before = None
    assert (await resume(game))["message"]["body"] == "words of ann"
    await game.await_queue_empty()
    assert not players.shown["bob"]


async def test_a_shutdown_answers_a_step_that_waits_behind_another_one(
    game: MAILRuntime, sick: SickStore
) -> None:
    await tell_all(game, "hello")
    gate = Gate()
    sick.after = gate
    first = begin(game, "ann")
    await gate.reached.wait()
    task = game._context.active_tasks.get(GAME)
    second = begin(game, "bob")
    await until(lambda: task and task.arriving == 2)
    await game.shutdown(grace=0)
    gate.open.set()
    for each in (first, second):
        with pytest.raises(ShuttingDown):
            await each


async def test_a_step_in_a_game_that_was_pausing_does_not_outlive_its_process(
    players: Players, sick: SickStore
) -> None:
    players.lines["ann"] = [REVIEW, "words of ann"]
    ann, _ = players.held("ann"), players.held("bob")
    async with playing(players, store=sick) as first:
        stopped = begin(first, "ann", "narrator")
        lost = begin(first, "bob", payload="of the old process")
        await players.calls(2)
        ann.set()
        with pytest.raises(TaskPaused):
            await stopped
        await first.shutdown(grace=0)
        with pytest.raises(ShuttingDown):
            await lost

    players.holds.clear()
    async with playing(players, store=sick) as second:
        assert (await resume(second))["message"]["body"] == "words of ann"
        await second.await_queue_empty()
        assert players.shown["bob"] == ["of the old process"], "once, before the process ended"


async def test_giving_up_on_a_step_that_is_being_refused_leaves_nothing_behind(
    game: MAILRuntime, players: Players, sick: SickStore
) -> None:
    complaints: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    players.lines["ann"] = [REVIEW]
    with pytest.raises(TaskPaused):
        await step(game, "ann")
    before = asyncio.all_tasks()
    gate = sick.door = Gate()
    refused = begin(game, "bob")
    await gate.reached.wait()
    refused.cancel()
    await asyncio.wait([refused])
    assert refused.cancelled()
    gate.open.set()
    await until(lambda: asyncio.all_tasks() <= before)
    del refused
    gc.collect()
    assert complaints == []


async def test_a_message_that_comes_while_a_run_is_being_ended_is_answered(store: Store) -> None:
    asked = ("worker", "helper")

    async def manage(messages: list[dict[str, Any]], choice: object) -> Any:
        request = {"subject": "s", "body": "b"}
        calls: list[Any] = [("send_request", {"target": name, **request}) for name in asked]
        if len(messages) > 1:
            calls = [("task_complete", {"finish_message": "done"})]
        return None, tool_calls(*calls, ("help", {}), prefix=f"s{len(messages)}")

    async def work(messages: list[dict[str, Any]], choice: object) -> Any:
        reply = {"target": "supervisor", "subject": "s", "body": "b"}
        return None, tool_calls(("send_response", reply), prefix=f"w{len(messages)}")

    gate = Gate()

    async def after(post: Commit) -> None:
        if post.response:
            await gate()

    swarm = runtime_of(
        {"supervisor": supervisor(manage, asked), **{name: worker(work) for name in asked}},
        store=HookedStore(store, after=after),
        settings=RuntimeSettings(max_concurrent_turns=1),
    )
    first = await swarm.open_run(RunRequest(message=user_message("one")))
    await gate.reached.wait()
    [task] = swarm._context.active_tasks
    opened = asyncio.ensure_future(swarm.open_run(RunRequest(message=user_message("two"))))
    await until(lambda: task.arriving)
    gate.open.set()
    for run in (first, await opened):
        assert (await run.result(5)).status is TaskState.COMPLETED
    await swarm.shutdown(grace=0)
