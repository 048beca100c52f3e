"""OpenAI's Responses wire format as pure functions: request out, events in, history entries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from mail.core.agents import ToolChoice
from mail.llm.completions import field_of, fields_of, usage_of
from mail.llm.failures import ReportedError
from mail.llm.history import (
    SEALED_BY,
    Replied,
    Said,
    arguments_so_far,
    conversation,
    plain_copy,
    reader_of,
    text_of,
    unique_id,
    written_arguments,
)
from mail.llm.profiles import IN_WORDS, UNKNOWN, Profile
from mail.llm.request import (
    BuiltinCall,
    CallPiece,
    Delta,
    FunctionCall,
    ModelRequest,
    Part,
    Speech,
    Thought,
)
from mail.llm.thinking import forced_by
from mail.llm.tools import choice_name, tools_for

Fields = Mapping[str, Any]

BUILTIN_ITEMS: Final = frozenset(
    {
        "web_search_call",
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
    }
)
"""Output items of tools that the provider ran itself."""


_LARGE_FIELDS: Final = frozenset({"result", "container_id", "id", "type"})


def encode(request: ModelRequest, profile: Profile = UNKNOWN) -> dict[str, Any]:
    """Build the keyword arguments of a Responses call.

    Nothing is stored at the provider: reasoning comes back encrypted and is sent again with the
    history.

    Args:
        request: The question; nothing in it is changed or shared with the result.
        profile: The facts about the model. If it reasons, the encrypted text is asked for,
            and a summary where it gives one.
    """
    settings = request.settings
    forced = forced_by(request.tool_choice, profile)
    reasons = profile.thinks != "no"
    items = list(_items(request, profile))
    wire: dict[str, Any] = {"model": request.model, "input": items, "store": False}
    if items and items[0].get("role") == "system":
        wire["instructions"] = text_of(items.pop(0))
    elif request.system:
        wire["instructions"] = request.system
    include = []
    if reasons:
        include.append("reasoning.encrypted_content")
    effort = settings.reasoning_effort if forced != "off" else None
    if reasoning := _asked(effort, profile):
        wire["reasoning"] = reasoning
    if forced == "off":
        wire |= plain_copy(profile.off_switch)
    if settings.max_tokens is not None:
        wire["max_output_tokens"] = settings.max_tokens
    if request.tools:
        tools = tools_for(request.tools, "responses")
        free = forced == "auto" or (forced == "unless_thinking" and effort is not None)
        wire["tools"] = tools
        wire["tool_choice"] = "auto" if free else _tool_choice(request.tool_choice, tools)
        if any(tool.get("type") == "code_interpreter" for tool in tools):
            include.append("code_interpreter_call.outputs")
    if include:
        wire["include"] = include
    return wire


def _asked(effort: str | None, profile: Profile) -> dict[str, Any]:
    """Return what is asked of a model that reasons; its effort is its own unless one is asked for.

    Many models refuse an effort, or some of them, and what a provider has set is often more.
    """
    if profile.thinks == "no":
        return {}
    asked = {"summary": "auto"} if profile.summary else {}
    if effort is not None and profile.effort_via in IN_WORDS:
        asked["effort"] = profile.nearest(effort)
    return asked


def _tool_choice(choice: ToolChoice, tools: Sequence[Mapping[str, Any]]) -> ToolChoice:
    if isinstance(choice, str):
        return choice
    name = choice_name(choice)
    if name is None:
        own = choice.get("type") != "function" and choice in ({"type": t["type"]} for t in tools)
        return dict(choice) if own else "required"
    if name not in (tool.get("name") for tool in tools):
        return "required"
    return {"type": "function", "name": name}


def _items(request: ModelRequest, profile: Profile) -> Iterator[dict[str, Any]]:
    kept = profile.thinks != "no" and profile.send_back != "never"
    reader = reader_of(request) if kept else None
    for exchange in conversation(request.messages, profile):
        if isinstance(exchange, Said):
            yield plain_copy(exchange.message)
            continue
        yield from _reply_items(exchange, reader)
        for call, result in zip(exchange.calls, exchange.results, strict=True):
            yield {"type": "function_call_output", "call_id": call.id, "output": result}


def marked(items: Sequence[Mapping[str, Any]], maker: str) -> tuple[dict[str, Any], ...]:
    """Return the items of a reply for the history, with a note of who sealed its reasoning.

    No other provider can open it, and most refuse a request that contains it.
    """
    note = {SEALED_BY: maker}
    return tuple(
        {**item, **note} if item.get("type") == "reasoning" else dict(item) for item in items
    )


def _reply_items(reply: Replied, reader: str | None) -> Iterator[dict[str, Any]]:
    """Yield the items of a reply; reasoning only if it can be read by the ``reader``, if any."""
    if reply.wire != "responses":
        if reply.text:
            yield {"role": "assistant", "content": reply.text}
        for call in reply.calls:
            arguments = written_arguments(call.arguments)
            item = {"call_id": call.id, "name": call.name, "arguments": arguments}
            yield {"type": "function_call", **item}
        return
    # Whom the reasoning is sealed for; older entries do not say.
    if reader is not None and all(e.get(SEALED_BY, reader) == reader for e in reply.entries):
        end = len(reply.entries)
        while end and reply.entries[end - 1].get("type") == "reasoning":
            end -= 1  # reasoning must lead to something
        for kept in reply.entries[:end]:
            yield {k: plain_copy(v) for k, v in kept.items() if k != SEALED_BY}
    else:
        yield from map(plain_copy, _without_reasoning(reply.entries))


def _without_reasoning(items: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield items for a model that does not reason: no reasoning, and no ids that point to it.

    Built-in calls must have their ids.
    """
    for item in items:
        if item.get("type") in BUILTIN_ITEMS:
            yield dict(item)
        elif item.get("type") != "reasoning":
            yield {key: value for key, value in item.items() if key != "id"}


