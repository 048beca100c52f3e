"""The commands of ``mail client`` for what did not arrive: mail set aside, outbox, webhook."""

import argparse
from functools import partial
from typing import Final

from mail.cli.common import DONE, one_line
from mail.cli.repl.session import Command, Session, add_json, add_owner
from mail.cli.repl.talk import whole_id
from mail.cli.undelivered import OUTBOX, WEBHOOK, Undelivered

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


def _configure_aside(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("task_id", metavar="TASK", help="its id, or the beginning of it")
    add("-a", "--after", metavar="N", type=int, default=0, help="only mail after number N")
    add_owner(parser)


def _configure_one_aside(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("task_id", metavar="TASK", help="its id, or the beginning of it")
    add("number", metavar="N", type=int, help="the number of the mail, as `set-aside` lists it")
    add_owner(parser)


SET_ASIDE_COMMANDS: Final = (
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
)


async def _waiting(
    what: Undelivered, kind: str, nothing: str, session: Session, arguments: argparse.Namespace
) -> int:
    """List what waits: of which kind each is, with fields of its record, or that nothing does."""
    given = {name: getattr(arguments, name) for name in (*what.filters, "after", "limit")}
    page = await getattr(session.client, f"get_{what.name}")(**given)
    if session.shows_json(arguments, page):
        return DONE
    if what is WEBHOOK:
        url, told = page["url"], ", ".join(page["events"])
        said = f"{one_line(url, _WIDEST)} is told of {told}" if url else "there is no webhook"
        session.screen.note((said, "dim"))
    for each in page[what.many]:
        place = f"{each['id']}  {each['state']}  {one_line(kind.format_map(each))}"
        why = f": {one_line(each['last_error'], _WIDEST)}" if each["last_error"] else ""
        of = f"task {one_line(each['task_id'])} of {one_line(each['owner'])}"
        session.screen.say(place, (f"  {of}, {each['attempts']} attempts{why}", "dim"))
    if not page[what.many]:
        session.screen.say(nothing)
    if page["next_after"] is not None:
        session.screen.note((f"more: --after {page['next_after']}", "dim"))
    return DONE


async def _retry(what: Undelivered, session: Session, arguments: argparse.Namespace) -> int:
    answer = await getattr(session.client, f"retry_{what.name}")(arguments.number)
    return session.tell(arguments, answer, f"{what.one} {answer['id']} {what.again}")


async def _discard(what: Undelivered, session: Session, arguments: argparse.Namespace) -> int:
    await getattr(session.client, f"discard_{what.name}")(arguments.number)
    answer = {"id": arguments.number, "status": "discarded"}
    return session.tell(arguments, answer, f"{what.one} {arguments.number} is discarded")


def _configure_list(what: Undelivered, parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for name, (value, told) in what.filters.items():
        add(f"-{name[0]}", f"--{name}", metavar=value, help=told)
    after, limit = f"only {what.many} after number N", "at most so many (default 100)"
    add("-a", "--after", metavar="N", type=int, default=0, help=after)
    add("-l", "--limit", metavar="N", type=int, default=100, help=limit)
    add_json(parser)


def _configure_one(what: Undelivered, parser: argparse.ArgumentParser) -> None:
    told = f"its number, as `{what.name}` lists it"
    parser.add_argument("number", metavar="N", type=int, help=told)
    add_json(parser)


OUTBOX_COMMANDS: Final = (
    Command(
        "outbox",
        ("ob",),
        "list mail for other swarms that is not done with (admins)",
        partial(_configure_list, OUTBOX),
        partial(_waiting, OUTBOX, "{kind} for {peer}", "no mail for other swarms"),
        "getting outbox",
    ),
    Command(
        "outbox-retry",
        ("obr",),
        "deliver mail for another swarm again (admins)",
        partial(_configure_one, OUTBOX),
        partial(_retry, OUTBOX),
        "retrying mail",
    ),
    Command(
        "outbox-discard",
        ("obd",),
        "remove mail for another swarm that was given up (admins)",
        partial(_configure_one, OUTBOX),
        partial(_discard, OUTBOX),
        "discarding mail",
    ),
)

WEBHOOK_COMMANDS: Final = (
    Command(
        "webhook",
        ("wh",),
        "list what the webhook has not taken (admins)",
        partial(_configure_list, WEBHOOK),
        partial(_waiting, WEBHOOK, "{event}", "nothing waits for the webhook"),
        "getting webhook",
        slash=True,
    ),
    Command(
        "webhook-retry",
        ("whr",),
        "send a message to the webhook again (admins)",
        partial(_configure_one, WEBHOOK),
        partial(_retry, WEBHOOK),
        "retrying message",
        slash=True,
    ),
    Command(
        "webhook-discard",
        ("whd",),
        "remove a message to the webhook (admins)",
        partial(_configure_one, WEBHOOK),
        partial(_discard, WEBHOOK),
        "discarding message",
        slash=True,
    ),
)
