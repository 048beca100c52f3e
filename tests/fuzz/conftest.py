"""One server for all tests of a module."""

from collections.abc import Iterator

import pytest

from tests.fuzz.target import Target, target


@pytest.fixture(scope="module")
def shot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server without limits per caller, over SQLite."""
    folder = tmp_path_factory.mktemp("fuzz")
    with target(f"sqlite:///{folder}/mail.db") as running:
        yield running
