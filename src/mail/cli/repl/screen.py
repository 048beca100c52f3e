"""Output of commands, events and answers among it: results go to stdout, the rest to stderr."""

import codecs
import json
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mail.cli.common import DONE, FAILED, LIMITED, PAUSED, cleaned, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from mail.net.types import Approval


Part = str | tuple[str, str]
"""A text, or a text and its style."""


class Screen:
    """Prints in colour on a terminal and plain text elsewhere, without wrapping or truncating."""

    def __init__(self) -> None:
        from rich.console import Console

        self._out = Console(highlight=False, markup=False, emoji=False)
        self._err = Console(highlight=False, markup=False, emoji=False, stderr=True)

    def say(self, *parts: Part) -> None:
        """Print a line of the result; a part is a text or a pair of text and style."""
        _print(self._out, parts)

    def note(self, *parts: Part) -> None:
        """Print a line about the result."""
        _print(self._err, parts)

    def fail(self, text: str) -> None:
        """Print an error."""
        _print(self._err, ((text, "red"),))

    def show_json(self, value: Any, *, indent: int | None = 2) -> None:
        """Print a value as JSON; without ``indent`` on one line, and flush it."""
        utf8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
        text = json.dumps(value, ensure_ascii=not utf8, indent=indent)  # else it needs escapes
        sys.stdout.write(cleaned(text) + "\n")
        sys.stdout.flush()


def _print(console: "Console", parts: tuple[Part, ...]) -> None:
    from rich.text import Text

    line = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append(cleaned(text), style)
    console.print(line, soft_wrap=True)
    console.file.flush()


_WIDEST_LINE: Final = 400
_STYLES: Final[Mapping[str, str]] = {
    "action_error": "red",
    "agent_error": "red",
    "breakpoint_tool_call": "yellow",
    "model_delta": "dim",
    "new_message": "cyan",
    "ping": "dim",
    "server_drain": "yellow",
    "task_complete": "green",
    "task_error": "red",
}
_WAYS: Final[Mapping[str, str]] = {
    "allow_accept": "approve",
    "allow_edit": "edit",
    "allow_ignore": "reject",
    "allow_respond": "answer",
}
"""The answers that an approval allows, and their commands."""

_CODES: Final[Mapping[object, int]] = {"paused": PAUSED, "failed": FAILED, "cancelled": FAILED}
_MISSING: Final = "unknown"
AT_LIMIT: Final = "ended by its step limit (task_message_limit): the answer may be incomplete"


def exit_code(status: object, ended_by: object = None) -> int:
    """Return the exit code for how a run ended; servers of MAIL 1.3.6 send neither."""
    return _CODES.get(status, LIMITED if ended_by else DONE)


def show_event(screen: Screen, kind: str | None, data: object) -> None:
    """Print an event on one line: time, kind, description."""
    name, found = str(kind or "message"), decoded(data)
    values = found if isinstance(found, dict) else {}
    time = str(values.get("timestamp") or "")[11:23]
    text = one_line(_summary(name, values) if values else str(found or ""), _WIDEST_LINE)
    screen.say((f"{time:12} ", "dim"), (f"{name:15} ", _STYLES.get(name, "blue")), text)


def outcome(record: "Approval") -> str:
    """Return how a call was decided: ``accepted by user:alice``; no text while it is open."""
    if record["status"] == "open":
        return ""
    by = f" by {record['answered_by']}" if record["answered_by"] else ""
    return one_line(f"{record['status']}{by}")


def ways(config: Mapping[str, Any]) -> list[str]:
    """Return the commands that may answer a call, of those that its approval allows."""
    return [way for name, way in _WAYS.items() if config.get(name)]


def how_to_answer(config: Mapping[str, Any], name: str, before: str) -> str:
    """Return the commands that may answer a call, as they are typed.

    Args:
        config: The answers that its approval allows.
        name: The id of the approval, or the beginning of it.
        before: The prefix of commands: ``/`` at a prompt.
    """
    given = {"edit": " JSON", "answer": " TEXT"} if before != "/" else {"answer": " TEXT"}
    typed = [f"{way} {name}{given.get(way, '')}" for way in ways(config)]
    if before == "/":
        return " · ".join(f"/{each}" for each in typed)
    return before + " | ".join(typed) if typed else ""


