"""A place per test: folder, tokens, provider; and one warm process that servers come from."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.processes import Place, place_of, warm_up


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    """Load the heavy libraries once."""
    warm_up()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty PostgreSQL database; or nothing, for a file in the server's folder."""
    return request.getfixturevalue("dsn") if request.param == "postgresql" else ""


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """Where a test's server lives."""
    async with place_of(tmp_path) as made:
        yield made


@pytest.fixture
async def postgres_place(tmp_path: Path, dsn: str) -> AsyncIterator[Place]:
    """The same, with its state in PostgreSQL."""
    async with place_of(tmp_path, dsn=dsn) as made:
        yield made


@pytest.fixture
async def either_place(tmp_path: Path, database: str) -> AsyncIterator[Place]:
    """The same, once with each."""
    async with place_of(tmp_path, dsn=database) as made:
        yield made
