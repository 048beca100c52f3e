"""The commands of ``mail client`` for what did not arrive: mail set aside, and the webhook's."""

import argparse
from typing import Final

from mail.cli.common import DONE, one_line
from mail.cli.repl.session import Command, Session, add_json
from mail.cli.repl.talk import whole_id

__all__ = ["UNDELIVERED"]

_WIDEST: Final = 200


async def _task_of(session: Session, arguments: argparse.Namespace) -> str:
    """Return the id of the task that is meant; tasks of others have their whole ids."""
    given: str = arguments.task_id
    return given if arguments.owner else await whole_id(session, given)


async def _set_aside(session: Session, arguments: argparse.Namespace) -> int:
    task_id = await _task_of(session, arguments)
    page = await session.client.get_set_aside(task_id, after=arguments.after, owner=arguments.owner)
    lines = []
    for mail in page["mail"]:
        sender, text = mail["sender"]["address"], mail["body"].partition("\n")[0]
        about = " · ".join(one_line(part, _WIDEST) for part in (mail["subject"], text) if part)
        lines += [
            f"{mail['id']}  {one_line(mail['msg_type'])} of {one_line(sender)} "
            f"for {one_line(mail['agent'])}  {about}".rstrip(),
            f"  {one_line(mail['reason'], _WIDEST)}",
        ]
    if page["next_after"] is not None:
        lines.append(f"more: --after {page['next_after']}")
    return session.tell(arguments, page, *(lines or ["no mail of this task is set aside"]))


async def _set_aside_retry(session: Session, arguments: argparse.Namespace) -> int:
    task_id = await _task_of(session, arguments)
    answer = await session.client.retry_set_aside(task_id, arguments.number, owner=arguments.owner)
    return session.tell(arguments, answer, f"mail {answer['id']} is tried again")


async def _set_aside_discard(session: Session, arguments: argparse.Namespace) -> int:
    task_id, number = await _task_of(session, arguments), arguments.number
    await session.client.discard_set_aside(task_id, number, owner=arguments.owner)
    answer = {"task_id": task_id, "id": number, "status": "discarded"}
    return session.tell(arguments, answer, f"mail {number} is discarded")


async def _webhook(session: Session, arguments: argparse.Namespace) -> int:
    page = await session.client.get_webhook(after=arguments.after, limit=arguments.limit)
    if session.wants_json(arguments):
        session.screen.show_json(page)
        return DONE
    url, told = page["url"], ", ".join(page["events"])
    said = f"{one_line(url, _WIDEST)} is told of {told}" if url else "there is no webhook"
    session.screen.note((said, "dim"))
    for message in page["messages"]:
        place = f"{message['id']}  {message['state']}  {one_line(message['event'])}"
        why = f": {one_line(message['last_error'], _WIDEST)}" if message["last_error"] else ""
        of = f"task {one_line(message['task_id'])} of {one_line(message['owner'])}"
        session.screen.say(place, (f"  {of}, {message['attempts']} attempts{why}", "dim"))
    if not page["messages"]:
        session.screen.say("nothing waits for the webhook")
    if page["next_after"] is not None:
        session.screen.note((f"more: --after {page['next_after']}", "dim"))
    return DONE


async def _webhook_retry(session: Session, arguments: argparse.Namespace) -> int:
    answer = await session.client.retry_webhook(arguments.number)
    return session.tell(arguments, answer, f"message {answer['id']} is sent again")


async def _webhook_discard(session: Session, arguments: argparse.Namespace) -> int:
    await session.client.discard_webhook(arguments.number)
    answer = {"id": arguments.number, "status": "discarded"}
    return session.tell(arguments, answer, f"message {arguments.number} is discarded")


def _configure_aside(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("task_id", metavar="TASK", help="its id, or the beginning of it")
    add("-a", "--after", metavar="N", type=int, default=0, help="only mail after number N")
    _add_owner(parser)


def _configure_one_aside(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("task_id", metavar="TASK", help="its id, or the beginning of it")
    add("number", metavar="N", type=int, help="the number of the mail, as `set-aside` lists it")
    _add_owner(parser)


def _add_owner(parser: argparse.ArgumentParser) -> None:
    told = "whose task it is, such as user:alice, by its whole id (admins)"
    parser.add_argument("-o", "--owner", metavar="OWNER", help=told)
    add_json(parser)


def _configure_webhook(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-a", "--after", metavar="N", type=int, default=0, help="only messages after number N")
    add("-l", "--limit", metavar="N", type=int, default=100, help="at most so many (default 100)")
    add_json(parser)


def _configure_message(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", metavar="N", type=int, help="its number, as `webhook` lists it")
    add_json(parser)


UNDELIVERED: Final = (
    Command(
        "set-aside",
        ("sas",),
        "list a task's mail that was set aside after too many crashes",
        _configure_aside,
        _set_aside,
        "getting mail",
        slash=True,
    ),
    Command(
        "set-aside-retry",
        ("sar",),
        "try mail again that was set aside",
        _configure_one_aside,
        _set_aside_retry,
        "retrying mail",
        slash=True,
    ),
    Command(
        "set-aside-discard",
        ("sad",),
        "give up mail that was set aside",
        _configure_one_aside,
        _set_aside_discard,
        "discarding mail",
        slash=True,
    ),
    Command(
        "webhook",
        ("wh",),
        "list what the webhook has not taken (admins)",
        _configure_webhook,
        _webhook,
        "getting webhook",
        slash=True,
    ),
    Command(
        "webhook-retry",
        ("whr",),
        "send a message to the webhook again (admins)",
        _configure_message,
        _webhook_retry,
        "retrying message",
        slash=True,
    ),
    Command(
        "webhook-discard",
        ("whd",),
        "remove a message to the webhook (admins)",
        _configure_message,
        _webhook_discard,
        "discarding message",
        slash=True,
    ),
)
