"""The commands of ``mail client`` for what did not arrive: mail set aside, outbox, webhook."""

from functools import partial
from typing import Any, Final

from mail.cli.common import DONE, one_line
from mail.cli.repl.session import OWNER, Section, Session
from mail.cli.repl.talk import whole_id
from mail.cli.table import Namespace, argument, option
from mail.cli.undelivered import OUTBOX, WEBHOOK, Undelivered

_WIDEST: Final = 200
_KINDS: Final = {"outbox": "{kind} for {peer}", "webhook": "{event}"}
_NOTHING: Final = {
    "outbox": "no mail for other swarms",
    "webhook": "nothing waits for the webhook",
}


async def _task_of(session: Session, arguments: Namespace) -> str:
    """Return the id of the task that is meant; tasks of others have their whole ids."""
    given: str = arguments.task_id
    return given if arguments.owner else await whole_id(session, given)


section = Section("What was not delivered")
_ASIDE: Final = (
    argument("task_id", "its id, or the beginning of it", metavar="TASK"),
    argument("number", "the number of the mail, as `set-aside` lists it", metavar="N", type=int),
    OWNER,
)


@section(
    "set-aside sas",
    "list a task's mail that was set aside after too many crashes",
    "getting mail",
    _ASIDE[0],
    option("-a", "--after", type=int, default=0, metavar="N", told="only mail after number N"),
    OWNER,
    slash=True,
)
async def _set_aside(session: Session, arguments: Namespace) -> int:
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


@section(
    "set-aside-retry sar", "try mail again that was set aside", "retrying mail", *_ASIDE, slash=True
)
async def _set_aside_retry(session: Session, arguments: Namespace) -> int:
    task_id = await _task_of(session, arguments)
    answer = await session.client.retry_set_aside(task_id, arguments.number, owner=arguments.owner)
    return session.tell(arguments, answer, f"mail {answer['id']} is tried again")


@section(
    "set-aside-discard sad",
    "give up mail that was set aside",
    "discarding mail",
    *_ASIDE,
    slash=True,
)
async def _set_aside_discard(session: Session, arguments: Namespace) -> int:
    task_id, number = await _task_of(session, arguments), arguments.number
    await session.client.discard_set_aside(task_id, number, owner=arguments.owner)
    answer = {"task_id": task_id, "id": number, "status": "discarded"}
    return session.tell(arguments, answer, f"mail {number} is discarded")


async def _waiting(what: Undelivered, session: Session, arguments: Namespace) -> int:
    page = await getattr(session.client, f"get_{what.name}")(**what.given(arguments))
    if session.shows_json(arguments, page):
        return DONE
    if what is WEBHOOK:
        url, told = page["url"], ", ".join(page["events"])
        said = f"{one_line(url, _WIDEST)} is told of {told}" if url else "there is no webhook"
        session.screen.note((said, "dim"))
    for each in page[what.many]:
        place = f"{each['id']}  {each['state']}  {one_line(_KINDS[what.name].format_map(each))}"
        why = f": {one_line(each['last_error'], _WIDEST)}" if each["last_error"] else ""
        of = f"task {one_line(each['task_id'])} of {one_line(each['owner'])}"
        session.screen.say(place, (f"  {of}, {each['attempts']} attempts{why}", "dim"))
    if not page[what.many]:
        session.screen.say(_NOTHING[what.name])
    if page["next_after"] is not None:
        session.screen.note((f"more: --after {page['next_after']}", "dim"))
    return DONE


async def _retry(what: Undelivered, session: Session, arguments: Namespace) -> int:
    answer = await getattr(session.client, f"retry_{what.name}")(arguments.number)
    return session.tell(arguments, answer, f"{what.one} {answer['id']} {what.again}")


async def _discard(what: Undelivered, session: Session, arguments: Namespace) -> int:
    await getattr(session.client, f"discard_{what.name}")(arguments.number)
    answer = {"id": arguments.number, "status": "discarded"}
    return session.tell(arguments, answer, f"{what.one} {arguments.number} is discarded")


def _add(what: Undelivered, short: str, summaries: tuple[str, str, str], **how: Any) -> None:
    """Add the three commands for what was not delivered."""
    name, (listing, retry, discard) = what.name, summaries
    number = argument("number", f"its number, as `{name}` lists it", metavar="N", type=int)
    section(f"{name} {short}", listing, f"getting {name}", *what.filters(), **how)(
        partial(_waiting, what)
    )
    section(f"{name}-retry {short}r", retry, f"retrying {what.one}", number, **how)(
        partial(_retry, what)
    )
    section(f"{name}-discard {short}d", discard, f"discarding {what.one}", number, **how)(
        partial(_discard, what)
    )


_add(
    OUTBOX,
    "ob",
    (
        "list mail for other swarms that is not done with (admins)",
        "deliver mail for another swarm again (admins)",
        "remove mail for another swarm that was given up (admins)",
    ),
)
_add(
    WEBHOOK,
    "wh",
    (
        "list what the webhook has not taken (admins)",
        "send a message to the webhook again (admins)",
        "remove a message to the webhook (admins)",
    ),
    slash=True,
)
