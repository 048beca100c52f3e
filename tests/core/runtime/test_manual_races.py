"""Manual mode when a game is cancelled or goes over to continuous mode while steps are at work.

All else that drivers may do at any time is in `test_manual_interleavings`.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mail.core.runtime import MAILRuntime, RunRequest, RuntimeSettings
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.store import Store
from mail.errors import StepFailed, StoreError, TaskError
from tests.core.runtime.players import (
    GAME,
    ROLL,
    Players,
    begin,
    finish,
    playing,
    step,
    tell_all,
    until,
    waiting,
)
from tests.support.stores import HookedStore
from tests.support.swarm import user_message


@pytest.fixture
def players() -> Players:
    return Players()


@pytest.fixture
async def game(players: Players, store: Any) -> AsyncIterator[MAILRuntime]:
    async with playing(players, store=store) as made:
        yield made


async def test_mail_of_a_cancelled_game_stays_away_though_a_step_was_showing_it(
    game: MAILRuntime, players: Players
) -> None:
    await tell_all(game, "of the cancelled game")
    players.lines["ann"] = [ROLL]
    players.roll_hold = asyncio.Event()
    acting = begin(game, "ann")
    await players.rolling.wait()
    await game.cancel_task(GAME)
    with pytest.raises(TaskError, match="cancelled"):
        await acting
    await step(game, "bob", "cid", payload="a new round")
    players.roll_hold.set()
    await game.await_queue_empty()
    await step(game, "ann", "cid", payload="your turn")
    assert players.shown["ann"][-1] == "your turn"


def taken_back(post: Commit) -> bool:
    """Tell whether a commit takes a step back whose caller gave up."""
    return bool(post.settled) and not post.snapshot


async def test_a_cancelled_game_stays_cancelled_though_a_step_is_taken_back_late(
    players: Players, store: Store
) -> None:
    failing, written = True, asyncio.Event()

    async def before(post: Commit) -> None:
        if failing and taken_back(post):
            raise StoreError("the disk is full")

    async def after(post: Commit) -> None:
        if taken_back(post):
            written.set()

    async with playing(players, store=HookedStore(store, before, after)) as game:
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


# --- going over to continuous mode --------------------------------------------------------------


async def test_an_interrupt_after_the_switch_puts_back_what_a_step_was_showing(
    game: MAILRuntime, players: Players
) -> None:
    await tell_all(game, "buffered words")
    ann, _ = players.held("ann"), players.held("narrator", "bob", "cid")
    cut_off = begin(game, "ann", payload="speak")
    await players.calls(1)
    going_on = asyncio.create_task(game.run_continuous())
    await players.calls(4)
    await game.submit(user_message("stop that", GAME, "ann", "interrupt"))
    ann.set()
    await until(lambda: len(players.shown["ann"]) >= 3)
    shown = players.shown["ann"]
    assert "stop that" in shown[1]
    assert [text.count("buffered words") for text in shown[:3]] == [1, 0, 1]
    cut_off.cancel()
    await game.shutdown(grace=0)
    await going_on


async def test_mail_that_a_step_was_showing_is_read_when_the_run_ends_after_the_switch(
    game: MAILRuntime, players: Players
) -> None:
    names = ("ann", "narrator", "bob")
    ann, narrator, _ = (players.held(name) for name in names)
    players.lines["narrator"] = [finish("over")]
    for name in names:
        await game.submit(user_message(f"to {name}", GAME, name))
    cut_off = begin(game, "ann")
    await players.calls(1)
    going_on = asyncio.create_task(game.run_continuous())
    await players.calls(3)
    narrator.set()
    with pytest.raises(TaskError, match="completed"):
        await cut_off
    ann.set()
    await until(lambda: len(players.shown["ann"]) >= 2)
    assert ["to ann" in text for text in players.shown["ann"][:2]] == [True, True]
    await game.shutdown(grace=0)
    await going_on


async def test_a_question_that_failed_steps_used_up_is_answered_after_the_switch(
    players: Players,
) -> None:
    players.lines["ann"] = [ROLL] * 9
    players.lines["narrator"] = [finish("an end after all")]
    async with playing(players, settings=RuntimeSettings(max_step_calls=2)) as game:
        run = await game.open_run(RunRequest(message=user_message("question", GAME, "ann")))
        with pytest.raises(StepFailed, match="gave no answer"):
            await step(game, "ann", "narrator")
        assert waiting(game) == []
        going_on = asyncio.create_task(game.run_continuous())
        assert (await run.result(5)).message["message"]["body"] == "an end after all"
        await game.shutdown(grace=0)
        await going_on
