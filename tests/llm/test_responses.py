"""The Responses codec, as pure functions."""

import json
from typing import Any

import pytest

from mail.core.tools.call import INVALID_JSON_KEY
from mail.core.usage import Usage
from mail.errors import ModelError
from mail.llm.ask import agent_output
from mail.llm.profiles import UNKNOWN
from mail.llm.request import CallPiece
from mail.llm.responses import BUILTIN_ITEMS, decode, encode
from mail.llm.settings import LLMSettings
from mail.llm.tools import ToolSet
from tests.llm.streams import as_objects, read, response, responses_events
from tests.llm.support import REASONS, TOOL, ask

USER = {"role": "user", "content": "hi"}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "gAAAAABsealed",
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "c1",
    "name": "look_up",
    "arguments": "{}",
}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "SUCCESS"}
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
SAID = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Well.", "annotations": []}],
}
FORCED = {"type": "function", "name": "look_up"}
OBJECTS = pytest.mark.parametrize("objects", [False, True], ids=["mappings", "objects"])


# --- request ---


def test_the_system_prompt_is_the_instructions() -> None:
    wire = encode(ask())
    assert (wire["instructions"], wire["input"]) == ("Be brief.", [USER])
    assert wire["store"] is False
    parts = [{"type": "text", "text": "Mi"}, {"type": "text", "text": "ne."}]
    for own in ("Mine.", parts):
        wire = encode(ask(messages=[{"role": "system", "content": own}, USER]))
        assert (wire["instructions"], wire["input"]) == ("Mine.", [USER])
    assert "instructions" not in encode(ask(system=""))


def test_a_model_that_does_not_reason_gets_no_reasoning_and_no_ids_that_hang_on_it() -> None:
    wire = encode(ask(messages=[USER, REASONING, SEARCH, SAID, CALL, OUTPUT]))
    no_id = [{key: value for key, value in item.items() if key != "id"} for item in (SAID, CALL)]
    assert wire["input"] == [USER, SEARCH, *no_id, OUTPUT]


def test_replies_of_other_formats_are_translated() -> None:
    function = {"name": "look_up", "arguments": '{"a'}
    history = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            "reasoning_content": "hm",
        },
        {"role": "tool", "name": "look_up", "content": "one", "tool_call_id": "c1"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c2", "name": "look_up", "input": {"b": 1}},
            ],
        },
        {"role": "tool", "name": "look_up", "content": "two", "tool_call_id": "c2"},
        {"role": "assistant", "content": "Done."},
    ]
    broken = json.dumps({INVALID_JSON_KEY: '{"a'})
    call = {"type": "function_call", "name": "look_up"}
    assert encode(ask(messages=history), REASONS)["input"] == [
        {**call, "call_id": "c1", "arguments": broken},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"role": "assistant", "content": "I look."},
        {**call, "call_id": "c2", "arguments": '{"b": 1}'},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"role": "assistant", "content": "Done."},
    ]


def test_tools_are_flat_and_say_whether_they_are_strict() -> None:
    lax = {"type": "function", "function": {"name": "lax", "parameters": {"type": "object"}}}
    tools = encode(ask(tools=[TOOL, lax, {"type": "web_search"}]))["tools"]
    assert [tool.get("name") for tool in tools] == ["look_up", "lax", None]
    assert [tool.get("strict") for tool in tools] == [True, False, None]


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("required", "required"),
        ("auto", "auto"),
        ("none", "none"),
        (FORCED, FORCED),
        ({"type": "function", "function": {"name": "look_up"}}, FORCED),
        ({"type": "function", "name": "not_offered"}, "required"),
        ({"type": "function"}, "required"),
        ({"type": "web_search"}, {"type": "web_search"}),
        ({"type": "file_search"}, "required"),
    ],
)
@pytest.mark.parametrize("reasoning", [True, False])
def test_tool_choice_is_translated(choice: object, wire: object, reasoning: bool) -> None:
    request = ask(tools=[TOOL, {"type": "web_search"}], tool_choice=choice)
    assert encode(request, REASONS if reasoning else UNKNOWN)["tool_choice"] == wire


def test_without_tools_there_is_no_tool_choice() -> None:
    assert encode(ask(tools=[], system="")).keys() == {"model", "input", "store"}


