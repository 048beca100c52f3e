"""The codec of Anthropic's message blocks, as pure functions and against LiteLLM's own."""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

from mail.core.tools.call import INVALID_JSON_KEY
from mail.llm.anthropic import (
    INTERLEAVED,
    encode,
)
from mail.llm.settings import LLMSettings
from mail.llm.tools import ToolSet
from tests.llm.blocks import (
    FOUND,
    HIDDEN,
    LOW,
    RESULT,
    SAID,
    SERVER_USE,
    THOUGHT,
    USE,
    USER,
    replied,
    sent,
)
from tests.llm.support import CLAUDE, CLAUDE_MUTE, CLAUDE_UNMARKED, TOOL, ask

FORCED = {"type": "function", "function": {"name": "look_up"}}
MARK = {"type": "ephemeral"}


def marks(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        if "cache_control" in value:
            yield value["cache_control"]
        for part in value.values():
            yield from marks(part)
    elif isinstance(value, list):
        for part in value:
            yield from marks(part)


def unmarked(value: Any) -> Any:
    """Return messages without marks, and texts as they are when they have none."""
    if isinstance(value, list):
        return [unmarked(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    plain = {key: unmarked(part) for key, part in value.items() if key != "cache_control"}
    match plain:
        case {"role": "user", "content": [{"type": "text", "text": text}]}:
            return {**plain, "content": text}
    return plain


# --- request ---


def test_the_system_prompt_is_a_message_of_blocks() -> None:
    wire = encode(ask(), CLAUDE_UNMARKED)
    system = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    assert wire["messages"] == [system, USER]
    parts = [{"type": "text", "text": "Mi"}, {"type": "text", "text": "ne."}]
    for own in ("Mine.", parts):
        wire = encode(ask(messages=[{"role": "system", "content": own}, USER]), CLAUDE_UNMARKED)
        texts = [part["text"] for part in wire["messages"][0]["content"]]
        assert ("".join(texts), wire["messages"][1:]) == ("Mine.", [USER])
    assert encode(ask(system=""), CLAUDE_UNMARKED)["messages"] == [USER]


def test_a_thinking_model_gets_its_budget_its_blocks_and_a_free_choice() -> None:
    history = [USER, replied(THOUGHT, HIDDEN, SAID, USE), RESULT]
    wire = encode(ask(messages=history, settings=LOW), CLAUDE)
    assert wire["thinking"] == {"type": "enabled", "budget_tokens": 4000}
    assert wire["extra_headers"] == INTERLEAVED
    assert wire["max_tokens"] == 8000
    assert wire["tool_choice"] == "auto"
    assert sent(wire)[1]["content"] == [THOUGHT, HIDDEN, SAID, USE]


@pytest.mark.parametrize(
    ("choice", "thinking", "wire"),
    [
        ("required", "auto", "required"),
        ("auto", "auto", "auto"),
        ("none", "none", "none"),
        ({"type": "web_search"}, "auto", "required"),
    ],
)
def test_tool_choice_depends_on_whether_the_model_thinks(
    choice: object, thinking: object, wire: object
) -> None:
    assert encode(ask(tool_choice=choice, settings=LOW), CLAUDE)["tool_choice"] == thinking
    assert encode(ask(tool_choice=choice), CLAUDE)["tool_choice"] == wire
    assert encode(ask(tool_choice=choice, settings=LOW), CLAUDE_MUTE)["tool_choice"] == wire


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        (FORCED, FORCED),
        ({"type": "function", "name": "look_up"}, FORCED),
        ({"type": "function", "name": "not_offered"}, "required"),
    ],
)
def test_one_forced_tool_is_called_without_thinking(choice: object, wire: object) -> None:
    history = [USER, replied(THOUGHT, USE), RESULT]
    found = encode(ask(messages=history, tool_choice=choice, settings=LOW), CLAUDE)
    assert not {"thinking", "extra_headers"} & found.keys()
    assert found["tool_choice"] == wire
    assert "max_tokens" not in found  # without a budget there is nothing to leave room beside
    assert sent(found)[1]["content"] == [USE]


def test_without_tools_there_is_no_tool_choice() -> None:
    assert encode(ask(tools=[]), CLAUDE).keys() == {"model", "messages"}


@pytest.mark.parametrize(
    ("last", "thinks"),
    [
        ([], True),
        ([replied(THOUGHT, USE), RESULT], True),
        ([replied(HIDDEN, USE), RESULT], True),
        ([replied(USE), RESULT], False),
        ([replied(SAID, THOUGHT, USE), RESULT], False),
        ([replied(SAID), USER], True),
        ([replied(USE), RESULT, USER, replied(SAID), USER], True),
        ([replied(SAID, SERVER_USE, FOUND)], False),
        ([replied(THOUGHT, SERVER_USE, FOUND)], True),
        ([replied(SAID), replied(THOUGHT, USE), RESULT], False),
        ([replied(THOUGHT, SAID), replied(USE), RESULT], True),
        ([replied(USE), RESULT, USER, replied(THOUGHT, {**USE, "id": "t2"})], True),
        ([replied(THOUGHT, USE), RESULT, USER, replied({**USE, "id": "t2"})], False),
        (
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "t1",
                            "type": "function",
                            "function": {"name": "look_up", "arguments": "{}"},
                        }
                    ],
                },
                RESULT,
            ],
            False,
        ),
        ([{"type": "function_call", "call_id": "t1", "name": "look_up", "arguments": "{}"}], False),
    ],
)
def test_thinking_is_off_when_the_last_reply_does_not_begin_with_it(
    last: list[dict[str, Any]], thinks: bool
) -> None:
    wire = encode(ask(messages=[USER, *last], settings=LOW), CLAUDE)
    assert ("thinking" in wire) is thinks
    assert (wire["tool_choice"] == "auto") is thinks
    kinds = {
        block["type"]
        for message in sent(wire)
        if message["role"] == "assistant"
        for block in message["content"]
    }
    assert thinks or not kinds & {"thinking", "redacted_thinking"}