def show_answer(
    screen: Screen,
    answer: Mapping[str, Any],
    asked: "Mapping[str, Approval] | None" = None,
    before: str = "",
) -> None:
    """Print an answer's text and, on stderr, its task and how to continue a paused one.

    Args:
        screen: Where.
        answer: The answer.
        asked: The approvals, by the ids of the calls.
        before: The prefix of commands where they are typed.
    """
    task_id, status = answer.get("task_id"), answer.get("status")
    calls = answer.get("breakpoints") or []
    for call in calls:
        screen.say((f"{call.get('name')}", "bold yellow"), f"({call.get('arguments')})")
        screen.note((f"  call_id: {call.get('call_id') or call.get('id')}", "dim"))
    if not calls:
        screen.say(text_of(answer.get("response")))
    if task_id is not None:
        screen.note((f"task {task_id}" + (f" {status}" if status else ""), "dim"))
    if answer.get("ended_by"):
        screen.note((AT_LIMIT, "yellow"))
    if status == "paused" and calls:
        for line in _how_to_go_on(str(task_id), calls, asked or {}, before):
            screen.note((line, "dim"))


def event_count(task: Mapping[str, Any]) -> int:
    """Return how many events a task has; servers of MAIL 1.3.6 send them all and no number."""
    count = task.get("event_count")
    return count if isinstance(count, int) else len(task.get("events") or ())


def whose(task: Mapping[str, Any]) -> str:
    """Return the owner of a task, and which swarm it came from if it is another's."""
    via = f" via {task['via']}" if task.get("via") else ""
    return f"{task.get('task_owner')}{via}"


def show_task(screen: Screen, task: Mapping[str, Any]) -> None:
    """Print a task and its events."""
    state = task.get("status") or ("running" if task.get("is_running") else "not running")
    title = f" - {one_line(str(task['title']))}" if task.get("title") else ""
    screen.say(
        (f"task '{task.get('task_id')}'", "bold"), f" - completed: {task.get('completed')}, {state}"
    )
    screen.say(f"  started {task.get('start_time')} by {whose(task)}{title}")
    for call in task.get("breakpoints") or ():
        screen.say(
            f"  waits for {call.get('call_id')}: {call.get('name')}({call.get('arguments')})"
        )
    for event in task.get("events") or ():
        show_event(screen, event.get("event"), event.get("data"))


def _summary(kind: str, data: Mapping[str, Any]) -> str:
    """Return what an event says, in words of its own or as a message."""
    message = mapping(data.get("extra_data")).get("full_message")
    if kind == "new_message" and isinstance(message, dict):
        payload = message.get("message")
        if not isinstance(payload, dict):
            return _MISSING
        sender, *to = (
            str(address.get("address")) if isinstance(address, dict) else _MISSING
            for address in (
                payload.get("sender"),
                *(payload.get("recipients") or [payload.get("recipient")]),
            )
        )
        head = f"{sender} → {', '.join(to)} {message.get('msg_type')}"
        return f"{head} {payload.get('subject')!r}: {payload.get('body')}"
    if kind == "model_delta":
        return str(data.get("delta") or data.get("text") or "")
    said = (data.get(name) for name in ("response", "description"))
    silent = "" if kind in ("ping", "server_drain") else _MISSING
    return next((text for text in said if isinstance(text, str) and text), silent)


def _how_to_go_on(
    task_id: str,
    calls: list[Mapping[str, Any]],
    asked: "Mapping[str, Approval]",
    before: str,
) -> list[str]:
    """Return how each held call is decided, and how results of the others are given."""
    lines, results = [], []
    for call in calls:
        call_id = call.get("call_id") or call.get("id")
        record = asked.get(str(call_id))
        if record is None or record["kind"] != "approval":
            results.append({"call_id": call_id, "content": "…"})
        elif told := outcome(record):
            lines.append(one_line(f"{call.get('name')} {told}"))
        else:
            name = record["approval_id"]
            lines.append(f"continue with: {how_to_answer(record['config'], name, before)}")
            lines.append(f"all about it: {before}approvals {name}")
    if results:
        kwargs = json.dumps({"breakpoint_tool_call_result": results}, ensure_ascii=False)
        lines.append(
            f"continue with: message '' --task-id {shlex.quote(task_id)} "
            f"--resume-from breakpoint_tool_call --kwargs {shlex.quote(kwargs)}"
        )
    return lines


def text_of(response: object) -> str:
    """Return a text as it is, and anything else as JSON."""
    return response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)


def mapping(value: object) -> Mapping[str, Any]:
    """Return an object of JSON; for anything else an empty one."""
    return value if isinstance(value, dict) else {}


def decoded(data: object) -> Any:
    """Return what JSON text stands for; anything else as it is."""
    if not isinstance(data, str):
        return data
    try:
        return json.loads(data)
    except ValueError:
        return data
