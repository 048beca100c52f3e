"""The tools of the email assistant. Whose mailbox they use is said in ``[stdlib.email]``."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from email.message import EmailMessage
from email.utils import parseaddr
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo

from mail.api.actions import MAILAction
from mail.config.stdlib import EmailConfig
from mail.core.approvals import Approval
from mail.core.call_context import current_call
from mail.db.records import Owner
from mail.errors import ToolError
from mail.examples.email_assistant.formatting import describe, format_gmail_markdown, parse_gmail
from mail.stdlib.email.backends import Backend, open_backend
from mail.stdlib.email.calendars import day_bounds, describe_day, read_dates, read_meeting
from mail.stdlib.email.messages import (
    MAX_RECIPIENTS,
    NOT_HERE,
    Email,
    Sending,
    Stage,
    check_address,
    check_text,
    compose,
    reply_to,
)
from mail.stdlib.tools import make_tool_function

CLASSIFICATIONS: Final = ("respond", "notify", "ignore")

_MOST_FETCHED: Final = 200
_THREADS: Final = ThreadPoolExecutor(2, thread_name_prefix="mail-email")
"""Texts of strangers, and servers that do not answer, keep no threads of others; none is begun
before there is work."""
_NEW: Final = ("", "new")
_NOBODY: Final = (
    "nobody was asked: the operator must hold calls of '{}' for approval, as the packaged swarm "
    "'email_assistant' does"
)

T = TypeVar("T")


def my_settings() -> EmailConfig:
    """Return the settings of the mailbox, if the caller at work may use it.

    Raises:
        ToolError: the caller may not.
        ConfigError: the settings are wrong.
    """
    config, owner = EmailConfig(), current_call().owner
    if owner is not None and not config.serves(owner[1], owner[2]):
        raise ToolError(
            "this mailbox is somebody else's; an operator can let you use it: mail.toml, "
            "[stdlib.email] callers"
        )
    return config


async def _with_mailbox(work: Callable[[Backend], T]) -> T:
    """Do something that blocks with the mailbox, in one of its threads."""
    config, context = my_settings(), copy_context()
    begun = asyncio.get_running_loop().run_in_executor(
        _THREADS, context.run, lambda: work(open_backend(config))
    )
    return await begun


async def task_text() -> str:
    """Return the text of the message that began the running task, or no text outside of one."""
    call = current_call()
    if call.owner is None or call.store is None:
        return ""
    for delivery in await call.store.all_mail(Owner(*call.owner), call.task_id):
        message = json.loads(delivery.payload)["message"]
        if message["sender"]["address_type"] in ("user", "admin"):
            return str(message["body"])
    return ""


# --- what the tools do ----------------------------------------------------------------------------


async def _send_email_tool(args: dict[str, Any]) -> str:
    text = check_text(args.get("response_text"), "response_text")
    to = check_address(args.get("email_address"), "email_address")
    given = args.get("additional_recipients") or []
    if not isinstance(given, list) or len(given) > MAX_RECIPIENTS:
        raise ToolError(f"'additional_recipients' must be a list of at most {MAX_RECIPIENTS}")
    copies = [check_address(one, "additional_recipients") for one in given]
    email_id = str(args.get("email_id") or "")
    message_id, attempt = _attempt()
    email_input = await task_text()

    def send(mailbox: Backend) -> str:
        original, note = None, ""
        if email_id.lower() not in _NEW:
            original, note = _original(mailbox, email_id, email_input)
        reached = to
        if original is not None and to.lower() == mailbox.address.lower():
            reached = check_address(original.reply_to, "the sender's address")
        message = compose(
            mailbox.address,
            reached,
            reply_to(original, text),
            text,
            copies=copies,
            original=original,
            message_id=message_id,
        )
        told = mailbox.send(message, original.thread_id if original else "", attempt(message))
        return f"Email to {', '.join([reached, *copies])}: {told}{note}"

    return await _with_mailbox(send)


def _attempt() -> tuple[str, Callable[[EmailMessage], Sending]]:
    """Return the Message-ID of an email whose sending a crash cut off, and its `Sending`.

    The running call notes both, so that no email is sent twice.
    """
    call, loop = current_call(), asyncio.get_running_loop()
    known, _, message_id = call.noted.partition(" ")
    stage: Stage = "sent" if known == "sent" else "sending" if known else ""

    def sending(message: EmailMessage) -> Sending:
        def note(reached: Stage) -> None:  # in the thread that sends
            text = f"{reached} {message['Message-ID']}"
            asyncio.run_coroutine_threadsafe(call.note(text), loop).result()

        return Sending(stage, note)

    return message_id, sending


def _original(mailbox: Backend, email_id: str, email_input: str) -> tuple[Email, str]:
    """Return the email to answer, and what is said of the answer if the mailbox has no such one."""
    found = mailbox.get(email_id)
    if found is not None:
        return found, ""
    author, to, subject, thread, known = parse_gmail(email_input)
    if email_id != known:
        raise ToolError(
            "'email_id' names no email of this mailbox; use the ID that is shown with the email, "
            "or 'new' for an email that answers none"
        )
    email = Email(
        id=known, author=author, to=to, subject=subject, body=thread, reply_to=parseaddr(author)[1]
    )
    return email, f"; it is not filed with the email that it answers: {NOT_HERE}"


async def _schedule_meeting_tool(args: dict[str, Any]) -> str:
    meeting = read_meeting(args)

    def schedule(mailbox: Backend) -> str:
        if meeting.organizer.lower() != mailbox.address.lower():
            raise ToolError(f"'organizer_email' must be the mailbox's own: {mailbox.address}")
        when = f"{meeting.start:%d-%m-%Y %H:%M} to {meeting.end:%H:%M} ({meeting.timezone})"
        return f"Meeting '{meeting.title}', {when}: {mailbox.add_meeting(meeting)}"

    return await _with_mailbox(schedule)


async def _check_calendar_tool(args: dict[str, Any]) -> str:
    days, zone = read_dates(args.get("dates")), ZoneInfo(EmailConfig().timezone)

    def check(mailbox: Backend) -> str:
        bounds = ((day, *day_bounds(day, zone)) for day in days)
        told = [describe_day(day, mailbox.events(start, end), zone) for day, start, end in bounds]
        return "\n\n".join(told)

    return await _with_mailbox(check)


def _held(name: str) -> Callable[[dict[str, Any]], Any]:
    """Return what runs when nobody held a call that asks a person."""

    async def refuse(args: dict[str, Any]) -> str:
        raise ToolError(_NOBODY.format(name))

    return refuse


async def _done(args: dict[str, Any]) -> str:
    if args.get("done") is not True:
        raise ToolError("call Done with done = true once nothing is left to do; else go on")
    author, *_, email_id = parse_gmail(await task_text())
    if not email_id:
        return "Done. No email was marked as read: it has no ID." if author else "Done."
    try:
        await _with_mailbox(lambda mailbox: mailbox.mark_as_read(email_id))
    except ToolError as error:  # the work is done all the same
        return f"Done. The email was not marked as read: {error}"
    return "Done. The email was marked as read."


async def _triage_email(args: dict[str, Any]) -> str:
    return str(args["classification"])


async def _fetch_emails_tool(args: dict[str, Any]) -> str:
    found = await _with_mailbox(lambda mailbox: fetch_emails(mailbox, int(args.get("limit") or 10)))
    shown = []
    for email in found:
        author, to, subject, thread, email_id = parse_gmail(email.as_input())
        shown.append(format_gmail_markdown(subject, author, to, thread, email_id))
    return "\n\n---\n\n".join(shown) or "There are no new emails."


def fetch_emails(mailbox: Backend, limit: int = 20) -> list[Email]:
    """Return unread emails of a mailbox, the oldest first, at most ``limit`` (and at most 200)."""
    return mailbox.unread(max(0, min(limit, _MOST_FETCHED)))


# --- the tools ------------------------------------------------------------------------------------


def _text(description: str, most: int = 300) -> dict[str, Any]:
    return {"type": "string", "description": description, "maxLength": most}


def _addresses(description: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {"type": "string", "maxLength": 320},
        "maxItems": MAX_RECIPIENTS,
        "description": description,
        **more,
    }


def _tool(
    name: str,
    run: Callable[[dict[str, Any]], Any],
    description: str,
    properties: dict[str, Any],
    *optional: str,
    **more: Any,
) -> MAILAction:
    schema = {
        "type": "object",
        "properties": properties,
        "required": [field for field in properties if field not in optional],
        "additionalProperties": False,
    }
    return MAILAction(name, description, schema, make_tool_function(name, run), **more)


# Held wherever they are used; the packaged swarm says besides what the answers teach.
_ALL: Final = Approval(describe=describe)
_ANSWER: Final = Approval(allow_accept=False, allow_edit=False, describe=describe)

send_email_tool: Final = _tool(
    "send_email_tool",
    _send_email_tool,
    "Send an email: the answer to one, or a new one. A person sees it first.",
    {
        "email_id": _text("The ID shown with the email to answer; 'new' for a new email"),
        "response_text": _text("The text of the email", 100_000),
        "email_address": _text("Whom to write to, such as ann@example.org", 320),
        "additional_recipients": _addresses("Who else gets it, as copies"),
    },
    "additional_recipients",
    approval=_ALL,
    idempotent=True,  # it notes how far it is, see `_attempt`
)
schedule_meeting_tool: Final = _tool(
    "schedule_meeting_tool",
    _schedule_meeting_tool,
    "Put a meeting into the calendar and invite its attendees. A person sees it first.",
    {
        "attendees": _addresses("The email addresses of those invited", minItems=1),
        "title": _text("The title of the meeting"),
        "start_time": _text("When it begins, such as 2026-03-09T14:00:00", 40),
        "end_time": _text("When it ends, such as 2026-03-09T14:30:00", 40),
        "organizer_email": _text("The mailbox's own address", 320),
        "timezone": _text("The zone of the times, such as Europe/Berlin", 60),
    },
    approval=_ALL,
)
check_calendar_tool: Final = _tool(
    "check_calendar_tool",
    _check_calendar_tool,
    "See the events and the free hours of days in the calendar.",
    {
        "dates": {
            "type": "array",
            "items": {"type": "string", "maxLength": 20},
            "minItems": 1,
            "maxItems": 31,
            "description": "The days, each as DD-MM-YYYY",
        }
    },
    idempotent=True,
    untrusted=True,
)
Question: Final = _tool(
    "Question",
    _held("Question"),
    "Ask the person you work for what you do not know; the result is their answer.",
    {"content": _text("The question", 10_000)},
    approval=_ANSWER,
)
Done: Final = _tool(
    "Done",
    _done,
    "Say that nothing is left to do for this email. It is marked as read, and your work ends.",
    {"done": {"type": "boolean", "description": "true"}},
    idempotent=True,
    completes=True,
)
triage_email: Final = _tool(
    "triage_email",
    _triage_email,
    "Sort an email.",
    {
        "classification": {"type": "string", "enum": list(CLASSIFICATIONS)},
        "reasoning": _text("Why, in a sentence", 2_000),
    },
    "reasoning",
    idempotent=True,
)
notify_person: Final = _tool(
    "notify_person",
    _held("notify_person"),
    "Tell the person about an email that needs no answer; the result is what they want done.",
    {"content": _text("What they should know", 10_000)},
    approval=_ANSWER,
)
fetch_emails_tool: Final = _tool(
    "fetch_emails_tool",
    _fetch_emails_tool,
    "Read the emails of the mailbox that nobody has read yet.",
    {"limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "10 by default"}},
    "limit",
    idempotent=True,
    untrusted=True,
)
