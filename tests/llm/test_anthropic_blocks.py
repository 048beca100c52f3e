"""Anthropic's blocks keep their order, there and back, through LiteLLM's own conversion."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mail.core.usage import Usage
from mail.llm.anthropic import (
    assistant_message,
    encode,
    server_tool,
    with_results,
)
from mail.llm.ask import agent_output
from mail.llm.request import BuiltinCall, BuiltinResult, FunctionCall, ModelReply, Speech, Thought
from mail.llm.streams import TextBlocks
from tests.llm.blocks import (
    FOUND,
    HIDDEN,
    LOW,
    PAGES,
    RESULT,
    SAID,
    SERVER_USE,
    THOUGHT,
    USE,
    USER,
    replied,
    sent,
)
from tests.llm.streams import anthropic_events, read
from tests.llm.support import CLAUDE, ask

_texts = st.text(min_size=1).filter(str.strip)
_inputs = st.dictionaries(st.text(), st.integers() | st.booleans() | st.none() | _texts, max_size=3)


@st.composite
def block_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Blocks of a reply in any order, thinking between calls included."""
    blocks: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 9))):
        match draw(st.sampled_from(["thinking", "redacted", "text", "server", "use"])):
            case "thinking":
                text = draw(st.text())
                blocks.append({**THOUGHT, "thinking": text, "signature": f"s{number}"})
            case "redacted":
                blocks.append({**HIDDEN, "data": f"d{number}"})
            case "text":
                blocks.append({"type": "text", "text": draw(_texts)})
            case "server":
                call_id = f"srvtoolu_{number}"
                blocks.append({**SERVER_USE, "id": call_id, "input": draw(_inputs)})
                if draw(st.booleans()):
                    blocks.append({**FOUND, "tool_use_id": call_id})
            case _:
                blocks.append({**USE, "id": f"toolu_{number}", "input": draw(_inputs)})
    return blocks


@settings(deadline=None)
@given(blocks=block_lists())
def test_blocks_arrive_in_their_order(blocks: list[dict[str, Any]]) -> None:
    uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [{**RESULT, "tool_call_id": use} for use in reversed(uses)]
    wire = encode(ask(messages=[USER, replied(*blocks), *results, USER], settings=LOW), CLAUDE)
    found = [block.get("tool_use_id") for block in blocks]
    expected = [b for b in blocks if b["type"] != "server_tool_use" or b["id"] in found]
    while expected and expected[-1]["type"] in ("thinking", "redacted_thinking"):
        expected.pop()
    if "thinking" not in wire:
        expected = [block for block in expected if "thinking" not in block["type"]]
    messages = sent(wire)
    if not expected:
        assert [message["role"] for message in messages] == ["user"]
        return
    assert messages[1] == {"role": "assistant", "content": expected}
    answers = [block.get("tool_use_id") for block in messages[2]["content"]]
    assert answers == [*uses, None]


@settings(deadline=None)
@given(blocks=block_lists())
async def test_a_streamed_reply_is_kept_block_by_block(blocks: list[dict[str, Any]]) -> None:
    reply = await read("anthropic", anthropic_events(*blocks), objects=True)
    assert _joined(assistant_message(reply)["content"]) == _joined(blocks)


