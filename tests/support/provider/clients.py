"""Ways to ask the provider: the vendors' own clients, and bare requests."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anthropic import AsyncAnthropic
    from anthropic.types import Message
    from openai import AsyncOpenAI

    from tests.support.provider.inbound import WireName
    from tests.support.provider.server import FakeProvider

__all__ = ["INTERLEAVED", "THINKING", "WIRES", "anthropic_of", "claude", "events_in", "openai_of"]
__all__ += ["post"]

WIRES: tuple[WireName, ...] = ("completions", "responses", "anthropic")
INTERLEAVED = {"anthropic-beta": "interleaved-thinking-2025-05-14"}
THINKING: dict[str, Any] = {"type": "enabled", "budget_tokens": 2000}

_HI = {"messages": [{"role": "user", "content": "hi"}]}
_REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("chat/completions", _HI),
    "responses": ("responses", {"input": "hi"}),
    "anthropic": ("messages", {**_HI, "max_tokens": 4096}),
}


@asynccontextmanager
async def openai_of(provider: FakeProvider, key: str = "k") -> AsyncIterator[AsyncOpenAI]:
    """Open OpenAI's client, which tries once."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=provider.base_url, api_key=key, max_retries=0) as client:
        yield client


@asynccontextmanager
async def anthropic_of(provider: FakeProvider, key: str = "k") -> AsyncIterator[AsyncAnthropic]:
    """Open Anthropic's client, which tries once."""
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(base_url=provider.root_url, api_key=key, max_retries=0) as client:
        yield client


async def claude(provider: FakeProvider, **changes: Any) -> Message:
    """Ask as Anthropic's client does, plain and streamed: both must say the same."""
    asked: dict[str, Any] = {
        "model": "claude-test",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": "hi"}],
        "thinking": THINKING,
        "extra_headers": INTERLEAVED,
    }
    async with anthropic_of(provider) as client:
        plain: Message = await client.messages.create(**asked | changes)
        async with client.messages.stream(**asked | changes) as stream:
            streamed = await stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [
        block.to_dict() for block in plain.content
    ]
    assert streamed.stop_reason == plain.stop_reason
    return plain


async def post(
    provider: FakeProvider,
    wire: str,
    /,
    *,
    headers: dict[str, str] | None = None,
    **changes: Any,
) -> httpx.Response:
    """Send a minimal request of a wire, with changes to its body."""
    path, body = _REQUESTS[wire]
    usual = {"Authorization": "Bearer k", "anthropic-version": "2023-06-01"}
    async with httpx.AsyncClient(timeout=10) as client:
        return await client.post(
            f"{provider.base_url}/{path}",
            json={"model": "m"} | body | changes,
            headers=usual | (headers or {}),
        )


def events_in(text: str) -> list[dict[str, Any]]:
    """Return the data of a stream's events."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line[:5] == "data:"]
    return [json.loads(line) for line in lines if line != "[DONE]"]
