"""A whole conversation with every provider; see `tests.providers.conversation`.

Each provider refuses what it is known to refuse (`tests.support.provider.personalities`). Wanted is
that the conversation never notices: the task completes, reasoning goes back where it has to, and a
refusal that could not be foreseen is answered by a request that goes through.

The process is really killed for one provider of each wire. Set ``MAIL_KILL_EVERY_PROVIDER`` to kill
it for all.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mail.llm.compress import SUMMARY_TITLE
from mail.llm.litellm_model import close_clients
from tests.e2e.processes import warm_up
from tests.providers.conversation import ANSWERS, Case, Conversation, kept
from tests.support.provider import PERSONALITIES, FakeProvider, Seen

KILLED = {"openai-responses", "openai-chat", "claude-fixed"}
LOW = {"reasoning_effort": "low"}
_US = "bedrock/us"

CASES = [
    Case(
        "openai-responses",
        "openai",
        "openai/gpt-5-mini",
        other="anthropic/claude-opus-4-7",
        other_at="anthropic",
    ),
    Case("openai-chat", "openai", "openai/gpt-5-mini", "completions", kept=False),
    Case("openai-newest", "openai", "openai/gpt-5.6", other="xai/grok-4.5", other_at="xai"),
    Case("openai-unverified", "openai-unverified", "openai/gpt-5-mini", refusals=2),
    Case(
        "openai-unverified-chat",
        "openai-unverified",
        "openai/gpt-5-mini",
        "completions",
        kept=False,
        refusals=1,
    ),
    Case("openai-pro", "openai", "openai/gpt-5-pro", streams=False),
    Case("claude-fixed", "anthropic", "anthropic/claude-sonnet-4-5", params=LOW),
    Case("claude-adaptive", "anthropic", "anthropic/claude-opus-4-7", params=LOW),
    Case(
        "claude-default",
        "anthropic",
        "anthropic/claude-opus-5",
        other="gemini/gemini-3.5-flash",
        other_at="gemini",
        kept=False,
    ),
    Case("claude-bound", "anthropic-bound", "anthropic/claude-opus-5-5", forced=False),
    Case("gemini-3", "gemini", "gemini/gemini-3.5-flash", params=LOW),
    Case("gemini-2", "gemini", "gemini/gemini-2.5-pro", kept=False),
    Case("mistral", "mistral", "mistral/mistral-large-latest", kept=False),
    Case("nim", "nim", "nvidia_nim/mistralai/mistral-small-4", kept=False),
    Case("deepseek", "deepseek", "deepseek/deepseek-v4-pro", kept=False),
    Case(
        "deepseek-thinks",
        "deepseek",
        "deepseek/deepseek-v4-pro",
        params=LOW,
        other="mistral/mistral-large-latest",
        other_at="mistral",
    ),
    Case("qwen", "qwen", "dashscope/qwen3.6-plus", kept=False),
    Case("kimi-k2.6", "kimi", "moonshot/kimi-k2.6", kept=False),
    Case("kimi-k2.6-thinks", "kimi", "moonshot/kimi-k2.6", params=LOW),
    Case("kimi-k2.7", "kimi", "moonshot/kimi-k2.7-code", forced=False, refusals=2),
    Case("kimi-k3", "kimi", "moonshot/kimi-k3"),
    Case("xai-4.20", "xai", "xai/grok-4.20-0309-reasoning"),
    Case("xai-4.5", "xai", "xai/grok-4.5", params={"reasoning_effort": "high"}),
    Case("zai", "zai", "zai/glm-5", forced=False),
    Case("groq", "groq", "groq/openai/gpt-oss-120b", kept=False, params=LOW),
    Case(
        "router-claude",
        "openrouter",
        "openrouter/anthropic/claude-opus-5.5",
        kept=False,
        forced=False,
        refusals=1,
    ),
    Case("router-deepseek", "openrouter", "openrouter/deepseek/deepseek-v4-pro", kept=False),
    Case("router-kimi", "openrouter", "openrouter/moonshotai/kimi-k2.6", params=LOW),
    Case("vllm", "vllm", "hosted_vllm/openai/gpt-oss-120b", kept=False),
    Case("vllm-bare", "vllm-bare", "hosted_vllm/qwen/qwen3-32b", kept=False),
    Case("ollama", "ollama", "ollama_chat/qwen3:8b", kept=False, forced=False),
    Case("bedrock-bound", "bedrock", f"{_US}.anthropic.claude-opus-5-5", forced=False),
    Case("bedrock-adaptive", "bedrock", f"{_US}.anthropic.claude-opus-4-8", params=LOW),
    Case(
        "bedrock-budget",
        "bedrock",
        f"{_US}.anthropic.claude-sonnet-4-5-20250929-v1:0",
        params=LOW,
        other=f"{_US}.amazon.nova-2-lite-v1:0",
        other_at="bedrock",
    ),
    Case("bedrock-mistral", "bedrock", "bedrock/mistral.mistral-large-2407-v1:0", kept=False),
    Case(
        "bedrock-llama",
        "bedrock",
        f"{_US}.meta.llama3-3-70b-instruct-v1:0",
        kept=False,
        forced=False,
        streams=False,
    ),
    Case(
        "proxy", "proxy", "anthropic/claude-opus-5-5", "completions", use_proxy=True, forced=False
    ),
]


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Start the process from which those are forked that are killed."""
    warm_up()


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProvider]:
    """Every provider at once, with the variables by which they are found."""
    async with FakeProvider() as running:
        for name in PERSONALITIES:
            variable = PERSONALITIES[name].address[0]
            monkeypatch.setenv(variable, running.environment(name)[variable])
            prefix = variable.removesuffix("_BASE_URL").removesuffix("_API_BASE")
            key = prefix.removesuffix("_AZURE")
            if key not in ("OLLAMA", "AWS_BEDROCK_RUNTIME_ENDPOINT"):
                monkeypatch.setenv(f"{key}_API_KEY", "sk-environment-key-0123456789")
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "sk-environment-key-0123456789")
        monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")
        yield running
        await close_clients()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_conversation_with_every_provider(
    provider: FakeProvider, case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in (case.other_at, case.at):
        for variable, value in provider.environment(name).items():
            monkeypatch.setenv(variable, value)
    really = case.name in KILLED or "MAIL_KILL_EVERY_PROVIDER" in os.environ
    url = f"sqlite:///{tmp_path / 'mail.db'}" if really else "memory://"
    conversation = Conversation(case, provider, url)
    try:
        assert await conversation.hold() == ANSWERS
    finally:
        await conversation.close()
    check_requests(provider, case)


def check_requests(provider: FakeProvider, case: Case) -> None:
    """Look at what arrived: refusals, reasoning, the summary, and the forced end."""
    seen = provider.requests
    refused = [one for one in seen if one.outcome == "refused"]
    assert len(refused) <= case.refusals, [(one.status, one.body) for one in refused]
    accepted = [one for one in seen if one.outcome != "refused"]
    assert {one.personality for one in seen} >= {case.at}
    assert kept(accepted[1]) or not case.kept, accepted[1].body
    ends = [one for one in accepted if "reached its limit" in str(one.messages[-3:])]
    assert ends
    assert SUMMARY_TITLE in str(ends[-1].messages[:2])
    assert ends[-1].conversation.choice == "auto" or case.forced
    for one in accepted:
        check_silent_losses(one)


def check_silent_losses(seen: Seen) -> None:
    """Look for what providers take without a word, and do not do."""
    if seen.personality.startswith("openai"):
        assert seen.body.get("store") is False, "it would be kept"
    if seen.personality == "gemini" and seen.conversation.tools:
        config = seen.body.get("generationConfig", {}).get("thinkingConfig", {})
        levels = "gemini-3" in seen.model and config
        assert not levels or "thinkingLevel" in config, "an effort would be ignored"
        assert seen.conversation.choice != "auto", "nothing would be forced"
    if seen.personality == "ollama":
        assert seen.body["options"].get("num_ctx"), "the history would be cut in front"
