"""From a store's URL to the store: the scheme selects it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mail.db.store import Store
from mail.errors import ConfigError

_LONGEST: Final = 60
_FORMS: Final = "write sqlite:///mail.db, postgresql://host/database or memory://"


def open_store(
    url: str,
    *,
    durability: str = "full",
    exclusive: bool = True,
    read_only: bool = False,
    swarm: str | None = None,
) -> Store:
    """Make the store that a URL names. It is not open yet: await its `open`.

    Args:
        url: ``memory://``, ``sqlite:///relative.db``, ``sqlite:////absolute/path.db`` or
            ``postgresql://user:password@host:port/database`` (``postgres://`` is the same).
        durability: ``"full"`` survives a power loss, ``"normal"`` a process death.
        exclusive: Own the database, and upgrade its schema; short-lived commands pass False. With
            SQLite a second owner is refused, of the file or of the named swarm in it. With
            PostgreSQL owners share the tasks: each works on those that it has claimed.
        read_only: The store is only going to be read, not owned; an SQLite file is opened so.
        swarm: The swarm that a server is going to serve. Without it an SQLite file has one owner,
            whatever the swarms.

    Raises:
        ConfigError: no such scheme, or the URL or the durability is wrong. The text never repeats
            what follows the scheme, for it may hold a password.
    """
    if durability not in ("full", "normal"):
        raise ConfigError(f"durability must be 'full' or 'normal', not {durability!r}")
    scheme, colon, rest = url.partition(":")
    build = STORE_SCHEMES.get(scheme.lower())
    if not colon:
        raise ConfigError(f"a store URL begins with a scheme; {_FORMS}")
    if build is None:
        raise ConfigError(f"a store URL cannot begin with '{scheme[:_LONGEST]}:'; {_FORMS}")
    return build(
        rest,
        durability=durability,
        exclusive=exclusive and not read_only,
        read_only=read_only,
        swarm=swarm,
    )


def _memory(rest: str, **_use: object) -> Store:
    if rest not in ("", "//"):
        raise ConfigError("the memory store has no path; write memory://")
    from mail.db.memory import MemoryStore

    return MemoryStore()


def _sqlite(rest: str, **use: Any) -> Store:
    path = rest.removeprefix("///")
    if path == rest or not path.strip("/"):
        raise ConfigError(
            "write sqlite:///mail.db for a file in the working directory, "
            "or sqlite:////folder/mail.db for an absolute path"
        )
    if path.startswith(":memory:"):
        raise ConfigError(
            "an SQLite store needs a file name; to keep the state in memory, write memory://"
        )
    if "?" in path or "#" in path:
        raise ConfigError("an SQLite store URL must not contain '?' parameters or a '#' fragment")
    from mail.db.sqlite.driver import SQLiteStore

    return SQLiteStore(path, **use)


def _postgresql(rest: str, *, read_only: bool, **use: Any) -> Store:
    from mail.db.postgres.driver import PostgresStore

    return PostgresStore(f"postgresql:{rest}", **use)


STORE_SCHEMES: Final[Mapping[str, Callable[..., Store]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "postgres": _postgresql,
}
"""URL scheme to builder."""
