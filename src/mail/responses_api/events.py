"""The stream of a response: OpenAI's event types, in its order.

A swarm's answer is the argument of its last tool call, so it is known when the run ends and not
before: its pieces follow one another at the end. Until then only the first two events have gone
out.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["closing_events", "error_event", "opening_events"]

_PIECE: Final = re.compile(r".{1,200}\S{0,200}\s?", re.DOTALL)
_LAST: Final = {"completed": "response.completed", "failed": "response.failed"}

Event = dict[str, Any]


def opening_events(response: Mapping[str, Any]) -> Iterator[Event]:
    """Yield what a stream begins with."""
    yield {"type": "response.created", "response": dict(response)}
    yield {"type": "response.in_progress", "response": dict(response)}


def closing_events(response: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the output of an ended response, item by item, and the terminal event."""
    for index, item in enumerate(response["output"]):
        make = _call_events if item["type"] == "function_call" else _message_events
        yield from make(item, index)
    kind = _LAST.get(response["status"], "response.incomplete")
    yield {"type": kind, "response": dict(response)}


def error_event(message: str, code: str | None = None) -> Event:
    """Return the event of a stream that ends before its response does."""
    return {"type": "error", "code": code, "message": message, "param": None}


def _message_events(item: Mapping[str, Any], index: int) -> Iterator[Event]:
    [part] = item["content"]
    text, at = part["text"], {"item_id": item["id"], "output_index": index, "content_index": 0}
    begun = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for piece in _pieces(text):
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}
    yield {"type": "response.output_item.done", "output_index": index, "item": dict(item)}


def _call_events(item: Mapping[str, Any], index: int) -> Iterator[Event]:
    at = {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress", "arguments": ""}
    kind = "response.function_call_arguments"
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    for piece in _pieces(item["arguments"]):
        yield {"type": f"{kind}.delta", **at, "delta": piece}
    done = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": f"{kind}.done", **at, **done}
    yield {"type": "response.output_item.done", "output_index": index, "item": dict(item)}


def _pieces(text: str) -> Iterator[str]:
    """Split text after a word, 200 characters or some more at a time; endless words are cut."""
    return (found[0] for found in _PIECE.finditer(text))
