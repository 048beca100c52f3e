"""A served swarm in debug mode, and OpenAI's own client for it."""

from collections.abc import AsyncIterator

import httpx
import pytest
from openai import AsyncOpenAI

from mail.auth.callers import hash_token
from mail.db.memory import MemoryStore
from mail.db.records import TokenRow
from mail.server.app import create_app
from tests.responses_api.support import DEBUG, Office
from tests.server.kit import CALLERS, TOKENS, serving


async def add_tokens(store: MemoryStore) -> MemoryStore:
    """Let a store know the tokens of the known callers."""
    for who, (role, identifier) in CALLERS.items():
        await store.put_token(
            TokenRow(hash_token(TOKENS[who]), role, identifier, "2026-01-01T00:00:00+00:00")
        )
    return store


@pytest.fixture
async def store() -> MemoryStore:
    """A store that knows the tokens of the known callers."""
    return await add_tokens(MemoryStore())


@pytest.fixture
async def office() -> Office:
    """The served swarm."""
    return Office()


@pytest.fixture
async def http(store: MemoryStore, office: Office) -> AsyncIterator[httpx.AsyncClient]:
    """A plain client of the server."""
    async with serving(create_app(DEBUG, template=office.template, store=store)) as client:
        yield client


@pytest.fixture
async def openai(http: httpx.AsyncClient) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client, as Alice."""
    base = f"{http.base_url}/v1" if not str(http.base_url).endswith("/") else f"{http.base_url}v1"
    async with AsyncOpenAI(base_url=base, api_key=TOKENS["alice"]) as client:
        yield client
