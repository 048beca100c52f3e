"""From a store's URL to the store: the scheme selects it."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, cast

from mail.db.records import SwarmClaim
from mail.db.store import Store
from mail.errors import ConfigError

Durability = Literal["full", "normal"]

_LONGEST: Final = 60
_FORMS: Final = "write sqlite:///mail.db, postgresql://host/database or memory://"


class _Use(NamedTuple):
    """The intended use of a store."""

    durability: Durability
    exclusive: bool
    read_only: bool
    claim: SwarmClaim | None


def open_store(
    url: str,
    *,
    durability: str = "full",
    exclusive: bool = True,
    read_only: bool = False,
    claim: SwarmClaim | None = None,
) -> Store:
    """Make the store that a URL names. It is not open yet: await its `open`.

    Args:
        url: ``memory://``, ``sqlite:///relative.db``, ``sqlite:////absolute/path.db`` or
            ``postgresql://user:password@host:port/database`` (``postgres://`` is the same).
        durability: ``"full"`` survives a power loss, ``"normal"`` a process death.
        exclusive: Own the database, and upgrade its schema; short-lived commands pass False. With
            SQLite a second owner is refused, of the file or of the claimed swarm in it. With
            PostgreSQL it decides how many connections are held.
        read_only: The store is only going to be read, not owned; an SQLite file is opened so.
        claim: The swarm that a server is going to serve: a second server of one swarm is refused.
            Without it an SQLite file has one owner, whatever the swarms.

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
        rest, _Use(cast("Durability", durability), exclusive and not read_only, read_only, claim)
    )


def _memory(rest: str, use: _Use) -> Store:
    if rest not in ("", "//"):
        raise ConfigError("the memory store has no path; write memory://")
    from mail.db.memory import MemoryStore

    return MemoryStore()


def _sqlite(rest: str, use: _Use) -> Store:
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

    return SQLiteStore(
        path,
        durability=use.durability,
        exclusive=use.exclusive,
        read_only=use.read_only,
        swarm=None if use.claim is None else use.claim.swarm,
    )


def _postgresql(rest: str, use: _Use) -> Store:
    from mail.db.postgres.driver import PostgresStore

    return PostgresStore(
        f"postgresql:{rest}", durability=use.durability, exclusive=use.exclusive, claim=use.claim
    )


STORE_SCHEMES: Final[Mapping[str, Callable[[str, _Use], Store]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "postgres": _postgresql,
}
"""URL scheme to builder."""
