"""A reply as an agent function returns it."""

import uuid
from typing import Any

import pytest

from mail.errors import AgentError
from mail.llm import anthropic
from mail.llm.ask import agent_output, history_entries
from mail.llm.request import (
    BuiltinCall,
    Delta,
    FunctionCall,
    ModelReply,
    Part,
    Speech,
    Thought,
    Wire,
)
from tests.llm.streams import anthropic_events, chat_events, collected, read, responses_events

SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s"}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
SEARCH = anthropic.server_tool("srvtoolu_1", "web_search", '{"query": "q"}', FOUND)
LOOK = FunctionCall("c1", "look_up", '{"word": "a"}')


def made(*parts: Part, wire: Wire = "anthropic", finish: str | None = None) -> ModelReply:
    return ModelReply(parts=parts, wire=wire, finish=finish)


def named(reply: ModelReply) -> tuple[str | None, list[str]]:
    text, calls = agent_output(reply)
    return text, [call.tool_name for call in calls]


async def test_text_alone_is_one_text_output_with_an_id_of_its_own() -> None:
    reply = await collected(Delta(reasoning="r"), Delta(text="Hello"), Delta(text=" you"))
    text, (only,) = agent_output(reply, "step-1")
    assert text == "Hello you"
    assert (only.tool_name, only.tool_args) == ("text_output", {"content": "Hello you"})
    assert (only.reasoning, only.preamble) == (["r"], None)
    assert uuid.UUID(only.tool_call_id)


async def test_the_id_of_a_text_output_follows_from_the_step() -> None:
    """A turn that is run again after a crash makes the same call again."""
    reply = made(Speech("a"))
    first, again, other = (
        agent_output(reply, step)[1][0].tool_call_id for step in ("s1", "s1", "s2")
    )
    assert first == again != other
    assert agent_output(reply)[1][0].tool_call_id != agent_output(reply)[1][0].tool_call_id


async def test_an_empty_reply_gives_nothing() -> None:
    assert agent_output(await collected(Delta(text=" "), Delta(finish="stop"))) == (None, [])
    assert agent_output(made(Thought("hm", SIGNED), finish="length")) == (None, [])
    assert agent_output(ModelReply()) == (None, [])


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ((LOOK, Speech("tail")), ["look_up"]),
        ((SEARCH, LOOK, Speech("tail")), ["web_search_call", "look_up"]),
        ((LOOK, SEARCH, Speech("tail")), ["look_up", "web_search_call"]),
        ((Speech("head"), SEARCH), ["web_search_call"]),
        ((SEARCH, Speech(" \n")), ["web_search_call"]),
        ((SEARCH,), ["web_search_call"]),
    ],
)
def test_text_is_no_call_where_a_tool_has_to_run_or_nothing_follows(
    parts: tuple[Part, ...], names: list[str]
) -> None:
    reply = made(*parts)
    text = reply.text if LOOK in parts else None  # without a call of ours it would be the answer
    assert named(reply) == (text, names)


@pytest.mark.parametrize("finish", ["content_filter", "refusal"])
def test_a_withheld_reply_is_an_error(finish: str) -> None:
    for parts in ((), (Thought("hm", SIGNED),), (Speech(" "),)):
        with pytest.raises(AgentError, match=f"refused to answer \\({finish}\\)"):
            agent_output(made(*parts, finish=finish))


@pytest.mark.parametrize("finish", ["content_filter", "refusal"])
def test_a_refusal_that_says_something_is_text(finish: str) -> None:
    assert named(made(Speech("No."), finish=finish)) == ("No.", ["text_output"])
    assert named(made(LOOK, finish=finish)) == (None, ["look_up"])


async def test_refusals_of_each_provider_are_seen() -> None:
    replies = [
        await read("anthropic", anthropic_events(SIGNED, stop="refusal"), objects=True),
        await read("completions", chat_events({"content": ""}, finish="content_filter")),
        await read("responses", _withheld()),
    ]
    for reply in replies:
        with pytest.raises(AgentError, match="content_filter"):
            agent_output(reply)
    said = await read("completions", chat_events({"refusal": "I "}, {"refusal": "won't."}))
    assert named(said) == ("I won't.", ["text_output"])


def _withheld() -> list[dict[str, Any]]:
    events = [dict(event) for event in responses_events(status="incomplete")]
    events[-1]["response"]["incomplete_details"] = {"reason": "content_filter"}
    return events


@pytest.mark.parametrize("wire", ["completions", "responses", "anthropic"])
def test_all_calls_share_one_entry_of_the_history(wire: Wire) -> None:
    items = ({"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": "{}"},)
    reply = ModelReply(
        parts=(Thought("hm", SIGNED), LOOK, FunctionCall("c2", "look_up", "")),
        items=items if wire == "responses" else (),
        wire=wire,
    )
    first, second = agent_output(reply)[1]
    assert (first.completion, first.responses) == (second.completion, second.responses)
    assert bool(first.completion) is (wire != "responses")
    assert bool(first.responses) is (wire == "responses")
    origin = {"completion": first.completion} if first.completion else {"responses": list(items)}
    assert history_entries(reply) == origin


def test_a_responses_reply_without_items_is_kept_as_a_chat_message() -> None:
    reply = made(LOOK, wire="responses")
    (call,) = agent_output(reply)[1]
    assert call.responses == []
    assert call.completion["tool_calls"][0]["id"] == "c1"


def test_what_is_shown_of_a_built_in_call_is_a_copy() -> None:
    call = BuiltinCall("x", "web_search_call", {"query": "q"}, {"id": "x"})
    agent_output(made(call))[1][0].tool_args["target"] = "someone"
    assert call.shown == {"query": "q"}