def decode(event: Any) -> Delta | None:
    """Read one event of a Responses stream, given as a mapping or an object.

    Returns:
        What it adds to the reply; None if that is nothing.

    Raises:
        ReportedError: the event says that the reply failed.
    """
    fields = fields_of(event)
    kind = fields.get("type")  # the library's names of them equal the texts
    read = _READERS.get(kind) if isinstance(kind, str) else None
    return None if read is None else read(fields)


def _failed(error: Any) -> Delta:
    raise ReportedError({name: field_of(error, name) for name in ("message", "code", "type")})


def _place(event: Fields) -> int:
    return int(event.get("output_index") or 0)


def _completed(event: Fields) -> Delta:
    response = event.get("response")
    reason = field_of(field_of(response, "incomplete_details"), "reason")
    output = field_of(response, "output") or ()
    return Delta(
        wire="responses",
        # Their places here count from 0 without the reasoning; they only fill in what is missing.
        items=tuple((-1 - at, item) for at, item in enumerate(output)),
        finish=str(reason or field_of(response, "status") or "completed"),
        usage=usage_of(field_of(response, "usage")),
    )


_READERS: Final[Mapping[str, Callable[[Fields], Delta]]] = {
    **dict.fromkeys(
        ("response.output_text.delta", "response.refusal.delta"),
        lambda event: Delta(wire="responses", text=event.get("delta") or ""),
    ),
    **dict.fromkeys(
        ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"),
        lambda event: Delta(wire="responses", reasoning=event.get("delta") or ""),
    ),
    "response.reasoning_summary_part.done": lambda event: Delta(
        wire="responses", reasoning_done=True
    ),
    "response.output_item.added": lambda event: Delta(
        wire="responses", calls=tuple(_begun(_place(event), event.get("item")))
    ),
    "response.function_call_arguments.delta": lambda event: Delta(
        wire="responses", calls=(CallPiece(_place(event), arguments=event.get("delta") or ""),)
    ),
    "response.output_item.done": lambda event: Delta(
        wire="responses", items=((_place(event), event.get("item")),)
    ),
    **dict.fromkeys(("response.completed", "response.incomplete"), _completed),
    "response.failed": lambda event: _failed(field_of(event.get("response"), "error")),
    "error": lambda event: _failed(event.get("error") or event),
}


