"""What every test starts from: an environment without settings, keys or addresses of services."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.postgres import Cluster

_PREFIXES = ("MAIL_", "SWARM_", "AUTH_", "TOKEN_INFO_", "OPENAI_", "ANTHROPIC_", "LITELLM_")
_NAMES = ("DATABASE_URL", "BASE_URL")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove settings of the outer environment, so that no test depends on them."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES) or name in _NAMES or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    # LiteLLM reads this one late, at the first call of a Claude model, and would fetch a file.
    monkeypatch.setenv("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    yield


@pytest.fixture(scope="session")
def cluster() -> Iterator["Cluster"]:
    """A PostgreSQL server for all tests that ask for one; it starts with the first of them."""
    from tests.support.postgres import Cluster

    made = Cluster()
    try:
        made.start()
        yield made
    finally:
        made.remove()


@pytest.fixture
def dsn(cluster: "Cluster") -> str:
    """The URL of an empty PostgreSQL database."""
    return cluster.dsn()
