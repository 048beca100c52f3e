"""The commands of ``mail client`` for what waits for a person: the calls that pause tasks."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from mail.cli.common import DONE, one_line
from mail.cli.repl.screen import decoded, exit_code, show_answer
from mail.cli.repl.session import Command, Session, add_json
from mail.cli.repl.talk import only, send
from mail.cli.repl.view import CALL_ID, View, arguments_line, short_id, short_ids

__all__ = ["APPROVALS"]


async def _open_calls(session: Session) -> dict[str, dict[str, Any]]:
    """Return the calls that wait for an answer, by id, those of the newest task first."""
    tasks = await session.client.get_tasks()
    return {
        str(call["call_id"]): {"task_id": task_id, **call}
        for task_id, task in tasks.items()
        for call in task.get("breakpoints") or ()
        if call.get("call_id")
    }


async def _approvals(session: Session, arguments: argparse.Namespace) -> int:
    calls = await _open_calls(session)
    if session.wants_json(arguments):
        session.screen.show_json(list(calls.values()))
        return DONE
    view, short = View(), short_ids(calls, CALL_ID)
    for call_id, call in calls.items():
        _show(view, short[call_id], call)
    if not calls:
        session.screen.note("nothing waits for you")
    return DONE


def _show(view: View, short: str, call: Mapping[str, Any]) -> None:
    given = decoded(call.get("arguments"))
    view.line(
        (f"{one_line(short)}  ", "bold"),
        (f"{short_id(call.get('task_id'))}  ", "dim"),
        (one_line(str(call.get("name"))), "bold yellow"),
        arguments_line(given if isinstance(given, dict) else {}),
    )


async def _answer(session: Session, arguments: argparse.Namespace) -> int:
    calls = await _open_calls(session)
    call_id = only(arguments.call_id, calls, "call that waits for an answer")
    options: dict[str, Any] = {
        "task_id": calls[call_id]["task_id"],
        "resume_from": "breakpoint_tool_call",
        "breakpoint_tool_call_result": {"call_id": call_id, "content": " ".join(arguments.text)},
    }
    if session.talk is not None and not session.wants_json(arguments):
        return await send(session, "", **options)
    answer = await session.client.post_message("", **options)
    if session.wants_json(arguments):
        session.screen.show_json(answer)
    else:
        show_answer(session.screen, dict(answer))
    return exit_code(answer.get("status"))


def _configure_answer(parser: argparse.ArgumentParser) -> None:
    told = "the call, as `approvals` lists it, or the beginning of its id"
    parser.add_argument("call_id", metavar="ID", help=told)
    parser.add_argument("text", nargs="+", metavar="TEXT", help="the result of the call")
    add_json(parser)


APPROVALS: Final = (
    Command(
        "approvals",
        ("ap",),
        "list the calls that wait for you",
        add_json,
        _approvals,
        "getting approvals",
        slash=True,
    ),
    Command(
        "answer",
        ("an",),
        "answer a call that waits for you",
        _configure_answer,
        _answer,
        "answering",
        slash=True,
        free=1,
    ),
)
