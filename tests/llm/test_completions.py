"""The chat-completions codec, as pure functions."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from mail.core.tools.call import INVALID_JSON_KEY
from mail.core.usage import Usage
from mail.llm.completions import assistant_message, decode, encode, usage_of
from mail.llm.request import FunctionCall, ModelReply, Speech, Thought
from mail.llm.settings import LLMSettings
from mail.llm.tools import ToolSet
from tests.llm.streams import as_objects, chat_events
from tests.llm.support import BUDGET, TOOL, ask

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
USER = {"role": "user", "content": "hi"}
FORCED = {"type": "function", "function": {"name": "look_up"}}


def test_a_history_with_its_own_system_message_keeps_it() -> None:
    wire = encode(ask(messages=[{"role": "system", "content": "Mine."}]))
    assert wire["messages"] == [{"role": "system", "content": "Mine."}]


def test_without_a_system_prompt_there_is_no_system_message() -> None:
    assert encode(ask(system=""))["messages"] == [USER]


def test_consecutive_user_messages_stay() -> None:
    wire = encode(ask(messages=[{"role": "user", "content": text} for text in "ab"]))
    assert [m["content"] for m in wire["messages"]] == ["Be brief.", "a", "b"]


def test_replies_of_other_formats_are_translated() -> None:
    history = [
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c2", "name": "look_up", "input": {"b": "ü"}},
            ],
        },
        {"role": "tool", "name": "look_up", "content": "two", "tool_call_id": "c2"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Done."}],
        },
    ]
    messages = encode(ask(messages=history, system=""))["messages"]
    calls = [call for message in messages for call in message.pop("tool_calls", ())]
    assert messages == [
        {"role": "assistant", "content": None},
        {"role": "tool", "name": "look_up", "content": "one", "tool_call_id": "c1"},
        {"role": "assistant", "content": "I look."},
        {"role": "tool", "name": "look_up", "content": "two", "tool_call_id": "c2"},
        {"role": "assistant", "content": "Done."},
    ]
    assert [(c["id"], c["function"]["arguments"]) for c in calls] == [
        ("c1", '{"a": 1}'),
        ("c2", '{"b": "ü"}'),
    ]


def test_an_empty_list_of_calls_is_not_sent() -> None:
    entry = {"role": "assistant", "content": None, "tool_calls": []}
    assert encode(ask(messages=[entry], system=""))["messages"] == [
        {"role": "assistant", "content": "(nothing)"}
    ]


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("required", "required"),
        ("auto", "auto"),
        ("none", "none"),
        ({"type": "function", "name": "look_up"}, FORCED),
        (FORCED, FORCED),
        ({"type": "function", "name": "not_offered"}, "required"),
        ({"type": "web_search"}, "required"),
    ],
)
@pytest.mark.parametrize("tools", [[TOOL, {"type": "web_search"}], ToolSet([TOOL])])
def test_tool_choice_is_translated(tools: Any, choice: object, wire: object) -> None:
    assert encode(ask(tools=tools, tool_choice=choice))["tool_choice"] == wire


def test_without_tools_there_is_no_tool_choice() -> None:
    assert encode(ask(tools=[])).keys() == {"model", "messages"}


def test_a_thinking_provider_gets_the_budget_its_blocks_and_a_free_choice() -> None:
    request = ask(messages=[CALLED, RESULT], settings=LLMSettings.resolve("low"))
    wire = encode(request, BUDGET)
    assert wire["thinking"] == {"type": "enabled", "budget_tokens": 4000}
    assert wire["max_tokens"] == 8000
    assert "reasoning_effort" not in wire
    assert wire["tool_choice"] == "auto"
    assert wire["messages"][1]["thinking_blocks"] == CALLED["thinking_blocks"]
    assert wire["messages"][1]["reasoning_content"] == "hm"


def test_thinking_does_not_undo_that_no_tool_may_be_called() -> None:
    request = ask(tool_choice="none", settings=LLMSettings.resolve("low"))
    assert encode(request, BUDGET)["tool_choice"] == "none"


def test_a_forced_tool_is_called_without_thinking() -> None:
    request = ask(tool_choice=FORCED, settings=LLMSettings.resolve("low"))
    wire = encode(request, BUDGET)
    assert not {"thinking", "reasoning_effort"} & wire.keys()
    assert wire["tool_choice"] == FORCED
    assert encode(request)["reasoning_effort"] == "low"


def test_other_providers_get_the_effort_and_no_foreign_reasoning() -> None:
    wire = encode(ask(messages=[CALLED, RESULT], settings=LLMSettings.resolve("low")))
    assert wire["reasoning_effort"] == "low"
    assert "thinking" not in wire
    assert not {"reasoning_content", "thinking_blocks"} & wire["messages"][1].keys()


def test_a_growing_history_keeps_its_beginning_byte_for_byte() -> None:
    history = [USER, CALLED, RESULT]
    tools = ToolSet([TOOL])
    first = encode(ask(messages=history, tools=tools))
    second = encode(ask(messages=[*history, USER, CALLED, RESULT, USER], tools=tools))
    assert json.dumps(first["tools"]) == json.dumps(second["tools"])
    old = len(first["messages"])
    assert json.dumps(first["messages"]) == json.dumps(second["messages"][:old])


def test_decode_reads_mappings_and_objects_alike() -> None:
    call = {"index": 1, "id": "c", "function": {"name": "f", "arguments": "{"}}
    piece = {"content": "a", "reasoning_content": "b", "tool_calls": [call]}
    chunk = {"choices": [{"delta": piece, "finish_reason": "stop"}], "usage": {"total_tokens": 3}}
    thing = json.loads(json.dumps(chunk), object_hook=lambda d: SimpleNamespace(**d))
    assert decode(chunk) == decode(thing)
    delta = decode(chunk)
    assert (delta.text, delta.reasoning, delta.finish) == ("a", "b", "stop")
    assert (delta.calls[0].index, delta.calls[0].name) == (1, "f")
    assert delta.usage == Usage(total_tokens=3)
    assert decode({"choices": []}).text == ""


def test_decode_reads_what_the_library_makes_of_a_chunk() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    events = chat_events(
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "a"},
        {"tool_calls": [call]},
        usage={"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3},
    )
    assert [decode(thing) for thing in as_objects("completions", events)] == [
        decode(event) for event in events
    ]


def test_calls_without_an_index_are_counted() -> None:
    calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in "ab"]
    delta = decode({"choices": [{"delta": {"tool_calls": calls}}]})
    assert [(call.index, call.id) for call in delta.calls] == [(0, "a"), (1, "b")]


def test_thinking_blocks_alone_are_reasoning_too() -> None:
    block = {"type": "thinking", "thinking": "hm"}
    delta = decode({"choices": [{"delta": {"thinking_blocks": [block]}}]})
    assert (delta.reasoning, delta.thinking) == ("hm", (block,))


CHAT_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 80, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 15},
}
ITEM_USAGE = {
    "input_tokens": 100,
    "output_tokens": 20,
    "total_tokens": 120,
    "input_tokens_details": {"cached_tokens": 80},
    "output_tokens_details": {"reasoning_tokens": 15},
}


@pytest.mark.parametrize("given", [CHAT_USAGE, ITEM_USAGE])
@pytest.mark.parametrize("objects", [False, True])
def test_usage_is_read_in_the_fields_of_either_api(given: dict[str, Any], objects: bool) -> None:
    usage: Any = given
    if objects:
        usage = json.loads(json.dumps(given), object_hook=lambda d: SimpleNamespace(**d))
    assert usage_of(usage) == Usage(
        prompt_tokens=100,
        completion_tokens=20,
        total_tokens=120,
        cached_tokens=80,
        reasoning_tokens=15,
    )


@pytest.mark.parametrize(
    ("given", "usage"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None),
        ({"prompt_tokens": 3, "completion_tokens": None}, Usage(prompt_tokens=3, total_tokens=3)),
        (
            {"input_tokens": 3, "output_tokens": 2, "input_tokens_details": None},
            Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5),
        ),
        ({"total_tokens": 3, "cost": 0.25}, Usage(total_tokens=3, cost=0.25)),
        ({"total_tokens": 3, "cost": 0}, Usage(total_tokens=3)),
        ({"total_tokens": 3, "cost": {"total": 1}}, Usage(total_tokens=3)),
    ],
)
def test_odd_usage_is_read_as_far_as_it_goes(given: Any, usage: Usage | None) -> None:
    assert usage_of(given) == usage


def test_the_history_entry_holds_valid_json_whatever_the_model_wrote() -> None:
    blocks = [{"type": "thinking", "thinking": text, "signature": "s"} for text in ("r1", "r2")]
    reply = ModelReply(
        parts=(
            Thought("r1", blocks[0]),
            Speech("Look. "),
            FunctionCall("1", "f", '{"a": "ü"}'),
            Thought("r2", blocks[1]),
            FunctionCall("2", "f", '{"a'),
            Speech("So."),
        )
    )
    entry = assistant_message(reply)
    texts = [call["function"]["arguments"] for call in entry["tool_calls"]]
    assert [json.loads(text) for text in texts] == [{"a": "ü"}, {INVALID_JSON_KEY: '{"a'}]
    assert texts[0] == '{"a": "ü"}'
    assert entry["content"] == "Look. So."
    assert entry["reasoning_content"] == "r1\n\nr2"
    assert entry["thinking_blocks"] == blocks
    assert entry["thinking_blocks"][0] is not blocks[0]


def test_calls_without_text_have_no_content() -> None:
    entry = assistant_message(ModelReply(parts=(FunctionCall("1", "f", ""),)))
    assert entry["content"] is None
    assert entry["tool_calls"][0]["function"]["arguments"] == "{}"
    assert entry.keys() == {"role", "content", "tool_calls"}


def test_a_text_reply_is_stored_as_text() -> None:
    reply = ModelReply(parts=(Speech("hi"),))
    assert assistant_message(reply) == {"role": "assistant", "content": "hi"}
