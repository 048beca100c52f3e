"""What OpenAI refuses of a Responses input as a whole: calls without outputs, lone reasoning."""

from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.provider.issued import Issued

__all__ = ["pairing_problems", "reasoning_problems"]

Item = dict[str, Any]


def pairing_problems(items: Sequence[Item]) -> Iterator[str]:
    """Yield where calls and outputs do not match, one to one and in this order."""
    calls: list[Any] = []
    answered: list[Any] = []
    for at, item in enumerate(items):
        call_id = item.get("call_id")
        if item.get("type") == "function_call":
            if call_id in calls:
                yield f"input[{at}]: two function calls have the call_id {call_id}"
            calls.append(call_id)
        elif item.get("type") == "function_call_output":
            if call_id not in calls:
                yield f"No tool call found for function call output with call_id {call_id}."
            if call_id in answered:
                yield f"input[{at}]: the function call {call_id} has two outputs"
            answered.append(call_id)
    for call_id in calls:
        if call_id not in answered:
            yield f"No tool output found for function call {call_id}."


def reasoning_problems(items: Sequence[Item], issued: Issued) -> Iterator[str]:
    """Yield where reasoning and what it led to are not together, as they were sent."""
    for at, item in enumerate(items):
        if item.get("type") == "reasoning":
            yield from _following_problems(item, items[at + 1 :], issued)
        else:
            yield from _leading_problems(item, items[:at], issued)


def _following_problems(item: Item, rest: Sequence[Item], issued: Issued) -> Iterator[str]:
    following = rest[0] if rest else None
    if following is None or not _is_output(following):
        yield (
            f"Item '{item['id']}' of type 'reasoning' was provided without its required "
            "following item."
        )
        return
    sent = issued.items_with(item["id"])
    if sent is None or following.get("id") is None:
        return
    expected = sent[sent.index(item["id"]) + 1 :][:1]
    if (following["id"],) != expected:
        yield (
            f"Item '{item['id']}' of type 'reasoning' was provided without its required "
            f"following item: '{''.join(expected)}'; '{following['id']}' follows."
        )


def _leading_problems(item: Item, before: Sequence[Item], issued: Issued) -> Iterator[str]:
    """An item that came right after a reasoning item cannot be given back without it."""
    sent = issued.items_with(item.get("id"))
    if sent is None:
        return
    place = sent.index(item["id"])
    leading = sent[place - 1] if place else ""
    if leading.startswith("rs_") and (not before or before[-1].get("id") != leading):
        yield (
            f"Item '{item['id']}' of type '{item.get('type')}' was provided without its required "
            f"'reasoning' item: '{leading}'."
        )


def _is_output(item: Item) -> bool:
    kind = item.get("type", "message")
    if kind == "message":
        return bool(item.get("role") == "assistant")
    return bool(kind != "function_call_output")
