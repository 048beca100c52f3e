"""``mail outbox`` and ``mail webhook``, and the same at the prompt: what was not delivered.

The commands of the shell use the server's own database; with ``--url`` they ask a server over HTTP,
as an administrator. A running server notices within a minute what is retried beside it.
"""

from types import MappingProxyType
from typing import Any, Final, NamedTuple

import click

from mail.cli import tasks
from mail.cli.common import one_line
from mail.cli.credentials import at_server
from mail.cli.repl.session import Session, at_shell
from mail.cli.stores import SWARM
from mail.cli.table import COUNT, Group, Namespace, argument, option

_HEADINGS: Final = MappingProxyType(
    {"peer": "SWARM", "attempts": "TRIES", "created_at": "CREATED", "task_id": "TASK"}
)
"""The headings of the fields that are not headed by their names."""

section: Final = tasks.aside_section


class Undelivered(NamedTuple):
    """A kind of mail that was not delivered.

    ``name`` is the command, and part of the methods of `MAILClient`, such as ``get_outbox``; these
    list what they find in a field named ``many``, at most ``page`` at a time. ``again`` is said of
    one that is retried, and ``nothing`` if there is none.
    """

    name: str
    one: str
    many: str
    again: str
    nothing: str
    page: int
    fields: tuple[str, ...]

    @property
    def filters(self) -> list[click.Parameter]:
        """The options that say which are listed."""
        after = f"only {self.many} after this number"
        peer = option("-p", "--peer", metavar="SWARM", told="only mail for this swarm")
        return [
            *([peer] if "peer" in self.fields else []),
            option("-a", "--after", type=int, default=0, metavar="N", told=after),
            option("-l", "--limit", type=COUNT, default=100, told="at most so many (default 100)"),
        ]

    async def listed(self, session: Session, arguments: Namespace) -> int:
        """List them."""
        given: dict[str, Any] = {"after": arguments.after, "limit": arguments.limit}
        if "peer" in self.fields:
            given["peer"] = arguments.peer
        if session.stored is None:
            given["limit"] = min(arguments.limit, self.page)
        page = await getattr(session.client, f"get_{self.name}")(**given)
        found = list(page[self.many])
        if session.stored is not None and not found:
            await session.stored.tell_other_swarms(self.many)
        if "events" in page and not session.wants_json(arguments):
            told = f"{one_line(page['url'] or '')} is told of {', '.join(page['events'])}"
            session.screen.note((told if page["url"] else "there is no webhook", "dim"))
        headings = [_HEADINGS.get(name, name.upper().replace("_", " ")) for name in self.fields]
        return session.tell_table(
            arguments,
            found if session.lists else page,
            headings,
            [[_cell(each, name) for name in self.fields] for each in found],
            nothing=self.nothing,
            more=page["next_after"],
        )

    async def retried(self, session: Session, arguments: Namespace) -> int:
        """Have one delivered again."""
        answer = await getattr(session.client, f"retry_{self.name}")(arguments.number)
        return session.tell(arguments, answer, f"{self.one} {arguments.number} {self.again}")

    async def discarded(self, session: Session, arguments: Namespace) -> int:
        """Discard one."""
        await getattr(session.client, f"discard_{self.name}")(arguments.number)
        answer = {"id": arguments.number, "status": "discarded"}
        return session.tell(arguments, answer, f"{self.one} {arguments.number} is discarded")

    def group(self, listing: str, retry: str, discard: str) -> Group:
        """Return the command of the shell, given the summaries of its subcommands."""
        made = Group()
        beside = (*SWARM, *at_server("ask this server instead, as an administrator"))
        numbers = argument(
            "numbers", "its number", metavar="ID...", nargs=-1, type=COUNT, required=True
        )
        change = at_shell(each="number", writes=True)
        made.add("list", listing, *self.filters, *beside)(at_shell()(self.listed))
        made.add("retry", retry, numbers, *beside)(change(self.retried))
        made.add("discard", discard, numbers, *beside)(change(self.discarded))
        return made

    def at_prompt(self, short: str, listing: str, retry: str, discard: str, **how: Any) -> None:
        """Add the commands of the prompt, given their short forms and summaries."""
        name, one = self.name, self.one
        number = argument("number", f"its number, as `{name}` lists it", metavar="N", type=int)
        section(f"{name} {short}", listing, f"getting {name}", *self.filters, **how)(self.listed)
        section(f"{name}-retry {short}r", retry, f"retrying {one}", number, **how)(self.retried)
        section(f"{name}-discard {short}d", discard, f"discarding {one}", number, **how)(
            self.discarded
        )


def _cell(record: dict[str, Any], name: str) -> str:
    text = "" if record.get(name) is None else str(record[name])
    return text[:19] if name == "created_at" else text


_OUTBOX: Final = Undelivered(
    *("outbox", "mail", "mail", "is delivered again", "no mail for other swarms", 1000),
    ("id", "peer", "state", "kind", "attempts", "created_at", "task_id", "last_error"),
)
_WEBHOOK: Final = Undelivered(
    *("webhook", "message", "messages", "is sent again", "nothing waits for the webhook", 200),
    ("id", "event", "state", "attempts", "created_at", "task_id", "last_error"),
)
outbox = _OUTBOX.group(
    "list mail for other swarms that is not done with",
    "deliver mail again, also mail that was given up",
    "remove mail that was given up",
)
webhook = _WEBHOOK.group(
    "list messages that the webhook has not taken",
    "send messages again, also those that were given up",
    "remove messages",
)
_OUTBOX.at_prompt(
    "ob",
    "list mail for other swarms that is not done with (admins)",
    "deliver mail for another swarm again (admins)",
    "remove mail for another swarm that was given up (admins)",
    slash=False,
)
_WEBHOOK.at_prompt(
    "wh",
    "list what the webhook has not taken (admins)",
    "send a message to the webhook again (admins)",
    "remove a message to the webhook (admins)",
)
