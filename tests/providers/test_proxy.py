"""``use_proxy``: every call goes to the LiteLLM proxy, in the name of the caller."""

from collections.abc import AsyncIterator

import pytest

from mail.llm.litellm_model import close_clients
from mail.llm.script import call, otherwise, say, think, when
from tests.providers.swarms import Path, lead_swarm, run
from tests.support.provider import FakeProvider
from tests.support.provider.steps import Redacted, Search

SCRIPT = [
    when(body="And now").then(call("task_complete", finish_message="still here")),
    when(tool_result="look_up").then(think("Enough."), call("task_complete", finish_message="ok")),
    otherwise(
        think("First."),
        say("Searching."),
        Search("mail"),
        Redacted(),
        think("Then."),
        say("Looking."),
        call("look_up", word="mail"),
    ),
]
THROUGH = [
    Path("completions", "openai/gpt-5-mini", "completions", use_proxy=True),
    Path("responses", "openai/gpt-5-mini", "responses", use_proxy=True),
    Path("responses", "litellm_proxy/our-model", "responses", use_proxy=True),
    Path("anthropic", "anthropic/claude-sonnet-4-5", "responses", use_proxy=True),
]


@pytest.fixture
async def proxy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProvider]:
    """A proxy, and nothing else that could be reached."""
    async with FakeProvider(SCRIPT, proxy=True) as running:
        for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("LITELLM_PROXY_API_BASE", running.base_url)
        yield running
        await close_clients()


@pytest.mark.parametrize("path", THROUGH, ids=lambda path: f"{path.llm}-{path.tool_format}")
async def test_a_conversation_through_the_proxy(proxy: FakeProvider, path: Path) -> None:
    swarm = lead_swarm(path, user_token="the-callers-own-token")
    try:
        outcome = await run(swarm, "Go.", streamed=True, task_id="t")
        again = await run(
            swarm, "And now?", streamed=True, task_id="t", resume_from="user_response"
        )
    finally:
        await swarm.shutdown()
    assert (outcome.body, again.body) == ("ok", "still here")
    assert {seen.status for seen in proxy.requests} == {200}
    names = {seen.headers["authorization"] for seen in proxy.requests}
    assert names == {"Bearer the-callers-own-token"}
    assert {seen.model for seen in proxy.requests} == {path.llm.removeprefix("litellm_proxy/")}
    assert "the-callers-own-token" not in repr(outcome.events)


async def test_claude_behind_a_proxy_keeps_its_blocks(proxy: FakeProvider) -> None:
    swarm = lead_swarm(THROUGH[-1], user_token="token-0123456789")
    try:
        outcome = await run(swarm, "Go.", streamed=False, task_id="t")
    finally:
        await swarm.shutdown()
    search, look_up, complete = outcome.calls()
    assert (search["tool_name"], search["reasoning"]) == ("web_search_call", "First.")
    assert search["preamble"] == "Searching."
    assert look_up["reasoning"] == "[redacted thinking]\n\nThen."
    assert look_up["preamble"] == "Looking."
    assert complete["reasoning"] == "Enough."
    assert {seen.headers["anthropic-beta"] for seen in proxy.requests} == {
        "interleaved-thinking-2025-05-14"
    }


@pytest.mark.parametrize("path", THROUGH, ids=lambda path: f"{path.llm}-{path.tool_format}")
async def test_without_the_proxys_address_the_token_goes_nowhere(
    proxy: FakeProvider, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LITELLM_PROXY_API_BASE")
    monkeypatch.setenv("OPENAI_BASE_URL", proxy.base_url)
    monkeypatch.setenv("ANTHROPIC_API_BASE", proxy.root_url)
    swarm = lead_swarm(path, user_token="the-callers-own-token")
    try:
        outcome = await run(swarm, "Go.", streamed=False)
    finally:
        await swarm.shutdown()
    assert "LITELLM_PROXY_API_BASE is not set" in outcome.body
    assert proxy.requests == []
