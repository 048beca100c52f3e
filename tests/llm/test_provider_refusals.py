"""What the fake provider refuses, because the real one would."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mail.llm.script import call, say, think
from tests.llm.provider_histories import HISTORIES
from tests.support.provider import FakeProvider, Redacted, Search, problems_of
from tests.support.provider.clients import INTERLEAVED, THINKING, WIRES, claude, post
from tests.support.provider.seals import seal, signature

if TYPE_CHECKING:
    from tests.support.provider.inbound import WireName

Body = dict[str, Any]
Change = Callable[[Body], Any]

THOUGHT = {"type": "thinking", "thinking": "t", "signature": signature("t")}
FOUND = {
    "type": "web_search_result",
    "title": "T",
    "url": "u",
    "encrypted_content": seal("T u"),
    "page_age": None,
}
SEARCHED = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [FOUND]},
]
CITED = {
    "type": "text",
    "text": "So.",
    "citations": [
        {
            "type": "web_search_result_location",
            "cited_text": "So it is.",
            "url": "u",
            "title": None,
            "encrypted_index": seal("u So it is."),
        },
        {
            "type": "char_location",
            "cited_text": "So it is.",
            "document_index": 0,
            "document_title": None,
            "start_char_index": 0,
            "end_char_index": 9,
        },
    ],
}
MARK = {"cache_control": {"type": "ephemeral"}}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "t"}],
    "encrypted_content": seal("t"),
}


def good(wire: WireName) -> Body:
    """Return a body that is all right, with thinking and a built-in tool's call in it."""
    body: Body = {"model": "m"} | copy.deepcopy(HISTORIES[wire])
    if wire == "responses":
        body |= {"store": False, "include": ["reasoning.encrypted_content"]}
        search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
        body["input"][1:1] = [copy.deepcopy(REASONING), search]
        body["input"][3]["id"] = "fc_1"
    if wire == "anthropic":
        body |= {"max_tokens": 4096, "thinking": dict(THINKING), "tool_choice": {"type": "auto"}}
        body["messages"][1]["content"][:0] = copy.deepcopy([THOUGHT, *SEARCHED])
        body["messages"][1]["content"].insert(3, copy.deepcopy(CITED))
    return body


@pytest.mark.parametrize("wire", WIRES)
def test_a_good_history_is_accepted(wire: WireName) -> None:
    headers = {"anthropic-version": "2023-06-01"}
    assert problems_of(good(wire), wire=wire, headers=headers) == []


def _put(*path: Any, value: Any) -> Change:
    """Return what puts a value at a path into a body."""

    def change(body: Body) -> None:
        place: Any = body
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def _drop(*path: Any) -> Change:
    """Return what takes away what is at a path."""

    def change(body: Body) -> None:
        place: Any = body
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


def _add(*path: Any, at: int = 99, items: list[Any]) -> Change:
    """Return what inserts items into the list at a path."""

    def change(body: Body) -> None:
        place: Any = body
        for key in path:
            place = place[key]
        place[at:at] = copy.deepcopy(items)

    return change


