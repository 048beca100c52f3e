"""Commands about the caller's tasks: tasks-get, task-get, task-events, task-cancel."""

import argparse
from typing import Final

from mail.cli.exits import DONE
from mail.cli.repl.answers import show_task
from mail.cli.repl.messages import follow
from mail.cli.repl.session import Command, Session
from mail.cli.repl.values import add_json

__all__ = ["COMMANDS"]


async def _tasks_get(session: Session, arguments: argparse.Namespace) -> int:
    tasks = await session.client.get_tasks()
    if session.wants_json(arguments):
        session.screen.show_json(tasks)
        return DONE
    session.screen.say(f"found {len(tasks)} tasks:")
    for task_id, task in tasks.items():
        state = task.get("status", "")
        count = len(task.get("events") or ())
        session.screen.say(
            f"{task_id} - completed: {task.get('completed')}", (f"  {state}, {count} events", "dim")
        )
    return DONE


async def _task_get(session: Session, arguments: argparse.Namespace) -> int:
    task = await session.client.get_task(arguments.task_id)
    if session.wants_json(arguments):
        session.screen.show_json(task)
    else:
        show_task(session.screen, task)
    return DONE


async def _task_events(session: Session, arguments: argparse.Namespace) -> int:
    stream = await session.client.get_task_events(arguments.task_id, arguments.after)
    return await follow(session, stream, as_json=session.wants_json(arguments))


async def _task_cancel(session: Session, arguments: argparse.Namespace) -> int:
    task = await session.client.cancel_task(arguments.task_id)
    return session.tell(arguments, task, f"task '{task.get('task_id')}' {task.get('status')}")


def _configure_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task_id", help="one of your tasks")
    add_json(parser)


def _configure_events(parser: argparse.ArgumentParser) -> None:
    _configure_task(parser)
    parser.add_argument("-a", "--after", metavar="N", type=int, help="only events after event N")


COMMANDS: Final = (
    Command(
        "tasks-get", ("tsg", "tasks-g"), "list your tasks", add_json, _tasks_get, "getting tasks"
    ),
    Command(
        "task-get", ("tg", "task-g"), "show a task", _configure_task, _task_get, "getting task"
    ),
    Command(
        "task-events",
        ("te",),
        "show a task's events, and follow it while it runs",
        _configure_events,
        _task_events,
        "getting task events",
    ),
    Command(
        "task-cancel", ("tc",), "cancel a task", _configure_task, _task_cancel, "cancelling task"
    ),
)
