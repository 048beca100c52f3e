"""Emails and tool calls as text: what agents read, and what a person sees before deciding."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from mail.stdlib.email.messages import one_line, parse_email, plain_text

_MOST_TEXT: Final = 40_000
_MOST_ID: Final = 300
_MOST_SHOWN: Final = 20_000
_HEADERS: Final = re.compile(r"(?:[A-Za-z][A-Za-z-]{0,40}:[^\n]*\n(?:[ \t][^\n]*\n)*)+\r?\n")
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|!~])")


def parse_gmail(email_input: Mapping[str, Any] | str) -> tuple[str, str, str, str, str]:
    """Return (author, to, subject, email_thread, email_id) of an email.

    Args:
        email_input: A dictionary with ``from``, ``to``, ``subject``, ``body`` and ``id``, or its
            JSON; or an email as text, with headers or without. What is missing is an empty text.
    """
    if isinstance(email_input, str):
        email_input = _read(email_input)
    author, to, subject = (one_line(_text(email_input, name)) for name in ("from", "to", "subject"))
    thread = plain_text(_text(email_input, "body")[:_MOST_TEXT]).strip()
    return author, to, subject, thread, one_line(_text(email_input, "id"), _MOST_ID)


def _text(email_input: Mapping[str, Any], name: str) -> str:
    value = email_input.get(name)
    return value if isinstance(value, str) else ""


def _read(text: str) -> Mapping[str, Any]:
    """Return what a task's message says of an email."""
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and "body" in found:
            return found
    if _HEADERS.match(text):
        return parse_email(text.encode("utf-8", "replace"), "").as_input()
    return {"body": text}


def format_gmail_markdown(
    subject: str, author: str, to: str, email_thread: str, email_id: str | None = None
) -> str:
    """Return an email as Markdown, its text as a quotation."""
    head = [("Subject", subject), ("From", author), ("To", to), ("ID", email_id or "")]
    lines = [f"**{name}**: {_escaped(one_line(value))}" for name, value in head if value]
    return "\n\n".join(["  \n".join(lines), quoted(email_thread)]).strip()


def format_for_display(tool_call: Mapping[str, Any]) -> str:
    """Return a tool call as Markdown for the person who decides about it.

    Args:
        tool_call: ``name`` and ``args``.
    """
    name, args = one_line(str(tool_call.get("name", ""))), tool_call.get("args")
    known = args if isinstance(args, Mapping) else {}
    if name == "send_email_tool":
        return _shown(
            "Email draft",
            (("To", "email_address"), ("Copies", "additional_recipients"), ("Answers", "email_id")),
            known,
            quoted(str(known.get("response_text", ""))),
        )
    if name == "schedule_meeting_tool":
        fields = ("title", "attendees", "start_time", "end_time", "timezone", "organizer_email")
        named = tuple((field.replace("_", " ").capitalize(), field) for field in fields)
        return _shown("Calendar invitation", named, known)
    if name == "Question":
        return _shown("Question for you", (), known, quoted(str(known.get("content", ""))))
    shown = json.dumps(known, ensure_ascii=False, indent=2, default=str)[:_MOST_SHOWN]
    return _shown(f"Tool call: {_escaped(name)}", (), known, quoted(shown))


def _shown(
    title: str, fields: tuple[tuple[str, str], ...], args: Mapping[str, Any], text: str = ""
) -> str:
    lines = []
    for name, field in fields:
        value = args.get(field)
        if value not in (None, "", []):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            lines.append(f"**{name}**: {_escaped(one_line(shown, 1000))}")
    return "\n\n".join(filter(None, (f"# {title}", "  \n".join(lines), text)))


def describe(task_text: str, action: str, args: Mapping[str, Any]) -> str:
    """Return what a person sees of a held call: the email, then the call."""
    author, to, subject, thread, email_id = parse_gmail(task_text)
    email = format_gmail_markdown(subject, author, to, thread, email_id)
    return f"{email}\n\n---\n\n{format_for_display({'name': action, 'args': args})}"


def quoted(text: str) -> str:
    """Return text as a quotation in Markdown, of which no line can be anything else."""
    lines = plain_text(text[:_MOST_SHOWN]).splitlines() or ["(empty)"]
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _escaped(text: str) -> str:
    """Return one line of which Markdown makes nothing but text."""
    return _SPECIAL.sub(r"\\\1", text)
