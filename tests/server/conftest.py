"""A served swarm with four known callers."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from mail.db.memory import MemoryStore
from mail.server.app import create_app
from tests.server.kit import Script, Template, config, serving
from tests.support.till import known_callers


@pytest.fixture
async def store() -> MemoryStore:
    """A store that knows the tokens of the known callers."""
    return await known_callers()


@pytest.fixture
async def script() -> Script:
    """What the swarm's agent does."""
    return Script()


@pytest.fixture
async def template(script: Script) -> Template:
    """The served swarm."""
    return Template(script)


@pytest.fixture
async def app(store: MemoryStore, template: Template) -> FastAPI:
    """The application."""
    return create_app(config(shutdown_grace=0.5), template=template, store=store)  # type: ignore[arg-type]


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the served application."""
    async with serving(app) as client:
        yield client
