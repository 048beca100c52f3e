"""The events of a Responses stream that spell out its output items."""

from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.provider.wire import noise, pieces

__all__ = ["events_of_items"]

Frame = tuple[str, dict[str, Any]]

_BUILT_IN = {
    "web_search_call": ("in_progress", "searching", "completed"),
    "code_interpreter_call": ("in_progress", "interpreting", "completed"),
}


def events_of_items(
    items: Sequence[dict[str, Any]], seed: str, *, whole_calls: bool = False
) -> Iterator[Frame]:
    """Yield the type and the data of each event, without the numbers of the sequence."""
    for index, item in enumerate(items):
        yield "response.output_item.added", {"output_index": index, "item": _started(item)}
        place = {"item_id": item["id"], "output_index": index}
        for kind, data in _inside(item, whole_calls=whole_calls):
            padding = {"obfuscation": noise(seed, data["delta"])} if "delta" in data else {}
            yield kind, {**place, **data, **padding}
        yield "response.output_item.done", {"output_index": index, "item": item}


def _started(item: dict[str, Any]) -> dict[str, Any]:
    """Return the item as it is announced: without what is still to be written."""
    empty: dict[str, dict[str, Any]] = {
        "reasoning": {"summary": []},
        "message": {"status": "in_progress", "content": []},
        "function_call": {"status": "in_progress", "arguments": ""},
        "web_search_call": {"status": "in_progress"},
        "code_interpreter_call": {"status": "in_progress", "code": "", "outputs": None},
    }
    started: dict[str, Any] = item | empty[item["type"]]
    if item["type"] == "web_search_call":
        del started["action"]
    return started


def _inside(item: dict[str, Any], *, whole_calls: bool) -> Iterator[Frame]:
    kind = item["type"]
    if kind == "reasoning":
        for index, part in enumerate(item["summary"]):
            for name, data in _summary(part):
                yield f"response.{name}", {"summary_index": index, **data}
    elif kind == "message":
        for index, part in enumerate(item["content"]):
            for name, data in _part(part):
                yield f"response.{name}", {"content_index": index, **data}
    elif kind == "function_call":
        for piece in pieces(item["arguments"], 100_000 if whole_calls else 16):
            yield "response.function_call_arguments.delta", {"delta": piece}
        data = {"arguments": item["arguments"], "name": item["name"]}
        yield "response.function_call_arguments.done", data
    else:
        yield from _built_in(item)


def _summary(part: dict[str, Any]) -> Iterator[Frame]:
    empty = {"type": "summary_text", "text": ""}
    yield "reasoning_summary_part.added", {"part": empty}
    for piece in pieces(part["text"]):
        yield "reasoning_summary_text.delta", {"delta": piece}
    yield "reasoning_summary_text.done", {"text": part["text"]}
    yield "reasoning_summary_part.done", {"part": part}


def _part(part: dict[str, Any]) -> Iterator[Frame]:
    refused = part["type"] == "refusal"
    key, name = ("refusal", "refusal") if refused else ("text", "output_text")
    extra: dict[str, Any] = {} if refused else {"logprobs": []}
    yield "content_part.added", {"part": part | {key: ""}}
    for piece in pieces(part[key]):
        yield f"{name}.delta", {"delta": piece, **extra}
    yield f"{name}.done", {key: part[key], **extra}
    yield "content_part.done", {"part": part}


def _built_in(item: dict[str, Any]) -> Iterator[Frame]:
    first, *rest = _BUILT_IN[item["type"]]
    yield f"response.{item['type']}.{first}", {}
    if "code" in item:
        for piece in pieces(item["code"], 16):
            yield f"response.{item['type']}_code.delta", {"delta": piece}
        yield f"response.{item['type']}_code.done", {"code": item["code"]}
    for state in rest:
        yield f"response.{item['type']}.{state}", {}
