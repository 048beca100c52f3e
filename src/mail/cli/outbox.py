"""``mail outbox``: list mail for other swarms, and deliver it again, for the operator of a server.

It uses the server's own database; with ``--url`` it asks a server over HTTP, as an administrator. A
running server notices within a minute what is retried beside it.
"""

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from mail.cli.common import DONE, one_line, whole_number
from mail.cli.credentials import add_key_flags, api_key, server_url
from mail.cli.stores import add_store_flags, opened, server_settings, tell_other_swarms
from mail.errors import ClientDecodeError, MAILError

if TYPE_CHECKING:
    from mail.net.types import OutboxMail

__all__ = ["configure", "run"]

_COLUMNS: Final = ("ID", "SWARM", "STATE", "KIND", "TRIES", "CREATED", "TASK", "LAST ERROR")
_LONGEST: Final = 60
_MOST: Final = 1000
"""Mail that a server lists at a time."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands ``list`` and ``retry``."""
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
    retry.add_argument("numbers", metavar="ID", nargs="+", type=whole_number, help="its number")
    for verb, action in ((listing, _list), (retry, _retry)):
        verb.add_argument("--swarm", metavar="NAME", help="swarm name (default: the server's)")
        add_store_flags(verb)
        verb.add_argument("--url", help="ask this server instead, as an administrator")
        add_key_flags(verb)
        verb.add_argument("--json", action="store_true", help="print JSON")
        verb.set_defaults(action=action)


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
        answer = await _ask(
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
    lines = [_COLUMNS, *map(_row, found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    for line in lines:
        print("  ".join(c.ljust(width) for c, width in zip(line, widths, strict=True)).rstrip())


async def _retry(arguments: argparse.Namespace) -> None:
    for number in arguments.numbers:
        if arguments.url:
            await _ask(arguments, "retry_outbox", number)
        else:
            await _retry_stored(arguments, number)
        told = json.dumps({"id": number, "status": "waiting"})
        print(told if arguments.json else f"mail {number} is delivered again")


async def _ask(arguments: argparse.Namespace, method: str, *given: Any, **more: Any) -> Any:
    from mail.client.client import MAILClient

    key = api_key(arguments.api_key, arguments.api_key_file, arguments.url)
    async with MAILClient(server_url(arguments.url), key) as client:
        return await getattr(client, method)(*given, **more)


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


async def _retry_stored(arguments: argparse.Namespace, number: int) -> None:
    url, swarm = server_settings(arguments)
    async with opened(url) as store:
        if not await store.retry_outbox(arguments.swarm or swarm, number):
            raise MAILError(f"no mail {number} waits for delivery")


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
