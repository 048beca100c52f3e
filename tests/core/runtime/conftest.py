"""Stores that runtime tests run on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mail.db import open_store
from mail.db.store import Store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of each kind that two runtimes can use one after the other."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'mail.db'}"
    store = open_store(url)
    await store.open()
    yield store
    await store.close()