CALL_2 = {"type": "function_call", "call_id": "c2", "name": "look_up", "arguments": "{}"}
OUTPUT_2 = {"type": "function_call_output", "call_id": "c2", "output": "x"}
USER = {"role": "user", "content": "x"}
FLAT = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_drop("input"), "Missing required parameter: 'input'"),
        (_put("input", value=[]), "at least one item"),
        (_drop("model"), "'model'"),
        (_put("messages", value=[USER]), "Unknown parameter: 'messages'"),
        (_put("include", value=["everything"]), "'everything' in 'include'"),
        (_put("max_output_tokens", value=3), "at least 16"),
        (_put("previous_response_id", value="resp_1"), "Previous response not found"),
        (_add("input", items=[CALL_2]), "No tool output found for function call c2"),
        (_add("input", items=[OUTPUT_2]), "No tool call found for function call output"),
        (_add("input", items=[OUTPUT_2, CALL_2]), "No tool call found for function call output"),
        (_add("input", items=[CALL_2, OUTPUT_2, OUTPUT_2]), "has two outputs"),
        (_add("input", items=[CALL_2, CALL_2, OUTPUT_2]), "two function calls have the call_id"),
        (_put("input", 3, "arguments", value="{"), "no JSON text"),
        (_put("input", 3, "name", value="functions.look_up"), "does not match pattern"),
        (_put("input", 3, "name", value="x" * 65), "does not match pattern"),
        (_put("input", 3, "id", value="call_1"), "begins with 'fc'"),
        (_put("input", 2, "status", value=None), "'None' for 'status'"),
        (_drop("input", 3, "call_id"), "Missing required parameter: 'call_id'"),
        (_add("input", items=[{"type": "thought"}]), "Invalid value: 'thought'"),
        (_put("input", 0, "tool_calls", value=[]), "Unknown parameter: 'tool_calls'"),
        (_put("input", 0, "role", value="tool"), "'tool' for 'role'"),
        (_put("input", 0, "content", 0, "type", value="output_text"), "'output_text' in part"),
        (
            _add("input", items=[{"role": "assistant", "content": [{"type": "input_text"}]}]),
            "'input_text' in part",
        ),
        (_put("input", 4, "output", value=7), "expected text or a list"),
        (_add("input", items=[REASONING | {"id": "rs_2"}]), "without its required following item"),
        (
            _add("input", items=[REASONING | {"id": "rs_2"}, USER]),
            "without its required following item",
        ),
        (_add("input", at=1, items=[REASONING]), "Duplicate item found with id rs_1"),
        (_drop("input", 1, "encrypted_content"), "it needs its encrypted_content"),
        (_put("input", 1, "encrypted_content", value="gAAAAAx"), "could not be verified"),
        (_put("input", 1, "summary", value=["t"]), "Invalid 'summary'"),
        (_add("input", items=[{"type": "item_reference", "id": "rs_9"}]), "'rs_9' not found"),
        (_put("tools", value=HISTORIES["completions"]["tools"]), "Missing required parameter"),
        (_add("tools", items=[FLAT]), "two tools are named 'look_up'"),
        (_add("tools", items=[{"type": "web_search_20250305"}]), "'web_search_20250305' in"),
        (_add("tools", items=[{"type": "code_interpreter"}]), "'tools[1].container'"),
        (_put("tools", 0, "parameters", "type", value="array"), "must be an object schema"),
        (_put("tools", 0, "strict", value=True), "additionalProperties"),
        (
            _put("tool_choice", value=HISTORIES["completions"]["tool_choice"]),
            "must name a function: {type, name}",
        ),
        (_put("tool_choice", "name", value="other"), "'other', which is not offered"),
        (_put("tool_choice", value="any"), "'any' for 'tool_choice'"),
        (_drop("tools"), "can only force a tool where there are 'tools'"),
    ],
)
def test_responses_refuses(change: Change, problem: str) -> None:
    body = good("responses")
    change(body)
    found = problems_of(body, wire="responses")
    assert any(problem in text for text in found), found


def _custom(**changes: Any) -> Body:
    return {"name": "other", "input_schema": {"type": "object"}} | changes


RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "x"}
TURN = ("messages", 1, "content")
SOURCES = (*TURN, 3, "citations")
ANSWER = ("messages", 2, "content")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_drop("messages"), "at least one message"),
        (_drop("model"), "model: Field required"),
        (_drop("max_tokens"), "max_tokens: Field required"),
        (_put("input", value="x"), "input: Extra inputs"),
        (_put("system", value=[{"type": "text", "text": ""}]), "system.0"),
        (_put("messages", 0, "role", value="system"), "role must be 'user' or 'assistant'"),
        (_drop("messages", 0), "roles must alternate"),
        (_add("messages", at=0, items=[USER]), "roles must alternate"),
        (_put("messages", 0, "name", value="x"), "name: Extra inputs"),
        (_put("messages", 0, "content", value=" "), "non-whitespace text"),
        (_put("messages", 0, "content", value=[]), "non-empty content"),
        (_add(*ANSWER, items=[{"type": "text", "text": ""}]), "non-whitespace text"),
        (_add(*ANSWER, items=[THOUGHT]), "'thinking' is no block of role 'user'"),
        (_put(*TURN, 4, "index", value=0), "index: Extra inputs"),
        (_put(*TURN, 4, "input", value="{}"), "Input should be an object"),
        (_put(*TURN, 1, "id", value="ws_1"), "should match pattern"),
        (_put(*TURN, 4, "name", value="look up"), "name: String should match pattern"),
        (_add(*TURN, items=[THOUGHT]), "final block in an assistant message cannot be"),
        (_put("model", value="claude-opus-4-7"), "is not supported for this model"),
        (_add(*TURN, items=[{**SEARCHED[0], "id": "c1", "type": "tool_use"}]), "must be unique"),
        (_drop("messages", 2), "have no `tool_result` blocks after"),
        (_put(*ANSWER, value=[{"type": "text", "text": "x"}]), "has no `tool_result` block"),
        (_put(*ANSWER, 0, "tool_use_id", value="c9"), "unexpected `tool_use_id`"),
        (_add(*ANSWER, items=[RESULT]), "must come first"),
        (_add(*ANSWER, at=0, items=[RESULT]), "single result"),
        (_drop(*TURN, 2), "have no results"),
        (_drop(*TURN, 1), "without a `server_tool_use` before it"),
        (_put(*TURN, 0, "thinking", value="other"), "Invalid `signature`"),
        (_drop(*TURN, 0, "signature"), "Invalid `signature`"),
        (_add(*TURN, at=0, items=[{"type": "redacted_thinking", "data": "x"}]), "Invalid `data`"),
        (_put(*TURN, 2, "content", 0, "url", value="v"), "Invalid `encrypted_content`"),
        (_put(*SOURCES, 0, "type", value="other"), "'other' is no citation"),
        (_put(*SOURCES, 0, "cited_text", value="No."), "Invalid `encrypted_index`"),
        (_put(*SOURCES, 1, "file_id", value=None), "file_id: Extra inputs"),
        (_drop(*SOURCES, 1, "end_char_index"), "end_char_index: Field required"),
        (_drop(*TURN, 0), "must start with a thinking block"),
        (
            _add("messages", items=[{"role": "assistant", "content": "so"}]),
            "must start with a thinking block",
        ),
        (
            _add(
                "messages",
                items=[
                    {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "so "}]}
                ],
            ),
            "trailing whitespace",
        ),
        (_put("thinking", "budget_tokens", value=1000), "at least 1024"),
        (_put("thinking", "budget_tokens", value=4096), "greater than `thinking.budget_tokens`"),
        (_put("thinking", "type", value="on"), "thinking.type"),
        (_put("tool_choice", value={"type": "any"}), "forces tool use"),
        (_put("tool_choice", value="auto"), "must be {type: auto"),
        (_put("tool_choice", value={"type": "tool", "name": "x"}), "'x' not found"),
        (_drop("tools"), "must define tools"),
        (_put("tools", value=HISTORIES["completions"]["tools"]), "no known tool"),
        (_put("tools", value=HISTORIES["responses"]["tools"]), "no known tool"),
        (_add("tools", items=[_custom(parameters={})]), "parameters: Extra inputs"),
        (_add("tools", items=[_custom(name="a b")]), "custom.name"),
        (_add("tools", items=[_custom(input_schema={})]), "must be an object schema"),
        (_add("tools", items=[_custom(name="look_up")]), "must be unique"),
        (_add("tools", items=[{"type": "web_search", "name": "web_search"}]), "no known tool"),
        (_add("tools", items=[{"type": "web_search_20250305"}]), "name: Field required"),
        (_add("tools", items=[_custom(name=f"t{n}", **MARK) for n in range(5)]), "maximum of 4"),
        (_add("tools", items=[_custom(cache_control={"type": "x"})]), "no mark for the cache"),
        (_put(*TURN, 0, "cache_control", value={"type": "ephemeral"}), "Extra inputs"),
    ],
)
def test_anthropic_refuses(change: Change, problem: str) -> None:
    body = good("anthropic")
    change(body)
    found = problems_of(body, wire="anthropic")
    assert any(problem in text for text in found), found


def test_anthropic_wants_to_know_its_version() -> None:
    found = problems_of(good("anthropic"), wire="anthropic", headers={})
    assert any("anthropic-version" in text for text in found)


def test_interleaved_thinking_may_cost_more_than_a_reply() -> None:
    body = good("anthropic")
    body["thinking"]["budget_tokens"] = 9000
    headers = {"anthropic-version": "2023-06-01", **INTERLEAVED}
    assert problems_of(body, wire="anthropic", headers=headers) == []


