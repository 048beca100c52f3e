"""Input items and stream pieces, without a server."""

import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mail.responses_api.items import Answer, Call, ResponsesError, read_input
from mail.responses_api.output import closing_events
from mail.responses_api.request import ResponseRequest, read_choice

FIELDS = ["input", "instructions", "tools", "tool_choice", "text", "format", "kwargs", "metadata"]
PARTS = ["type", "role", "content", "name", "call_id", "arguments", "output", "parameters", "mode"]
KINDS = ["function_call", "function_call_output", "function", "message", "user", "json_schema"]
WORDS = st.sampled_from([*FIELDS, *PARTS, *KINDS, "schema", "auto", "allowed_tools"])
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1"}
OUT = {"type": "function_call_output", "call_id": "c1", "output": "r"}


def test_the_tail_is_the_callers_newest_words_and_results() -> None:
    tail = read_input(
        [
            {"role": "user", "content": "a"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "b"}],
            },
            {"type": "reasoning", "id": "rs_1", "summary": []},
            CALL,
            OUT,
            {"role": "user", "content": "c"},
            {"role": "user", "content": "d"},
        ]
    ).tail
    assert [entry.text for entry in tail.earlier if not isinstance(entry, Call | Answer)] == [
        "a",
        "b",
    ]
    assert [call.item_id for call in tail.calls] == ["fc_1"]
    assert [(answer.call_id, answer.output) for answer in tail.answers] == [("c1", "r")]
    assert tail.words == "c\n\nd"


def test_system_texts_are_kept_apart_and_a_plain_text_stays_as_it_is() -> None:
    said = read_input([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, CALL])
    assert said.system == "s"
    assert said.tail.words == ""
    assert read_input(" as it is ").as_text() == " as it is "


def test_results_may_be_parts_or_other_json() -> None:
    parts = [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": "y"}]
    assert read_input([{**OUT, "output": parts}]).tail.answers[0].output == "x\ny"
    assert read_input([{**OUT, "output": {"ä": 1}}]).tail.answers[0].output == '{"ä": 1}'


def test_the_newest_of_many_items_are_found_in_their_order() -> None:
    count = 30_000
    results = [{**OUT, "call_id": f"c{n}"} for n in range(count)]
    said = read_input([*results, *({"role": "user", "content": str(n)} for n in range(count))])
    tail = said.tail
    assert [answer.call_id for answer in tail.answers] == [f"c{n}" for n in range(count)]
    assert tail.words == "\n\n".join(map(str, range(count)))
    assert said.as_text().endswith(tail.words)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(WORDS, JSON, max_size=6), JSON)
def test_any_json_is_a_request_or_refused(fields: dict[str, Any], value: Any) -> None:
    for body in (fields, {**fields, "input": [value]}, {**fields, "input": "x", "tools": [value]}):
        try:
            request = ResponseRequest.from_json(body)
        except ResponsesError as error:
            assert str(error)
        else:
            assert isinstance(request.conversation.as_text(), str)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=3000))
def test_the_pieces_of_a_stream_are_its_text(text: str) -> None:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}
    response: dict[str, Any] = {"output": [item], "status": "completed"}
    events = list(closing_events(response))
    pieces = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(pieces) == text
    assert all(pieces)


def test_a_choice_among_thousands_of_tools_is_read_in_one_pass() -> None:
    """Pair by pair, this took seconds."""
    tools = [{"type": "function", "name": f"tool_{number}"} for number in range(20_000)]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": tools}
    began = time.process_time()
    read = read_choice(tools, choice)
    assert time.process_time() - began < 2.0
    assert len(read.offered) == 20_000
