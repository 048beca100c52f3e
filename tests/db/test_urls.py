"""Which store a URL names."""

from pathlib import Path

import pytest

from mail.db import open_store
from mail.db.memory import MemoryStore
from mail.db.postgres.driver import PostgresStore
from mail.db.sqlite.driver import SQLiteStore
from mail.errors import ConfigError


@pytest.mark.parametrize("url", ["memory://", "MEMORY://", "memory:"])
def test_memory(url: str) -> None:
    assert isinstance(open_store(url), MemoryStore)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///mail.db", "mail.db"),
        ("sqlite:///data/my mail%20.db", "data/my mail%20.db"),
        ("sqlite:////var/lib/mail.db", "/var/lib/mail.db"),
    ],
)
def test_sqlite_paths_are_relative_after_three_slashes_and_absolute_after_four(
    url: str, path: str
) -> None:
    store = open_store(url)
    assert isinstance(store, SQLiteStore)
    assert store.path == Path(path).resolve()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "PostgreSQL"])
def test_postgresql(scheme: str) -> None:
    assert isinstance(open_store(f"{scheme}://mail:secret@db:5432/mail"), PostgresStore)


async def test_the_options_reach_the_store(tmp_path: Path) -> None:
    owner = open_store(f"sqlite:///{tmp_path}/mail.db", durability="normal")
    guest = open_store(f"sqlite:///{tmp_path}/mail.db", exclusive=False)
    await owner.open()
    await guest.open()
    await guest.close()
    await owner.close()


def test_making_a_store_touches_no_file(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/mail.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("", "begins with a scheme"),
        ("mail.db", "begins with a scheme"),
        ("mysql://root:hunter2@db/mail", "begin with 'mysql:'"),
        ("hunter2", "begins with a scheme"),
        ("sqlite://hunter2.db", "sqlite:///"),
        ("sqlite:///", "sqlite:///"),
        ("sqlite:", "sqlite:///"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///mail.db?mode=hunter2", "parameters"),
        ("memory://hunter2", "memory://"),
        ("postgresql://mail:hunter2@db:5432", "PostgreSQL URL"),
        ("postgres://mail:hunter2@db:x/mail", "PostgreSQL URL"),
        ("postgres://mail:hunter2#@db/mail", "PostgreSQL URL"),
    ],
)
def test_a_wrong_url_is_explained_without_repeating_it(url: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)


def test_a_wrong_durability_is_refused() -> None:
    with pytest.raises(ConfigError, match="durability"):
        open_store("memory://", durability="eventually")
