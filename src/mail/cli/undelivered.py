"""``mail outbox`` and ``mail webhook``: what was not delivered: list, retry and discard it.

They use the server's own database; with ``--url`` they ask a server over HTTP, as an administrator.
A running server notices within a minute what is retried beside it.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from mail.cli.common import one_line, print_table
from mail.cli.credentials import ask_server, at_server, listed_in
from mail.cli.stores import SWARM, opened, server_settings, tell_other_swarms
from mail.cli.table import COUNT, Group, Namespace, argument, option
from mail.clock import SystemClock
from mail.db.webhooks import WebhookChange
from mail.errors import UnknownWebhook

if TYPE_CHECKING:
    from mail.db.store import Store

_LONGEST: Final = 60
_TO_THE_SECOND: Final = len("2026-01-31T12:00:00")
_HEADINGS: Final = MappingProxyType(
    {"peer": "SWARM", "attempts": "TRIES", "created_at": "CREATED", "task_id": "TASK"}
)
"""The headings of the fields that are not headed by their names."""

Record = Mapping[str, Any]
Change = Callable[["Store", str, int], Awaitable[None]]
"""What is done in a store to the one of a swarm that has a number."""


class Undelivered(NamedTuple):
    """What was not delivered, and how a store lists and changes it.

    ``name`` is the command; the methods of `MAILClient` are named after it, as is ``get_outbox``,
    and list what they find in a field named ``many``, at most ``page`` at a time. ``again`` is said
    of one that is retried, and ``peer`` tells whether each is for another swarm.
    """

    name: str
    one: str
    many: str
    again: str
    page: int
    fields: tuple[str, ...]
    read: Callable[["Store", str, dict[str, Any]], Awaitable[Sequence[Record]]]
    retry: Change
    discard: Change
    peer: bool = False

    def given(self, arguments: Namespace) -> dict[str, Any]:
        """Return what says which are listed."""
        names = ("peer", "after", "limit") if self.peer else ("after", "limit")
        return {name: getattr(arguments, name) for name in names}

    def filters(self) -> list[click.Parameter]:
        """Return the options that say which are listed."""
        after = f"only {self.many} after this number"
        found: list[click.Parameter] = [
            option("-a", "--after", type=int, default=0, metavar="N", told=after),
            option("-l", "--limit", type=COUNT, default=100, told="at most so many (default 100)"),
        ]
        peer = option("-p", "--peer", metavar="SWARM", told="only mail for this swarm")
        return [peer, *found] if self.peer else found

    def group(self, listing: str, retry: str, discard: str) -> Group:
        """Return the command, given the summaries of its subcommands."""
        made = Group()
        server = at_server("ask this server instead, as an administrator")
        numbers = argument(
            "numbers", "its number", metavar="ID...", nargs=-1, type=COUNT, required=True
        )

        @made.add("list", listing, *self.filters(), *SWARM, *server)
        async def listed(arguments: Namespace) -> None:
            await self._list(arguments)

        @made.add("retry", retry, numbers, *SWARM, *server)
        async def retried(arguments: Namespace) -> None:
            await self._change(arguments, "retry", "waiting", self.again)

        @made.add("discard", discard, numbers, *SWARM, *server)
        async def discarded(arguments: Namespace) -> None:
            await self._change(arguments, "discard", "discarded", "is discarded")

        return made

    async def _list(self, arguments: Namespace) -> None:
        given, found = self.given(arguments), list[Record]()
        if arguments.url:
            given["limit"] = min(given["limit"], self.page)
            answer = await ask_server(arguments, f"get_{self.name}", **given)
            found += listed_in(answer, self.many)
        else:
            url, configured = server_settings(arguments)
            swarm = arguments.swarm or configured
            async with opened(url, read_only=True) as store:
                found += await self.read(store, swarm, given)
                if not found:
                    await tell_other_swarms(store, swarm, self.many)
        if arguments.json:
            print(json.dumps(found))
            return
        headings = [_HEADINGS.get(name, name.upper().replace("_", " ")) for name in self.fields]
        print_table([headings, *([_cell(each, name) for name in self.fields] for each in found)])

    async def _change(self, arguments: Namespace, verb: str, status: str, text: str) -> None:
        for number in arguments.numbers:
            if arguments.url:
                await ask_server(arguments, f"{verb}_{self.name}", number)
            else:
                url, swarm = server_settings(arguments)
                async with opened(url) as store:
                    await getattr(self, verb)(store, arguments.swarm or swarm, number)
            told = json.dumps({"id": number, "status": status})
            print(told if arguments.json else f"{self.one} {number} {text}")


def _cell(record: Record, name: str) -> str:
    text = "" if record.get(name) is None else str(record[name])
    return one_line(text[:_TO_THE_SECOND] if name == "created_at" else text, _LONGEST)


async def _mail(store: "Store", swarm: str, given: dict[str, Any]) -> Sequence[Record]:
    from mail.net.types import outbox_mail

    return [outbox_mail(owner, row) for owner, row in await store.list_outbox(swarm, **given)]


async def _retry_mail(store: "Store", swarm: str, number: int) -> None:
    from mail.services.peer_mail import retry_mail

    await retry_mail(store, swarm, number, datetime.now(UTC))


async def _discard_mail(store: "Store", swarm: str, number: int) -> None:
    from mail.services.peer_mail import discard_mail

    await discard_mail(store, swarm, number)


async def _messages(store: "Store", swarm: str, given: dict[str, Any]) -> Sequence[Record]:
    from mail.net.types import webhook_message

    return [webhook_message(row) for row in await store.list_webhooks(swarm, **given)]


async def _retry_message(store: "Store", swarm: str, number: int) -> None:
    if not await store.retry_webhook(swarm, number, SystemClock().now()):
        raise UnknownWebhook(number)


async def _discard_message(store: "Store", swarm: str, number: int) -> None:
    if not await store.change_webhook(swarm, WebhookChange(number, "done")):
        raise UnknownWebhook(number)


OUTBOX: Final = Undelivered(
    *("outbox", "mail", "mail", "is delivered again", 1000),
    ("id", "peer", "state", "kind", "attempts", "created_at", "task_id", "last_error"),
    *(_mail, _retry_mail, _discard_mail),
    peer=True,
)
WEBHOOK: Final = Undelivered(
    *("webhook", "message", "messages", "is sent again", 200),
    ("id", "event", "state", "attempts", "created_at", "task_id", "last_error"),
    *(_messages, _retry_message, _discard_message),
)
outbox = OUTBOX.group(
    "list mail for other swarms that is not done with",
    "deliver mail again, also mail that was given up",
    "remove mail that was given up",
)
webhook = WEBHOOK.group(
    "list messages that the webhook has not taken",
    "send messages again, also those that were given up",
    "remove messages",
)
