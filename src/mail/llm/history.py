"""An agent's history as a provider accepts it: every tool call answered, right behind it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["paired", "plain_copy"]

_NO_RESULT = "ERROR: no result of this call was recorded"


def plain_copy(value: Any) -> Any:
    """Copy JSON-like data deeply; mappings become dicts, tuples lists."""
    if isinstance(value, Mapping):
        return {key: plain_copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_copy(item) for item in value]
    return value


class _Results:
    """The tool results of a history by call id, each handed out once."""

    def __init__(self, messages: Sequence[Mapping[str, Any]]) -> None:
        self._positions: dict[str, list[int]] = {}
        self.taken: set[int] = set()
        for position, message in enumerate(messages):
            if message.get("role") == "tool":
                call_id = str(message.get("tool_call_id") or "")
                self._positions.setdefault(call_id, []).append(position)

    def take(self, call_id: str, after: int) -> int | None:
        for position in self._positions.get(call_id, ()):
            if position > after and position not in self.taken:
                self.taken.add(position)
                return position
        return None


def _answers(
    messages: Sequence[Mapping[str, Any]], asked_at: int, results: _Results
) -> Iterator[dict[str, Any]]:
    for call in messages[asked_at]["tool_calls"]:
        position = results.take(call["id"], asked_at)
        content = None if position is None else messages[position].get("content")
        yield {
            "role": "tool",
            "name": call["function"]["name"],
            "content": _NO_RESULT if position is None else plain_copy(content or ""),
            "tool_call_id": call["id"],
        }


def paired(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a deep copy of a chat history in which every tool call has its one result.

    Results move to right behind the assistant message of their calls, in the order of the calls.
    A call without a result gets an error result; a result without a call becomes user text.
    """
    results = _Results(messages)
    answers = {
        position: list(_answers(messages, position, results))
        for position, message in enumerate(messages)
        if message.get("role") == "assistant" and message.get("tool_calls")
    }
    history: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        if message.get("role") != "tool":
            history.append(plain_copy(message))
            history.extend(answers.get(position, ()))
        elif position not in results.taken:
            history.append({"role": "user", "content": f"Tool result: {message.get('content')}"})
    return history
