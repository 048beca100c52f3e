"""How models are asked to think: a budget, an effort, or not at all."""

from dataclasses import replace
from typing import Any

import pytest

from mail.llm import anthropic, completions
from mail.llm.litellm_model import load_library
from mail.llm.profiles import profile_of
from mail.llm.settings import LLMSettings
from mail.llm.thinking import thinking_arguments
from mail.llm.wires import encoded
from tests.llm.support import ADAPTS, BUDGET, CLAUDE, CLAUDE_BY_CHAT, ask

LOW = LLMSettings.resolve("low")
USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "post"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
SILENT_TURN = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]
ADAPTIVE = {"type": "adaptive", "display": "summarized"}
BEDROCK = "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0"


def budget(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high"])
def test_a_model_that_adapts_gets_the_effort_that_was_asked_for(effort: str) -> None:
    settings = LLMSettings.resolve(effort)
    asked = {"thinking": ADAPTIVE, "reasoning_effort": effort}
    assert thinking_arguments(settings, ADAPTS) == asked
    wire = anthropic.encode(ask(settings=settings), ADAPTS)
    assert (wire["thinking"], wire["reasoning_effort"]) == (ADAPTIVE, effort)
    assert "extra_headers" not in wire  # it thinks between its calls by itself
    assert wire["tool_choice"] == "auto"


@pytest.mark.parametrize(
    ("tokens", "effort"),
    [(100, "minimal"), (2000, "minimal"), (4000, "low"), (15_999, "medium"), (99_000, "high")],
)
def test_a_budget_amounts_to_an_effort(tokens: int, effort: str) -> None:
    settings = LLMSettings.resolve(thinking_budget=tokens)
    assert settings.effort == effort
    assert thinking_arguments(settings, ADAPTS)["reasoning_effort"] == effort


@pytest.mark.parametrize(
    ("settings", "least", "expected"),
    [
        (LLMSettings(), 1, {}),
        (LOW, 1, {**budget(4000), "max_tokens": 8000}),
        (LLMSettings(thinking_budget=10, max_tokens=90), 1, {**budget(10), "max_tokens": 90}),
        (LLMSettings(thinking_budget=10), 1024, {**budget(1024), "max_tokens": 5024}),
        (LLMSettings(thinking_budget=10, max_tokens=1024), 1024, {}),
    ],
)
def test_others_get_a_budget_that_leaves_room(
    settings: LLMSettings, least: int, expected: dict[str, Any]
) -> None:
    assert thinking_arguments(settings, BUDGET, least=least) == expected


def test_without_effort_or_budget_nobody_is_asked_to_think() -> None:
    assert thinking_arguments(LLMSettings(), ADAPTS) == {}


def test_a_model_that_adapts_may_begin_to_think_in_the_middle_of_a_turn() -> None:
    request = ask(messages=SILENT_TURN, settings=LOW)
    assert "thinking" in anthropic.encode(request, ADAPTS)
    assert "thinking" not in anthropic.encode(request, CLAUDE)
    assert "thinking" in completions.encode(request, replace(ADAPTS, wire="completions"))


def test_claude_by_chat_does_not_think_where_it_did_not_begin_to() -> None:
    wire = completions.encode(ask(messages=SILENT_TURN, settings=LOW), CLAUDE_BY_CHAT)
    assert not {"thinking", "reasoning_effort"} & wire.keys()
    assert wire["tool_choice"] == "required"
    thought = {**SILENT_TURN[1], "thinking_blocks": [THOUGHT]}
    history = [USER, thought, RESULT]
    wire = completions.encode(ask(messages=history, settings=LOW), CLAUDE_BY_CHAT)
    assert wire["thinking"] == budget(4000)["thinking"]
    assert wire["messages"][2]["thinking_blocks"] == [THOUGHT]


def test_others_by_chat_may_think_at_any_time() -> None:
    wire = completions.encode(ask(messages=SILENT_TURN, settings=LOW), BUDGET)
    assert wire["thinking"] == budget(4000)["thinking"]


@pytest.mark.parametrize("history", [[USER], SILENT_TURN], ids=["user", "tool"])
def test_claude_on_bedrock_has_marks_for_the_cache(history: list[dict[str, Any]]) -> None:
    library = load_library()
    request = ask(model=BEDROCK, messages=history, settings=LOW)
    wire = encoded(request, profile_of(library, BEDROCK, "completions"))
    name, messages = wire.pop("model").removeprefix("bedrock/"), wire.pop("messages")
    options = library.get_optional_params(
        model=name, custom_llm_provider="bedrock", messages=messages, drop_params=True, **wire
    )
    body = library.AmazonConverseConfig()._transform_request(name, messages, options, {}, {})
    assert body["system"][-1] == {"cachePoint": {"type": "default"}}
    assert body["messages"][-1]["content"][-1] == {"cachePoint": {"type": "default"}}
    assert ("thinking" in body.get("additionalModelRequestFields", {})) is (history == [USER])
