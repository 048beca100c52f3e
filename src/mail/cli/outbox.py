"""``mail outbox``: mail for other swarms: list, retry and discard it, for the operator of a server.

It uses the server's own database; with ``--url`` it asks a server over HTTP, as an administrator. A
running server notices within a minute what is retried beside it.
"""

import argparse
import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mail.cli.common import DONE, one_line, print_table, whole_number
from mail.cli.credentials import add_server_flags, ask_server
from mail.cli.stores import (
    add_swarm_flags,
    opened,
    server_settings,
    swarm_store,
    tell_other_swarms,
)
from mail.errors import ClientDecodeError

if TYPE_CHECKING:
    from mail.net.types import OutboxMail

__all__ = ["configure", "run"]

_COLUMNS: Final = ("ID", "SWARM", "STATE", "KIND", "TRIES", "CREATED", "TASK", "LAST ERROR")
_LONGEST: Final = 60
_MOST: Final = 1000
"""Mail that a server lists at a time."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands ``list``, ``retry`` and ``discard``."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="list mail for other swarms that is not done with")
    listing.add_argument("--peer", metavar="SWARM", help="only mail for this swarm")
    listing.add_argument(
        "--after", type=int, default=0, metavar="ID", help="only mail after this number"
    )
    listing.add_argument(
        "--limit", type=whole_number, default=100, help="at most so many (default 100)"
    )
    retry = verbs.add_parser("retry", help="deliver mail again, also mail that was given up")
    discard = verbs.add_parser("discard", help="remove mail that was given up")
    for verb in (retry, discard):
        verb.add_argument("numbers", metavar="ID", nargs="+", type=whole_number, help="its number")
    for verb, action in ((listing, _list), (retry, _retry), (discard, _discard)):
        add_swarm_flags(verb)
        add_server_flags(verb, "ask this server instead, as an administrator", action)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand.

    Raises:
        ConfigError: an argument or a setting is invalid.
        MAILError: there is no such mail, or the store or the server failed.
    """
    asyncio.run(arguments.action(arguments))
    return DONE


async def _list(arguments: argparse.Namespace) -> None:
    if arguments.url:
        answer = await ask_server(
            arguments,
            "get_outbox",
            arguments.peer,
            after=arguments.after,
            limit=min(arguments.limit, _MOST),
        )
        found = _checked(answer)
    else:
        found = await _stored(arguments)
    if arguments.json:
        print(json.dumps(found))
        return
    print_table([_COLUMNS, *map(_row, found)])


async def _retry(arguments: argparse.Namespace) -> None:
    from mail.services.peer_mail import retry_mail

    for number in arguments.numbers:
        if arguments.url:
            await ask_server(arguments, "retry_outbox", number)
        else:
            async with swarm_store(arguments) as (store, swarm):
                await retry_mail(store, swarm, number, datetime.now(UTC))
        told = json.dumps({"id": number, "status": "waiting"})
        print(told if arguments.json else f"mail {number} is delivered again")


async def _discard(arguments: argparse.Namespace) -> None:
    from mail.services.peer_mail import discard_mail

    for number in arguments.numbers:
        if arguments.url:
            await ask_server(arguments, "discard_outbox", number)
        else:
            async with swarm_store(arguments) as (store, swarm):
                await discard_mail(store, swarm, number)
        told = json.dumps({"id": number, "status": "discarded"})
        print(told if arguments.json else f"mail {number} is discarded")


async def _stored(arguments: argparse.Namespace) -> "list[OutboxMail]":
    from mail.net.types import outbox_mail

    url, configured = server_settings(arguments)
    swarm = arguments.swarm or configured
    async with opened(url, read_only=True) as store:
        rows = await store.list_outbox(
            swarm, peer=arguments.peer, after=arguments.after, limit=arguments.limit
        )
        if not rows:
            await tell_other_swarms(store, swarm, "mail")
    return [outbox_mail(owner, row) for owner, row in rows]


def _checked(answer: object) -> "list[OutboxMail]":
    """Check the shape of a server's answer, and return the mail in it."""
    mail = answer.get("mail") if isinstance(answer, dict) else None
    if not isinstance(mail, list) or not all(isinstance(each, dict) for each in mail):
        raise ClientDecodeError("the server's answer has no list of mail")
    return mail


def _row(mail: "OutboxMail") -> tuple[str, ...]:
    return (
        str(mail.get("id")),
        one_line(str(mail.get("peer")), _LONGEST),
        one_line(str(mail.get("state")), _LONGEST),
        one_line(str(mail.get("kind")), _LONGEST),
        str(mail.get("attempts")),
        one_line(str(mail.get("created_at"))[:19]),
        one_line(str(mail.get("task_id")), _LONGEST),
        one_line(str(mail.get("last_error") or ""), _LONGEST),
    )
