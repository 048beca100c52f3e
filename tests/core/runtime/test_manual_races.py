"""Manual mode when several things happen at once: every caller gets its own answer, once.

What a driver may do at any time: step others, give up, answer breakpoints, cancel, go over to
continuous mode. What the store may do meanwhile is in `test_manual_stores`.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mail.core.runtime import MAILRuntime, RunRequest, RuntimeSettings
from mail.core.tasks import TaskState
from mail.errors import ModelError, StepFailed, TaskError, TaskPaused
from tests.core.runtime.players import (
    GAME,
    REVIEW,
    ROLL,
    Players,
    begin,
    finish,
    playing,
    resume,
    status,
    step,
    tell_all,
    until,
    waiting,
)
from tests.core.runtime.virtual import run_virtually
from tests.support.swarm import user_message


@pytest.fixture
def players() -> Players:
    return Players()


@pytest.fixture
async def game(players: Players, store: Any) -> AsyncIterator[MAILRuntime]:
    async with playing(players, store=store) as made:
        yield made


def letter(target: str, body: str) -> tuple[str, dict[str, Any]]:
    """Return a call that sends mail."""
    return "send_request", {"target": target, "subject": "psst", "body": body}


def bodies(messages: list[Any]) -> list[str]:
    return [message["message"]["body"] for message in messages]


# --- steps of several agents --------------------------------------------------------------------


async def test_a_used_up_budget_answers_the_steps_that_it_cuts_short(players: Players) -> None:
    players.cost = 60
    players.lines["ann"] = [ROLL, "too expensive"]
    ann = players.held("ann")
    async with playing(players, settings=RuntimeSettings(task_token_limit=100)) as game:
        rolling = begin(game, "ann", "narrator")
        await players.calls(1)
        await step(game, "bob", "ann")
        refused = begin(game, "cid", "ann")
        await until(lambda: (task := game._context.active_tasks.get(GAME)) and task.exhausted)
        ann.set()
        for each in (rolling, refused):
            with pytest.raises(TaskError, match="failed; the step ended without an answer"):
                await each
    assert not players.shown["cid"]


async def test_a_breakpoint_of_one_agent_answers_the_step_of_another_between_its_calls(
    game: MAILRuntime, players: Players
) -> None:
    players.lines |= {"ann": [ROLL, "words"], "bob": [REVIEW]}
    ann, bob = players.held("ann"), players.held("bob")
    steps = [begin(game, name, "narrator") for name in ("ann", "bob")]
    await players.calls(2)
    bob.set()
    await until(lambda: status(game) is TaskState.PAUSED)
    ann.set()
    for each in steps:
        with pytest.raises(TaskPaused):
            await each
    assert (players.rolls, len(players.shown["ann"])) == ([{}], 1)


async def test_two_steps_of_one_agent_do_not_mix(game: MAILRuntime, players: Players) -> None:
    players.lines["ann"] = [ROLL, "answer to one", "answer to two"]
    players.roll_hold = asyncio.Event()
    first = begin(game, "ann", "bob", payload="one")
    await players.rolling.wait()
    second = begin(game, "ann", "cid", payload="two")
    await until(lambda: waiting(game) == ["two"])
    players.roll_hold.set()
    assert bodies([await first, await second]) == ["answer to one", "answer to two"]
    assert (players.shown["ann"][0], players.shown["ann"][2]) == ("one", "two")


async def test_a_finished_game_answers_a_step_whose_mail_is_already_on_its_way(
    game: MAILRuntime, players: Players
) -> None:
    players.lines["ann"] = [[letter("bob", "on its way"), *ROLL], "never said"]
    players.roll_hold = asyncio.Event()
    acting = begin(game, "ann")
    await players.rolling.wait()
    players.lines["narrator"] = [finish("over")]
    await step(game, "narrator")
    with pytest.raises(TaskError, match="completed; the step ended without an answer"):
        await acting
    players.roll_hold.set()
    await game.await_queue_empty()
    await step(game, "bob")
    assert players.shown["bob"][0].count("on its way") == 1, "what the agent did, it has done"
    assert len(players.shown["ann"]) == 1, "it is not called again for a step that has ended"


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


def test_a_step_given_up_while_its_provider_rests_is_not_taken_up_again() -> None:
    async def scenario() -> None:
        players = Players()
        busy = ModelError("busy", status=429, retry_after=60)
        players.lines["ann"] = [busy, "much too late"]
        async with playing(players) as game:
            with pytest.raises(TimeoutError):
                await step(game, "ann", payload="speak")
            assert players.shown["ann"] == ["speak"]
            await asyncio.sleep(300)
            assert players.shown["ann"] == ["speak"]
            assert game.idle

    run_virtually(scenario())


# --- breakpoints --------------------------------------------------------------------------------


async def test_who_resumes_a_step_does_not_get_the_words_of_another_step(
    game: MAILRuntime, players: Players
) -> None:
    players.lines["ann"] = [REVIEW, "words of ann"]
    with pytest.raises(TaskPaused):
        await step(game, "ann", "narrator")
    ann = players.held("ann")
    resumer = asyncio.create_task(resume(game))
    await players.calls(2)

    players.lines["bob"] = [[letter("cid", "psst"), *ROLL], "secret of bob"]
    players.roll_hold = asyncio.Event()
    given_up = begin(game, "bob", "cid")
    await players.rolling.wait()
    given_up.cancel()
    await until(lambda: (task := game._context.active_tasks.get(GAME)) and not task.steps_due)
    players.roll_hold.set()
    await until(lambda: "secret of bob" in waiting(game))
    ann.set()
    assert (await resumer)["message"]["body"] == "words of ann"


async def test_two_who_resume_get_the_words_of_their_own_steps(
    game: MAILRuntime, players: Players
) -> None:
    names = ("ann", "bob")
    both = players.held(*names)
    for name in names:
        players.lines[name] = [REVIEW, f"words of {name}"]
    steps = [begin(game, name, "narrator") for name in names]
    await players.calls(2)
    both.set()
    for each in steps:
        with pytest.raises(TaskPaused):
            await each
    task = await game.read_task(GAME)
    assert task is not None
    calls = {call["call_id"].rstrip("_0123456789"): call["call_id"] for call in task.breakpoints}

    ann, bob = players.held("ann"), players.held("bob")
    ann_resumes = asyncio.create_task(resume(game, calls["ann"]))
    await players.calls(3)
    bob_resumes = asyncio.create_task(resume(game, calls["bob"]))
    await players.calls(4)
    bob.set()
    assert (await bob_resumes)["message"]["body"] == "words of bob"
    ann.set()
    assert (await ann_resumes)["message"]["body"] == "words of ann"


async def test_a_resumed_step_that_another_breakpoint_stops_ends_after_the_next_answer(
    game: MAILRuntime, players: Players
) -> None:
    players.lines["ann"] = [REVIEW, ROLL, "words of ann"]
    with pytest.raises(TaskPaused):
        await step(game, "ann", "narrator")
    ann, bob = players.held("ann"), players.held("bob")
    resumer = asyncio.create_task(resume(game))
    await players.calls(2)
    players.lines["bob"] = [REVIEW, "words of bob"]
    second = begin(game, "bob", "narrator")
    await players.calls(3)
    bob.set()
    await until(lambda: status(game) is TaskState.PAUSED)
    ann.set()
    assert (await resumer)["message"]["subject"] == "::breakpoint_tool_call::"
    with pytest.raises(TaskPaused):
        await second

    assert (await resume(game))["message"]["body"] == "words of bob"
    await game.await_queue_empty()
    heard = bodies(game.manual_message_buffer[f"{GAME}::narrator"])
    assert sorted(heard) == ["words of ann", "words of bob"]


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
