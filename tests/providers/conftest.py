"""The fake provider, in the place of OpenAI, Anthropic and a LiteLLM proxy."""

from collections.abc import AsyncIterator

import pytest

from mail.llm.litellm_model import close_clients
from tests.support.provider import FakeProvider


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProvider]:
    """A running provider that the environment points to, whichever SDK looks for one.

    It refuses what OpenAI and Anthropic refuse, of each model.
    """
    async with FakeProvider() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{running.root_of('openai')}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-environment-key-0123456789")
        monkeypatch.setenv("ANTHROPIC_API_BASE", running.root_of("anthropic"))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-environment-key-0123456789")
        monkeypatch.setenv("LITELLM_PROXY_API_BASE", running.base_url)
        monkeypatch.setenv("LITELLM_PROXY_API_KEY", "sk-proxy-key-0123456789")
        yield running
        await close_clients()
