"""The fake provider as a LiteLLM proxy: Claude behind chat completions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mail.llm.script import call, say, think
from tests.support.provider import FakeProvider, Fault, Redacted, RunCode, Search
from tests.support.provider.clients import INTERLEAVED, THINKING, events_in, openai_of, post

if TYPE_CHECKING:
    from mail.llm.script_view import ScriptView

CLAUDE = "anthropic/claude-haiku-4-5"
TOOLS = [
    {
        "type": "function",
        "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}},
    },
    {"type": "web_search_20250305", "name": "web_search"},
]
ASKED: dict[str, Any] = {
    "model": CLAUDE,
    "tools": TOOLS,
    "thinking": THINKING,
    "max_tokens": 4096,
    "headers": INTERLEAVED,
}


def script(view: ScriptView) -> Any:
    if view.results:
        return [think("c"), say(f"{view.system} {view.result_of('look_up')}")]
    first = [think("a"), say("Let me see."), Search("q"), think("b"), Redacted()]
    return [*first, call("look_up", word="x")]


async def test_deltas_carry_what_litellm_makes_of_anthropics_blocks() -> None:
    async with FakeProvider(script, proxy=True) as provider:
        reply = await post(provider, "completions", stream=True, **ASKED)
    assert reply.text.endswith("data: [DONE]\n\n")
    chunks = events_in(reply.text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    thoughts = [block for delta in deltas for block in delta.get("thinking_blocks", ())]
    assert "".join(block.get("thinking", "") for block in thoughts) == "ab"
    assert sum("signature" in block for block in thoughts) == 2
    assert [block["type"] for block in thoughts][-1] == "redacted_thinking"
    ids = [part["id"] for delta in deltas for part in delta.get("tool_calls", ()) if "id" in part]
    assert [made.partition("_")[0] for made in ids] == ["srvtoolu", "toolu"]
    fields = [delta.get("provider_specific_fields", {}) for delta in deltas]
    found = [field["web_search_results"] for field in fields if "web_search_results" in field]
    assert found[-1][0]["tool_use_id"] == ids[0]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert not any("usage" in chunk for chunk in chunks)


async def test_plain_reply_is_litellms_too() -> None:
    async with FakeProvider(lambda view: [RunCode("1", "2"), "Two."], proxy=True) as provider:
        reply = (await post(provider, "completions", **ASKED)).json()
    message = reply["choices"][0]["message"]
    assert message["content"] == "Two."
    assert message["provider_specific_fields"]["tool_results"][0]["content"]["stdout"] == "2"
    assert reply["usage"]["completion_tokens"] > 0


def history(deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return assistant entries, one for each block, in the order in which they came."""
    entries: list[dict[str, Any]] = []
    for delta in deltas:
        fields = delta.get("provider_specific_fields", {})
        for block in delta.get("thinking_blocks", ()):
            signed = block.get("signature") or block["type"] == "redacted_thinking"
            last = entries[-1].get("thinking_blocks") if entries else None
            if last and last[0]["type"] == "thinking" and "signature" not in last[0]:
                last[0] |= {**block, "thinking": last[0]["thinking"] + block.get("thinking", "")}
            else:
                assert signed or block["thinking"]
                entries.append({"role": "assistant", "thinking_blocks": [block]})
        for part in delta.get("tool_calls", ()):
            if "id" in part:
                entries.append({"role": "assistant", "tool_calls": [part]})
            else:
                function = entries[-1]["tool_calls"][0]["function"]
                function["arguments"] += part["function"]["arguments"]
        if "web_search_results" in fields:
            use = entries.pop()["tool_calls"][0]
            given = json.loads(use["function"]["arguments"])
            block = {"type": "server_tool_use", "id": use["id"], "name": "web_search"}
            content = [block | {"input": given}, fields["web_search_results"][-1]]
            entries.append({"role": "assistant", "content": content})
        if delta.get("content"):
            said = entries[-1].get("text") if entries else None
            if said is None:
                entries.append({"role": "assistant", "text": ""})
            entries[-1]["text"] += delta["content"]
    return [
        {"role": "assistant", "content": entry["text"]} if "text" in entry else entry
        for entry in entries
    ]


@pytest.mark.parametrize("dropped", [None, 0, 3])
async def test_history_is_checked_as_anthropic_would(dropped: int | None) -> None:
    async with FakeProvider(script, proxy=True) as provider:
        reply = await post(provider, "completions", stream=True, **ASKED)
        entries = history([chunk["choices"][0]["delta"] for chunk in events_in(reply.text)])
        result = {"tool_call_id": entries[-1]["tool_calls"][0]["id"], "content": "found"}
        if dropped is not None:
            del entries[dropped]
        messages = [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "hi"},
            *entries,
            {"role": "tool", **result},
        ]
        again = await post(provider, "completions", messages=messages, **ASKED)
    if dropped is None:
        assert again.status_code == 200, again.text
        assert again.json()["choices"][0]["message"]["content"] == "S found"
    else:
        assert again.status_code == 400
        assert "cannot be modified" in again.json()["error"]["message"]


async def test_usage_comes_last_when_it_is_asked_for() -> None:
    async with FakeProvider(script, proxy=True) as provider:
        options = {"include_usage": True}
        reply = await post(provider, "completions", stream=True, stream_options=options, **ASKED)
    assert events_in(reply.text)[-1]["usage"]["completion_tokens"] > 0


async def test_what_litellm_cannot_translate_is_refused() -> None:
    async with FakeProvider(proxy=True) as provider:
        body: dict[str, Any] = {
            "model": CLAUDE,
            "messages": [{"role": "assistant", "content": "x"}],
        }
        nested = {"type": "function", "function": {}}
        replies = [await post(provider, "completions", tools=[nested], **body)]
        replies += [await post(provider, "completions", model=CLAUDE, messages=[])]
    assert [reply.status_code for reply in replies] == [400, 400]
    assert all(reply.json()["error"]["type"] == "invalid_request_error" for reply in replies)


async def test_streams_can_fail_here_too() -> None:
    async with FakeProvider(script, proxy=True) as provider:
        provider.faults.append(Fault(error_event="boom", cut_after=2))
        reply = await post(provider, "completions", stream=True, **ASKED)
    assert len(events_in(reply.text)) == 3
    assert "boom" in events_in(reply.text)[-1]["error"]["message"]


async def test_other_models_are_openais_and_keys_are_recorded() -> None:
    async with FakeProvider(script, proxy=True) as provider, openai_of(provider, "user") as client:
        asked: Any = [{"role": "user", "content": "hi"}]
        reply = await client.chat.completions.create(model="gpt-test", messages=asked)
        response = await client.responses.create(model=CLAUDE, input="hi")
    assert [part.type for part in reply.choices[0].message.tool_calls or ()] == ["function"]
    assert response.output[-1].type == "function_call"
    sent = [seen.headers["authorization"] for seen in provider.requests]
    assert sent == ["Bearer user", "Bearer user"]
    assert [seen.wire for seen in provider.requests] == ["completions", "responses"]
