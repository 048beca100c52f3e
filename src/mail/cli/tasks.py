"""Tasks: ``mail tasks``, for the operator of a server, and the commands of the prompt.

Reading and deleting use the server's own database, whoever the tasks belong to; with ``--url`` they
ask a server over HTTP, which knows the caller's own. Only the process that runs a task can stop
it, or give its agents mail, so that always goes through the server, and an open task is not deleted
beside it.
"""

from typing import Any, Final

import click

from mail.cli.common import DONE, one_line
from mail.cli.credentials import at_server
from mail.cli.repl.screen import event_count, show_task, whose
from mail.cli.repl.session import OWNER, Section, Session, at_shell
from mail.cli.repl.talk import follow
from mail.cli.stores import SWARM
from mail.cli.table import COUNT, Group, Namespace, argument, flag, option
from mail.errors import ConfigError

_STATES: Final = ("running", "paused", "completed", "failed", "cancelled")
_ASIDE_COLUMNS: Final = ("ID", "AGENT", "FROM", "WRITTEN", "SUBJECT", "REASON")
_COLUMNS: Final = ("TASK", "OWNER", "STATE", "STARTED", "EVENTS", "TITLE")
_LONGEST: Final = 60
_NEEDS_SERVER: Final = (
    "only the server that runs a task can do that; log in there as the owner, or as an "
    "administrator who gives --owner, with `mail login`, and pass its URL with --url"
)

section = Section("Tasks")
aside_section = Section("What was not delivered", slash=True)
_TASK: Final = (argument("task_id", "its id", metavar="TASK"), OWNER)
_BEGUN: Final = argument("task_id", "its id, or the beginning of it", metavar="TASK")
_ASIDE: Final = (
    _BEGUN,
    argument("number", "the number of the mail, as `set-aside` lists it", metavar="N", type=int),
    OWNER,
)


@section("tasks-get tsg tasks-g", "list your tasks", "getting tasks", OWNER)
async def _tasks_get(session: Session, arguments: Namespace) -> int:
    wants_events = session.wants_json(arguments)
    tasks = await session.client.get_tasks(events=wants_events, owner=arguments.owner)
    return _show_tasks(session, arguments, tasks, list(tasks.values()))


def _show_tasks(session: Session, arguments: Namespace, answer: Any, found: list[Any]) -> int:
    rows = [
        (
            str(task.get("task_id")),
            whose(task),
            str(task.get("status", "")),
            str(task.get("start_time", ""))[:19],
            str(event_count(task)),
            str(task.get("title") or ""),
        )
        for task in found
    ]
    return session.tell_table(arguments, answer, _COLUMNS, rows, nothing="no tasks")


@section("task-get tg task-g", "show a task", "getting task", *_TASK)
async def _task_get(session: Session, arguments: Namespace) -> int:
    task = await session.client.get_task(arguments.task_id, owner=arguments.owner)
    if not session.shows_json(arguments, task):
        show_task(session.screen, task)
    return DONE


@section(
    "task-events te",
    "show a task's events, and follow it while it runs",
    "getting task events",
    *_TASK,
    option("-a", "--after", metavar="N", type=int, told="only events after event N"),
)
async def _task_events(session: Session, arguments: Namespace) -> int:
    stream = await session.client.get_task_events(
        arguments.task_id, arguments.after, owner=arguments.owner
    )
    return await follow(session, stream, as_json=session.wants_json(arguments))


@section("task-cancel tc", "cancel a task", "cancelling task", *_TASK)
async def _task_cancel(session: Session, arguments: Namespace) -> int:
    task = await session.client.cancel_task(arguments.task_id, owner=arguments.owner)
    return session.tell(arguments, task, f"task '{task.get('task_id')}' {task.get('status')}")