def test_a_reasoning_model_is_asked_for_a_summary_and_the_sealed_text() -> None:
    wire = encode(ask(), REASONS)
    assert wire["reasoning"] == {"summary": "auto"}  # the effort is the provider's
    assert wire["include"] == ["reasoning.encrypted_content"]
    wire = encode(ask(settings=LLMSettings.resolve("high", max_tokens=500)), REASONS)
    assert wire["reasoning"] == {"effort": "high", "summary": "auto"}
    assert wire["max_output_tokens"] == 500
    wire = encode(ask(settings=LLMSettings.resolve("high")))
    assert not {"reasoning", "include", "thinking", "reasoning_effort"} & wire.keys()


def test_what_code_puts_out_is_asked_for() -> None:
    code = {"type": "code_interpreter", "container": {"type": "auto"}}
    wire = encode(ask(tools=[TOOL, code]), REASONS)
    assert wire["include"] == ["reasoning.encrypted_content", "code_interpreter_call.outputs"]
    assert encode(ask(tools=[code]))["include"] == ["code_interpreter_call.outputs"]


def test_a_growing_history_keeps_its_beginning_byte_for_byte() -> None:
    history = [USER, REASONING, CALL, OUTPUT]
    later = {**CALL, "call_id": "c2", "id": "fc_2"}
    grown = [*history, USER, REASONING, later, {**OUTPUT, "call_id": "c2"}, USER]
    tools = ToolSet([TOOL])
    first = encode(ask(messages=history, tools=tools), REASONS)
    second = encode(ask(messages=grown, tools=tools), REASONS)
    assert json.dumps(first["tools"]) == json.dumps(second["tools"])
    assert first["instructions"] == second["instructions"]
    assert json.dumps(first["input"]) == json.dumps(second["input"][: len(history)])


# --- events ---


def test_a_call_begins_where_its_item_is_added() -> None:
    added = {"type": "response.output_item.added", "output_index": 3}
    begun = CallPiece(3, "c1", "look_up")
    assert decode({**added, "item": {**CALL, "arguments": ""}}).calls == (begun,)
    for kind in BUILTIN_ITEMS:
        item = {"type": kind, "id": "x_1"}
        assert decode({**added, "item": item}).calls == (CallPiece(3, "x_1", kind, builtin=True),)
    assert decode({**added, "item": REASONING}).calls == ()
    delta = {"type": "response.function_call_arguments.delta", "output_index": 3, "delta": "{"}
    assert decode(delta).calls == (CallPiece(3, arguments="{"),)


@OBJECTS
async def test_the_end_brings_the_usage_and_the_reason(objects: bool) -> None:
    reply = await read("responses", responses_events(SAID), objects=objects)
    assert reply.finish == "completed"
    assert reply.usage == Usage(
        prompt_tokens=10,
        completion_tokens=7,
        total_tokens=17,
        cached_tokens=4,
        reasoning_tokens=3,
    )


@OBJECTS
async def test_a_reply_cut_off_says_why(objects: bool) -> None:
    ended = response("incomplete", [SAID], incomplete_details={"reason": "max_output_tokens"})
    events = [*responses_events(SAID)[:-1], {"type": "response.incomplete", "response": ended}]
    reply = await read("responses", events, objects=objects)
    assert (reply.text, reply.finish) == ("Well.", "max_output_tokens")


@OBJECTS
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("rate_limit_exceeded", 429),
        ("server_error", 500),
        ("vector_store_timeout", 504),
        ("insufficient_quota", 402),
        ("invalid_prompt", 400),
        ("image_too_large", 400),
        ("context_length_exceeded", 400),
        ("something_new", None),
    ],
)
def test_a_failed_reply_is_an_error_with_a_status(
    code: str, status: int | None, objects: bool
) -> None:
    failed = response("failed", [], error={"code": code, "message": "It went wrong."})
    events: Any = [{"type": "response.failed", "response": failed, "sequence_number": 1}]
    (event,) = as_objects("responses", events) if objects else events
    with pytest.raises(ModelError, match=r"^model call failed: It went wrong\.$") as caught:
        decode(event)
    assert caught.value.status == status


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down."},
        {"type": "error", "error": {"code": "rate_limit_exceeded", "message": "Slow down."}},
    ],
)
def test_an_error_event_is_an_error_with_a_status(event: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="Slow down") as caught:
        decode(event)
    assert caught.value.status == 429


