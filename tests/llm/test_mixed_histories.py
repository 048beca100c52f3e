"""Histories of all formats, with results anywhere, go to every provider."""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mail.llm import anthropic, completions, responses
from mail.llm.history import Replied, conversation
from mail.llm.profiles import UNKNOWN
from mail.llm.request import ModelRequest
from mail.llm.settings import LLMSettings
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
from tests.llm.streams import library
from tests.llm.support import BUDGET, CLAUDE, CLAUDE_MUTE, REASONS, ask
from tests.support.provider import problems_of

_ids = st.lists(st.sampled_from([f"c{n}" for n in range(6)]), max_size=3, unique=True)
_words = st.sampled_from(["one", "two", "three"])


def _with_server_tool(number: int) -> list[Entry]:
    call_id = f"srvtoolu_{number}"
    found = {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}
    shown = {"type": "server_tool_use", "id": call_id, "name": "web_search"}
    return [{**shown, "input": {"query": "q"}}, found]


@st.composite
def chat_replies(draw: st.DrawFn) -> list[Entry]:
    ids = draw(_ids)
    text = draw(st.none() | _words) if ids else draw(_words)
    thought = {
        "reasoning_content": "hm",
        "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
    }
    more = thought if draw(st.booleans()) else {}
    entry = called(*ids, **more) if ids else {"role": "assistant", **more}
    return [{**entry, "content": text}]


@st.composite
def block_replies(draw: st.DrawFn) -> list[Entry]:
    thought = st.just([{"type": "thinking", "thinking": "hm", "signature": "s"}])
    hidden = st.just([{"type": "redacted_thinking", "data": "d"}])
    text = _words.map(lambda word: [{"type": "text", "text": word}])
    server = st.integers(0, 10**9).map(_with_server_tool)
    groups = draw(st.lists(st.one_of(thought, hidden, text, server), max_size=5))
    groups += [[use(call_id, word=call_id)] for call_id in draw(_ids)]
    if draw(st.booleans()):
        groups = draw(st.permutations(groups))
    content = [block for group in groups for block in group]
    return [{"role": "assistant", "content": content or [{"type": "text", "text": "nothing"}]}]


@st.composite
def item_replies(draw: st.DrawFn) -> list[Entry]:
    calls = [call_item(call_id) for call_id in draw(_ids)]
    others = st.one_of(st.just(reasoning_item()), st.just(SEARCH_ITEM), _words.map(said_item))
    return draw(st.permutations([*calls, *draw(st.lists(others, max_size=3))]))


@st.composite
def mixed_histories(draw: st.DrawFn) -> list[Entry]:
    """Histories of all styles, with results anywhere: late, early, double, lost or missing."""
    users = st.just([USER])
    replies = st.one_of(users, chat_replies(), block_replies(), item_replies())
    entries = [USER, *(entry for group in draw(st.lists(replies, max_size=6)) for entry in group)]
    ids = [call_id for entry in entries for call_id in _call_ids(entry)]
    for number, call_id in enumerate([*ids, *draw(_ids)]):
        if draw(st.integers(0, 4)) == 0:
            continue
        make = draw(st.sampled_from([result, output]))
        entries.insert(draw(st.integers(1, len(entries))), make(call_id, f"result-{number}."))
    return entries


def _call_ids(entry: Mapping[str, Any]) -> list[str]:
    if entry.get("type") == "function_call":
        return [entry["call_id"]]
    blocks = entry["content"] if isinstance(entry.get("content"), list) else ()
    calls = [*entry.get("tool_calls", ()), *(b for b in blocks if b.get("type") == "tool_use")]
    return [call["id"] for call in calls]


def containers(value: Any) -> Iterator[int]:
    """Yield the identities of all dicts and lists in a value."""
    if isinstance(value, Mapping | list):
        yield id(value)
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from containers(part)


