"""``mail token``: the built-in token authority from the command line.

The store keeps hashes only, so a token is shown once, when it is made. The commands open the
server's own database for a moment; they work while the server runs.
"""

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING, Final

from mail.cli.common import cleaned, config_path, one_line, positive, print_table
from mail.cli.stores import add_store_flags, missing_file, opened, server_settings
from mail.config.env import CONFIG_PATH, overridden
from mail.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mail.db.store import Store

_ROLES: Final = ("user", "admin", "agent")
_LONGEST_DAYS: Final = 36500


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands ``create``, ``list`` and ``revoke``."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    create = verbs.add_parser("create", help="create a token and print it once")
    create.add_argument("--role", required=True, choices=_ROLES, help="the role of the caller")
    identity = "the caller's id (for agents: the other swarm, or the participant)"
    create.add_argument("--id", required=True, help=identity)
    create.add_argument(
        "--participant",
        action="store_true",
        help="with --role agent: the token of a participant that swarms.json declares",
    )
    create.add_argument("--label", default="", help="a note shown in the list")
    create.add_argument("--expires-in", metavar="DAYS", type=_days, help="days until it expires")
    listing = verbs.add_parser("list", help="list tokens by their hashes")
    revoke = verbs.add_parser("revoke", help="revoke a token")
    revoke.add_argument("hash_prefix", metavar="HASH_PREFIX", help="the beginning of its hash")
    for verb, action in ((create, _create), (listing, _list), (revoke, _revoke)):
        add_store_flags(verb)
        verb.add_argument("--json", action="store_true", help="print JSON")
        verb.set_defaults(action=action)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand.

    Raises:
        ConfigError: the store is not durable, or an argument is invalid.
        StoreError: the store failed.
        MAILError: no token, or more than one, matches the hash.
    """
    action: Callable[[Store, argparse.Namespace], Awaitable[None]] = arguments.action

    async def work() -> None:
        url = server_settings(arguments)[0]
        new = missing_file(url)
        async with opened(url, create=action is _create, read_only=action is _list) as store:
            await action(store, arguments)
        if new is not None:
            said = f"note: created the database {new.resolve()}; the server must use the same file"
            print(said, file=sys.stderr)

    asyncio.run(work())
    return 0


async def _create(store: "Store", arguments: argparse.Namespace) -> None:
    from mail.auth.tokens import create_token, token_record

    _check_participant(arguments)
    days: float | None = arguments.expires_in
    token, row = await create_token(
        store, arguments.role, arguments.id, label=arguments.label, days=days
    )
    if arguments.json:
        print(json.dumps({"token": token, **token_record(row)}))
        return
    print(cleaned(f"{row.role} token for '{row.id}', shown only once:"), file=sys.stderr)
    print(token)


def _check_participant(arguments: argparse.Namespace) -> None:
    """See that an agent's token is for what its id stands for.

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


def _declared(arguments: argparse.Namespace) -> tuple[str, set[str] | None]:
    """Return the server's swarm and its participants; None when its file cannot be read."""
    from mail.config.server import ServerConfig, resolve_swarms_file
    from mail.swarms_json.utils import load_swarms_json_from_file

    with overridden(CONFIG_PATH, config_path(arguments.config)):
        swarm = ServerConfig().swarm
    try:
        swarms = load_swarms_json_from_file(resolve_swarms_file(swarm))
    except ConfigError:
        return swarm.name, None
    found = (each for each in swarms if each["name"] == swarm.name)
    return swarm.name, {one["name"] for each in found for one in each["participants"]}


async def _list(store: "Store", arguments: argparse.Namespace) -> None:
    from mail.auth.tokens import kind_of_token, token_record

    rows = await store.list_tokens()
    agents = any(row.role == "agent" for row in rows)
    declared = _declared(arguments)[1] if agents else None
    if arguments.json:
        records = [token_record(row) | {"kind": kind_of_token(row, declared)} for row in rows]
        print(json.dumps(records))
        return
    table = [("HASH", "ROLE", "ID", "STATE", "CREATED", "EXPIRES", "FOR", "LABEL")]
    for row in rows:
        shown = token_record(row)
        expires = (row.expires_at or "never")[:19]
        table.append(
            (
                shown["hash"],
                row.role,
                row.id,
                shown["state"],
                row.created_at[:19],
                expires,
                kind_of_token(row, declared) or "-",
                one_line(row.label),
            )
        )
    print_table(table)


async def _revoke(store: "Store", arguments: argparse.Namespace) -> None:
    from mail.auth.tokens import revoke_token, token_record

    row = await revoke_token(store, arguments.hash_prefix)
    if arguments.json:
        print(json.dumps(token_record(row)))
        return
    print(cleaned(f"revoked the {row.role} token of '{row.id}' ({token_record(row)['hash']})"))


def _days(text: str) -> float:
    value = positive(text)
    if value >= _LONGEST_DAYS:
        raise argparse.ArgumentTypeError(f"must be less than {_LONGEST_DAYS} days")
    return value
