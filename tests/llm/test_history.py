"""Histories become acceptable to a provider, whatever they look like and in whatever formats."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.core.tools.call import INVALID_JSON_KEY
from mail.llm import completions
from mail.llm.history import (
    NO_RESULT,
    Replied,
    Said,
    conversation,
    parse_arguments_text,
    text_of,
    written_arguments,
)
from mail.llm.request import FunctionCall
from tests.llm.entries import (
    SEARCH_ITEM,
    USER,
    Entry,
    call_item,
    called,
    output,
    reasoning_item,
    result,
    said_item,
    use,
)
from tests.llm.support import ask


def of(*exchanges: Entry) -> list[tuple[Any, ...]]:
    """Return a history's exchanges in short: what was said, or calls with their results."""
    return [
        (exchange.message["content"],)
        if isinstance(exchange, Said)
        else (exchange.wire, [call.id for call in exchange.calls], exchange.results)
        for exchange in conversation(exchanges)
    ]


def test_results_follow_their_calls_in_the_order_of_the_calls() -> None:
    history = [USER, called("a", "b"), USER, result("b", "B"), result("a", "A")]
    assert of(*history) == [("hi",), ("completions", ["a", "b"], ["A", "B"]), ("hi",)]
    wire = completions.encode(ask(messages=history, system=""))
    assert [m.get("content") for m in wire["messages"]] == [
        "hi",
        None,
        "A",
        "B",
        "hi",
    ]


def test_a_late_result_goes_back_to_its_call() -> None:
    history = [call_item("a"), USER, called("b"), result("b", "B"), USER, output("a", "A")]
    assert of(*history) == [
        ("responses", ["a"], ["A"]),
        ("hi",),
        ("completions", ["b"], ["B"]),
        ("hi",),
    ]


def test_a_call_without_a_result_gets_an_error() -> None:
    assert NO_RESULT == "ERROR: no result of this call was recorded"
    assert of(called("a"), USER) == [("completions", ["a"], [NO_RESULT]), ("hi",)]


def test_a_second_result_of_one_call_becomes_user_text() -> None:
    assert of(called("a"), result("a", "1"), result("a", "2")) == [
        ("completions", ["a"], ["1"]),
        ("Tool result: 2",),
    ]


def test_a_result_without_a_call_becomes_user_text() -> None:
    bare = {"role": "tool", "content": "bare"}
    assert of(USER, result("x", "lost"), bare, output("y", "gone")) == [
        ("hi",),
        ("Tool result: lost",),
        ("Tool result: bare",),
        ("Tool result: gone",),
    ]


def test_a_result_before_its_call_is_not_its_result() -> None:
    assert of(result("a", "early"), called("a")) == [
        ("Tool result: early",),
        ("completions", ["a"], [NO_RESULT]),
    ]


def test_the_same_id_in_two_turns_gets_the_result_of_each_turn() -> None:
    history = [called("a"), result("a", "1"), called("a"), result("a", "2")]
    assert of(*history) == [("completions", ["a"], ["1"]), ("completions", ["a_2"], ["2"])]


def test_ids_that_come_again_are_renamed_alike_every_time() -> None:
    blocks = {"role": "assistant", "content": [use("a"), use("b")]}
    history = [called("a"), blocks, result("a", "1"), call_item("a"), output("a", "2")]
    first, second, third = conversation([*history[:1], result("a", "0"), *history[1:]])
    assert isinstance(first, Replied)
    assert isinstance(second, Replied)
    assert isinstance(third, Replied)
    assert first.entries == (called("a"),)
    assert second.entries[0]["content"] == [use("a_2"), use("b")]
    assert third.entries[0] == {**call_item("a"), "call_id": "a_3"}
    assert [call.id for call in second.calls + third.calls] == ["a_2", "b", "a_3"]
    assert (second.results, third.results) == (["1", NO_RESULT], ["2"])
    assert blocks["content"][0]["id"] == "a"


def test_either_kind_of_result_answers_either_kind_of_call() -> None:
    blocks = {"role": "assistant", "content": [use("b")]}
    assert of(call_item("a"), result("a", "A"), blocks, output("b", "B")) == [
        ("responses", ["a"], ["A"]),
        ("anthropic", ["b"], ["B"]),
    ]