def test_a_paused_turn_may_end_in_a_running_call() -> None:
    body = good("anthropic")
    body["messages"] = [{"role": "user", "content": "x"}]
    body["messages"] += [{"role": "assistant", "content": [THOUGHT, SEARCHED[0]]}]
    assert problems_of(body, wire="anthropic") == []


# --- replies that do not come back as they were sent --------------------------------------------

STEPS = [
    think("a"),
    say("one"),
    Search("q"),
    think("b"),
    Redacted(),
    call("look_up", word="x"),
    call("look_up", word="y"),
]
KINDS = ["thinking", "text", "server_tool_use", "web_search_tool_result", "thinking"]
KINDS += ["redacted_thinking", "tool_use", "tool_use"]
TOOLS = HISTORIES["anthropic"]["tools"]


def _swap(one: int, other: int) -> Change:
    def change(blocks: Any) -> None:
        blocks[one], blocks[other] = blocks[other], blocks[one]

    return change


def _unchanged(blocks: Any) -> None:
    pass


def _thoughtless(blocks: Any) -> None:
    blocks[:] = [block for block in blocks if "thinking" not in block["type"]]


@pytest.mark.parametrize(
    ("change", "thinking", "accepted"),
    [
        (_unchanged, True, True),
        (_unchanged, False, True),
        (_thoughtless, True, False),
        (_thoughtless, False, True),
        (_swap(0, 1), True, False),
        (_swap(1, 4), True, False),
        (_swap(6, 7), True, False),
        (_drop(4), True, False),
        (_drop(4), False, False),
        (_drop(5), True, False),
        (_put(6, "input", value={"word": "z"}), True, False),
        (_put(1, "text", value="two"), True, False),
        (_put(1, "text", value="one "), True, True),
    ],
)
async def test_anthropic_wants_its_blocks_back_as_they_were(
    change: Change, thinking: bool, accepted: bool
) -> None:
    async with FakeProvider(lambda view: STEPS if not view.results else "ok") as provider:
        reply = await claude(provider)
        blocks: Any = [block.to_dict() for block in reply.content]
        assert [block["type"] for block in blocks] == KINDS
        uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
        change(blocks)
        answer = [{"type": "tool_result", "tool_use_id": use, "content": "r"} for use in uses]
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": answer},
        ]
        kind = THINKING if thinking else {"type": "disabled"}
        again = await post(provider, "anthropic", messages=messages, thinking=kind, tools=TOOLS)
    assert (again.status_code == 200) is accepted, again.text


async def test_a_reply_without_thoughts_may_come_back_without_any() -> None:
    async with FakeProvider(lambda view: call("look_up") if not view.results else "ok") as provider:
        reply = await claude(provider)
        result = RESULT | {"tool_use_id": reply.content[0].to_dict()["id"]}
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [reply.content[0].to_dict()]},
            {"role": "user", "content": [result]},
        ]
        again = await post(provider, "anthropic", messages=messages, thinking=THINKING, tools=TOOLS)
    assert again.status_code == 200, again.text


OUTPUT = [think("a"), Search("q"), think("b"), call("look_up"), call("look_up")]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_unchanged, None),
        (_drop(0), "without its required 'reasoning' item"),
        (_drop(1), "without its required following item"),
        (_drop(3), "without its required following item"),
        (_swap(0, 2), "without its required following item"),
        (_swap(3, 4), "without its required following item"),
        (_drop(4), "No tool call found"),
    ],
)
async def test_responses_wants_its_items_back_as_they_were(
    change: Change, problem: str | None
) -> None:
    include = ["reasoning.encrypted_content"]
    async with FakeProvider(lambda view: OUTPUT if not view.results else "ok") as provider:
        reply = await post(provider, "responses", store=False, include=include)
        items: Any = reply.json()["output"]
        calls = [item["call_id"] for item in items if item["type"] == "function_call"]
        change(items)
        outputs = [OUTPUT_2 | {"call_id": call_id} for call_id in calls]
        again = await post(
            provider,
            "responses",
            store=False,
            input=[{"role": "user", "content": "hi"}, *items, *outputs],
        )
    if problem is None:
        assert again.status_code == 200, again.text
    else:
        assert again.status_code == 400
        assert problem in again.json()["error"]["message"]
