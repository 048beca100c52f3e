"""``mail token``: the built-in token authority from the command line.

The store keeps hashes only, so a token is shown once, when it is made. The commands open the
server's own database for a moment; they work while the server runs.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import click

from mail.cli.common import cleaned, configured, in_columns, tell
from mail.cli.stores import STORE, missing_file, opened, server_settings
from mail.cli.table import JSON, Group, Namespace, argument, flag, option, positive
from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.db.store import Store

_ROLES: Final = ("user", "admin", "agent")
_LONGEST_DAYS: Final = 36500


@asynccontextmanager
async def _opened(arguments: Namespace, **how: bool) -> AsyncIterator["Store"]:
    """Open the server's store, and tell of a database that was created for it."""
    url = server_settings(arguments)[0]
    new = missing_file(url)
    async with opened(url, **how) as store:
        yield store
    if new is not None:
        said = f"note: created the database {new.resolve()}; the server must use the same file"
        print(said, file=sys.stderr)


def _days(text: str) -> float:
    value = positive(text)
    if value >= _LONGEST_DAYS:
        raise click.BadParameter(f"must be less than {_LONGEST_DAYS} days")
    return value


token = Group()


@token.add(
    "create",
    "create a token and print it once",
    option("--role", required=True, type=click.Choice(_ROLES), told="the role of the caller"),
    option(
        "--id",
        required=True,
        told="the caller's id (for agents: the other swarm, or the participant)",
    ),
    flag(
        "--participant",
        told="with --role agent: the token of a participant that swarms.json declares",
    ),
    option("--label", default="", told="a note shown in the list"),
    option(
        "--expires-in",
        metavar="DAYS",
        type=_days,
        told="days until it expires",
    ),
    *STORE,
    JSON,
)
async def _create(arguments: Namespace) -> int:
    from mail.auth.tokens import create_token, token_record

    _check_participant(arguments)
    days: float | None = arguments.expires_in
    async with _opened(arguments, create=True) as store:
        made, row = await create_token(
            store, arguments.role, arguments.id, label=arguments.label, days=days
        )
    if not arguments.json:
        print(cleaned(f"{row.role} token for '{row.id}', shown only once:"), file=sys.stderr)
    return tell(arguments, {"token": made, **token_record(row)}, made)


def _check_participant(arguments: Namespace) -> None:
    """Check that an agent's token is for what its id stands for.

    Raises:
        ConfigError: the id is no participant of the swarm, or is one and that was not said.
    """
    from mail.auth.tokens import check_purpose

    given: bool = arguments.participant
    if arguments.role != "agent":
        if given:
            raise ConfigError("--participant goes with --role agent")
        return
    swarm, declared = _declared(arguments)
    name = repr(arguments.id)
    if declared is not None:
        check_purpose(
            "agent", arguments.id, swarm, declared, participant=given, flag="--participant"
        )
    elif given:
        said = f"the swarms file cannot be read; it must declare the participant {name}"
        print(f"note: {said}", file=sys.stderr)


def _declared(arguments: Namespace) -> tuple[str, set[str] | None]:
    """Return the server's swarm and its participants; None when its file cannot be read."""
    from mail.config.server import ServerConfig, resolve_swarms_file
    from mail.swarms_json.utils import load_swarms_json_from_file

    with configured(arguments.config):
        swarm = ServerConfig().swarm
    try:
        swarms = load_swarms_json_from_file(resolve_swarms_file(swarm))
    except ConfigError:
        return swarm.name, None
    found = (each for each in swarms if each["name"] == swarm.name)
    return swarm.name, {one["name"] for each in found for one in each["participants"]}


@token.add("list", "list tokens by their hashes", *STORE, JSON)
async def _list(arguments: Namespace) -> int:
    from mail.auth.tokens import kind_of_token, token_record

    async with _opened(arguments, read_only=True) as store:
        rows = await store.list_tokens()
    agents = any(row.role == "agent" for row in rows)
    declared = _declared(arguments)[1] if agents else None
    found = [{**token_record(row), "kind": kind_of_token(row, declared)} for row in rows]
    table = [("HASH", "ROLE", "ID", "STATE", "CREATED", "EXPIRES", "FOR", "LABEL")]
    for each in found:
        known = (each["hash"], each["role"], each["id"], each["state"], each["created_at"][:19])
        expires, kind = each["expires_at"] or "never", each["kind"] or "-"
        table.append((*known, expires[:19], kind, each["label"]))
    return tell(arguments, found, *in_columns(table))


@token.add(
    "revoke",
    "revoke a token",
    argument("hash_prefix", "the beginning of its hash"),
    *STORE,
    JSON,
)
async def _revoke(arguments: Namespace) -> int:
    from mail.auth.tokens import revoke_token, token_record

    async with _opened(arguments) as store:
        row = await revoke_token(store, arguments.hash_prefix)
    record = token_record(row)
    return tell(arguments, record, f"revoked the {row.role} token of '{row.id}' ({record['hash']})")
