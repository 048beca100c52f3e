"""Raw provider streams, spelled out from what a model made, and read back through our codecs."""

import json
import warnings
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from mail.core.call_context import NullSink, StreamSink
from mail.llm.ask import collect
from mail.llm.litellm_model import load_library
from mail.llm.request import Delta, ModelReply, Wire
from mail.llm.streams import let_through
from mail.llm.wires import decoder_of

Event = Mapping[str, Any]


async def stream_of(deltas: Iterable[Delta]) -> AsyncGenerator[Delta, None]:
    """Yield deltas as a model would."""
    for delta in deltas:
        yield delta


async def collected(*deltas: Delta, sink: StreamSink | None = None) -> ModelReply:
    """Return the reply that deltas make."""
    return await collect(stream_of(deltas), sink or NullSink())


async def read(wire: Wire, events: Iterable[Event], *, objects: bool = False) -> ModelReply:
    """Return the reply in a provider's events, given to the codec as mappings or as objects."""
    pieces = as_objects(wire, events) if objects else as_mappings(wire, events)
    return await collect(stream_of(filter(None, map(decoder_of(wire), pieces))), NullSink())


def as_objects(wire: Wire, events: Iterable[Event]) -> Iterator[Any]:
    """Yield what LiteLLM makes of a provider's events."""
    library()
    if wire == "responses":
        return _responses_objects(events)
    return _anthropic_objects(events) if wire == "anthropic" else _chat_objects(events)


def library() -> Any:
    """Return LiteLLM, with the filter that it sets itself; pytest undoes that after one test."""
    litellm = load_library()
    warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier")
    return litellm


def as_mappings(wire: Wire, events: Iterable[Event]) -> Iterator[Event]:
    """Yield the same as plain mappings; Anthropic's in the dress that a proxy gives them."""
    if wire != "anthropic":
        return iter(events)
    return (json.loads(chunk.model_dump_json()) for chunk in as_objects(wire, events))


def _chat_objects(events: Iterable[Event]) -> Iterator[Any]:
    from litellm.types.utils import ModelResponseStream

    for event in events:
        yield ModelResponseStream(**event)


def _anthropic_objects(events: Iterable[Event]) -> Iterator[Any]:
    from litellm.llms.anthropic.chat.handler import ModelResponseIterator

    reader = ModelResponseIterator(streaming_response=None, sync_stream=True)
    let_through(SimpleNamespace(completion_stream=reader), "anthropic")
    for event in events:
        yield reader.chunk_parser(dict(event))


def _responses_objects(events: Iterable[Event]) -> Iterator[Any]:
    from litellm.llms.openai.responses.transformation import OpenAIResponsesAPIConfig

    config = OpenAIResponsesAPIConfig()
    for event in events:
        yield config.transform_streaming_response("gpt-5-mini", dict(event), None)


def halves(text: str) -> tuple[str, str]:
    """Cut a text in two, as streams do."""
    return text[: len(text) // 2], text[len(text) // 2 :]


def chat_events(
    *deltas: Mapping[str, Any], finish: str = "stop", usage: Mapping[str, Any] | None = None
) -> list[Event]:
    """Return a chat-completions stream of the given deltas."""
    top = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": dict(delta), "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    events: list[Event] = [{**top, "choices": [choice]} for choice in choices]
    if usage is not None:
        events.append({**top, "choices": [], "usage": dict(usage)})
    return events


def anthropic_events(*blocks: Mapping[str, Any], stop: str = "tool_use") -> list[Event]:
    """Return an Anthropic stream of the given content blocks."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude"}
    start = {**message, "content": [], "stop_reason": None, "usage": usage}
    events: list[Event] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(blocks):
        begun, deltas = _spelled(block)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events.extend(
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        )
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 7}})
    events.append({"type": "message_stop"})
    return events


def _spelled(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kind = block["type"]
    if kind == "text":
        said = [{"type": "text_delta", "text": piece} for piece in halves(block["text"])]
        cited = block.get("citations") or ()
        sources = [{"type": "citations_delta", "citation": source} for source in cited]
        return {**block, "text": ""} | ({"citations": []} if cited else {}), [*sources, *said]
    if kind == "thinking":
        pieces = [
            {"type": "thinking_delta", "thinking": piece} for piece in halves(block["thinking"])
        ]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*pieces, signed]
    if kind in ("tool_use", "server_tool_use"):
        given = block["input"]
        text = given if isinstance(given, str) else json.dumps(given)
        return {**block, "input": {}}, [
            {"type": "input_json_delta", "partial_json": piece} for piece in halves(text)
        ]
    return dict(block), []


def responses_events(
    *items: Mapping[str, Any], status: str = "completed", whole_items: bool = True
) -> list[Event]:
    """Return a Responses stream of the given output items.

    Args:
        items: The output items.
        status: How the response ends.
        whole_items: Whether each item is sent whole when it is done. Without that there is only
            the output at the end, which leaves the reasoning out.
    """
    events: list[Event] = [{"type": "response.created", "response": response("in_progress", [])}]
    for place, item in enumerate(items):
        at = {"output_index": place, "item_id": item.get("id", "")}
        begun = {**item, "status": "in_progress"} | _blank(item)
        events.append({"type": "response.output_item.added", "item": begun, **at})
        events.extend({**event, **at} for event in _item_deltas(item))
        if whole_items:
            events.append({"type": "response.output_item.done", "item": dict(item), **at})
    output = [item for item in items if item["type"] != "reasoning"]
    events.append({"type": f"response.{status}", "response": response(status, output)})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def response(status: str, output: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a response object as it comes with the events at both ends."""
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 17,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-mini",
        "output": [dict(item) for item in output],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage if status == "completed" else None,
        **more,
    }


def _blank(item: Mapping[str, Any]) -> dict[str, Any]:
    empty = {"reasoning": "summary", "message": "content"}
    if item["type"] == "function_call":
        return {"arguments": ""}
    return {empty[item["type"]]: []} if item["type"] in empty else {}


def _item_deltas(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if item["type"] == "function_call":
        for piece in halves(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", "delta": piece}
    elif item["type"] == "reasoning":
        for index, part in enumerate(item["summary"]):
            at = {"summary_index": index}
            for piece in halves(part["text"]):
                yield {"type": "response.reasoning_summary_text.delta", "delta": piece, **at}
            yield {"type": "response.reasoning_summary_part.done", "part": part, **at}
    elif item["type"] == "message":
        for index, part in enumerate(item["content"]):
            kind = "refusal" if part["type"] == "refusal" else "output_text"
            for piece in halves(part.get("text") or part["refusal"]):
                yield {"type": f"response.{kind}.delta", "delta": piece, "content_index": index}
