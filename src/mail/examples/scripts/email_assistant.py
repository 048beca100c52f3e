"""Plays the email assistant: sorts by keywords, looks into the calendar, drafts, asks, finishes."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from mail.llm.script import Call, Script, call
from mail.llm.script_view import ScriptView

_IGNORED = re.compile(r"\bnewsletter\b|\bunsubscribe\b|\bspecial offer\b", re.IGNORECASE)
_NOTICE = re.compile(r"\bmaintenance\b|\bout of office\b|\bfor your information\b", re.IGNORECASE)
_MEETING = re.compile(
    r"\b(?:meet|meeting|lunch|call)\b.*?\b(\d{2}-\d{2}-\d{4})\b", re.I | re.DOTALL
)
_WISH = re.compile(
    r"^> (?:please )?(?:write|tell|email)(?: to)? ([\w.+@-]*\w),?(?: that|:)? (.+)", re.I | re.M
)
_UNKNOWN = re.compile(r"\bbudget\b|\bprice\b|\bdecide\b", re.IGNORECASE)
_FIELD = r"\*\*{}\*\*: (.*?)\s*$"
_ADDRESS = re.compile(r"[\w.+-]+@[\w.-]+\w")
_LONGEST = 500


def _triage(view: ScriptView) -> Sequence[Call]:
    kind = "notify" if _NOTICE.search(view.body) else "respond"
    if _IGNORED.search(view.body):
        kind = "ignore"
    return [call("triage_email", classification=kind, reasoning="Sorted by its words.")]


def _response(view: ScriptView) -> Sequence[Call]:
    request = view.mail_from("triage")
    email = request.body if request else view.body
    for result in view.new_results:
        following = _after(result.tool, result.content, email)
        if following is not None:
            return [following]
    if _wish(email):
        return [_answer(email, _wish(email))]
    wanted = _MEETING.search(email)
    if wanted:
        return [call("check_calendar_tool", dates=[wanted[1]])]
    if _UNKNOWN.search(email):
        return [call("Question", content=f"What shall I answer to: {_field('Subject', email)}?")]
    return [_answer(email, "I will look into it and write again tomorrow.")]


def _after(tool: str, content: str, email: str) -> Call | None:
    """Return what follows from a tool's result, or from what the person said in its place."""
    done, text = content.startswith("SUCCESS"), content.removeprefix("SUCCESS: ")
    if tool == "check_calendar_tool" and done:
        return _meeting(email)
    if tool == "schedule_meeting_tool":
        return _answer(email, "The meeting is in the calendar." if done else text)
    if tool == "send_email_tool" and done:
        return call("Done", done=True)
    return _answer(email, text) if tool in ("send_email_tool", "Question") else None


def _meeting(email: str) -> Call:
    wanted = _MEETING.search(email)
    day, month, year = (wanted[1] if wanted else "01-01-2030").split("-")
    own = _address("To", email)
    return call(
        "schedule_meeting_tool",
        attendees=[_address("From", email), own],
        title=_field("Subject", email) or "Meeting",
        start_time=f"{year}-{month}-{day}T14:00:00",
        end_time=f"{year}-{month}-{day}T14:30:00",
        organizer_email=own,
        timezone="UTC",
    )


def _answer(email: str, text: str) -> Call:
    to, greeting = _address("From", email), "Thank you for your email."
    if _wish(email):
        name = _WISH.findall(email)[0][0]
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        to = name if "@" in name else f"{plain.lower() or 'nobody'}@example.org"
        greeting = f"Hello {name.partition('@')[0]},"
    return call(
        "send_email_tool",
        email_id=_field("ID", email) or "new",
        response_text=f"{greeting} {text[:_LONGEST]}",
        email_address=to,
    )


def _wish(email: str) -> str:
    """Return what somebody is to be told, if the text is no email but such a wish; else no text."""
    found = None if _field("From", email) else _WISH.search(email)
    return found[2] if found else ""


def _field(name: str, email: str) -> str:
    found = re.search(_FIELD.format(name), email, re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else ""


def _address(name: str, email: str) -> str:
    found = _ADDRESS.findall(_field(name, email))
    return found[-1] if found else "nobody@example.org"


TRIAGE: Final[Script] = _triage
"""Plays the agent that sorts: it is asked with the email alone."""

RESPONSE: Final[Script] = _response
"""Plays the agent that handles an email which an agent named ``triage`` sends."""