def test_output_items_of_one_reply_belong_together() -> None:
    history = [reasoning_item(), call_item("a"), SEARCH_ITEM, call_item("b"), output("b", "B")]
    (reply,) = conversation([*history, output("a", "A")])
    assert isinstance(reply, Replied)
    assert reply.entries == tuple(history[:4])
    assert reply.calls == (
        FunctionCall("a", "look_up", "{}"),
        FunctionCall("b", "look_up", "{}"),
    )
    assert reply.results == ["A", "B"]


def test_what_a_result_holds_becomes_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    results = [{**result("x"), "content": parts}, {**result("x"), "content": None}]
    assert of(*results) == [("Tool result: ab",), ("Tool result: ",)]
    assert of({**output("x"), "output": {"n": 1}}) == [('Tool result: {"n": 1}',)]


def test_the_text_of_a_reply_leaves_out_its_reasoning() -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "secret"}]}
    refused = {**said_item(""), "content": [{"type": "refusal", "refusal": "No."}]}
    (reply,) = conversation([thought, said_item("One."), SEARCH_ITEM, refused])
    assert isinstance(reply, Replied)
    assert reply.text == "One.\nNo."
    blocks = [{"type": "thinking", "thinking": "secret"}, {"type": "text", "text": "So."}]
    assert text_of({"role": "assistant", "content": blocks}) == "So."


def test_a_long_history_of_one_id_takes_linear_time() -> None:
    """Some providers number the calls of every reply anew."""
    history = [entry for _ in range(20_000) for entry in (called("call_0"), result("call_0"))]
    assert all(
        isinstance(one, Replied) and one.results == ["SUCCESS"] for one in conversation(history)
    )


# --- arguments ---


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert parse_arguments_text(text) == {}
    assert written_arguments(text) == "{}"


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1',
        "[1]",
        "null",
        '"text"',
        "<xml/>",
        "[" * 100_000,
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        '{"a":' * 300 + "1" + "}" * 300,
        '{"a": 1}{"b": 2}',
    ],
)
def test_anything_but_an_object_that_can_travel_is_marked(text: str) -> None:
    assert parse_arguments_text(text) == {INVALID_JSON_KEY: text[:2000]}
    assert json.loads(written_arguments(text)) == {INVALID_JSON_KEY: text[:2000]}


def test_half_a_character_does_not_get_into_the_history() -> None:
    assert parse_arguments_text('{"a": "\ud800"}') == {INVALID_JSON_KEY: '{"a": "?"}'}


@given(st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False) | st.text()))
def test_good_arguments_stay_as_the_model_wrote_them(arguments: dict[str, Any]) -> None:
    text = json.dumps(arguments)
    if "Infinity" in text:
        return
    assert parse_arguments_text(text) == arguments
    assert written_arguments(f" {text}\n") == f" {text}\n"


NAMES = {
    "look_up": "look_up",
    "functions.look_up": "functions_look_up",
    "look up": "look_up",
    "größe": "gr__e",
    "x" * 65: "x" * 64,
    "": "unnamed_tool",
}


@pytest.mark.parametrize(("name", "sent"), NAMES.items())
@pytest.mark.parametrize("wire", ["completions", "responses", "anthropic"])
def test_a_call_goes_back_under_a_name_that_providers_take(wire: str, name: str, sent: str) -> None:
    entries: dict[str, Entry] = {
        "completions": called("a") | {"tool_calls": [{"id": "a", "function": {"name": name}}]},
        "responses": call_item("a") | {"name": name},
        "anthropic": {"role": "assistant", "content": [use("a") | {"name": name}]},
    }
    before = json.dumps(entries[wire])
    (reply,) = conversation([entries[wire]])
    assert isinstance(reply, Replied)
    assert [call.name for call in reply.calls] == [sent]
    assert f'"name": "{sent}"' in json.dumps(reply.entries)
    assert json.dumps(entries[wire]) == before  # what is kept stays as the model wrote it


@pytest.mark.parametrize("wire", ["completions", "responses", "anthropic"])
def test_a_call_without_an_id_gets_one(wire: str) -> None:
    entries: dict[str, Entry] = {
        "completions": called("a") | {"tool_calls": [{"function": {"name": "f"}}]},
        "responses": {"type": "function_call", "name": "f", "arguments": "{}"},
        "anthropic": {"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]},
    }
    (reply,) = conversation([entries[wire], {"role": "tool", "content": "found"}])
    assert isinstance(reply, Replied)
    assert ([call.id for call in reply.calls], reply.results) == (["call"], ["found"])
