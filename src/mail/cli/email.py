"""``mail email`` and ``mail-email``: bring new emails to the email assistant.

Each unread email of the mailbox becomes one task, once: the task's id follows from the email's
Message-ID and its author, so that neither a restart nor a second process starts another one.
"""

import asyncio
import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from mail.cli.common import cleaned, one_line
from mail.cli.credentials import URL_VARIABLE, at_server, connected
from mail.cli.table import COUNT, Group, Namespace, flag, option, positive
from mail.errors import ClientHTTPError, MAILError

if TYPE_CHECKING:
    from mail.client.client import MAILClient
    from mail.stdlib.email.backends import Backend
    from mail.stdlib.email.messages import Email

_SEEN_AT_ONCE: Final = 200
_NOT_FOUND: Final = 404
_CROWDED: Final = (
    "all of the {} oldest unread emails have been taken up already, and newer ones are not looked "
    "at; read them, or use --mark-ignored"
)


def email_task_id(email: "Email") -> str:
    """Return the id of the task of an email: the same one each time it is fetched.

    An email without a Message-ID is known by what it says.
    """
    name = email.message_id or "\0".join((email.date, email.to, email.subject, email.body))
    return "email-" + hashlib.sha256(f"{name}\0{email.author}".encode()).hexdigest()[:32]


email = Group()


@email.add(
    "ingest",
    "start a task for each new email",
    option("--limit", type=COUNT, default=20, told="tasks to start at a time (default 20)"),
    option(
        "--watch", type=positive, metavar="SECONDS", told="go on, and look so often for new ones"
    ),
    flag("--mark-ignored", told="mark emails as read whose task has ended without that"),
    *at_server(f"the server whose swarm handles emails (or {URL_VARIABLE})"),
)
async def _ingest(arguments: Namespace) -> None:
    from mail.config.stdlib import EmailConfig
    from mail.stdlib.email.backends import open_backend

    async with connected(arguments, "say with --url which server handles the emails") as client:
        mailbox = await asyncio.to_thread(open_backend, EmailConfig())
        taker = _Ingest(arguments, mailbox, client)
        if not await taker.take():
            print(cleaned(f"no new emails in {mailbox.place}"), file=sys.stderr)
        while arguments.watch:
            await asyncio.sleep(arguments.watch)
            try:
                await taker.take()
            except MAILError as error:
                print(cleaned(f"mail: {error}; trying again"), file=sys.stderr)


class _Ingest:
    """Takes up new emails of a mailbox as tasks of a server."""

    def __init__(self, arguments: Namespace, mailbox: "Backend", client: "MAILClient") -> None:
        self._arguments, self._mailbox, self._client = arguments, mailbox, client
        self._known: set[str] = set()

    async def take(self) -> int:
        """Start a task for each unread email that has none; return for how many."""
        from mail.examples.email_assistant.actions import fetch_emails

        emails = await asyncio.to_thread(fetch_emails, self._mailbox, _SEEN_AT_ONCE)
        started = 0
        for email in emails:
            if started == self._arguments.limit:
                return started
            started += await self._take(email)
        if len(emails) == _SEEN_AT_ONCE and not started:
            print(f"mail: {_CROWDED.format(_SEEN_AT_ONCE)}", file=sys.stderr)
        return started

    async def _take(self, email: "Email") -> bool:
        """Start the task of an email; False if there is one."""
        task_id = email_task_id(email)
        if task_id in self._known and not self._arguments.mark_ignored:
            return False
        status = await self._status(task_id)
        if status is None:
            await self._client.submit_message(
                json.dumps(email.as_input(), ensure_ascii=False, indent=1),
                subject=email.subject or "An email",
                task_id=task_id,
                idempotency_key=task_id,
            )
            self._tell("started", task_id, email)
        elif self._arguments.mark_ignored and status == "completed":
            await asyncio.to_thread(self._mailbox.mark_as_read, email.id)
            self._tell("marked as read", task_id, email)
        self._known.add(task_id)
        return status is None

    async def _status(self, task_id: str) -> str | None:
        """Return the status of a task, or None if there is no such task."""
        try:
            task: Any = await self._client.get_task(task_id, after=0, limit=1)
        except ClientHTTPError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return str(task.get("status"))

    def _tell(self, what: str, task_id: str, email: "Email") -> None:
        if self._arguments.json:
            told = {"task_id": task_id, "email_id": email.id, "subject": email.subject}
            print(json.dumps({"what": what, **told}), flush=True)
        else:
            print(f"{what}: {one_line(email.subject, 80)} (task {task_id})", flush=True)