def chat_problems(messages: Sequence[Entry]) -> Iterator[str]:
    """Yield where the calls of chat messages are not followed by just their results."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if not waiting or message["tool_call_id"] != waiting.pop(0):
                yield f"not expected: {message}"
            continue
        if waiting:
            yield f"no results of {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        for call in message.get("tool_calls") or ():
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                yield f"arguments of {call}"
    if waiting:
        yield f"no results of {waiting} at the end"


def item_problems(items: Sequence[Entry]) -> Iterator[str]:
    """Yield where the calls of items are not followed by just their outputs."""
    waiting: list[str] = []
    answering = False
    for item in items:
        if item.get("type") == "function_call_output":
            answering = True
            if not waiting or item["call_id"] != waiting.pop(0):
                yield f"not expected: {item}"
            continue
        mine = item.get("role") == "assistant" or "type" in item
        if waiting and (answering or not mine):
            yield f"no outputs of {waiting}"
        answering = False
        if item.get("type") == "function_call":
            waiting.append(item["call_id"])
    if waiting:
        yield f"no outputs of {waiting} at the end"


def block_problems(messages: Sequence[Entry]) -> Iterator[str]:
    """Yield where Anthropic's messages do not alternate, or calls have not just their results."""
    waiting: list[str] = []
    role = "assistant"
    for message in messages:
        if message["role"] == role:
            yield f"two of {role}"
        role = message["role"]
        blocks = message["content"]
        found = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if found != waiting or any(b["type"] != "tool_result" for b in blocks[: len(found)]):
            yield f"{found} where {waiting} were due"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            yield "blank text"
    if waiting:
        yield f"no results of {waiting} at the end"


def to_chat(request: ModelRequest, kept: bool) -> tuple[dict[str, Any], list[str]]:
    wire = completions.encode(request, BUDGET if kept else UNKNOWN)
    others = [] if kept else problems_of(wire)  # OpenAI's checks; what thinks is someone else's
    return wire, [*chat_problems(wire["messages"]), *others]


def to_items(request: ModelRequest, kept: bool) -> tuple[dict[str, Any], list[str]]:
    wire = responses.encode(request, REASONS if kept else UNKNOWN)
    return wire, list(item_problems(wire["input"]))


def to_blocks(request: ModelRequest, kept: bool) -> tuple[dict[str, Any], list[str]]:
    wire = anthropic.encode(request, CLAUDE if kept else CLAUDE_MUTE)
    library()
    from litellm.litellm_core_utils.prompt_templates.factory import anthropic_messages_pt

    messages = copy.deepcopy(wire["messages"][1:])
    sent = anthropic_messages_pt(messages, model="claude", llm_provider="anthropic")
    return wire, list(block_problems(sent))


@pytest.mark.parametrize("encode", [to_chat, to_items, to_blocks])
@settings(deadline=None)
@given(history=mixed_histories(), kept=st.booleans())
def test_every_history_can_go_to_every_provider(
    encode: Callable[[ModelRequest, bool], tuple[dict[str, Any], list[str]]],
    history: list[Entry],
    kept: bool,
) -> None:
    before = copy.deepcopy(history)
    limits = LLMSettings.resolve(thinking_budget=2000 if kept else None)
    request = ask(messages=history, settings=limits)
    wire, problems = encode(request, kept)
    assert problems == []
    assert history == before
    sent = wire.get("input") or wire["messages"]
    assert not set(containers(history)) & set(containers(sent))
    assert not set(containers(list(request.tools))) & set(containers(wire["tools"]))
    written = json.dumps(sent)
    for entry in history:
        if "content" in entry and entry.get("role") == "tool":
            assert written.count(entry["content"]) == 1, "each result is sent, and only once"
        elif "output" in entry:
            assert written.count(entry["output"]) == 1, "each output is sent, and only once"
    assert encode(request, kept)[0] == wire, "a request is encoded alike every time"


@settings(deadline=None)
@given(history=mixed_histories())
def test_every_reply_is_still_there_in_chat_messages(history: list[Entry]) -> None:
    wire = completions.encode(ask(messages=history))
    roles = [exchange for exchange in conversation(history) if isinstance(exchange, Replied)]
    assert [m["role"] for m in wire["messages"]].count("assistant") == len(roles)
