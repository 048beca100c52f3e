"""The chat-completions codec, as pure functions."""

import copy
import json
from types import SimpleNamespace

import pytest

from mail.core.tools.call import INVALID_JSON_KEY
from mail.llm.completions import (
    assistant_message,
    decode,
    encode,
    nested_tool,
    parse_arguments_text,
)
from mail.llm.request import ModelReply, ToolCallDraft
from mail.llm.settings import LLMSettings
from tests.llm.support import TOOL, ask

FLAT = {"type": "function", "name": "look_up", "parameters": {"type": "object"}, "strict": False}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    ],
    "reasoning_content": "hm",
    "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
}
RESULT = {"role": "tool", "name": "look_up", "content": "SUCCESS", "tool_call_id": "c1"}


def test_encode_puts_the_system_prompt_first_and_leaves_the_history_alone() -> None:
    history = [{"role": "user", "content": "hi"}, CALLED, RESULT]
    before = copy.deepcopy(history)
    wire = encode(ask(messages=history))
    assert [m["role"] for m in wire["messages"]] == ["system", "user", "assistant", "tool"]
    wire["messages"][2]["tool_calls"][0]["id"] = "changed"
    wire["tools"][0]["function"]["name"] = "changed"
    assert history == before
    assert TOOL["function"]["name"] == "look_up"


def test_a_history_with_its_own_system_message_keeps_it() -> None:
    wire = encode(ask(messages=[{"role": "system", "content": "Mine."}]))
    assert wire["messages"] == [{"role": "system", "content": "Mine."}]


def test_consecutive_user_messages_stay() -> None:
    wire = encode(ask(messages=[{"role": "user", "content": text} for text in "ab"]))
    assert [m["content"] for m in wire["messages"]] == ["Be brief.", "a", "b"]


def test_flat_tools_become_nested() -> None:
    assert nested_tool(FLAT) == {
        "type": "function",
        "function": {"name": "look_up", "parameters": {"type": "object"}, "strict": False},
    }
    assert nested_tool(TOOL) == TOOL
    assert nested_tool({"type": "web_search"}) == {"type": "web_search"}


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("required", "required"),
        ("auto", "auto"),
        (
            {"type": "function", "name": "look_up"},
            {"type": "function", "function": {"name": "look_up"}},
        ),
        (
            {"type": "function", "function": {"name": "look_up"}},
            {"type": "function", "function": {"name": "look_up"}},
        ),
        ({"type": "function", "name": "not_offered"}, "required"),
    ],
)
def test_tool_choice_is_translated(choice: object, wire: object) -> None:
    assert encode(ask(tool_choice=choice))["tool_choice"] == wire


def test_without_tools_there_is_no_tool_choice() -> None:
    assert encode(ask(tools=[])).keys() == {"model", "messages"}


def test_a_thinking_provider_gets_the_budget_its_blocks_and_a_free_choice() -> None:
    request = ask(messages=[CALLED, RESULT], settings=LLMSettings.resolve("low"))
    wire = encode(request, thinking=True)
    assert wire["thinking"] == {"type": "enabled", "budget_tokens": 4000}
    assert "reasoning_effort" not in wire
    assert wire["tool_choice"] == "auto"
    assert wire["messages"][1]["thinking_blocks"] == CALLED["thinking_blocks"]


def test_other_providers_get_the_effort_and_no_foreign_reasoning() -> None:
    wire = encode(ask(messages=[CALLED, RESULT], settings=LLMSettings.resolve("low")))
    assert wire["reasoning_effort"] == "low"
    assert "thinking" not in wire
    assert not {"reasoning_content", "thinking_blocks"} & wire["messages"][1].keys()


def test_decode_reads_mappings_and_objects_alike() -> None:
    call = {"index": 1, "id": "c", "function": {"name": "f", "arguments": "{"}}
    piece = {"content": "a", "reasoning_content": "b", "tool_calls": [call]}
    chunk = {"choices": [{"delta": piece, "finish_reason": "stop"}], "usage": {"total_tokens": 3}}
    thing = json.loads(json.dumps(chunk), object_hook=lambda d: SimpleNamespace(**d))
    assert decode(chunk) == decode(thing)
    delta = decode(chunk)
    assert (delta.text, delta.reasoning, delta.finish) == ("a", "b", "stop")
    assert (delta.calls[0].index, delta.calls[0].name) == (1, "f")
    assert delta.usage == {"total_tokens": 3}
    assert decode({"choices": []}).text == ""


def test_a_refusal_is_text() -> None:
    assert decode({"choices": [{"delta": {"refusal": "No."}}]}).text == "No."


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert parse_arguments_text(text) == {}


@pytest.mark.parametrize("text", ['{"a": 1', "[1]", "null", '"text"', "<xml/>", "[" * 100_000])
def test_anything_but_an_object_is_marked(text: str) -> None:
    assert parse_arguments_text(text) == {INVALID_JSON_KEY: text[:2000]}


def test_the_history_entry_holds_valid_json_whatever_the_model_wrote() -> None:
    reply = ModelReply(
        calls=(
            ToolCallDraft(id="1", name="f", arguments='{"a": "ü"}', reasoning=("r1", "r2")),
            ToolCallDraft(id="2", name="f", arguments='{"a'),
        )
    )
    entry = assistant_message(reply)
    texts = [call["function"]["arguments"] for call in entry["tool_calls"]]
    assert [json.loads(text) for text in texts] == [{"a": "ü"}, {INVALID_JSON_KEY: '{"a'}]
    assert entry["content"] is None
    assert entry["reasoning_content"] == "r1\n\nr2"


def test_a_text_reply_is_stored_as_text() -> None:
    assert assistant_message(ModelReply(text="hi")) == {"role": "assistant", "content": "hi"}
