"""The fake provider and the hand-written payloads agree, and so do the vendors' clients."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from mail.llm.script import call, say, think
from tests.support.payloads import NAMES, load_payload, names_of
from tests.support.provider import Cited, FakeProvider, Found, Redacted, Refuse, RunCode, Search
from tests.support.provider.clients import INTERLEAVED, THINKING, WIRES, events_in, post

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.provider.inbound import WireName

Shape = tuple[str, tuple[str, ...]]

PAGE = Found("Trees", "https://example.org/trees")
TREE, LEAF = call("look_up", word="tree"), call("look_up", word="leaf")
# The steps that give each payload; only as Anthropic the provider cites something.
STEPS: dict[str, dict[str, list[Any]]] = {
    "completions": {
        "text": [say("It is sunny.")],
        "one_call": [TREE],
        "parallel_calls": [say("Both."), TREE, LEAF],
        "interleaved": [think("First."), say("Wait."), TREE, think("Then."), LEAF],
        "refusal": [Refuse("I will not.")],
    },
    "responses": {
        "text": [say("It is sunny.")],
        "one_call": [think("a"), TREE],
        "parallel_calls": [think("a"), TREE, LEAF],
        "interleaved": [think("a\n\nb"), Search("q"), think("c"), TREE],
        "refusal": [Refuse("I will not.")],
        "code": [RunCode("print(6*7)", "42"), say("It is 42.")],
    },
    "anthropic": {
        "text": [say("It is sunny.")],
        "one_call": [think("a"), say("b"), TREE],
        "parallel_calls": [think("a"), TREE, LEAF],
        "interleaved": [think("a"), say("b"), Search("q"), think("c"), Redacted(), TREE],
        "cited": [Search("q"), say("As is known, "), Cited("it is a pine", page=PAGE), say(".")],
        "refusal": [Refuse("I will not.")],
        "code": [RunCode("print(6*7)", "42"), say("It is 42.")],
    },
}
ASKED: dict[str, dict[str, Any]] = {
    "completions": {"stream_options": {"include_usage": True}},
    "responses": {
        "store": False,
        "reasoning": {"effort": "high", "summary": "detailed"},
        "include": ["reasoning.encrypted_content", "code_interpreter_call.outputs"],
    },
    "anthropic": {"thinking": THINKING, "headers": INTERLEAVED},
}
CASES = [(wire, name) for wire in WIRES for name in STEPS[wire]]
# What a request brings along is none of the provider's making.
FREE = {"tools", "tool_choice", "input", "metadata", "arguments"}


def shapes(value: Any, label: str = "") -> Iterator[Shape]:
    """Yield the keys of every object, under its path and the types on the way to it."""
    if isinstance(value, list):
        for part in value:
            yield from shapes(part, label)
    if isinstance(value, dict):
        kind = value.get("type")
        label = f"{label}<{kind}>" if isinstance(kind, str) else label
        yield label, tuple(sorted(value))
        for key, part in value.items():
            if key not in FREE:
                yield from shapes(part, f"{label}.{key}")


@pytest.mark.parametrize(("wire", "name"), CASES)
async def test_provider_sends_the_events_and_keys_of_the_payload(wire: WireName, name: str) -> None:
    payload = load_payload(wire, name)
    async with FakeProvider(lambda view: STEPS[wire][name]) as provider:
        streamed = await post(provider, wire, stream=True, **ASKED[wire])
        plain = await post(
            provider, wire, **{k: v for k, v in ASKED[wire].items() if k[:6] != "stream"}
        )
    assert set(shapes(events_in(streamed.text))) == set(shapes(payload.events))
    assert set(shapes(plain.json())) == set(shapes(payload.body))


@pytest.mark.parametrize(("wire", "name"), CASES)
async def test_provider_sends_the_events_in_the_order_of_the_payload(
    wire: WireName, name: str
) -> None:
    async with FakeProvider(lambda view: STEPS[wire][name]) as provider:
        streamed = await post(provider, wire, stream=True, **ASKED[wire])
    sent = _order(events_in(streamed.text))
    assert sent == _order(load_payload(wire, name).events)


def _order(events: list[dict[str, Any]]) -> list[str]:
    """Return what events are, with repeated ones once: how many pieces there are is all one."""
    kinds = [_kind(event) for event in events]
    return [kind for at, kind in enumerate(kinds) if at == 0 or kind != kinds[at - 1]]


def _kind(event: dict[str, Any]) -> str:
    if "type" in event:
        inner = event.get("delta") if isinstance(event.get("delta"), dict) else None
        part = inner or event.get("item") or event.get("content_block") or {}
        return f"{event['type']} {part.get('type', '')}"
    delta = [choice["delta"] for choice in event["choices"]]
    names = [
        f"{key} {'name' in part[0]['function'] if key == 'tool_calls' else ''}"
        for choice in delta
        for key, part in choice.items()
    ]
    return " ".join(["chunk", *names, *(str(c["finish_reason"]) for c in event["choices"])])


@pytest.mark.parametrize("wire", WIRES)
def test_every_payload_is_compared_or_cited(wire: WireName) -> None:
    left_out = {"cited"} if wire == "responses" else set()
    assert set(names_of(wire)) - left_out == set(STEPS[wire])
    assert set(names_of(wire)) <= set(NAMES)


# --- the vendors' clients read the payloads ------------------------------------------------------


@asynccontextmanager
async def serving(wire: WireName, name: str) -> AsyncIterator[str]:
    """Answer every request with a payload; yield the address."""
    payload = load_payload(wire, name)

    async def answer(request: web.Request) -> web.Response:
        if not (await request.json()).get("stream"):
            return web.json_response(payload.body)
        lines = []
        for event in payload.events:
            lines += [f"event: {event['type']}\n"] if "type" in event else []
            lines.append(f"data: {json.dumps(event)}\n\n")
        return web.Response(text="".join(lines), content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.parametrize("name", names_of("completions"))
async def test_openai_reads_the_same_chat_from_stream_and_body(name: str) -> None:
    from openai import AsyncOpenAI

    asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    async with serving("completions", name) as url, AsyncOpenAI(api_key="k", base_url=url) as ask:
        plain = await ask.chat.completions.create(**asked)
        async with ask.chat.completions.stream(**asked) as stream:
            streamed = await stream.get_final_completion()
    message, built = (reply.choices[0].message for reply in (plain, streamed))
    assert (built.content, built.refusal) == (message.content, message.refusal)
    for one, other in zip(built.tool_calls or (), message.tool_calls or (), strict=True):
        assert (one.id, one.function.arguments) == (other.id, other.function.arguments)
    assert streamed.choices[0].finish_reason == plain.choices[0].finish_reason
    assert streamed.usage == plain.usage


@pytest.mark.parametrize("name", names_of("responses"))
async def test_openai_reads_the_same_response_from_stream_and_body(name: str) -> None:
    from openai import AsyncOpenAI

    async with serving("responses", name) as url, AsyncOpenAI(api_key="k", base_url=url) as ask:
        plain = await ask.responses.create(model="m", input="x")
        stream = await ask.responses.create(model="m", input="x", stream=True)
        events = [event async for event in stream]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.to_dict() for item in done] == [item.to_dict() for item in plain.output]
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output == [item for item in plain.output if item.type != "reasoning"]
    assert last.response.usage == plain.usage
    assert [event.sequence_number for event in events] == list(range(len(events)))


@pytest.mark.parametrize("name", names_of("anthropic"))
async def test_anthropic_reads_the_same_from_stream_and_body(name: str) -> None:
    from anthropic import AsyncAnthropic

    asked: dict[str, Any] = {
        "model": "claude-test",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "x"}],
    }
    async with serving("anthropic", name) as url, AsyncAnthropic(api_key="k", base_url=url) as ask:
        plain = await ask.messages.create(**asked)
        async with ask.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
    built = [block.to_dict() for block in streamed.content]
    assert built == [block.to_dict() for block in plain.content]
    assert streamed.stop_reason == plain.stop_reason
    assert streamed.usage.output_tokens == plain.usage.output_tokens
