"""The fake provider's errors, faults, clock and bill, in every wire format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mail.llm.script import Call, call, think
from tests.llm.provider_histories import HISTORIES
from tests.support.provider import FakeProvider, Fault
from tests.support.provider.clients import (
    THINKING,
    WIRES,
    anthropic_of,
    claude,
    events_in,
    openai_of,
    post,
)
from tests.support.provider.seals import signature

if TYPE_CHECKING:
    from mail.llm.script_view import ScriptView


async def test_errors_come_in_the_shape_of_each_vendor() -> None:
    import openai

    fault = Fault(status=429, retry_after=7, message="slow down")
    async with FakeProvider(key="k") as provider:
        provider.faults.extend([fault, fault])
        async with openai_of(provider) as client:
            with pytest.raises(openai.RateLimitError) as limited:
                await client.responses.create(model="m", input="hi")
        assert limited.value.code == "rate_limit_exceeded"
        assert limited.value.body["message"] == "slow down"  # type: ignore[index]
        assert limited.value.response.headers["retry-after"] == "7"
        import anthropic

        with pytest.raises(anthropic.RateLimitError) as refused:
            await claude(provider)
        body = refused.value.body
        assert isinstance(body, dict)
        assert body["error"] == {"type": "rate_limit_error", "message": "slow down"}
        assert refused.value.response.headers["retry-after"] == "7"


async def test_keys_are_checked_where_each_vendor_has_them() -> None:
    import anthropic
    import openai

    async with FakeProvider(key="k") as provider:
        assert (await post(provider, "anthropic")).status_code == 200  # a bearer token will do
        await claude(provider)  # and so will x-api-key
        async with openai_of(provider, key="wrong") as client:
            with pytest.raises(openai.AuthenticationError):
                await client.responses.create(model="m", input="hi")
        async with anthropic_of(provider, key="wrong") as other:
            with pytest.raises(anthropic.AuthenticationError):
                await other.messages.create(
                    model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
                )


async def test_body_that_is_no_json_is_refused() -> None:
    async with FakeProvider() as provider, httpx.AsyncClient() as client:
        for path in ("chat/completions", "responses", "messages"):
            reply = await client.post(f"{provider.base_url}/{path}", content=b"{")
            assert reply.status_code == 400


# --- time and cost ----------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_the_first_piece_of_content_is_timed(wire: str) -> None:
    async with FakeProvider(lambda view: "some words") as provider:
        provider.faults.extend([None, Fault(status=500)])
        reply = await post(provider, wire, stream=True)
        at = await provider.first_token()
        assert reply.elapsed.total_seconds() > 0
        assert at == provider.requests[0].first_token_at
        await post(provider, wire)
        with pytest.raises(RuntimeError, match="without content"):
            await provider.first_token(2)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [False, True])
async def test_usage_is_counted_in_the_fields_of_each_vendor(wire: str, stream: bool) -> None:
    body = dict(HISTORIES[wire], stream=stream)
    if wire == "completions":
        body["stream_options"] = {"include_usage": True}
    if wire == "anthropic":
        mark = {"cache_control": {"type": "ephemeral"}}
        del body["tool_choice"]  # nobody may force tools and think
        body["system"] = [body["system"][0] | mark]
        body["messages"] = [body["messages"][0], *_thoughtful(body["messages"][1:])]
        body["thinking"] = THINKING
    async with FakeProvider(lambda view: [think("one two"), "three four five"]) as provider:
        reply = await post(provider, wire, **body)
    assert reply.status_code == 200, reply.text
    usage = _usage(events_in(reply.text)) if stream else reply.json()["usage"]
    counted = {
        "completions": (
            lambda u: (u["prompt_tokens"], u["completion_tokens"]),
            lambda u: u["prompt_tokens_details"]["cached_tokens"],
            lambda u: u["completion_tokens_details"]["reasoning_tokens"],
        ),
        "responses": (
            lambda u: (u["input_tokens"], u["output_tokens"]),
            lambda u: u["input_tokens_details"]["cached_tokens"],
            lambda u: u["output_tokens_details"]["reasoning_tokens"],
        ),
        "anthropic": (
            lambda u: (
                u["input_tokens"] + u["cache_creation_input_tokens"] + u["cache_read_input_tokens"],
                u["output_tokens"],
            ),
            lambda u: u["cache_read_input_tokens"],
            lambda u: u["output_tokens_details"]["thinking_tokens"],
        ),
    }[wire]
    # 9 + 5 + 5 + 4 characters, of which the system prompt and the first message were sent before
    assert counted[0](usage) == (2 + 1 + 1 + 1, 5)
    assert counted[1](usage) == 2 + 1
    assert counted[2](usage) == 2


def _usage(events: list[dict[str, Any]]) -> Any:
    last = events[-1]
    if "response" in last:
        return last["response"]["usage"]
    return last["usage"] if "usage" in last else events[-2]["usage"]


def _thoughtful(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    thought = {"type": "thinking", "thinking": "t", "signature": signature("t")}
    first, *rest = messages
    return [first | {"content": [thought, *first["content"]]}, *rest]


@pytest.mark.parametrize("wire", WIRES)
async def test_usage_can_be_given(wire: str) -> None:
    async with FakeProvider(usage=lambda seen: (100 * seen.n, 7)) as provider:
        await post(provider, wire)
        usage = (await post(provider, wire)).json()["usage"]
    names = ("prompt_tokens", "completion_tokens") if wire == "completions" else None
    given, written = names or ("input_tokens", "output_tokens")
    assert (usage[given], usage[written]) == (200, 7)


async def test_same_request_gets_the_same_reply_and_another_other_ids() -> None:
    def script(view: ScriptView) -> Call:
        return call("look_up", word="x")

    async with FakeProvider(script) as provider:
        for wire in WIRES:
            first, again = [(await post(provider, wire)).text for _ in range(2)]
            other = (await post(provider, wire, model="n")).text
            ids = [_ids(json.loads(text)) for text in (first, again, other)]
            assert ids[0] == ids[1]
            assert not set(ids[0]) & set(ids[2])


def _ids(value: Any) -> list[str]:
    """Return the ids of calls in a reply."""
    if isinstance(value, list):
        return [found for part in value for found in _ids(part)]
    if not isinstance(value, dict):
        return []
    own = [value["id"]] if "arguments" in str(value) and "function" in value else []
    own += [value["call_id"]] if "call_id" in value else []
    own += [value["id"]] if value.get("type") == "tool_use" else []
    return own + [found for part in value.values() for found in _ids(part)]