def test_replies_of_other_formats_are_translated() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"a'}}
    history = [
        USER,
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {**RESULT, "tool_call_id": "c1"},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c2", "name": "look_up", "arguments": '{"b": 1}'},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
    ]
    messages = sent(encode(ask(messages=history), CLAUDE_UNMARKED))
    assert [message["content"] for message in messages] == [
        [{"type": "text", "text": "hi"}],
        [
            {"type": "text", "text": "I look."},
            {**USE, "id": "c1", "input": {INVALID_JSON_KEY: '{"a'}},
        ],
        [{"type": "tool_result", "tool_use_id": "c1", "content": "SUCCESS"}],
        [{**USE, "id": "c2", "input": {"b": 1}}],
        [{"type": "tool_result", "tool_use_id": "c2", "content": "two"}],
    ]


@pytest.mark.parametrize(
    ("budget", "limit", "sent_budget"),
    [(500, None, 1024), (500, 900, None), (1024, 1025, 1024), (5000, 6000, 5000)],
)
def test_the_budget_is_one_that_the_provider_takes(
    budget: int, limit: int | None, sent_budget: int | None
) -> None:
    wire = encode(ask(settings=LLMSettings.resolve(None, budget, limit)), CLAUDE)
    assert wire.get("thinking", {}).get("budget_tokens") == sent_budget
    assert wire["tool_choice"] == ("required" if sent_budget is None else "auto")


def test_a_tool_that_never_finished_is_left_out_unless_the_reply_shall_go_on() -> None:
    cut = replied(THOUGHT, SAID, SERVER_USE)
    paused = encode(ask(messages=[USER, cut], settings=LOW), CLAUDE)
    assert sent(paused)[1]["content"] == [THOUGHT, SAID, SERVER_USE]
    over = encode(ask(messages=[USER, cut, USER], settings=LOW), CLAUDE)
    assert sent(over)[1]["content"] == [THOUGHT, SAID]
    called = encode(
        ask(messages=[USER, replied(THOUGHT, USE, SERVER_USE), RESULT], settings=LOW), CLAUDE
    )
    assert sent(called)[1]["content"] == [THOUGHT, USE]


def test_thinking_at_the_very_end_of_a_reply_is_left_out() -> None:
    """Where the token limit cut a reply off; the provider refuses such an end."""
    history = [USER, replied(THOUGHT, SERVER_USE, FOUND, THOUGHT, HIDDEN), USER]
    wire = encode(ask(messages=history, settings=LOW), CLAUDE)
    assert sent(wire)[1]["content"] == [THOUGHT, SERVER_USE, FOUND]
    wire = encode(ask(messages=[USER, replied(THOUGHT), USER], settings=LOW), CLAUDE)
    assert [message["role"] for message in sent(wire)] == ["user"]


# --- cache ---


@pytest.mark.parametrize(
    "history",
    [
        [USER],
        [USER, replied(THOUGHT, USE), RESULT],
        [USER, replied(SAID), {"role": "user", "content": [{"type": "text", "text": "a"}]}],
        [USER, replied(SERVER_USE)],
        [],
    ],
)
@pytest.mark.parametrize("system", ["Be brief.", ""])
def test_only_the_prompt_and_the_end_are_marked_for_the_cache(
    history: list[dict[str, Any]], system: str
) -> None:
    request = ask(messages=history, system=system, settings=LOW)
    found = list(marks(encode(request, CLAUDE)["messages"]))
    continued = bool(history) and history[-1]["role"] == "assistant"
    assert found == [MARK] * ((1 if system else 0) + (1 if history and not continued else 0))
    assert list(marks(encode(request, CLAUDE)["tools"])) == []
    assert list(marks(encode(request, CLAUDE_UNMARKED))) == []


def test_the_mark_arrives_at_the_last_block() -> None:
    wire = encode(ask(messages=[USER, replied(USE), RESULT]), CLAUDE)
    assert sent(wire)[-1]["content"][-1] == {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": "SUCCESS",
        "cache_control": MARK,
    }
    assert sent(encode(ask(), CLAUDE))[0]["content"] == [
        {"type": "text", "text": "hi", "cache_control": MARK}
    ]


def test_an_empty_message_is_not_marked() -> None:
    wire = encode(ask(messages=[{"role": "user", "content": ""}]), CLAUDE)
    assert list(marks(wire["messages"][1:])) == []


def test_a_growing_history_keeps_its_beginning_but_for_the_mark() -> None:
    later = [replied(THOUGHT, {**USE, "id": "t2"}), {**RESULT, "tool_call_id": "t2"}]
    history = [USER, replied(THOUGHT, HIDDEN, SAID, USE), RESULT, USER, *later, USER]
    tools = ToolSet([TOOL])
    wires = [
        encode(ask(messages=history[:length], tools=tools, settings=LOW), CLAUDE)
        for length in (1, 3, 6, 7)
    ]
    for first, second in pairwise(wires):
        assert json.dumps(first["tools"]) == json.dumps(second["tools"])
        assert json.dumps(first["messages"][0]) == json.dumps(second["messages"][0])
        old, new = unmarked(first["messages"]), unmarked(second["messages"])
        assert json.dumps(old) == json.dumps(new[: len(old)])
