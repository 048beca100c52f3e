"""From a store's URL to the store: the scheme selects it."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, cast

from mail.db.base import Store
from mail.errors import ConfigError

__all__ = ["STORE_SCHEMES", "Durability", "open_store"]

Durability = Literal["full", "normal"]


def open_store(url: str, *, durability: str = "full", exclusive: bool = True) -> Store:
    """Make the store that a URL names. It is not open yet: await its `open`.

    Args:
        url: ``memory://``, ``sqlite:///relative.db``, ``sqlite:////absolute/path.db`` or
            ``postgresql://user:password@host:port/database`` (``postgres://`` is the same).
        durability: ``"full"`` survives a power loss, ``"normal"`` a process death.
        exclusive: Own the database; short-lived commands pass False. With SQLite a second owner
            is refused. With PostgreSQL nobody is: it decides how many connections are held.

    Raises:
        ConfigError: no such scheme, or the URL or the durability is wrong. The text never repeats
            what follows the scheme, for it may hold a password.
    """
    if durability not in ("full", "normal"):
        raise ConfigError(f"durability must be 'full' or 'normal', not {durability!r}")
    scheme, colon, rest = url.partition(":")
    build = STORE_SCHEMES.get(scheme.lower())
    if not colon or build is None:
        known = ", ".join(f"{name}:" for name in STORE_SCHEMES)
        raise ConfigError(f"the store URL must begin with one of {known}")
    return build(rest, cast("Durability", durability), exclusive)


def _memory(rest: str, durability: Durability, exclusive: bool) -> Store:
    if rest not in ("", "//"):
        raise ConfigError("the memory store takes no path: write memory://")
    from mail.db.memory import MemoryStore

    return MemoryStore()


def _sqlite(rest: str, durability: Durability, exclusive: bool) -> Store:
    path = rest.removeprefix("///")
    if path == rest or not path.strip("/"):
        raise ConfigError(
            "write sqlite:///mail.db for a file in the working directory, "
            "or sqlite:////folder/mail.db for an absolute path"
        )
    if path.startswith(":memory:"):
        raise ConfigError("an SQLite store needs a file; write memory:// for a store in memory")
    if "?" in path or "#" in path:
        raise ConfigError("an SQLite store URL takes no '?' parameters and no '#' fragment")
    from mail.db.sqlite import SQLiteStore

    return SQLiteStore(path, durability=durability, exclusive=exclusive)


def _postgresql(rest: str, durability: Durability, exclusive: bool) -> Store:
    from mail.db.postgres import PostgresStore

    return PostgresStore(f"postgresql:{rest}", durability=durability, exclusive=exclusive)


STORE_SCHEMES: Final[Mapping[str, Callable[[str, Durability, bool], Store]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "postgres": _postgresql,
}
"""URL scheme to builder."""
