"""The server's store, opened for a moment beside the server."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mail.cli.common import cleaned, configured
from mail.cli.table import CONFIG, Namespace, option
from mail.clock import SystemClock
from mail.db.webhooks import WebhookChange
from mail.errors import ConfigError, MAILError, UnknownTask, UnknownWebhook

if TYPE_CHECKING:
    from mail.db.records import Owner, TaskRow
    from mail.db.store import Store

_MOST_NAMES: Final = 10

STORE: Final = (
    option("--store", metavar="URL", told="store URL (default: the server's store)"),
    CONFIG,
)
SWARM: Final = (
    option("--swarm", metavar="NAME", told="swarm name (default: the server's)"),
    *STORE,
)


def server_settings(arguments: Namespace) -> tuple[str, str]:
    """Return the URL of the server's durable store and the name of its swarm.

    Raises:
        ConfigError: the store is in memory, or a setting is invalid.
    """
    from mail.config.server import MEMORY_URL, ServerConfig, resolve_store_url

    with configured(arguments.config):
        config = ServerConfig()
        url: str = arguments.store or resolve_store_url(config)
    if url.lower().startswith(MEMORY_URL):
        raise ConfigError(
            "the server's store is in memory, which other processes cannot access; "
            "set [server.store] url or DATABASE_URL, or give --store sqlite:///mail.db"
        )
    return url, config.swarm.name


@asynccontextmanager
async def opened(
    url: str, *, create: bool = False, read_only: bool = False
) -> AsyncIterator["Store"]:
    """Open a store without taking ownership, and close it afterwards.

    Args:
        url: The store's URL.
        create: Create a missing SQLite file; otherwise a missing file is an error.
        read_only: Open an SQLite file for reading.

    Raises:
        ConfigError: the kind of store is unknown, or the file does not exist.
        StoreError: it cannot be opened, or only a server may upgrade it first.
    """
    from mail.db.urls import open_store

    store = open_store(url, exclusive=False, read_only=read_only)
    missing = None if create else missing_file(url)
    if missing is not None:
        raise missing_database(missing)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class Stored:
    """A server's store behind methods that `mail.client.MAILClient` has, too.

    For an operator beside the server, who may read the tasks of all callers: those of ``owner``
    (``ROLE:ID``), or by default of the one caller who has a task of the id.
    """

    def __init__(self, store: "Store", url: str, swarm: str, owner: str | None = None) -> None:
        self._store, self._url, self._swarm, self._owner = store, url, swarm, owner

    async def get_nodes(self) -> dict[str, Any]:
        """Return the servers that share the store.

        Raises:
            ConfigError: it is not shared.
        """
        if not self._store.shared:
            raise ConfigError(
                "an SQLite database has one server; several share a PostgreSQL one. Ask the "
                "server with --url"
            )
        return {"nodes": [node._asdict() for node in await self._store.nodes()]}

    async def tell_other_swarms(self, what: str) -> None:
        """Say on standard error if the store has only tasks of other swarms."""
        names = await self._store.swarms()
        if names and self._swarm not in names:
            others = ", ".join(map(repr, names[:_MOST_NAMES]))
            others += ", …" if names[_MOST_NAMES:] else ""
            told = f"no {what} of swarm {self._swarm!r}; this database has {others}: use --swarm"
            print(cleaned(f"mail: {told}"), file=sys.stderr)

    async def list_tasks(self, state: str | None, limit: int) -> list[dict[str, Any]]:
        """Return the tasks of each owner, newest first, as ``GET /tasks`` does without events."""
        from mail.core.tasks import TaskState
        from mail.db.records import TaskCounts
        from mail.services.tasks import task_view

        states, found = (TaskState(state),) if state else (), []
        for owner in await self._owners():
            rows = await self._store.list_tasks(owner, states=states, limit=limit)
            counts = await self._store.task_counts(owner, [row.task_id for row in rows])
            for row in rows:
                view = task_view(owner, row, await self._store.calls(owner, row.task_id))
                count = counts.get(row.task_id, TaskCounts())
                view.event_count, view.task_message_count = count.events, count.waiting
                found.append(view.to_record())
        return found

    async def get_task(self, task_id: str, **_: Any) -> dict[str, Any]:
        """Return a task in the form of ``GET /task``, with all of its events.

        Raises:
            UnknownTask: there is none.
            MAILError: several callers have one of this id.
        """
        from mail.services.tasks import task_view

        owner, row = await self._task(task_id)
        view = task_view(owner, row, await self._store.calls(owner, task_id))
        view.events = await self._store.events(owner, task_id)
        if not view.is_running:
            waiting = await self._store.waiting_mail(owner, task_id)
            view.task_message_queue = [json.loads(delivery.payload) for delivery in waiting]
        view.event_count, view.task_message_count = len(view.events), len(view.task_message_queue)
        return view.to_record(events_as_text=True)

    async def delete_task(self, task_id: str, **_: Any) -> None:
        """Delete a task, unless a process works on it or may go on with it.

        Raises:
            UnknownTask: there is none.
            MAILError: it runs, or it is paused and a server is there.
        """
        from mail.db.inspect import live_server

        owner, row = await self._task(task_id)
        server = await live_server(self._url, owner.swarm) if row.state == "paused" else None
        if row.state == "running":
            raise MAILError(
                f"task '{task_id}' is running; cancel it first, or delete it with --url and "
                "--cancel"
            )
        if server is not None:
            raise MAILError(
                f"task '{task_id}' is paused, and the database is in use by {server}, which "
                "may go on with the task; delete it with --url and the owner's token, or stop "
                "the server first"
            )
        await self._store.delete_task(owner, task_id)
        while await self._store.purge():
            pass

    async def get_set_aside(self, task_id: str, **_: Any) -> dict[str, Any]:
        """Return a task's mail that was set aside, all of it."""
        from mail.services.tasks import aside_record

        owner, _row = await self._task(task_id)
        rows = await self._store.mail_aside(owner, task_id)
        return {"mail": [aside_record(row) for row in rows], "next_after": None}

    async def get_outbox(self, **given: Any) -> dict[str, Any]:
        """Return a page of the mail for other swarms."""
        from mail.net.types import outbox_mail

        rows = await self._store.list_outbox(self._swarm, **given)
        return {"mail": [outbox_mail(owner, row) for owner, row in rows], "next_after": None}

    async def retry_outbox(self, number: int) -> dict[str, Any]:
        """Have mail for another swarm delivered again."""
        from mail.services.peer_mail import retry_mail

        await retry_mail(self._store, self._swarm, number, datetime.now(UTC))
        return {"id": number, "status": "waiting"}

    async def discard_outbox(self, number: int) -> None:
        """Remove mail for another swarm that was given up."""
        from mail.services.peer_mail import discard_mail

        await discard_mail(self._store, self._swarm, number)

    async def get_webhook(self, **given: Any) -> dict[str, Any]:
        """Return a page of what the webhook has not taken."""
        from mail.net.types import webhook_message

        rows = await self._store.list_webhooks(self._swarm, **given)
        return {"messages": [webhook_message(row) for row in rows], "next_after": None}

    async def retry_webhook(self, number: int) -> dict[str, Any]:
        """Have a message sent to the webhook again."""
        if not await self._store.retry_webhook(self._swarm, number, SystemClock().now()):
            raise UnknownWebhook(number)
        return {"id": number, "status": "waiting"}

    async def discard_webhook(self, number: int) -> None:
        """Remove a message to the webhook."""
        if not await self._store.change_webhook(self._swarm, WebhookChange(number, "done")):
            raise UnknownWebhook(number)

    async def _owners(self) -> "list[Owner]":
        """Return the owners whose tasks to read."""
        from mail.db.records import Owner

        if not self._owner:
            return await self._store.owners(self._swarm)
        role, _, identifier = self._owner.partition(":")
        if not (role and identifier):
            raise ConfigError("--owner is written ROLE:ID, for example user:alice")
        return [Owner(self._swarm, role, identifier)]

    async def _task(self, task_id: str) -> "tuple[Owner, TaskRow]":
        """Return a task, and the one owner who has it."""
        found = []
        for owner in await self._owners():
            if (row := await self._store.load_task(owner, task_id)) is not None:
                found.append((owner, row))
        if not found:
            raise UnknownTask(task_id)
        if len(found) > 1:
            names = ", ".join(f"{owner.role}:{owner.id}" for owner, _ in found)
            raise MAILError(f"several callers have a task with this id; give --owner: {names}")
        return found[0]


def missing_database(path: Path) -> ConfigError:
    """Return the error of a command that needs a database, for a file that is not there."""
    return ConfigError(
        f"there is no SQLite file '{path}' (current folder: {Path.cwd()}); "
        "go to the server's folder, or name the file with --store"
    )


def missing_file(url: str) -> Path | None:
    """Return the SQLite file that a store's URL names if it does not exist."""
    scheme, _, rest = url.partition(":")
    path = Path(rest.removeprefix("///"))
    return path if scheme.lower() == "sqlite" and not path.exists() else None