def _begun(index: int, item: Any) -> Iterator[CallPiece]:
    """Yield the beginning of a call: what was reasoned before it belongs to it."""
    kind = field_of(item, "type")
    if kind == "function_call":
        yield CallPiece(index, field_of(item, "call_id") or "", field_of(item, "name") or "")
    elif kind in BUILTIN_ITEMS:
        yield CallPiece(index, field_of(item, "id") or "", str(kind), builtin=True)


def _plain_item(item: Any) -> dict[str, Any]:
    if isinstance(item, Mapping):
        plain: dict[str, Any] = plain_copy(item)
    else:
        plain = item.model_dump(mode="json", exclude_none=True)
    return {key: value for key, value in plain.items() if value is not None}


def history_items(items: Mapping[int, Any], *, cut: bool = False) -> tuple[dict[str, Any], ...]:
    """Return the items of a reply, given by their places, in order, as the history keeps them.

    They may be the library's objects: most are never looked at, so they are read only here.
    Negative places (from the end of the stream) count only if there are no others. Arguments
    become a JSON object whatever the model wrote, and each call has an id of its own.

    Args:
        items: The items.
        cut: Whether the reply was cut off, so that a call at its end may lack its arguments.
    """
    places = sorted(place for place in items if place >= 0)
    places = places or sorted((place for place in items if place < 0), reverse=True)
    plain = [_plain_item(items[place]) for place in places]
    if cut and plain and plain[-1].get("type") == "function_call":
        plain[-1]["arguments"] = arguments_so_far(plain[-1].get("arguments") or "")
    seen: set[str] = set()
    for item in plain:
        if item.get("type") == "function_call":
            item["arguments"] = written_arguments(item.get("arguments") or "")
            item["call_id"] = unique_id(item.get("call_id") or "", seen)
    return tuple(plain)


def parts_of(
    items: Sequence[Mapping[str, Any]],
    streamed: Mapping[str, Sequence[str]],
    rest: Sequence[str] = (),
) -> tuple[Part, ...]:
    """Return the parts of a reply in one pass over its items.

    Args:
        items: The output items in order.
        streamed: The blocks of reasoning that streamed in before a call, by the call's id; they
            fill in for items that hold none.
        rest: The blocks that streamed in after the last call.
    """
    parts: list[Part] = []
    thought = False
    for item in items:
        for part in _parts(item):
            if isinstance(part, FunctionCall | BuiltinCall):
                if not thought:
                    parts.extend(Thought(text) for text in streamed.get(part.id, ()))
                thought = False
            elif isinstance(part, Thought):
                thought = thought or bool(part.text.strip())
            parts.append(part)
    if not thought:
        parts.extend(Thought(text) for text in rest)
    return tuple(parts)


def _parts(item: Mapping[str, Any]) -> Iterator[Part]:
    kind = item.get("type")
    if kind == "reasoning":
        for summary in item.get("summary") or item.get("content") or ():
            yield Thought(str(summary.get("text") or ""))
    elif kind == "message":
        if text := text_of(item):
            yield Speech(text)
    elif kind == "function_call":
        yield FunctionCall(
            item["call_id"], item.get("name") or "unnamed_tool", item.get("arguments") or ""
        )
    elif kind in BUILTIN_ITEMS:
        yield BuiltinCall(str(item.get("id") or ""), str(kind), _shown(item), item)


def _shown(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an event shows of a built-in call."""
    status = item.get("status")
    if item["type"] == "web_search_call":
        action = item.get("action") or {}
        query = action.get("query") or action.get("url") or item.get("query") or ""
        return {"query": query, "search_type": action.get("type"), "status": status}
    if item["type"] == "code_interpreter_call":
        return {"code": item.get("code"), "outputs": item.get("outputs"), "status": status}
    return {key: value for key, value in item.items() if key not in _LARGE_FIELDS}
