"""A summary is made once, by one call at a time, and forgotten when it no longer fits."""

import asyncio
import logging

import pytest

from mail.core.call_context import CallContext, enter_call
from mail.core.usage import Usage
from mail.llm.compress import SUMMARY_TITLE, Compressor
from mail.llm.script import Fail, Step, fail
from tests.llm.histories import (
    KEY,
    LENGTH,
    LIMIT,
    RATIO,
    USER,
    Writer,
    chat,
    compressor,
    count,
    exchange,
    talk,
    tokens,
)
from tests.llm.support import ask


async def test_a_summary_is_made_once_and_used_until_the_rest_is_too_long_again() -> None:
    writer = Writer()
    fitting = compressor()
    history = talk(12)
    first = await fitting.fit(ask(messages=history), writer, RATIO, KEY)
    history += exchange(12)
    second = await fitting.fit(ask(messages=history), writer, RATIO, KEY)
    assert len(writer.asked) == 1
    assert second.messages == [*first.messages, *history[-3:]]
    history += [entry for number in range(13, 18) for entry in exchange(number)]
    third = await fitting.fit(ask(messages=history), writer, RATIO, KEY)
    assert len(writer.asked) == 2
    assert third.messages[0]["content"] == f"{SUMMARY_TITLE}\n\nsummary 2"
    assert "<earlier_summary>\nsummary 1\n</earlier_summary>" in writer.texts[1]
    assert "mail 9 mail" not in writer.texts[1]
    assert "mail 10 mail" in writer.texts[1]


async def test_each_task_and_agent_has_a_summary_of_its_own() -> None:
    writer = Writer()
    fitting = compressor()
    request = ask(messages=talk(12))
    for key in (KEY, ("task", "other"), ("other", "agent"), KEY):
        await fitting.fit(request, writer, RATIO, key)
    assert len(writer.asked) == 3


@pytest.mark.parametrize("at", [0, 29])
async def test_another_beginning_makes_a_summary_worthless(at: int) -> None:
    writer = Writer()
    fitting = compressor()
    history = talk(12)
    await fitting.fit(ask(messages=history), writer, RATIO, KEY)
    other = [*history[:at], USER, *history[at:]]
    fitted = await fitting.fit(ask(messages=other), writer, RATIO, KEY)
    assert len(writer.asked) == 2
    assert "<earlier_summary>" not in writer.texts[1]
    assert fitted.messages[1:] == history[-6:]


async def test_a_shorter_history_makes_a_summary_worthless() -> None:
    writer = Writer()
    fitting = compressor()
    await fitting.fit(ask(messages=talk(12)), writer, RATIO, KEY)
    short = ask(messages=talk(2))
    assert await fitting.fit(short, writer, RATIO, KEY) is short
    await fitting.fit(ask(messages=talk(12)), writer, RATIO, KEY)
    assert "<earlier_summary>" not in writer.texts[1]