def test_a_failure_without_a_reason_is_still_one() -> None:
    with pytest.raises(ModelError, match="the provider gave no reason"):
        decode({"type": "error"})
    with pytest.raises(ModelError, match="server_error"):
        decode({"type": "response.failed", "response": {"error": {"code": "server_error"}}})


def test_no_key_gets_into_the_error() -> None:
    message = "Incorrect API key provided: sk-0123456789abcdef " + "x" * 9000
    with pytest.raises(ModelError) as caught:
        decode({"type": "error", "code": "invalid_api_key", "message": message})
    assert "0123456789" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert caught.value.status == 401


# --- replies ---


async def test_a_call_without_a_name_or_an_id_can_be_answered() -> None:
    reply = await read("responses", responses_events({"type": "function_call", "arguments": "{}"}))
    (call,) = agent_output(reply)[1]
    assert call.tool_name == "unnamed_tool"
    assert call.tool_call_id
    assert call.tool_call_id == call.responses[0]["call_id"]


@OBJECTS
async def test_items_keep_what_the_provider_needs_and_lose_its_empty_fields(objects: bool) -> None:
    reasoning = {**REASONING, "content": None, "status": None}
    events = responses_events(reasoning, {**CALL, "namespace": None})
    reply = await read("responses", events, objects=objects)
    assert list(reply.items) == [REASONING, CALL]


async def test_items_that_only_come_at_the_end_are_taken_from_there() -> None:
    events = responses_events(REASONING, CALL, SAID, whole_items=False)
    reply = await read("responses", events)
    assert list(reply.items) == [CALL, SAID]
    assert agent_output(reply)[1][0].reasoning == ["hm"]


async def test_streamed_reasoning_fills_in_for_a_blank_summary() -> None:
    blank = {**REASONING, "summary": [{"type": "summary_text", "text": ""}]}
    events = [
        {**event, "item": blank} if event.get("item", {}).get("type") == "reasoning" else event
        for event in responses_events(REASONING, CALL)
    ]
    (call,) = agent_output(await read("responses", events))[1]
    assert call.reasoning == ["hm"]
    assert call.responses[0] == blank


async def test_a_reply_that_never_came_whole_is_put_together_from_its_pieces() -> None:
    events = responses_events(REASONING, SAID, CALL, whole_items=False)[:-1]
    (call,) = agent_output(await read("responses", events))[1]
    assert (call.reasoning, call.preamble, call.tool_args) == (["hm"], "Well.", {})
    assert call.completion["tool_calls"][0]["id"] == "c1"
    assert call.create_response_msg("ok")["tool_call_id"] == "c1"


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (SEARCH, {"query": "q", "search_type": "search", "status": "completed"}),
        (
            {**SEARCH, "action": {"type": "open_page", "url": "https://t"}},
            {"query": "https://t", "search_type": "open_page", "status": "completed"},
        ),
        (
            {"id": "ws_1", "type": "web_search_call", "status": "failed"},
            {"query": "", "search_type": None, "status": "failed"},
        ),
        (
            {"id": "ci_1", "type": "code_interpreter_call", "container_id": "x", "code": "1"}
            | {"status": "completed", "outputs": [{"type": "logs", "logs": "1"}]},
            {"code": "1", "outputs": [{"type": "logs", "logs": "1"}], "status": "completed"},
        ),
        (
            {"id": "ig_1", "type": "image_generation_call", "status": "completed"}
            | {"result": "iVBORw0KGgo"},
            {"status": "completed"},
        ),
        (
            {"id": "mcp_1", "type": "mcp_call", "name": "t", "arguments": "{}", "output": "o"},
            {"name": "t", "arguments": "{}", "output": "o"},
        ),
    ],
)
async def test_events_show_what_matters_of_a_built_in_call(
    item: dict[str, Any], shown: dict[str, Any]
) -> None:
    (call,) = agent_output(await read("responses", responses_events(item)))[1]
    assert (call.tool_name, call.tool_call_id) == (item["type"], item["id"])
    assert call.tool_args == shown
    assert call.responses == [item]
