"""The fake provider's wire formats, read by the vendors' own clients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mail.llm.script import call, say, think
from tests.llm.provider_histories import HISTORIES
from tests.support.provider import FakeProvider, PauseTurn, Redacted, Refuse, RunCode, Search
from tests.support.provider.clients import WIRES, claude, events_in, openai_of, post

if TYPE_CHECKING:
    from mail.llm.script_view import ScriptView

# A reply with all that a step can be, in an order that a format might lose.
STEPS = [
    think("First.\n\nSecond."),
    say("Let me see."),
    Search("news"),
    think("Third."),
    call("look_up", word="a"),
    call("look_up", word="b"),
]


# --- the order of steps ---------------------------------------------------------------------


async def test_chat_chunks_add_up_to_the_plain_reply() -> None:
    async with FakeProvider(lambda view: STEPS) as provider, openai_of(provider) as client:
        asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        plain = await client.chat.completions.create(**asked)
        async with client.chat.completions.stream(**asked) as stream:
            streamed = await stream.get_final_completion()
    for reply in (plain, streamed):
        message = reply.choices[0].message
        assert message.content == "Let me see."
        calls = [part.function for part in message.tool_calls or ()]
        assert [json.loads(each.arguments) for each in calls] == [{"word": "a"}, {"word": "b"}]
        assert reply.choices[0].finish_reason == "tool_calls"
    assert plain.choices[0].message.to_dict()["reasoning_content"] == "First.\n\nSecond.Third."


async def test_responses_stream_spells_out_the_plain_output() -> None:
    asked: dict[str, Any] = {
        "model": "m",
        "input": "hi",
        "store": False,
        "reasoning": {"summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
    async with FakeProvider(lambda view: STEPS) as provider, openai_of(provider) as client:
        plain = await client.responses.create(**asked)
        events = [event async for event in await client.responses.create(**asked, stream=True)]
    kinds = ["reasoning", "message", "web_search_call", "reasoning"] + ["function_call"] * 2
    assert [item.type for item in plain.output] == kinds
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.to_dict() for item in done] == [item.to_dict() for item in plain.output]
    assert [part["text"] for part in done[0].to_dict()["summary"]] == ["First.", "Second."]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == "response.completed"
    # As OpenAI's: what was thought is only in the events before.
    assert [item.type for item in last.response.output] == [k for k in kinds if k != "reasoning"]
    deltas = [event.to_dict() for event in events if event.type.endswith(".delta")]
    assert all(delta["obfuscation"] for delta in deltas)


async def test_messages_stream_spells_out_the_plain_blocks() -> None:
    async with FakeProvider(lambda view: [*STEPS[:4], Redacted(), *STEPS[4:]]) as provider:
        reply = await claude(provider)
    kinds = ["thinking", "text", "server_tool_use", "web_search_tool_result", "thinking"]
    kinds += ["redacted_thinking", "tool_use", "tool_use"]
    assert [block.type for block in reply.content] == kinds
    assert reply.stop_reason == "tool_use"
    assert reply.content[-1].to_dict()["input"] == {"word": "b"}


async def test_stream_of_messages_has_the_events_of_anthropic() -> None:
    async with FakeProvider(lambda view: "Hello there.") as provider:
        reply = await post(provider, "anthropic", stream=True)
    kinds = [event["type"] for event in events_in(reply.text)]
    assert kinds == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert reply.text.startswith("event: message_start\ndata: {")


# --- one script for all ---------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_script_sees_the_same_conversation_on_every_wire(wire: str) -> None:
    seen: list[object] = []

    def script(view: ScriptView) -> str:
        results = [(result.tool, result.content) for result in view.new_results]
        bodies = [mail.body for mail in view.mails]
        seen.append((view.system, bodies, results, view.tools, view.forced))
        return "ok"

    async with FakeProvider(script) as provider:
        reply = await post(provider, wire, **HISTORIES[wire])
        assert reply.status_code == 200, reply.text
        request = provider.requests[0]
    expected = ("Be brief.", ["first", "then"], [("look_up", "found")], ("look_up",), "look_up")
    assert seen == [expected]
    assert (request.wire, request.system, request.tool_names) == (wire, "Be brief.", ["look_up"])
    assert request.path.startswith("/v1/")
    assert request.tool_choice == HISTORIES[wire]["tool_choice"]
    assert len(request.messages) == {"completions": 5, "responses": 4, "anthropic": 3}[wire]


# --- what only some formats have -------------------------------------------------------------


async def test_thoughts_are_dropped_where_thinking_is_off_or_comes_too_late() -> None:
    steps = [think("a"), call("look_up"), think("b"), Redacted(), call("look_up")]
    async with FakeProvider(lambda view: steps) as provider:
        off = await claude(provider, thinking={"type": "disabled"})
        early = await claude(provider, extra_headers={})
        shown = {"type": "adaptive", "display": "summarized"}
        adaptive = await claude(provider, thinking=shown, extra_headers={})
        hidden = await claude(provider, thinking={"type": "adaptive"}, extra_headers={})
    assert [block.type for block in off.content] == ["tool_use", "tool_use"]
    assert [block.type for block in early.content] == ["thinking", "tool_use", "tool_use"]
    assert len(adaptive.content) == len(hidden.content) == 5
    assert adaptive.content[0].to_dict()["thinking"] == "a"
    thought = hidden.content[0].to_dict()
    assert (thought["thinking"], bool(thought["signature"])) == ("", True)


async def test_responses_only_has_what_was_asked_for() -> None:
    steps = [think("a"), RunCode("1", "2"), Search("q"), "text"]
    include = ["code_interpreter_call.outputs", "web_search_call.action.sources"]
    async with FakeProvider(lambda view: steps) as provider:
        bare = (await post(provider, "responses")).json()["output"]
        full = (await post(provider, "responses", include=include)).json()["output"]
    assert bare[0]["summary"] == []
    assert "encrypted_content" not in bare[0]
    assert (bare[1]["outputs"], full[1]["outputs"]) == (None, [{"type": "logs", "logs": "2"}])
    assert bare[2]["action"] == {"type": "search", "query": "q"}
    assert full[2]["action"]["sources"]


@pytest.mark.parametrize("shell", [False, True])
async def test_anthropic_runs_code(shell: bool) -> None:
    async with FakeProvider(lambda view: [RunCode("c", "o", shell=shell), "Done."]) as provider:
        reply = await claude(provider)
    use, result, _text = (block.to_dict() for block in reply.content)
    name = "bash_code_execution" if shell else "code_execution"
    assert (use["name"], result["type"]) == (name, f"{name}_tool_result")
    assert result["tool_use_id"] == use["id"]
    assert result["content"]["stdout"] == "o"
    assert reply.container is not None


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_have_their_own_place(stream: bool) -> None:
    async with FakeProvider(lambda view: [Refuse("I will not."), "never said"]) as provider:
        replies = {wire: await post(provider, wire, stream=stream) for wire in WIRES}
    assert not any("never said" in reply.text for reply in replies.values())
    if stream:
        chat, responses, claude_says = (events_in(replies[wire].text) for wire in WIRES)
        deltas = [event["choices"][0]["delta"].get("refusal") for event in chat]
        assert "".join(delta or "" for delta in deltas) == "I will not."
        deltas = [e["delta"] for e in responses if e["type"] == "response.refusal.delta"]
        assert "".join(deltas) == "I will not."
        assert claude_says[-2]["delta"]["stop_reason"] == "refusal"
        return
    assert replies["completions"].json()["choices"][0]["message"]["refusal"] == "I will not."
    part = replies["responses"].json()["output"][0]["content"][0]
    assert part == {"type": "refusal", "refusal": "I will not."}
    assert replies["anthropic"].json()["stop_reason"] == "refusal"


@pytest.mark.parametrize("midway", [False, True])
async def test_paused_turn_goes_on_where_it_stopped(midway: bool) -> None:
    steps = [think("a"), Search("q"), PauseTurn(midway), "One.", PauseTurn(), "Two."]
    async with FakeProvider(lambda view: steps) as provider:
        messages: list[Any] = [{"role": "user", "content": "hi"}]
        replies = [await claude(provider)]
        for _ in range(2):
            blocks = [block.to_dict() for reply in replies for block in reply.content]
            turn = [*messages, {"role": "assistant", "content": blocks}]
            replies.append(await claude(provider, messages=turn))
    kinds = [[block.type for block in reply.content] for reply in replies]
    use, result = "server_tool_use", "web_search_tool_result"
    first = ["thinking", use] if midway else ["thinking", use, result]
    assert kinds == [first, [result, "text"] if midway else ["text"], ["text"]]
    assert [reply.stop_reason for reply in replies] == ["pause_turn", "pause_turn", "end_turn"]
