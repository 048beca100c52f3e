"""Old history becomes a summary when it is too long, for one call and without a loose end."""

import asyncio
import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mail.llm.compress import SUMMARY_TITLE, Compressor
from mail.llm.history import Said, conversation
from mail.llm.settings import LLMSettings
from tests.llm.histories import (
    KEY,
    LENGTH,
    LIMIT,
    RATIO,
    SYSTEM,
    USER,
    Entry,
    Writer,
    blocks,
    chat,
    compressor,
    count,
    exchange,
    histories,
    items,
    talk,
    tokens,
)
from tests.llm.support import TOOL, ask


async def test_without_a_ratio_or_a_known_length_or_a_need_the_request_stays_as_it_is() -> None:
    writer = Writer()
    long, short = ask(messages=talk(50)), ask(messages=talk(1))
    assert await compressor().fit(long, writer, 0.0, KEY) is long
    assert await compressor(None).fit(long, writer, RATIO, KEY) is long
    assert await compressor(0).fit(long, writer, RATIO, KEY) is long
    assert await compressor().fit(short, writer, RATIO, KEY) is short
    assert writer.asked == []


async def test_nothing_is_counted_while_the_bytes_prove_that_it_fits() -> None:
    def never(model: str, text: str) -> int:
        raise AssertionError("counted for nothing")

    request = ask(messages=talk(1))
    fitting = Compressor(lambda _: 100_000, never)
    assert await fitting.fit(request, Writer(), RATIO, KEY) is request


async def test_the_tokens_decide_where_the_bytes_prove_nothing() -> None:
    request = ask(messages=talk(4))
    assert LIMIT < tokens(request) * 4 < LIMIT * 4
    writer = Writer()
    assert await compressor().fit(request, writer, RATIO, KEY) is request
    assert writer.asked == []


async def test_the_oldest_part_becomes_one_user_entry_and_the_newest_stays_verbatim() -> None:
    history = talk(12)
    before = copy.deepcopy(history)
    writer = Writer("They spoke of mail.")
    request = ask(messages=history)
    fitted = await compressor().fit(request, writer, RATIO, KEY)
    assert fitted.messages == [
        {"role": "user", "content": f"{SUMMARY_TITLE}\n\nThey spoke of mail."},
        *history[-6:],
    ]
    assert replace(fitted, messages=history) == request
    assert history == before


async def test_a_system_entry_at_the_front_stays_there() -> None:
    writer = Writer()
    request = ask(messages=[SYSTEM, *talk(12)])
    fitted = await compressor().fit(request, writer, RATIO, KEY)
    assert fitted.messages[0] == SYSTEM
    assert fitted.messages[1]["content"] == f"{SUMMARY_TITLE}\n\nsummary 1"
    assert SYSTEM["content"] not in writer.texts[0]


async def test_the_same_model_writes_it_from_plain_text_without_tools_or_thinking() -> None:
    writer = Writer()
    request = ask(
        messages=talk(12),
        use_proxy=True,
        user_token="token",
        step="turn 7",
        settings=LLMSettings.resolve(reasoning_effort="high"),
    )
    await compressor().fit(request, writer, RATIO, KEY)
    (asked,) = writer.asked
    assert (asked.model, asked.use_proxy, asked.user_token) == ("openai/fake", True, "token")
    assert (asked.tools, asked.tool_choice, asked.step) == ((), "none", "turn 7/summary")
    assert asked.settings == replace(LLMSettings())
    assert asked.system != request.system
    assert [message["role"] for message in asked.messages] == ["user"]
    assert "mail 9 mail" in writer.texts[0]
    assert "result 9 found" in writer.texts[0]
    assert "mail 10 mail" not in writer.texts[0]


@pytest.mark.parametrize("words", [5, 40, 90])
async def test_a_long_task_stays_below_the_limit_at_a_linear_cost(words: int) -> None:
    counted: list[str] = []

    def counting(model: str, text: str) -> int:
        counted.append(text)
        return count(model, text)

    writer = Writer()
    fitting = Compressor(lambda _: LENGTH, counting)
    history: list[Entry] = []
    spoken = 0
    for number in range(150):
        history += exchange(number, words)
        fitted = await fitting.fit(ask(messages=list(history)), writer, RATIO, KEY)
        assert tokens(fitted) <= LIMIT
        assert fitted.messages[-4:] == history[-4:]
        spoken = tokens(ask(messages=history))
    # A summary takes away at least what lies between its two newest exchanges and the limit.
    assert 1 < len(writer.asked) <= spoken // (LIMIT - 2 * tokens(ask(messages=exchange(0, words))))
    entries = [
        text for text in counted if not text.startswith(("Be brief", '{"role":"user","content":"['))
    ]
    assert len(entries) == len(history)


@settings(deadline=None)  # a busy machine is no fault
@given(histories(), st.floats(0.01, 1.0))
def test_no_format_is_torn_apart(history: list[Entry], ratio: float) -> None:
    before = copy.deepcopy(history)
    request = ask(messages=history)
    fitting = Compressor(lambda _: 400, lambda model, text: len(text.encode()) // 4)
    fitted = asyncio.run(fitting.fit(request, Writer(*["x"] * 50), ratio, KEY))
    assert history == before
    if fitted is request:
        return
    first = 1 if history[0] == {"role": "system", "content": "Be brief."} else 0
    kept = len(fitted.messages) - first - 1
    assert fitted.messages[first]["content"] == f"{SUMMARY_TITLE}\n\nx"
    assert list(fitted.messages[first + 1 :]) == history[len(history) - kept :]
    assert kept >= 4
    said = [one.message for one in conversation(fitted.messages) if isinstance(one, Said)]
    assert not any("Tool result" in str(message["content"]) for message in said)


@pytest.mark.parametrize("style", [chat, blocks, items])
async def test_an_open_breakpoint_stays_until_there_is_no_other_way(style: Any) -> None:
    writer = Writer()
    fitting = compressor()
    waiting = [*talk(3), USER, *style("bp")]
    history = [*waiting, *talk(3)]
    fitted = await fitting.fit(ask(messages=history), writer, RATIO, KEY)
    assert fitted.messages[1:] == history[9:]
    history += talk(8)
    fitted = await fitting.fit(ask(messages=history), writer, RATIO, KEY)
    assert fitted.messages[1:] == history[-6:]
    assert "(no result yet)" in writer.texts[-1]
    assert "id bp" in writer.texts[-1]


async def test_tools_and_system_prompt_take_their_part_of_the_context() -> None:
    writer = Writer()
    request = ask(messages=talk(5, 40))
    assert await compressor().fit(request, writer, RATIO, KEY) is request
    tools = [TOOL | {"function": TOOL["function"] | {"description": "word " * 400}}]  # type: ignore[operator]
    for fuller in (replace(request, tools=tools), replace(request, system="word " * 400)):
        assert await compressor().fit(fuller, writer, RATIO, KEY) is not fuller
