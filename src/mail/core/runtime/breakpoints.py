"""Calls whose results the caller gives: of breakpoint tools, and of tools that the caller offers.

They are taken out of a reply, kept with the task, and answered by a resume.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from pydantic_core import to_json

from mail.core.runtime.active_tasks import ActiveTask, Turn
from mail.core.runtime.approvals import is_held
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.turn import Control, ControlKind
from mail.core.runtime.turn_result import TurnResult, storable
from mail.core.tools.call import AgentToolCall, problem_of_arguments, to_be_answered
from mail.core.tools.convert import normalize_breakpoint_tool_call
from mail.db.records import CallRow
from mail.errors import AlreadyAnswered, BreakpointError

UNANSWERED: Final = "not run: the task ended before this call was answered"

_SHAPE: Final = (
    "breakpoint_tool_call_result must be a string, an object with 'content' "
    "(and 'call_id'), or a list "
    "of objects with 'call_id' and 'content'"
)
_SHOWN_OF_AN_ID: Final = 80


def split_breakpoints(
    name: str,
    calls: Sequence[AgentToolCall],
    context: RuntimeContext,
    offered: Collection[str] = (),
) -> tuple[list[AgentToolCall], list[AgentToolCall]]:
    """Return (calls of an agent that pause the task, the other calls).

    Calls of tools that the caller ``offered`` pause it like the swarm's own breakpoint tools, and
    like those that need an approval. A call whose arguments are unusable, or that the agent may not
    make, asks nobody anything: the agent is told, as with any other tool.
    """
    agent = context.agents[name]
    paused: list[AgentToolCall] = []
    others: list[AgentToolCall] = []
    for call in calls:
        allowed = call.tool_name in offered or (
            call.tool_name not in context.exclude_tools
            and agent.can_access_action_or_tool(call.tool_name)
            and (call.tool_name in context.breakpoint_tools or is_held(name, call, context))
        )
        pauses = allowed and problem_of_arguments(call.tool_name, call.tool_args) is None
        (paused if pauses else others).append(call)
    return paused, others


def call_rows(turn: Turn, turn_result: TurnResult) -> list[CallRow]:
    """Return a turn's breakpoint calls as the store keeps them.

    Callers see the provider's call ids, but an id names one call of the task: a further call with
    the same id, of another agent or of a later turn, gets one of its own.
    """
    taken = {call.call_id for call in turn.task.calls.values()}
    control = Control(ControlKind.RESUME, origin=turn.origin, step=turn.manual).to_json()
    rows = []
    for call in turn_result.paused:
        name = free_call_id(call.tool_call_id or "call", taken)
        taken.add(name)
        written = {"arguments": turn_result.arguments_of(call)}
        shown = normalize_breakpoint_tool_call(call, written) | {"id": name, "call_id": name}
        text = to_json(shown).decode()
        rows.append(CallRow(turn.agent, name, to_be_answered(call), text, control=control))
    return rows


def free_call_id(call_id: str, taken: Collection[str]) -> str:
    """Return an id for a call that no other call of its task has, if possible the given one."""
    name, number = call_id, 1
    while name in taken:
        number += 1
        name = f"{call_id}_{number}"
    return name


def match_answers(task: ActiveTask, payload: object) -> list[tuple[CallRow, str]]:
    """Read a resume payload and find the open call of each result.

    The payload is text, an object with ``content`` and maybe ``call_id``, a list of objects with
    both, or JSON text of one of these. Without a ``call_id`` exactly one call must be open.

    Raises:
        BreakpointError: the payload has no such shape, names no open call of the task, or names
            one twice.
        AlreadyAnswered: a named call has its result, or none of the task's calls is open.
    """
    open_calls = task.asked_calls()
    if payload is None:
        names = [call.call_id for call in open_calls]
        text = "breakpoint_tool_call_result is required to resume from a breakpoint"
        raise BreakpointError(f"{text}; {_listing(names)}", names)
    matched: list[tuple[CallRow, str]] = []
    for call_id, content in _parse(payload):
        left = [call for call in open_calls if call not in [row for row, _ in matched]]
        if call_id is None:
            call = _only(task, left)
        else:
            call = _named(task, left, call_id, [row.call_id for row, _ in matched])
        matched.append((call, content))
    return matched


def _parse(payload: object) -> list[tuple[str | None, str]]:
    if isinstance(payload, str):
        structured = _structured(payload)
        if structured is None:
            return [(None, storable(payload))]
        payload = structured
    items = payload if isinstance(payload, list) else [payload]
    if not items:
        raise BreakpointError(_SHAPE)
    return [_answer(item, alone=not isinstance(payload, list)) for item in items]


def _structured(text: str) -> Any:
    """Return JSON that looks like results; any other text is a result itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) for item in items):
        return None
    return value if any("content" in item or "call_id" in item for item in items) else None


def _answer(item: object, *, alone: bool) -> tuple[str | None, str]:
    if not isinstance(item, dict) or "content" not in item:
        raise BreakpointError(_SHAPE)
    call_id = item.get("call_id")
    if call_id is None and not alone:
        raise BreakpointError("each result in a list needs a 'call_id'")
    if call_id is not None and not isinstance(call_id, str):
        raise BreakpointError("'call_id' must be a string")
    return call_id, _text(item["content"])


def _text(content: object) -> str:
    if isinstance(content, str):
        return storable(content)
    try:
        return storable(json.dumps(content, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BreakpointError(f"'content' must be a string or JSON: {error}") from None


def _only(task: ActiveTask, left: Sequence[CallRow]) -> CallRow:
    """Return the one open call."""
    if len(left) == 1:
        return left[0]
    names = [call.call_id for call in left]
    if names:
        raise BreakpointError(f"say which call each result is for; {_listing(names)}", names)
    if task.calls:
        raise AlreadyAnswered(
            f"no breakpoint call of task '{task.task_id}' is open; its calls have their results or "
            f"were closed with a run, and the task is {task.row.state}"
        )
    raise BreakpointError(
        f"task '{task.task_id}' has no breakpoint calls to answer; it is {task.row.state}"
    )


def _named(
    task: ActiveTask, left: Sequence[CallRow], call_id: str, matched: Collection[str]
) -> CallRow:
    """Return the open call with an id."""
    for call in left:
        if call.call_id == call_id:
            return call
    names = [call.call_id for call in task.asked_calls()]
    if call_id in matched:
        raise BreakpointError(f"the list contains two results for the call '{call_id}'", names)
    answers = [call.answer for call in task.calls.values() if call.call_id == call_id]
    if UNANSWERED in answers:
        raise AlreadyAnswered(
            f"the breakpoint call '{call_id}' was closed without a result when its run ended; "
            f"the task is {task.row.state}; {_listing(names)}",
            names,
        )
    if answers:
        raise AlreadyAnswered(
            f"the breakpoint call '{call_id}' already has a result; {_listing(names)}", names
        )
    shown = call_id if len(call_id) <= _SHOWN_OF_AN_ID else f"{call_id[:_SHOWN_OF_AN_ID]}…"
    raise BreakpointError(
        f"there is no open breakpoint call '{shown}'; {_listing(names)}",
        names,
    )


def _listing(names: Sequence[str]) -> str:
    return "open calls: " + (", ".join(f"'{name}'" for name in names) or "none")
