"""What Anthropic refuses of a history as a whole: calls without results, altered replies."""

from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.provider.issued import Issued, Mark, mark_of

__all__ = ["pairing_problems", "turn_problems"]

_THOUGHTS = ("thinking", "redacted_thinking")
Message = dict[str, Any]


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _ids(message: Message, kind: str, key: str) -> list[Any]:
    return [block.get(key) for block in _blocks(message) if block["type"] == kind]


def pairing_problems(messages: Sequence[Message]) -> Iterator[str]:
    """Yield where calls and results do not match. Messages must be well formed."""
    for at, message in enumerate(messages):
        last = at == len(messages) - 1
        if message["role"] == "user":
            called = _ids(messages[at - 1], "tool_use", "id") if at else []
            yield from _answer_problems(message, called, f"messages.{at}")
            continue
        if last and (uses := _ids(message, "tool_use", "id")):
            yield f"messages.{at}: `tool_use` ids {uses} have no `tool_result` blocks after them"
        yield from _server_problems(_blocks(message), f"messages.{at}", last=last)


def _answer_problems(message: Message, called: Sequence[Any], where: str) -> Iterator[str]:
    kinds = [block["type"] for block in _blocks(message)]
    answered = _ids(message, "tool_result", "tool_use_id")
    for use_id in called:
        if use_id not in answered:
            yield f"{where}: `tool_use` id '{use_id}' has no `tool_result` block immediately after"
    for use_id in answered:
        if use_id not in called:
            yield f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: '{use_id}'"
    if len(set(answered)) < len(answered):
        yield f"{where}: each tool_use must have a single result"
    if "tool_result" in kinds[len(answered) :]:
        yield f"{where}: `tool_result` blocks must come first"


def _server_problems(blocks: Sequence[Message], where: str, *, last: bool) -> Iterator[str]:
    waiting: list[Any] = []
    for block in blocks:
        if block["type"] == "server_tool_use":
            waiting.append(block["id"])
        elif block["type"].endswith("_tool_result"):
            if block.get("tool_use_id") in waiting:
                waiting.remove(block["tool_use_id"])
            else:
                yield f"{where}: {block['type']} without a `server_tool_use` before it"
    if waiting and not last:  # a paused turn may end in a call that is still running
        yield f"{where}: `server_tool_use` ids {waiting} have no results"


def turn_problems(
    messages: Sequence[Message], issued: Issued, *, thinking: bool, budgeted: bool = True
) -> Iterator[str]:
    """Yield where replies of this provider come back altered, and where thinking is missing.

    It is only missed by who thinks within a budget: others may skip it at any time, and take a
    reply back that has lost all of its thoughts (measured in pydantic-ai#7984).
    """
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            marks = [mark_of(block) for block in _blocks(message)]
            for sent in _sent(message, issued):
                strict = thinking and (budgeted or any(mark[0] in _THOUGHTS for mark in marks))
                yield from _altered(marks, sent, f"messages.{at}", thinking=strict)
    if not (thinking and budgeted):
        return
    calling = [m for m in messages if m["role"] == "assistant" and _ids(m, "tool_use", "id")]
    if messages[-1]["role"] == "assistant":
        calling = [messages[-1]]
    if calling and _blocks(calling[-1])[0]["type"] not in _THOUGHTS:
        # What this provider sent without a thought may come back without one.
        known = _sent(calling[-1], issued)
        if not any(sent[0][0] not in _THOUGHTS for sent in known):
            yield (
                "Expected `thinking` or `redacted_thinking`: when `thinking` is enabled, a final "
                "`assistant` message must start with a thinking block"
            )


def _sent(message: Message, issued: Issued) -> list[tuple[Mark, ...]]:
    """Return the replies that a message consists of, as they were sent, where that is known."""
    found: list[tuple[Mark, ...]] = []
    for block in _blocks(message):
        sent = issued.blocks_with(block.get("id"))
        if sent is not None and sent not in found:
            found.append(sent)
    return found


def _altered(
    marks: Sequence[Mark], sent: Sequence[Mark], where: str, *, thinking: bool
) -> Iterator[str]:
    if _contains(marks, sent):
        return
    if thinking:
        yield (
            f"{where}: `thinking` or `redacted_thinking` blocks in the latest assistant message "
            "cannot be modified. These blocks must remain as they were in the original response."
            f" Sent: {_kinds(sent)}; got: {_kinds(marks)}"
        )
        return
    thoughts = [mark for mark in sent if mark[0] in _THOUGHTS]
    if any(mark in thoughts for mark in marks):
        yield f"{where}: only some of the thinking blocks of a reply came back: {_kinds(marks)}"


def _kinds(marks: Sequence[Mark]) -> str:
    return " ".join(mark[0] for mark in marks)


def _contains(marks: Sequence[Mark], sent: Sequence[Mark]) -> bool:
    size = len(sent)
    return any(
        all(_same(got, was) for got, was in zip(marks[start : start + size], sent, strict=True))
        for start in range(len(marks) - size + 1)
    )


def _same(got: Mark, was: Mark) -> bool:
    """Compare; the arguments of a call that was cut off may be anything."""
    return got == was or (was[-1] == "*" and got[:-1] == was[:-1])