async def test_a_bigger_model_gets_the_whole_history() -> None:
    writer = Writer()
    fitting = Compressor(lambda model: {"small": LENGTH, "big": 50 * LENGTH}[model], count)
    small, big = (ask(messages=talk(12), model=model) for model in ("small", "big"))
    assert (await fitting.fit(small, writer, RATIO, KEY)) is not small
    assert (await fitting.fit(big, writer, RATIO, KEY)) is big
    await fitting.fit(small, writer, RATIO, KEY)
    assert len(writer.asked) == 1


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (fail("the provider is down", status=500), "the provider is down"),
        ("  ", "the summary is empty"),
        ("word " * 5000, "the summary is not shorter than the text it replaces"),
    ],
)
async def test_a_failed_summary_leaves_the_request_alone(
    step: Step | str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(step)
    request = ask(messages=talk(9))
    with caplog.at_level(logging.WARNING):
        assert await compressor().fit(request, writer, RATIO, KEY) is request
    (record,) = caplog.records
    assert record.getMessage() == f"the history of agent 'agent' was not summarised: {reason}"
    assert record.levelno == logging.WARNING


async def test_after_a_failure_some_calls_go_out_before_the_next_try() -> None:
    writer = Writer(Fail("no"))
    fitting = compressor()
    history = talk(12)
    for length, asked in ((30, 1), (30, 1), (33, 1), (36, 2)):
        request = ask(messages=history[:length])
        fitted = await fitting.fit(request, writer, RATIO, KEY)
        assert len(writer.asked) == asked
        assert (fitted is request) == (asked == 1)


async def test_what_cannot_be_sent_at_all_is_tried_again_at_once() -> None:
    writer = Writer(Fail("no"))
    fitting = compressor()
    request = ask(messages=talk(20))
    assert tokens(request) > LENGTH
    assert await fitting.fit(request, writer, RATIO, KEY) is request
    assert await fitting.fit(request, writer, RATIO, KEY) is not request


async def test_when_a_later_summary_fails_the_earlier_one_still_serves() -> None:
    writer = Writer("the first")
    fitting = compressor()
    history = talk(12)
    await fitting.fit(ask(messages=history), writer, RATIO, KEY)
    writer.steps = [Fail("no")]
    history += [entry for number in range(12, 18) for entry in exchange(number)]
    fitted = await fitting.fit(ask(messages=history), writer, RATIO, KEY)
    assert len(writer.asked) == 2
    assert fitted.messages[0]["content"] == f"{SUMMARY_TITLE}\n\nthe first"
    assert fitted.messages[1:] == history[30:]


async def test_a_tail_that_is_too_long_by_itself_does_not_cost_a_summary_each_call() -> None:
    writer = Writer()
    fitting = compressor(100_000)
    ratio = LIMIT / 100_000
    history = [USER, *chat()] * 2 + exchange(0, 800)
    for number in range(1, 30):
        history += exchange(number, 800) if number % 3 == 0 else [USER, *chat()]
        await fitting.fit(ask(messages=history), writer, ratio, KEY)
    assert len(writer.asked) <= 11


async def test_what_a_summary_uses_is_reported_to_the_running_call() -> None:
    reported: list[tuple[str, Usage]] = []
    context = CallContext(report=lambda model, usage: reported.append((model, usage)))
    writer = Writer()
    writer.usage = Usage(prompt_tokens=10, completion_tokens=2, total_tokens=12, cost=0.5)

    async def turn() -> None:
        enter_call(context)
        await compressor().fit(ask(messages=talk(12)), writer, RATIO, KEY)

    await asyncio.create_task(turn())
    assert reported == [("openai/fake", writer.usage)]


async def test_a_history_beyond_the_context_is_read_in_portions() -> None:
    writer = Writer()
    history = talk(100)
    fitted = await compressor().fit(ask(messages=history), writer, RATIO, KEY)
    assert len(writer.asked) > 5
    assert all(len(text) // 4 < LENGTH for text in writer.texts)
    for number in range(98):
        assert sum(f"mail {number} mail" in text for text in writer.texts) == 1
    assert "<earlier_summary>\nsummary 1\n</earlier_summary>" in writer.texts[1]
    assert fitted.messages[0]["content"] == f"{SUMMARY_TITLE}\n\nsummary {len(writer.asked)}"


async def test_one_summary_at_a_time_for_a_key() -> None:
    writer = Writer()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await go_on.wait()

    writer.before = wait
    fitting = compressor()
    request = ask(messages=talk(12))
    calls = [asyncio.create_task(fitting.fit(request, writer, RATIO, KEY)) for _ in range(5)]
    await begun.wait()
    other = ask(messages=talk(1))
    assert await fitting.fit(other, writer, RATIO, ("another", "agent")) is other
    go_on.set()
    fitted = await asyncio.gather(*calls)
    assert len(writer.asked) == 1
    assert all(one.messages == fitted[0].messages for one in fitted)


async def test_a_cancelled_summary_leaves_the_key_free() -> None:
    writer = Writer()
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    writer.before = hang
    fitting = compressor()
    request = ask(messages=talk(12))
    turn = asyncio.create_task(fitting.fit(request, writer, RATIO, KEY))
    await begun.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    writer.before = None
    assert await fitting.fit(request, writer, RATIO, KEY) is not request


async def test_only_so_many_summaries_are_remembered() -> None:
    writer = Writer()
    fitting = compressor(remembered=2)
    request = ask(messages=talk(12))
    for task in ("a", "b", "a", "c", "a", "b"):
        await fitting.fit(request, writer, RATIO, (task, "agent"))
    assert len(writer.asked) == 4  # the second "a" and the third are remembered
