"""``mail webhook``: what the webhook has not taken: list, retry and discard it, for an operator.

It uses the server's own database; with ``--url`` it asks a server over HTTP, as an administrator.
"""

import argparse
import asyncio
import json
from typing import Any, Final

from mail.cli.common import DONE, one_line, print_table, whole_number
from mail.cli.credentials import add_server_flags, ask_server
from mail.cli.stores import (
    add_swarm_flags,
    opened,
    server_settings,
    swarm_store,
    tell_other_swarms,
)
from mail.clock import SystemClock
from mail.db.webhooks import WebhookChange
from mail.errors import ClientDecodeError, UnknownWebhook

__all__ = ["configure", "run"]

_COLUMNS: Final = ("ID", "EVENT", "STATE", "TRIES", "CREATED", "TASK", "LAST ERROR")
_LONGEST: Final = 60
_MOST: Final = 200
"""Messages that a server lists at a time."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands ``list``, ``retry`` and ``discard``."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="list messages that the webhook has not taken")
    listing.add_argument(
        "--after", type=int, default=0, metavar="ID", help="only messages after this number"
    )
    listing.add_argument(
        "--limit", type=whole_number, default=100, help="at most so many (default 100)"
    )
    retry = verbs.add_parser("retry", help="send messages again, also those that were given up")
    discard = verbs.add_parser("discard", help="remove messages")
    for verb in (retry, discard):
        verb.add_argument("numbers", metavar="ID", nargs="+", type=whole_number, help="its number")
    for verb, action in ((listing, _list), (retry, _retry), (discard, _discard)):
        add_swarm_flags(verb)
        add_server_flags(verb, "ask this server instead, as an administrator", action)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand.

    Raises:
        ConfigError: an argument or a setting is invalid.
        MAILError: there is no such message, or the store or the server failed.
    """
    asyncio.run(arguments.action(arguments))
    return DONE


async def _list(arguments: argparse.Namespace) -> None:
    if arguments.url:
        limit = min(arguments.limit, _MOST)
        answer = await ask_server(arguments, "get_webhook", after=arguments.after, limit=limit)
        found = _checked(answer)
    else:
        found = await _stored(arguments)
    if arguments.json:
        print(json.dumps(found))
        return
    print_table([_COLUMNS, *map(_row, found)])


async def _retry(arguments: argparse.Namespace) -> None:
    for number in arguments.numbers:
        if arguments.url:
            await ask_server(arguments, "retry_webhook", number)
        else:
            async with swarm_store(arguments) as (store, swarm):
                if not await store.retry_webhook(swarm, number, SystemClock().now()):
                    raise UnknownWebhook(number)
        told = json.dumps({"id": number, "status": "waiting"})
        print(told if arguments.json else f"message {number} is sent again")


async def _discard(arguments: argparse.Namespace) -> None:
    for number in arguments.numbers:
        if arguments.url:
            await ask_server(arguments, "discard_webhook", number)
        else:
            async with swarm_store(arguments) as (store, swarm):
                if not await store.change_webhook(swarm, WebhookChange(number, "done")):
                    raise UnknownWebhook(number)
        told = json.dumps({"id": number, "status": "discarded"})
        print(told if arguments.json else f"message {number} is discarded")


async def _stored(arguments: argparse.Namespace) -> list[Any]:
    from mail.net.types import webhook_message

    url, configured = server_settings(arguments)
    swarm = arguments.swarm or configured
    async with opened(url, read_only=True) as store:
        rows = await store.list_webhooks(swarm, arguments.after, arguments.limit)
        if not rows:
            await tell_other_swarms(store, swarm, "messages")
    return [webhook_message(row) for row in rows]


def _checked(answer: object) -> list[Any]:
    """Check the shape of a server's answer, and return the messages in it."""
    messages = answer.get("messages") if isinstance(answer, dict) else None
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise ClientDecodeError("the server's answer has no list of messages")
    return messages


def _row(message: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(message.get("id")),
        one_line(str(message.get("event")), _LONGEST),
        one_line(str(message.get("state")), _LONGEST),
        str(message.get("attempts")),
        one_line(str(message.get("created_at"))[:19]),
        one_line(str(message.get("task_id")), _LONGEST),
        one_line(str(message.get("last_error") or ""), _LONGEST),
    )
