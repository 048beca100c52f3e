"""Histories become acceptable to a provider, whatever they look like."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mail.llm.completions import encode
from mail.llm.history import paired
from tests.llm.support import ask
from tests.support.provider import problems_of


def called(*ids: str) -> dict[str, Any]:
    function = {"name": "look_up", "arguments": "{}"}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, content: str = "SUCCESS") -> dict[str, Any]:
    return {"role": "tool", "name": "look_up", "content": content, "tool_call_id": call_id}


USER = {"role": "user", "content": "hi"}


def test_results_follow_their_calls_in_the_order_of_the_calls() -> None:
    history = [USER, called("a", "b"), USER, result("b", "B"), result("a", "A")]
    assert [m.get("content") for m in paired(history)] == ["hi", None, "A", "B", "hi"]


def test_a_call_without_a_result_gets_an_error() -> None:
    _, answer, user = paired([called("a"), USER])
    assert answer["content"] == "ERROR: no result of this call was recorded"
    assert user == USER


def test_a_result_without_a_call_becomes_user_text() -> None:
    assert paired([USER, result("x", "lost"), {"role": "tool", "content": "bare"}]) == [
        USER,
        {"role": "user", "content": "Tool result: lost"},
        {"role": "user", "content": "Tool result: bare"},
    ]


def test_the_same_id_in_two_turns_gets_the_result_of_each_turn() -> None:
    history = [called("a"), result("a", "1"), called("a"), result("a", "2")]
    assert [m.get("content") for m in paired(history)] == [None, "1", None, "2"]


_ids = st.sampled_from(["a", "b", "c"])
_entries = st.one_of(
    st.just(USER),
    st.just({"role": "assistant", "content": "text"}),
    st.lists(_ids, min_size=1, max_size=3, unique=True).map(lambda ids: called(*ids)),
    _ids.map(result),
)


@given(st.lists(_entries, min_size=1, max_size=12))
def test_every_history_is_accepted_by_the_provider(history: list[dict[str, Any]]) -> None:
    wire = encode(ask(messages=history))
    assert problems_of(wire) == []
    roles = [m["role"] for m in history]
    assert [m["role"] for m in wire["messages"]].count("assistant") == roles.count("assistant")
