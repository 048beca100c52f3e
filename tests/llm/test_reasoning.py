"""Reasoning goes with the call it led to: the sequences of reasoning-trace-findings.md."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mail.core.tools.call import AgentToolCall
from mail.llm.ask import agent_output
from mail.llm.request import (
    Wire,
)
from tests.llm.streams import anthropic_events, read, responses_events
from tests.support.payloads import load_payload, names_of

OBJECTS = pytest.mark.parametrize("objects", [False, True], ids=["mappings", "objects"])

FOUND = [{"type": "web_search_result", "title": "T", "url": "https://t", "encrypted_content": "e"}]


def thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": f"signed {text}"}


def redacted(data: str = "sealed") -> dict[str, Any]:
    return {"type": "redacted_thinking", "data": data}


def text(body: str) -> dict[str, Any]:
    return {"type": "text", "text": body}


def tool_use(call_id: str, name: str = "analyze_tradeoffs", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def search_use(call_id: str = "srvtoolu_1", query: str = "python 3.13") -> list[dict[str, Any]]:
    use = {"type": "server_tool_use", "id": call_id, "name": "web_search"}
    result = {"type": "web_search_tool_result", "tool_use_id": call_id, "content": FOUND}
    return [{**use, "input": {"query": query}}, result]


def reasoning_item(item_id: str, *summaries: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": one} for one in summaries]
    sealed = {"encrypted_content": f"sealed {item_id}"}
    return {"id": item_id, "type": "reasoning", "summary": summary, **sealed}


def search_item(item_id: str = "ws_1", query: str = "python 3.13") -> dict[str, Any]:
    action = {"type": "search", "query": query}
    return {"id": item_id, "type": "web_search_call", "status": "completed", "action": action}


def call_item(call_id: str, name: str = "analyze_tradeoffs", **given: Any) -> dict[str, Any]:
    body = {"call_id": call_id, "name": name, "arguments": json.dumps(given)}
    return {"id": f"fc_{call_id}", "type": "function_call", "status": "completed", **body}


def message_item(body: str, item_id: str = "msg_1") -> dict[str, Any]:
    content = [{"type": "output_text", "text": body, "annotations": []}]
    shape = {"type": "message", "status": "completed", "role": "assistant"}
    return {"id": item_id, **shape, "content": content}


async def anthropic_calls(
    *blocks: Mapping[str, Any], stop: str = "tool_use", objects: bool = False
) -> list[AgentToolCall]:
    reply = await read("anthropic", anthropic_events(*blocks, stop=stop), objects=objects)
    return agent_output(reply)[1]


async def responses_calls(
    *items: Mapping[str, Any], objects: bool = False, whole_items: bool = True
) -> list[AgentToolCall]:
    events = responses_events(*items, whole_items=whole_items)
    return agent_output(await read("responses", events, objects=objects))[1]


def traces(calls: list[AgentToolCall]) -> list[tuple[str, list[str] | None, str | None]]:
    return [(call.tool_name, call.reasoning, call.preamble) for call in calls]


@OBJECTS
@pytest.mark.parametrize("whole_items", [True, False], ids=["items", "deltas-only"])
async def test_openai_reasons_before_a_search_and_before_a_call(
    objects: bool, whole_items: bool
) -> None:
    items = [
        reasoning_item("rs_1", "I need facts."),
        search_item(),
        reasoning_item("rs_2", "Now I weigh them."),
        call_item("call_1", option="a"),
    ]
    calls = await responses_calls(*items, objects=objects, whole_items=whole_items)
    assert traces(calls) == [
        ("web_search_call", ["I need facts."], None),
        ("analyze_tradeoffs", ["Now I weigh them."], None),
    ]
    assert [call.tool_call_id for call in calls] == ["ws_1", "call_1"]
    shown = {"query": "python 3.13", "search_type": "search", "status": "completed"}
    assert [call.tool_args for call in calls] == [shown, {"option": "a"}]
    kept = items if whole_items else [item for item in items if item["type"] != "reasoning"]
    assert [call.responses for call in calls] == [kept, kept]


@OBJECTS
async def test_claude_turn_one_thinks_before_the_search_and_before_the_call(objects: bool) -> None:
    blocks = [
        thinking("I need facts."),
        text("I'll look it up."),
        *search_use(),
        thinking("Now I weigh them."),
        text("Two options."),
        tool_use("toolu_1", option="a"),
    ]
    calls = await anthropic_calls(*blocks, objects=objects)
    assert traces(calls) == [
        ("web_search_call", ["I need facts."], "I'll look it up."),
        ("analyze_tradeoffs", ["Now I weigh them."], "Two options."),
    ]
    pages = [{"title": "T", "url": "https://t"}]
    shown = {"query": "python 3.13", "status": "completed", "results": pages}
    assert [call.tool_args for call in calls] == [shown, {"option": "a"}]
    assert [call.tool_call_id for call in calls] == ["srvtoolu_1", "toolu_1"]
    assert all(call.completion == {"role": "assistant", "content": blocks} for call in calls)


async def test_several_blocks_before_one_call_all_go_to_it() -> None:
    calls = await anthropic_calls(thinking("one"), thinking("two"), tool_use("t1"))
    assert calls[0].reasoning == ["one", "two"]
    calls = await responses_calls(
        reasoning_item("rs_1", "one", "two"), reasoning_item("rs_2", "three"), call_item("c1")
    )
    assert calls[0].reasoning == ["one", "two", "three"]


@OBJECTS
async def test_summaries_stay_apart_when_only_their_deltas_come(objects: bool) -> None:
    items = [reasoning_item("rs_1", "one", "two"), call_item("c1"), call_item("c2")]
    calls = await responses_calls(*items, objects=objects, whole_items=False)
    assert [call.reasoning for call in calls] == [["one", "two"], None]


@OBJECTS
async def test_redacted_thinking_has_a_placeholder_and_goes_back_as_it_came(objects: bool) -> None:
    blocks = [redacted("opaque"), thinking("clear"), redacted("dark"), tool_use("t1")]
    calls = await anthropic_calls(*blocks, objects=objects)
    assert calls[0].reasoning == ["[redacted thinking]", "clear", "[redacted thinking]"]
    assert calls[0].completion["content"] == blocks


async def test_text_between_calls_is_preamble_and_leaves_the_reasoning_alone() -> None:
    blocks = [thinking("why"), text("First."), tool_use("t1"), text("Second."), tool_use("t2")]
    assert traces(await anthropic_calls(*blocks)) == [
        ("analyze_tradeoffs", ["why"], "First."),
        ("analyze_tradeoffs", None, "Second."),
    ]
    items = [
        reasoning_item("rs_1", "why"),
        message_item("First."),
        call_item("c1"),
        message_item("Second.", "msg_2"),
        message_item("Really.", "msg_3"),
        call_item("c2"),
    ]
    assert traces(await responses_calls(*items)) == [
        ("analyze_tradeoffs", ["why"], "First."),
        ("analyze_tradeoffs", None, "Second.\nReally."),
    ]


async def test_claude_runs_code_and_other_tools_of_its_own() -> None:
    ran = {"type": "bash_code_execution_result", "stdout": "2\n", "stderr": "", "return_code": 0}
    blocks = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution"}
        | {"input": {"command": "expr 1 + 1"}},
        {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": ran},
        {"type": "server_tool_use", "id": "srvtoolu_2", "name": "web_fetch"}
        | {"input": {"url": "https://t"}},
        {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_2"}
        | {"content": {"type": "web_fetch_tool_result_error", "error_code": "unavailable"}},
        text("Done."),
    ]
    calls = await anthropic_calls(*blocks, stop="end_turn")
    assert [call.tool_name for call in calls] == [
        "code_interpreter_call",
        "server_tool_use",
        "text_output",
    ]
    outputs = [{"type": "logs", "logs": "2\n"}]
    code = {"code": "expr 1 + 1", "status": "completed", "outputs": outputs}
    fetched = {"name": "web_fetch", "input": {"url": "https://t"}}
    assert calls[0].tool_args == code
    assert calls[1].tool_args == {**fetched, "status": "failed", "error": "unavailable"}
    assert calls[0].completion["content"] == blocks


async def test_blank_summaries_count_for_nothing() -> None:
    calls = await responses_calls(
        reasoning_item("rs_1"), reasoning_item("rs_2", " \n"), call_item("c1")
    )
    assert calls[0].reasoning is None
    kept = [item["id"] for item in calls[0].responses]
    assert kept == ["rs_1", "rs_2", "fc_c1"]


PAYLOADS = [
    (wire, name) for wire in ("completions", "responses", "anthropic") for name in names_of(wire)
]


def kept_of(call: AgentToolCall) -> Any:
    """Return what the history keeps of a reply, without what only streams have."""
    if call.responses or isinstance(call.completion["content"], list):
        return call.responses or call.completion["content"]
    calls = call.completion.get("tool_calls")
    return call.completion["content"], [(one["id"], one["function"]) for one in calls or ()]


def said_in(wire: Wire, body: dict[str, Any]) -> Any:
    """Return the same of the plain body of a reply."""
    if wire != "completions":
        return body["output" if wire == "responses" else "content"]
    message = body["choices"][0]["message"]
    calls = [(one["id"], one["function"]) for one in message.get("tool_calls") or ()]
    return message["content"] or message["refusal"], calls


@OBJECTS
@pytest.mark.parametrize(("wire", "name"), PAYLOADS)
async def test_the_history_keeps_what_the_plain_reply_would_have_said(
    wire: Wire, name: str, objects: bool
) -> None:
    payload = load_payload(wire, name)
    calls = agent_output(await read(wire, payload.events, objects=objects))[1]
    assert calls
    assert [kept_of(call) for call in calls] == [said_in(wire, payload.body)] * len(calls)


@OBJECTS
async def test_recorded_replies_give_each_call_its_reasoning(objects: bool) -> None:
    found = {}
    for wire in ("completions", "responses", "anthropic"):
        reply = await read(wire, load_payload(wire, "interleaved").events, objects=objects)
        found[wire] = traces(agent_output(reply)[1])
    assert found == {
        "completions": [
            ("look_up", ["First the tree."], "One moment."),
            ("look_up", ["Then the leaf."], None),
        ],
        "responses": [
            ("web_search_call", ["**Analyzing the question**", "It needs a search."], None),
            ("look_up", ["Now the word itself."], None),
        ],
        "anthropic": [
            ("web_search_call", ["I should research this first."], "Let me search."),
            ("look_up", ["Now the word itself.", "[redacted thinking]"], None),
        ],
    }
