"""The commands of ``mail client`` for calls that wait for a person: list and answer them."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from mail.cli.common import DONE, cleaned, one_line
from mail.cli.repl.screen import how_to_answer, outcome, ways
from mail.cli.repl.session import Section, Session
from mail.cli.repl.talk import only, watch
from mail.cli.repl.view import View, arguments_line, how_long, left_out, short_id, short_ids
from mail.cli.table import Namespace, argument, flag, option
from mail.errors import ClientHTTPError, MAILError

if TYPE_CHECKING:
    from mail.net.types import Approval

_MOST: Final = 200
_WHOLE_ID: Final = 400
_CONFLICT: Final = 409

_IDS: Final[tuple[Literal["approval_id", "call_id"], ...]] = ("approval_id", "call_id")

Answer = Literal["accept", "edit", "ignore", "response"]


section = Section("Calls that wait for a person", slash=True)
_ONE: Final = argument(
    "approval_id", "the call, as `approvals` lists it, or the beginning of its id", metavar="ID"
)


@section(
    "approvals ap",
    "list the calls that wait for you, or show all about one",
    "getting approvals",
    argument(
        "approval_id",
        "show all about this call: its id, or the beginning of it",
        metavar="[ID]",
        required=False,
    ),
    flag("-a", "--all", told="also those with an answer"),
    option("-l", "--limit", type=int, default=50, told="at most so many (default 50)"),
)
async def _approvals(session: Session, arguments: Namespace) -> int:
    if arguments.approval_id is not None:
        return await _show_whole(session, arguments)
    status = "all" if arguments.all else "open"
    page = await session.client.get_approvals(status, limit=arguments.limit)
    if session.shows_json(arguments, page):
        return DONE
    found, view = page["approvals"], View()
    short = short_ids(approval["approval_id"] for approval in found)
    for approval in found:
        _show(session, view, one_line(short[approval["approval_id"]]), approval)
    if not found:
        session.screen.note("nothing waits for you")
    if page["next_cursor"] is not None:
        session.screen.note((f"there are more: {session.before}approvals --limit {_MOST}", "dim"))
    return DONE


async def _show_whole(session: Session, arguments: Namespace) -> int:
    """Show all that is known of a call; nothing of it is cut."""
    approval = await _found(session, arguments.approval_id)
    if session.shows_json(arguments, approval):
        return DONE
    view, request = View(), approval["action_request"]
    waits = f"waits for an answer, {_left(approval['expires_at'])}".removesuffix(", ")
    view.line((one_line(request["action"]), "bold yellow"), f" {outcome(approval) or waits}")
    facts = ("approval_id", "task_id", "agent", "call_id", "created_at", "expires_at")
    known = {name: value for name, value in approval.items() if name in facts}
    known["owner"] = "{role}:{id}".format(**approval["owner"])
    known["approvers"] = ", ".join(approval["approvers"])
    for name, value in known.items():
        if value is not None:
            view.line((f"{name}: ", "dim"), one_line(str(value), _WHOLE_ID), indent=1)
    _part(view, "description", approval["description"])
    view.line(("arguments:", "dim"), indent=1)
    for name, value in request["args"].items():
        view.whole(f"{json.dumps(name, ensure_ascii=False)}:", indent=2)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        view.whole(text, indent=3)
    if (answer := approval["answer"]) is not None and answer["args"] is not None:
        _part(view, "answer", json.dumps(answer["args"], ensure_ascii=False, indent=2))
    if approval["status"] == "open":
        name = approval["approval_id"]
        view.line((how_to_answer(approval["config"], name, session.before), "dim"), indent=1)
    return DONE


def _part(view: View, name: str, text: str) -> None:
    view.line((f"{name}:", "dim"), indent=1)
    view.whole(text, indent=2)


def _show(session: Session, view: View, short: str, approval: "Approval") -> None:
    request, approvers = approval["action_request"], approval["approvers"]
    view.line(
        (f"{short}  ", "bold"),
        (f"{short_id(approval['task_id'])}  ", "dim"),
        (one_line(request["action"]), "bold yellow"),
        arguments_line(request["args"]),
    )
    told = outcome(approval)
    if left := left_out(request["args"]):
        told_whole = f"{left:,} more characters: {session.before}approvals {short}"
        view.line((told_whole, "dim"), indent=1)
    if not told:
        slash = "/" if session.before == "/" else ""
        whom = "" if "owner" in approvers else f" for {one_line(', '.join(approvers))}"
        parts = (
            f"{one_line(approval['agent'])} waits{whom}",
            " ".join(f"{slash}{way}" for way in ways(approval["config"])),
            _left(approval["expires_at"]),
        )
        told = " · ".join(part for part in parts if part)
    view.line((told, "dim"), indent=1)


def _left(expires_at: str | None) -> str:
    """Return how much time is left to answer."""
    try:
        until = datetime.fromisoformat(str(expires_at))
    except ValueError:
        return ""
    return f"{how_long((until - datetime.now(UTC)).total_seconds())} left"


@section(
    "approve ok",
    "let a call that waits be run",
    "approving",
    argument(
        "approval_id",
        "the call, as `approvals` lists it, or the beginning of its id (default: the only one)",
        metavar="[ID]",
        default="",
    ),
)
async def _approve(session: Session, arguments: Namespace) -> int:
    return await _decide(session, arguments, "accept")


@section("reject no", "let a call not be run, which ends its task", "rejecting", _ONE)
async def _reject(session: Session, arguments: Namespace) -> int:
    return await _decide(session, arguments, "ignore")


@section(
    "answer an",
    "give a call its result in your words",
    "answering",
    _ONE,
    argument("text", "the result of the call", nargs=-1, required=True),
    free=1,
)
async def _answer(session: Session, arguments: Namespace) -> int:
    return await _decide(session, arguments, "response", " ".join(arguments.text))


@section(
    "edit ed",
    "let a call be run with other arguments",
    "editing",
    _ONE,
    argument(
        "arguments",
        "its new arguments, a JSON object (default: edit the agent's at the prompt)",
        metavar="[JSON]",
        nargs=-1,
    ),
    free=1,
)
async def _edit(session: Session, arguments: Namespace) -> int:
    approval = await _chosen(session, arguments.approval_id)
    request = approval["action_request"]
    if arguments.arguments:
        try:
            args = json.loads(" ".join(arguments.arguments))
        except (ValueError, RecursionError) as error:
            raise MAILError(f"the arguments are not JSON: {error}") from None
        if not isinstance(args, dict):
            raise MAILError("the arguments must be a JSON object")
        edited = {"action": request["action"], "args": args}
        return await _decide(session, arguments, "edit", edited)
    before = json.dumps(request["args"], ensure_ascii=False)
    if not session.at_prompt:
        raise MAILError(f"give the new arguments; those of the agent are {before}")
    session.talk.next_line = f"/edit {short_id(approval['approval_id'])} {cleaned(before)}"
    return DONE


async def _decide(
    session: Session,
    arguments: Namespace,
    kind: Answer,
    given: dict[str, Any] | str | None = None,
) -> int:
    """Answer a call, and at the prompt follow its task, if it is the caller's."""
    approval = await _chosen(session, arguments.approval_id)
    task_id, talk = approval["task_id"], session.talk
    follows = session.at_prompt and approval["owner"]["id"] == session.client.user_id
    after = talk.seen.get(task_id)
    if follows and after is None:  # what was not shown of it is not of interest
        after = str((await session.client.get_task(task_id, limit=1)).get("event_count", 0))
    try:
        told = await session.client.answer_approval(approval["approval_id"], kind, given)
    except ClientHTTPError as error:
        if error.status != _CONFLICT:
            raise
        _check_open(await session.client.get_approval(approval["approval_id"]))
        raise
    action, status = approval["action_request"]["action"], told["approval"]["status"]
    # Only the prompt follows the task and completes its id; other commands take whole ones.
    name = short_id(task_id) if session.at_prompt else task_id
    task = f"task {name} {told['task']['status']}"
    code = session.tell(arguments, told, one_line(f"{action} {status}; {task}"))
    if not follows or session.wants_json(arguments):
        return code
    talk.task_id = task_id
    return await watch(session, task_id, after)


async def _chosen(session: Session, given: str) -> "Approval":
    """Return the open call whose id, or id within its task, begins with what is given.

    Raises:
        MAILError: there is none, or there are several.
    """
    approval = await _found(session, given)
    _check_open(approval)
    return approval


def _check_open(approval: "Approval") -> None:
    if told := outcome(approval):
        raise MAILError(f"already {told}")


async def _found(session: Session, given: str) -> "Approval":
    """Return the call that is meant; one that is open, if there is one.

    Raises:
        MAILError: there is none, or there are several.
    """
    found = (await session.client.get_approvals(limit=_MOST))["approvals"]
    if not given and not found:
        raise MAILError("nothing waits for you")
    if not any(one[name].startswith(given) for one in found for name in _IDS):
        closed = await session.client.get_approvals("all", limit=_MOST)
        met = [one for one in closed["approvals"] if any(one[n].startswith(given) for n in _IDS)]
        found = met or found
    by_call = [one for one in found if one["call_id"] == given]
    if len(by_call) == 1:
        return by_call[0]
    name: Literal["approval_id", "call_id"]
    name = next((n for n in _IDS if any(one[n].startswith(given) for one in found)), "call_id")
    named = {str(one[name]): one for one in found}
    return named[only(given, named, "open call")]
