"""Tool calls as messages, and breakpoint calls as callers see them."""

import json
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from mail.core.schema import parse_message
from mail.core.tools.call import AgentToolCall
from mail.core.tools.convert import convert_call_to_mail_message, normalize_breakpoint_tool_call
from tests.support.messages import json_objects, relaxed, texts

SEND = {"target": "tides", "subject": "s", "body": "b"}
ALL = [{"address_type": "agent", "address": "all"}]


def call_of(name: str, arguments: dict[str, Any], **fields: Any) -> AgentToolCall:
    fields = {"completion": {"role": "assistant"}} | fields
    return AgentToolCall(tool_name=name, tool_args=arguments, tool_call_id="c1", **fields)


def converted(name: str, **arguments: Any) -> dict[str, Any]:
    message = convert_call_to_mail_message(call_of(name, arguments), "dispatcher", "task")
    assert parse_message(message) == message
    assert message["message"]["sender"] == {"address_type": "agent", "address": "dispatcher"}
    assert message["message"]["task_id"] == "task"
    assert not {"sender_swarm", "recipient_swarm", "recipient_swarms"} & set(message["message"])
    return message


@pytest.mark.parametrize(
    ("name", "kind"), [("send_request", "request"), ("send_response", "response")]
)
def test_a_call_to_one_agent_becomes_a_message_to_it(name, kind) -> None:
    message = converted(name, **SEND)
    assert message["msg_type"] == kind
    assert message["message"]["recipient"] == {"address_type": "agent", "address": "tides"}
    assert (message["message"]["subject"], message["message"]["body"]) == ("s", "b")


def test_an_interrupt_names_its_recipient_in_a_list() -> None:
    message = converted("send_interrupt", **SEND)
    assert message["msg_type"] == "interrupt"
    assert message["message"]["recipients"] == [{"address_type": "agent", "address": "tides"}]


@pytest.mark.parametrize("targets", [None, []])
def test_a_broadcast_without_targets_goes_to_everybody(targets) -> None:
    message = converted("send_broadcast", subject="s", body="b", targets=targets)
    assert message["message"]["recipients"] == ALL
    assert converted("send_broadcast", subject="s", body="b")["message"]["recipients"] == ALL


@pytest.mark.parametrize(
    ("targets", "names"), [(["a", "b@beta"], ["a", "b@beta"]), ("tides", ["tides"])]
)
def test_a_broadcast_goes_to_the_agents_it_names(targets, names) -> None:
    message = converted("send_broadcast", subject="s", body="b", targets=targets)
    assert [party["address"] for party in message["message"]["recipients"]] == names


def test_completion_goes_to_everybody_whatever_else_it_says() -> None:
    message = converted("task_complete", finish_message="done", targets=["spy"])
    assert message["msg_type"] == "broadcast_complete"
    assert message["message"]["recipients"] == ALL
    assert (message["message"]["subject"], message["message"]["body"]) == ("Task complete", "done")


@pytest.mark.parametrize("name", ["text_output", "send_response"])
def test_a_response_may_lack_a_subject_and_have_content_for_a_body(name) -> None:
    message = converted(name, target="tides", content="hello")
    assert (message["message"]["subject"], message["message"]["body"]) == ("", "hello")
    assert converted(name, target="tides")["message"]["body"] == ""
    assert converted(name, target="tides", body="b", content="c")["message"]["body"] == "b"


@pytest.mark.parametrize("name", ["await_message", "help", "acknowledge_broadcast", "dance", ""])
def test_a_tool_that_sends_nothing_is_refused(name) -> None:
    with pytest.raises(ValueError, match=f"Unknown tool name: {name}"):
        convert_call_to_mail_message(call_of(name, {}), "dispatcher", "task")


@pytest.mark.parametrize(
    ("name", "arguments", "missing"),
    [
        ("send_request", {"target": "a", "subject": "s"}, "body"),
        ("send_request", {"subject": "s", "body": "b"}, "target"),
        ("send_response", {}, "target"),
        ("send_broadcast", {"body": "b"}, "subject"),
        ("task_complete", {}, "finish_message"),
    ],
)
def test_a_missing_argument_is_named(name, arguments, missing) -> None:
    with pytest.raises(KeyError, match=missing):
        convert_call_to_mail_message(call_of(name, arguments), "dispatcher", "task")


def test_every_message_has_ids_of_its_own() -> None:
    first, second = converted("send_request", **SEND), converted("send_request", **SEND)
    ids = {m["id"] for m in (first, second)} | {m["message"]["request_id"] for m in (first, second)}
    assert len(ids) == 4


@relaxed
@given(texts, texts)
def test_text_is_carried_unchanged(subject, body) -> None:
    message = converted("send_request", target="tides", subject=subject, body=body)
    assert (message["message"]["subject"], message["message"]["body"]) == (subject, body)


# --- breakpoint calls ---------------------------------------------------------------------------


def test_a_breakpoint_call_has_the_one_shape() -> None:
    assert normalize_breakpoint_tool_call(call_of("ask", {"q": "é", "n": [1]})) == {
        "arguments": '{"q":"é","n":[1]}',
        "call_id": "c1",
        "name": "ask",
        "type": "function_call",
        "id": "fc_c1",
        "status": "completed",
    }


@pytest.mark.parametrize(
    ("raw", "changes"),
    [
        (
            {
                "type": "function_call",
                "call_id": "call_9",
                "id": "fc_1",
                "name": "ask",
                "arguments": '{"q": 1}',
                "status": "in_progress",
            },
            {
                "call_id": "call_9",
                "id": "fc_1",
                "arguments": '{"q": 1}',
                "status": "in_progress",
            },
        ),
        ({"type": "function_call", "call_id": "call_9"}, {"call_id": "call_9", "id": "fc_call_9"}),
        (
            {"type": "tool_use", "id": "toolu_1", "name": "ask2", "input": {"q": 2}},
            {"call_id": "toolu_1", "id": "fc_toolu_1", "name": "ask2", "arguments": '{"q":2}'},
        ),
        ({"type": "tool_use", "id": "toolu_1"}, {"call_id": "toolu_1", "id": "fc_toolu_1"}),
        ({"type": "function_call", "arguments": None, "status": None}, {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_the_providers_own_item_goes_before_the_call(raw, changes) -> None:
    plain = normalize_breakpoint_tool_call(call_of("ask", {"q": 0}))
    assert normalize_breakpoint_tool_call(call_of("ask", {"q": 0}), raw) == plain | changes


@relaxed
@given(json_objects)
def test_the_arguments_of_a_breakpoint_call_are_json_text(arguments) -> None:
    shown = normalize_breakpoint_tool_call(call_of("ask", arguments))
    assert json.loads(shown["arguments"]) == arguments


# --- calls --------------------------------------------------------------------------------------


def test_a_call_needs_the_reply_it_came_in() -> None:
    with pytest.raises(ValidationError, match="'completion' or 'responses' must be defined"):
        AgentToolCall(tool_name="x", tool_args={}, tool_call_id="1")


def test_a_result_has_the_format_of_its_call() -> None:
    assert call_of("x", {}).create_response_msg("SUCCESS") == {
        "role": "tool",
        "name": "x",
        "content": "SUCCESS",
        "tool_call_id": "c1",
    }
    items = call_of("x", {}, completion={}, responses=[{"type": "function_call"}])
    assert items.create_response_msg("SUCCESS") == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "SUCCESS",
    }