def _joined(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbouring texts: where one ends, the stream does not say."""
    joined: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] == "text" and joined and joined[-1]["type"] == "text":
            joined[-1] = {**SAID, "text": joined[-1]["text"] + block["text"]}
        else:
            joined.append(block)
    return joined


# --- stream and entry ---


async def test_usage_and_the_reason_for_the_end_are_read() -> None:
    reply = await read("anthropic", anthropic_events(SAID, stop="max_tokens"), objects=True)
    assert reply.finish == "length"
    assert reply.usage == Usage(prompt_tokens=10, completion_tokens=7, total_tokens=17)


def test_ends_of_texts_are_told_only_where_they_matter() -> None:
    cited = {**SAID, "citations": [{"cited_text": "so", "url": "https://a.example"}]}

    def told(*blocks: dict[str, Any]) -> list[tuple[str, list[Any]]]:
        texts = TextBlocks()
        read_events = ((event["type"], texts.read(event)) for event in anthropic_events(*blocks))
        return [(kind, *found.values()) for kind, found in read_events if found is not None]

    assert told(THOUGHT, SAID, USE) == [], "each would cost a piece more"
    assert told(SAID, USE, SAID) == []
    assert told(SAID, cited, SAID) == [
        ("content_block_start", []),
        ("content_block_stop", cited["citations"]),
    ]
    assert told(cited, cited) == [("content_block_stop", cited["citations"])] * 2


async def test_a_call_without_arguments_has_none() -> None:
    (call,) = agent_output(await read("anthropic", anthropic_events({**USE, "input": ""})))[1]
    assert call.tool_args == {}
    assert call.completion["content"] == [{**USE, "input": {}}]


def test_the_entry_leaves_out_what_may_not_go_back() -> None:
    parts = (Thought("unsigned"), Speech(" \n"), Speech("a"), Thought("hm", THOUGHT), Speech(""))
    assert assistant_message(ModelReply(parts=parts, wire="anthropic")) == replied(
        {"type": "text", "text": "a"}, THOUGHT
    )
    empty = assistant_message(ModelReply(parts=(Thought("unsigned"),), wire="anthropic"))
    assert len(empty["content"]) == 1
    assert empty["content"][0]["text"].strip()


# --- tools of the provider's own ---


@pytest.mark.parametrize(
    ("name", "given_", "content", "event", "shown"),
    [
        (
            "web_search",
            {"query": "q"},
            PAGES,
            "web_search_call",
            {
                "query": "q",
                "status": "completed",
                "results": [{"title": "T", "url": "https://t"}],
            },
        ),
        (
            "web_search",
            {"query": "q"},
            {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
            "web_search_call",
            {"query": "q", "status": "failed", "error": "max_uses_exceeded"},
        ),
        (
            "code_execution",
            {"code": "1"},
            {"type": "code_execution_result", "stdout": "1\n", "stderr": "warned"},
            "code_interpreter_call",
            {
                "code": "1",
                "status": "completed",
                "outputs": [{"type": "logs", "logs": "1\nwarned"}],
            },
        ),
        (
            "bash_code_execution",
            {"command": "ls"},
            None,
            "code_interpreter_call",
            {"code": "ls", "status": "incomplete"},
        ),
        (
            "text_editor_code_execution",
            {"command": "view", "path": "a"},
            {"type": "text_editor_code_execution_view_result", "content": "text"},
            "code_interpreter_call",
            {"code": "view", "status": "completed"},
        ),
        (
            "web_fetch",
            {"url": "https://t"},
            {"type": "web_fetch_result", "url": "https://t"},
            "server_tool_use",
            {"name": "web_fetch", "input": {"url": "https://t"}, "status": "completed"},
        ),
    ],
)
def test_events_show_what_matters_of_a_server_tool(
    name: str, given_: dict[str, Any], content: Any, event: str, shown: dict[str, Any]
) -> None:
    result = None if content is None else {"tool_use_id": "srvtoolu_1", "content": content}
    call = server_tool("srvtoolu_1", name, json.dumps(given_), result)
    assert (call.name, call.shown) == (event, shown)
    native = {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": given_}
    assert call.native == native


def test_a_result_that_comes_after_a_pause_is_shown_with_its_call() -> None:
    early = server_tool("srvtoolu_1", "web_search", '{"query": "q"}')
    other = server_tool("srvtoolu_2", "web_search", '{"query": "r"}')
    called = FunctionCall("t1", "look_up", "{}")
    parts = with_results((early, other, BuiltinResult(FOUND), Speech("so"), called))
    assert isinstance(parts[0], BuiltinCall)
    assert parts[0].shown["results"] == [{"title": "T", "url": "https://t"}]
    assert parts[0].native == SERVER_USE
    assert parts[1:] == (other, BuiltinResult(FOUND), Speech("so"), called)
