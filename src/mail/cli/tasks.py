"""``mail tasks``: list, show, cancel and delete tasks, for the operator of a server.

Reading and deleting use the server's own database, whoever the tasks belong to; with ``--url`` they
ask a server over HTTP, which knows the caller's own. Only the process that runs a task can stop
it, or give its agents mail, so that always goes through the server, and an open task is not deleted
beside it.
"""

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from mail.cli.common import cleaned, one_line, print_table
from mail.cli.credentials import ask_server, at_server, listed_in, needed_url
from mail.cli.stores import SWARM, opened, server_settings, tell_other_swarms
from mail.cli.table import COUNT, Group, Namespace, argument, flag, option
from mail.errors import ClientDecodeError, ConfigError, MAILError, UnknownTask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mail.db.records import Owner
    from mail.db.store import Store

_STATES: Final = ("running", "paused", "completed", "failed", "cancelled")
_MAIL_COLUMNS: Final = ("ID", "AGENT", "FROM", "WRITTEN", "SUBJECT", "REASON")
_COLUMNS: Final = ("TASK", "OWNER", "STATE", "STARTED", "EVENTS", "TITLE")
_LONGEST: Final = 60
_NEEDS_SERVER: Final = (
    "only the server that runs a task can do that; log in there as the owner, or as an "
    "administrator who gives --owner, with `mail login`, and pass its URL with --url"
)

Record = dict[str, Any]


tasks = Group()
_TASK: Final = argument("task_id", "the id of the task", metavar="TASK")
_NUMBERS: Final = argument(
    "numbers", "its number", metavar="ID...", nargs=-1, type=COUNT, required=True
)
_SERVER: Final = (
    option(
        "--owner",
        metavar="ROLE:ID",
        told="the owner, for example user:alice, or swarm:NAME for a task of another swarm",
    ),
    *at_server("use this server, and your own tasks there or --owner's"),
)


@tasks.add(
    "list",
    "list tasks, grouped by owner, newest first",
    option("--state", type=click.Choice(_STATES), told="only tasks in this state"),
    option("--limit", type=COUNT, default=100, told="tasks per owner (default 100)"),
    *SWARM,
    *_SERVER,
)
async def _list(arguments: Namespace) -> None:
    if arguments.url:
        listed = await ask_server(arguments, "get_tasks", events=False, owner=arguments.owner)
        records = [_checked(task) for task in listed.values()]
        wanted = [task for task in records if arguments.state in (None, task.get("status"))]
        found = wanted[: arguments.limit]
    else:
        found = await _stored_tasks(arguments)
    if arguments.json:
        print(json.dumps(found))
        return
    print_table([_COLUMNS, *map(_row, found)])


@tasks.add("show", "show a task and its events", _TASK, *SWARM, *_SERVER)
async def _show(arguments: Namespace) -> None:
    if arguments.url:
        task = await ask_server(arguments, "get_task", arguments.task_id, owner=arguments.owner)
        task = _checked(task)
    else:
        async with _stored(arguments, arguments.task_id) as (store, owner):
            task = await _record(store, owner, arguments.task_id)
    if arguments.json:
        print(json.dumps(task))
        return
    from mail.cli.repl.screen import Screen, show_task

    show_task(Screen(), task)


@tasks.add("cancel", "cancel a task (needs --url)", _TASK, *_SERVER)
async def _cancel(arguments: Namespace) -> None:
    arguments.url = needed_url(arguments.url, _NEEDS_SERVER)
    task = await ask_server(arguments, "cancel_task", arguments.task_id, owner=arguments.owner)
    if arguments.json:
        print(json.dumps(task))
    else:
        print(cleaned(f"task '{task.get('task_id')}' {task.get('status')}"))


@tasks.add(
    "delete",
    "delete tasks with all that is stored of them",
    argument("task_ids", "the ids of the tasks", metavar="TASK...", nargs=-1, required=True),
    flag("--cancel", told="cancel tasks that are running first (needs --url)"),
    *SWARM,
    *_SERVER,
)
async def _delete(arguments: Namespace) -> None:
    if arguments.cancel and not arguments.url:
        raise ConfigError("only the server that runs a task can cancel it; pass its URL with --url")
    if arguments.owner and arguments.url:
        raise ConfigError("a server deletes only your own tasks; leave out --owner or --url")
    for task_id in arguments.task_ids:
        if arguments.url:
            await ask_server(arguments, "delete_task", task_id, cancel=arguments.cancel)
        else:
            await _delete_stored(arguments, task_id)
        told = json.dumps({"task_id": task_id, "deleted": True})
        print(told if arguments.json else cleaned(f"task '{task_id}' deleted"))


@tasks.add("set-aside", "list a task's mail that saw too many crashes", _TASK, *SWARM, *_SERVER)
async def _set_aside(arguments: Namespace) -> None:
    found: list[Record] = []
    if arguments.url:
        after: int | None = 0
        while after is not None:
            page = await ask_server(
                arguments, "get_set_aside", arguments.task_id, after=after, owner=arguments.owner
            )
            found += listed_in(page, "mail")
            after = page.get("next_after")
    else:
        from mail.services.tasks import aside_record

        async with _stored(arguments, arguments.task_id) as (store, owner):
            rows = await store.mail_aside(owner, arguments.task_id)
            found = [aside_record(row) for row in rows]
    if arguments.json:
        print(json.dumps(found))
    else:
        print_table([_MAIL_COLUMNS, *map(_mail_row, found)])


@tasks.add("retry", "try mail again that was set aside (needs --url)", _TASK, _NUMBERS, *_SERVER)
async def _retry(arguments: Namespace) -> None:
    await _decide(arguments, "retry_set_aside", "waiting", "is tried again")


