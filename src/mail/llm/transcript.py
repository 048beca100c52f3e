"""A history as plain text for somebody who sums it up."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic_core import to_json

from mail.llm.history import NO_RESULT, Replied, Said, conversation, text_of

__all__ = ["transcript"]

_OWN: Final = frozenset(
    {"function_call", "message", "reasoning", "redacted_thinking", "text", "thinking", "tool_use"}
)
_LONGEST_CODE: Final = 200


def transcript(entries: Sequence[Mapping[str, Any]]) -> str:
    """Write down who said, called and found what, oldest first.

    Reasoning is left out: it does not commit anybody to anything.
    """
    return "\n\n".join(_paragraphs(entries))


def _paragraphs(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for exchange in conversation(entries):
        if isinstance(exchange, Said):
            yield f"[to the agent]\n{text_of(exchange.message)}"
        else:
            yield from _reply(exchange)


def _reply(reply: Replied) -> Iterator[str]:
    for item in _builtin(reply):
        yield f"[a tool of the provider]\n{to_json(_readable(item), fallback=str).decode()}"
    if reply.text.strip():
        yield f"[the agent]\n{reply.text}"
    for call, result in zip(reply.calls, reply.results, strict=True):
        found = "(no result yet)" if result == NO_RESULT else result
        yield f"[the agent calls {call.name}, id {call.id}]\n{call.arguments}\n[result]\n{found}"


def _builtin(reply: Replied) -> Iterator[Mapping[str, Any]]:
    """Yield what the provider's own tools did, be it output items or message blocks."""
    for entry in reply.entries:
        content = entry.get("content")
        parts = content if reply.wire == "anthropic" and isinstance(content, list) else [entry]
        for part in parts:
            if isinstance(part, Mapping) and part.get("type", "message") not in _OWN:
                yield part


def _readable(value: Any) -> Any:
    """Drop text that is a code: long, and without a single space."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_CODE or " " in value else "..."
    if isinstance(value, Mapping):
        return {key: _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return value
