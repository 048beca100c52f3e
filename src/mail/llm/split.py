"""Where a history can be cut in two, so that each part makes sense to a provider on its own."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

from mail.llm.history import is_reply_item

__all__ = ["split_at"]

Entry = Mapping[str, Any]


def split_at(messages: Sequence[Entry], keep: int, *, wait: bool = True) -> int:
    """Return where a history can be cut in two: the latest place between whole exchanges.

    Args:
        messages: The history, in any mix of formats, with or without a system entry at the front.
        keep: How many of the newest entries must stay right of the cut.
        wait: Whether a call without a result holds the cut back, because its result may still
            come.

    Returns:
        The number of entries left of the cut; 0 if there is no such place.
    """
    latest = len(messages) - max(keep, 1)
    first = 1 if messages and messages[0].get("role") == "system" else 0
    answered = _answered_at(messages, len(messages) if wait else -1)
    cut, open_until = 0, -1
    for place in range(first, latest + 1):
        if place > first and open_until < place and _begins(messages, place):
            cut = place
        open_until = max(open_until, answered.get(place, -1))
    return cut


def _begins(messages: Sequence[Entry], place: int) -> bool:
    """Tell whether an exchange, or at least a message to the agent, begins at a place."""
    if _is_result(messages[place]):
        return False
    return not _is_reply(messages[place]) or _is_result(messages[place - 1])


def _is_reply(entry: Entry) -> bool:
    return entry.get("role") == "assistant" or is_reply_item(entry)


def _is_result(entry: Entry) -> bool:
    return entry.get("role") == "tool" or entry.get("type") == "function_call_output"


def _answered_at(messages: Sequence[Entry], never: int) -> dict[int, int]:
    """Return where the last result of each entry with calls is; ``never`` if one is missing."""
    waiting: defaultdict[str, deque[int]] = defaultdict(deque)
    ends: dict[int, int] = {}
    for place, entry in enumerate(messages):
        if _is_result(entry):
            callers = waiting[str(entry.get("tool_call_id") or entry.get("call_id") or "")]
            if callers:
                caller = callers.popleft()
                ends[caller] = max(ends.get(caller, -1), place)
            continue
        for call_id in _call_ids(entry):
            waiting[call_id].append(place)
    for callers in waiting.values():
        for caller in callers:
            ends[caller] = max(ends.get(caller, -1), never)
    return ends


def _call_ids(entry: Entry) -> list[str]:
    if entry.get("type") == "function_call":
        return [str(entry.get("call_id"))]
    content = entry.get("content")
    blocks = content if isinstance(content, list) and entry.get("role") == "assistant" else []
    uses = (block for block in blocks if isinstance(block, Mapping))
    calls = [block for block in uses if block.get("type") == "tool_use"]
    calls.extend(entry.get("tool_calls") or ())
    return [str(call.get("id")) for call in calls]