@section(
    "task-delete td",
    "delete a task",
    "deleting task",
    argument("task_id", "one of your tasks", metavar="TASK"),
    flag("--cancel", told="cancel the task if it is running"),
)
async def _task_delete(session: Session, arguments: Namespace) -> int:
    await session.client.delete_task(arguments.task_id, cancel=arguments.cancel)
    told = {"task_id": arguments.task_id, "deleted": True}
    return session.tell(arguments, told, f"task '{arguments.task_id}' deleted")


@aside_section(
    "set-aside sas",
    "list a task's mail that was set aside after too many crashes",
    "getting mail",
    _BEGUN,
    option("-a", "--after", type=int, default=0, metavar="N", told="only mail after number N"),
    OWNER,
)
async def _set_aside(session: Session, arguments: Namespace) -> int:
    task_id, owner, after = arguments.task_id, arguments.owner, vars(arguments).get("after", 0)
    page = await session.client.get_set_aside(task_id, after=after, owner=owner)
    found = list(page["mail"])
    while session.lists and page["next_after"] is not None:
        page = await session.client.get_set_aside(task_id, after=page["next_after"], owner=owner)
        found += page["mail"]
    rows = [
        (
            str(mail["id"]),
            mail["agent"],
            mail["sender"]["address"],
            mail["timestamp"][:19],
            mail["subject"],
            one_line(mail["reason"], 2 * _LONGEST),
        )
        for mail in found
    ]
    return session.tell_table(
        arguments,
        found if session.lists else page,
        _ASIDE_COLUMNS,
        rows,
        nothing="no mail of this task is set aside",
        more=page["next_after"],
    )


@aside_section("set-aside-retry sar", "try mail again that was set aside", "retrying mail", *_ASIDE)
async def _set_aside_retry(session: Session, arguments: Namespace) -> int:
    task_id, number = arguments.task_id, arguments.number
    answer = await session.client.retry_set_aside(task_id, number, owner=arguments.owner)
    return session.tell(arguments, answer, f"mail {number} is tried again")


@aside_section(
    "set-aside-discard sad",
    "give up mail that was set aside",
    "discarding mail",
    *_ASIDE,
)
async def _set_aside_discard(session: Session, arguments: Namespace) -> int:
    task_id, number = arguments.task_id, arguments.number
    await session.client.discard_set_aside(task_id, number, owner=arguments.owner)
    answer = {"task_id": task_id, "id": number, "status": "discarded"}
    return session.tell(arguments, answer, f"mail {number} is discarded")


tasks = Group()
_ONE: Final = argument("task_id", "the id of the task", metavar="TASK")
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
@at_shell()
async def _list(session: Session, arguments: Namespace) -> int:
    state, limit = arguments.state, arguments.limit
    found: list[Any]
    if session.stored is not None:
        found = await session.stored.list_tasks(state, limit)
        if not found:
            await session.stored.tell_other_swarms("tasks")
    else:
        listed = await session.client.get_tasks(events=False, owner=arguments.owner)
        wanted = [task for task in listed.values() if state in (None, task.get("status"))]
        found = wanted[:limit]
    return _show_tasks(session, arguments, found, found)


tasks.add("show", "show a task and its events", _ONE, *SWARM, *_SERVER)(at_shell()(_task_get.run))
tasks.add("cancel", "cancel a task (needs --url)", _ONE, *_SERVER)(
    at_shell(_NEEDS_SERVER)(_task_cancel.run)
)


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
    await at_shell(each="task_id", writes=True)(_task_delete.run)(arguments)


tasks.add("set-aside", "list a task's mail that saw too many crashes", _ONE, *SWARM, *_SERVER)(
    at_shell()(_set_aside.run)
)
tasks.add("retry", "try mail again that was set aside (needs --url)", _ONE, _NUMBERS, *_SERVER)(
    at_shell(_NEEDS_SERVER, each="number")(_set_aside_retry.run)
)
tasks.add("discard", "discard mail that was set aside (needs --url)", _ONE, _NUMBERS, *_SERVER)(
    at_shell(_NEEDS_SERVER, each="number")(_set_aside_discard.run)
)
