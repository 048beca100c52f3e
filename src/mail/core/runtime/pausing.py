"""Breakpoint calls: taken out of a reply, kept with the task, answered by a resume (ruling 31)."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from mail.core.runtime.ledger import LiveTask
from mail.core.tools.call import AgentToolCall
from mail.core.tools.convert import normalize_breakpoint_tool_call
from mail.db.base import CallRow
from mail.errors import AlreadyAnswered, BreakpointError

__all__ = ["call_row", "match_answers", "split_breakpoints"]

_SHAPE = (
    "breakpoint_tool_call_result must be text, an object with 'content' (and 'call_id'), or a list "
    "of objects with 'call_id' and 'content'"
)


def split_breakpoints(
    calls: Sequence[AgentToolCall], breakpoint_tools: Collection[str]
) -> tuple[list[AgentToolCall], list[AgentToolCall]]:
    """Return (calls that pause the task, the other calls)."""
    if not breakpoint_tools:
        return [], list(calls)
    paused = [call for call in calls if call.tool_name in breakpoint_tools]
    return paused, [call for call in calls if call.tool_name not in breakpoint_tools]


def call_row(agent: str, call: AgentToolCall) -> CallRow:
    """Return a breakpoint call as the store keeps it; callers see the provider's call id."""
    shown = normalize_breakpoint_tool_call(call) | {
        "id": call.tool_call_id,
        "call_id": call.tool_call_id,
    }
    return CallRow(
        agent=agent,
        call_id=call.tool_call_id,
        call=call.model_dump_json(),
        shown=json.dumps(shown, ensure_ascii=False),
    )


def match_answers(task: LiveTask, payload: object) -> list[tuple[CallRow, str]]:
    """Read a resume payload and find the open call of each result.

    The payload is text, an object with ``content`` and maybe ``call_id``, a list of objects with
    both, or JSON text of one of these. Without a ``call_id`` exactly one call must be open.

    Raises:
        BreakpointError: the payload has no such shape, or names no open call of the task.
        AlreadyAnswered: a named call has its result.
    """
    answers = _parse(payload)
    matched: list[tuple[CallRow, str]] = []
    for call_id, content in answers:
        call = _find(task, call_id, [row for row, _ in matched])
        matched.append((call, content))
    return matched


def _parse(payload: object) -> list[tuple[str | None, str]]:
    if isinstance(payload, str):
        structured = _structured(payload)
        if structured is None:
            return [(None, payload)]
        payload = structured
    items = payload if isinstance(payload, list) else [payload]
    if not items:
        raise BreakpointError(_SHAPE)
    return [_answer(item, alone=not isinstance(payload, list)) for item in items]


def _structured(text: str) -> Any:
    """Return JSON that looks like results; any other text is a result itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if isinstance(value, dict) and "content" in value:
        return value
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return value
    return None


def _answer(item: object, *, alone: bool) -> tuple[str | None, str]:
    if not isinstance(item, dict) or "content" not in item:
        raise BreakpointError(_SHAPE)
    call_id, content = item.get("call_id"), item["content"]
    if call_id is None and not alone:
        raise BreakpointError("each result in a list needs a 'call_id'")
    if call_id is not None and not isinstance(call_id, str):
        raise BreakpointError("'call_id' must be text")
    return call_id, content if isinstance(content, str) else json.dumps(content)


def _find(task: LiveTask, call_id: str | None, taken: Sequence[CallRow]) -> CallRow:
    open_calls = [call for call in task.open_calls() if call not in taken]
    names = [call.call_id for call in open_calls]
    if call_id is None:
        if len(open_calls) != 1:
            raise BreakpointError(
                f"say which call each result is for; open calls: {_quoted(names)}", names
            )
        return open_calls[0]
    for call in open_calls:
        if call.call_id == call_id:
            return call
    if any(call.call_id == call_id for call in task.calls.values()):
        raise AlreadyAnswered(f"the breakpoint call '{call_id}' has its result already", names)
    raise BreakpointError(
        f"there is no open breakpoint call '{call_id}'; open calls: {_quoted(names)}", names
    )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
