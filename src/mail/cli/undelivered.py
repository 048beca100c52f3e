"""``mail outbox`` and ``mail webhook``: what was not delivered: list, retry and discard it.

They use the server's own database; with ``--url`` they ask a server over HTTP, as an administrator.
A running server notices within a minute what is retried beside it.
"""

import argparse
import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mail.cli.common import DONE, one_line, print_table, whole_number
from mail.cli.credentials import add_server_flags, ask_server, listed_in
from mail.cli.stores import (
    add_swarm_flags,
    opened,
    server_settings,
    swarm_store,
    tell_other_swarms,
)
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


class Undelivered(ABC):
    """A command with the same three verbs, whatever was not delivered."""

    name: ClassVar[str]
    """The command; the methods of `MAILClient` are named after it, as is ``get_outbox``."""
    one: ClassVar[str]
    many: ClassVar[str]
    """What was not delivered; a server's answer lists it in a field of this name."""
    again: ClassVar[str]
    """What is said of one that is retried."""
    page: ClassVar[int]
    """How many a server lists at a time."""
    fields: ClassVar[tuple[str, ...]]
    helps: ClassVar[Mapping[str, str]]
    filters: ClassVar[Mapping[str, tuple[str, str]]] = MappingProxyType({})
    """Flags that say which are listed: what stands for their values, and their help."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the subcommands ``list``, ``retry`` and ``discard``."""
        verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        listing, retry, discard = (
            verbs.add_parser(verb, help=told) for verb, told in self.helps.items()
        )
        self._add_filters(listing)
        for verb in (retry, discard):
            verb.add_argument(
                "numbers", metavar="ID", nargs="+", type=whole_number, help="its number"
            )
        for verb, action in ((listing, self._list), (retry, self._retry), (discard, self._discard)):
            add_swarm_flags(verb)
            add_server_flags(verb, "ask this server instead, as an administrator", action)

    def _add_filters(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        for name, (value, told) in self.filters.items():
            add(f"--{name}", metavar=value, help=told)
        after = f"only {self.many} after this number"
        add("--after", type=int, default=0, metavar="ID", help=after)
        add("--limit", type=whole_number, default=100, help="at most so many (default 100)")

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the subcommand.

        Raises:
            ConfigError: an argument or a setting is invalid.
            MAILError: there is nothing of that number, or the store or the server failed.
        """
        asyncio.run(arguments.action(arguments))
        return DONE

    async def _list(self, arguments: argparse.Namespace) -> None:
        given = {name: getattr(arguments, name) for name in (*self.filters, "after", "limit")}
        found: Sequence[Record]
        if arguments.url:
            given["limit"] = min(given["limit"], self.page)
            answer = await ask_server(arguments, f"get_{self.name}", **given)
            found = listed_in(answer, self.many)
        else:
            found = await self._stored(arguments, given)
        if arguments.json:
            print(json.dumps(found))
        else:
            headings = [_HEADINGS.get(name, name.upper().replace("_", " ")) for name in self.fields]
            print_table(
                [headings, *([_cell(each, name) for name in self.fields] for each in found)]
            )

    async def _stored(self, arguments: argparse.Namespace, given: dict[str, Any]) -> list[Record]:
        url, configured = server_settings(arguments)
        swarm = arguments.swarm or configured
        async with opened(url, read_only=True) as store:
            found = list(await self.read(store, swarm, given))
            if not found:
                await tell_other_swarms(store, swarm, self.many)
        return found

    async def _retry(self, arguments: argparse.Namespace) -> None:
        await self._change(arguments, self.retry, "waiting", self.again)

    async def _discard(self, arguments: argparse.Namespace) -> None:
        await self._change(arguments, self.discard, "discarded", "is discarded")

    async def _change(
        self, arguments: argparse.Namespace, change: Change, status: str, text: str
    ) -> None:
        for number in arguments.numbers:
            if arguments.url:
                await ask_server(arguments, f"{arguments.verb}_{self.name}", number)
            else:
                async with swarm_store(arguments) as (store, swarm):
                    await change(store, swarm, number)
            told = json.dumps({"id": number, "status": status})
            print(told if arguments.json else f"{self.one} {number} {text}")

    @abstractmethod
    async def read(self, store: "Store", swarm: str, given: dict[str, Any]) -> Iterable[Record]:
        """Return what a store has, as a server lists it."""

    @abstractmethod
    async def retry(self, store: "Store", swarm: str, number: int) -> None:
        """Have one delivered again."""

    @abstractmethod
    async def discard(self, store: "Store", swarm: str, number: int) -> None:
        """Remove one."""


def _cell(record: Record, name: str) -> str:
    text = "" if record.get(name) is None else str(record[name])
    return one_line(text[:_TO_THE_SECOND] if name == "created_at" else text, _LONGEST)


class _Outbox(Undelivered):
    """Mail for other swarms."""

    name, one, many, again, page = "outbox", "mail", "mail", "is delivered again", 1000
    fields = ("id", "peer", "state", "kind", "attempts", "created_at", "task_id", "last_error")
    helps = MappingProxyType(
        {
            "list": "list mail for other swarms that is not done with",
            "retry": "deliver mail again, also mail that was given up",
            "discard": "remove mail that was given up",
        }
    )
    filters = MappingProxyType({"peer": ("SWARM", "only mail for this swarm")})

    async def read(self, store: "Store", swarm: str, given: dict[str, Any]) -> Iterable[Record]:
        from mail.net.types import outbox_mail

        return [outbox_mail(owner, row) for owner, row in await store.list_outbox(swarm, **given)]

    async def retry(self, store: "Store", swarm: str, number: int) -> None:
        from mail.services.peer_mail import retry_mail

        await retry_mail(store, swarm, number, datetime.now(UTC))

    async def discard(self, store: "Store", swarm: str, number: int) -> None:
        from mail.services.peer_mail import discard_mail

        await discard_mail(store, swarm, number)


class _Webhook(Undelivered):
    """Messages to the webhook."""

    name, one, many, again, page = "webhook", "message", "messages", "is sent again", 200
    fields = ("id", "event", "state", "attempts", "created_at", "task_id", "last_error")
    helps = MappingProxyType(
        {
            "list": "list messages that the webhook has not taken",
            "retry": "send messages again, also those that were given up",
            "discard": "remove messages",
        }
    )

    async def read(self, store: "Store", swarm: str, given: dict[str, Any]) -> Iterable[Record]:
        from mail.net.types import webhook_message

        return [webhook_message(row) for row in await store.list_webhooks(swarm, **given)]

    async def retry(self, store: "Store", swarm: str, number: int) -> None:
        if not await store.retry_webhook(swarm, number, SystemClock().now()):
            raise UnknownWebhook(number)

    async def discard(self, store: "Store", swarm: str, number: int) -> None:
        if not await store.change_webhook(swarm, WebhookChange(number, "done")):
            raise UnknownWebhook(number)


OUTBOX: Final = _Outbox()
WEBHOOK: Final = _Webhook()
