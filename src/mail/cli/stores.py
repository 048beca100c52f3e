"""The server's store, opened for a moment beside the server."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mail.cli.common import cleaned, configured
from mail.cli.table import CONFIG, Namespace, option
from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.db.store import Store

_MOST_NAMES: Final = 10


STORE: Final = (
    option("--store", metavar="URL", told="store URL (default: the server's store)"),
    CONFIG,
)


SWARM: Final = (
    option("--swarm", metavar="NAME", told="swarm name (default: the server's)"),
    *STORE,
)


def server_settings(arguments: Namespace) -> tuple[str, str]:
    """Return the URL of the server's durable store and the name of its swarm.

    Raises:
        ConfigError: the store is in memory, or a setting is invalid.
    """
    from mail.config.server import MEMORY_URL, ServerConfig, resolve_store_url

    with configured(arguments.config):
        config = ServerConfig()
        url: str = arguments.store or resolve_store_url(config)
    if url.lower().startswith(MEMORY_URL):
        raise ConfigError(
            "the server's store is in memory, which other processes cannot access; "
            "set [server.store] url or DATABASE_URL, or give --store sqlite:///mail.db"
        )
    return url, config.swarm.name


@asynccontextmanager
async def opened(
    url: str, *, create: bool = False, read_only: bool = False
) -> AsyncIterator["Store"]:
    """Open a store without taking ownership, and close it afterwards.

    Args:
        url: The store's URL.
        create: Create a missing SQLite file; otherwise a missing file is an error.
        read_only: Open an SQLite file for reading.

    Raises:
        ConfigError: the kind of store is unknown, or the file does not exist.
        StoreError: it cannot be opened, or only a server may upgrade it first.
    """
    from mail.db.urls import open_store

    store = open_store(url, exclusive=False, read_only=read_only)
    missing = None if create else missing_file(url)
    if missing is not None:
        raise missing_database(missing)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def tell_other_swarms(store: "Store", swarm: str, what: str) -> None:
    """Say on standard error that nothing was found, when the store has only other swarms' tasks."""
    names = await store.swarms()
    if names and swarm not in names:
        others = ", ".join(map(repr, names[:_MOST_NAMES])) + (", …" if names[_MOST_NAMES:] else "")
        text = f"mail: no {what} of swarm {swarm!r}; this database has {others}: use --swarm"
        print(cleaned(text), file=sys.stderr)


def missing_database(path: Path) -> ConfigError:
    """Return the error of a command that needs a database, for a file that is not there."""
    return ConfigError(
        f"there is no SQLite file '{path}' (current folder: {Path.cwd()}); "
        "go to the server's folder, or name the file with --store"
    )


def missing_file(url: str) -> Path | None:
    """Return the SQLite file that a store's URL names if it does not exist."""
    scheme, _, rest = url.partition(":")
    path = Path(rest.removeprefix("///"))
    return path if scheme.lower() == "sqlite" and not path.exists() else None