@tasks.add("discard", "discard mail that was set aside (needs --url)", _TASK, _NUMBERS, *_SERVER)
async def _discard(arguments: Namespace) -> None:
    await _decide(arguments, "discard_set_aside", "discarded", "is discarded")


async def _decide(arguments: Namespace, method: str, status: str, text: str) -> None:
    arguments.url = needed_url(arguments.url, _NEEDS_SERVER)
    for number in arguments.numbers:
        await ask_server(arguments, method, arguments.task_id, number, owner=arguments.owner)
        told = json.dumps({"task_id": arguments.task_id, "id": number, "status": status})
        print(told if arguments.json else cleaned(f"mail {number} {text}"))


async def _stored_tasks(arguments: Namespace) -> list[Record]:
    from mail.core.tasks import TaskState
    from mail.db.records import TaskCounts
    from mail.services.tasks import task_view

    url, swarm = server_settings(arguments)
    states = (TaskState(arguments.state),) if arguments.state else ()
    found = []
    async with opened(url, read_only=True) as store:
        for owner in await _owners(store, arguments, swarm):
            rows = await store.list_tasks(owner, states=states, limit=arguments.limit)
            counts = await store.task_counts(owner, [row.task_id for row in rows])
            for row in rows:
                view = task_view(owner, row, await store.calls(owner, row.task_id))
                count = counts.get(row.task_id, TaskCounts())
                view.event_count, view.task_message_count = count.events, count.waiting
                found.append(view.to_record())
        if not found:
            await tell_other_swarms(store, arguments.swarm or swarm, "tasks")
    return found


@asynccontextmanager
async def _stored(
    arguments: Namespace, task_id: str, *, read_only: bool = True
) -> "AsyncIterator[tuple[Store, Owner]]":
    """Open the server's store, and give it with the one owner who has a task with this id."""
    url, swarm = server_settings(arguments)
    async with opened(url, read_only=read_only) as store:
        owners = await _owners(store, arguments, swarm)
        having = [owner for owner in owners if await store.load_task(owner, task_id) is not None]
        if not having:
            raise UnknownTask(task_id)
        if len(having) > 1:
            names = ", ".join(f"{owner.role}:{owner.id}" for owner in having)
            raise MAILError(f"several callers have a task with this id; give --owner: {names}")
        yield store, having[0]


async def _delete_stored(arguments: Namespace, task_id: str) -> None:
    from mail.db.inspect import live_server

    async with _stored(arguments, task_id, read_only=False) as (store, owner):
        row = await store.load_task(owner, task_id)
        if row is not None and row.state == "running":
            raise MAILError(
                f"task '{task_id}' is running; cancel it first, or delete it with --url and "
                "--cancel"
            )
        if row is not None and row.state == "paused":
            server = await live_server(server_settings(arguments)[0], owner.swarm)
            if server is not None:
                raise MAILError(
                    f"task '{task_id}' is paused, and the database is in use by {server}, which "
                    "may go on with the task; delete it with --url and the owner's token, or stop "
                    "the server first"
                )
        await store.delete_task(owner, task_id)
        while await store.purge():
            pass


async def _owners(store: "Store", arguments: Namespace, swarm: str) -> "list[Owner]":
    """Return the owners whose tasks to read."""
    from mail.db.records import Owner

    name = arguments.swarm or swarm
    if arguments.owner:
        role, colon, identifier = arguments.owner.partition(":")
        if not (role and colon and identifier):
            raise ConfigError("--owner is written ROLE:ID, for example user:alice")
        return [Owner(name, role, identifier)]
    return await store.owners(name)


async def _record(store: "Store", owner: "Owner", task_id: str) -> Record:
    """Return a task in the form of ``GET /task``."""
    from mail.services.tasks import task_view

    row = await store.load_task(owner, task_id)
    if row is None:
        raise UnknownTask(task_id)
    view = task_view(owner, row, await store.calls(owner, task_id))
    view.events = await store.events(owner, task_id)
    if not view.is_running:
        waiting = await store.waiting_mail(owner, task_id)
        view.task_message_queue = [json.loads(delivery.payload) for delivery in waiting]
    view.event_count, view.task_message_count = len(view.events), len(view.task_message_queue)
    return view.to_record(events_as_text=True)


def _checked(task: object) -> Record:
    """Check the shape of a task record from a server, and return it."""
    if not isinstance(task, dict):
        raise ClientDecodeError("the server's task record is not a JSON object")
    for name in ("events", "breakpoints"):
        values = task.get(name) or []
        if not (isinstance(values, list) and all(isinstance(value, dict) for value in values)):
            raise ClientDecodeError(f"'{name}' of a task is not a list of JSON objects")
    return task


def _mail_row(mail: Record) -> tuple[str, ...]:
    sender = mail.get("sender")
    sender = sender.get("address") if isinstance(sender, dict) else sender
    shown = (mail.get("agent"), sender, str(mail.get("timestamp"))[:19], mail.get("subject"))
    return (
        str(mail.get("id")),
        *(one_line(str(each or ""), _LONGEST) for each in shown),
        one_line(str(mail.get("reason") or ""), 2 * _LONGEST),
    )


def _row(task: Record) -> tuple[str, ...]:
    from mail.cli.repl.screen import event_count, whose

    return (
        one_line(str(task.get("task_id")), _LONGEST),
        one_line(whose(task), _LONGEST),
        one_line(str(task.get("status", "")), _LONGEST),
        one_line(str(task.get("start_time", ""))[:19]),
        str(event_count(task)),
        one_line(str(task.get("title") or ""), _LONGEST),
    )
