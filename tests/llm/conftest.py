"""A provider over HTTP that the environment points to."""

from collections.abc import AsyncIterator

import pytest

from mail.llm.litellm_model import close_clients, load_parts
from tests.support.provider import FakeProvider


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProvider]:
    """A running provider that the environment points to, as it would to OpenAI.

    The model library is there already: loading it would count towards the first call's deadline.
    """
    load_parts()
    async with FakeProvider() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-environment-key-0123456789")
        yield running
        await close_clients()
