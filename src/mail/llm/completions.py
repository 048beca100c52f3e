"""The chat-completions wire format as pure functions: request out, chunks in, history entry."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mail.core.agents import ToolChoice
from mail.core.tools.call import INVALID_JSON_KEY
from mail.llm.history import paired, plain_copy
from mail.llm.request import CallPiece, Delta, ModelReply, ModelRequest, ToolCallDraft

__all__ = [
    "assistant_message",
    "decode",
    "encode",
    "nested_tool",
    "parse_arguments_text",
    "tool_name",
]

_INVALID_SHOWN = 2000
_REASONING_FIELDS = ("reasoning_content", "thinking_blocks")


def nested_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a function tool in the nested style; other tools are only copied."""
    spec: dict[str, Any] = plain_copy(tool)
    if spec.get("type") != "function" or "function" in spec:
        return spec
    spec.pop("type")
    return {"type": "function", "function": spec}


def tool_name(tool: Mapping[str, Any]) -> str | None:
    """Return the name of a tool declaration in either style; provider tools have none."""
    name = tool.get("name") or tool.get("function", {}).get("name")
    return str(name) if name else None


def parse_arguments_text(text: str) -> dict[str, Any]:
    """Read a tool call's arguments; no text is no arguments.

    Returns:
        The arguments, or ``{INVALID_JSON_KEY: <the text, cut>}`` for anything but a JSON object.
    """
    if not text.strip():
        return {}
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return arguments
    return {INVALID_JSON_KEY: text[:_INVALID_SHOWN]}


def encode(request: ModelRequest, *, thinking: bool = False) -> dict[str, Any]:
    """Build the keyword arguments of a chat-completions call.

    Args:
        request: The question; nothing in it is changed or shared with the result.
        thinking: Whether the provider takes a ``thinking`` budget; if not, the reasoning effort
            is sent instead, and its own reasoning is left out of the history.

    Returns:
        ``model``, ``messages`` and, as far as there is something to say, ``tools``,
        ``tool_choice``, ``max_tokens`` and ``thinking`` or ``reasoning_effort``.
    """
    settings = request.settings
    wire: dict[str, Any] = {"model": request.model, "messages": _messages(request, thinking)}
    budget = settings.thinking_budget if thinking else None
    if budget is not None:
        wire["thinking"] = {"type": "enabled", "budget_tokens": budget}
    elif settings.reasoning_effort is not None:
        wire["reasoning_effort"] = settings.reasoning_effort
    if settings.max_tokens is not None:
        wire["max_tokens"] = settings.max_tokens
    if request.tools:
        wire["tools"] = [nested_tool(tool) for tool in request.tools]
        # Providers that think refuse to be forced to call a tool at the same time.
        choice = request.tool_choice if budget is None else "auto"
        wire["tool_choice"] = _tool_choice(choice, wire["tools"])
    return wire


def _messages(request: ModelRequest, keep_reasoning: bool) -> list[dict[str, Any]]:
    messages = paired(request.messages)
    for message in messages:
        if message.get("role") == "assistant":
            if not keep_reasoning:
                for name in _REASONING_FIELDS:
                    message.pop(name, None)
            if not message.get("tool_calls"):
                message["content"] = message.get("content") or ""
    has_system = bool(messages) and messages[0].get("role") == "system"
    if request.system and not has_system:
        messages.insert(0, {"role": "system", "content": request.system})
    return messages


def _tool_choice(choice: ToolChoice, tools: Sequence[Mapping[str, Any]]) -> ToolChoice:
    if isinstance(choice, str):
        return choice
    name = choice.get("name") or choice.get("function", {}).get("name")
    if name not in map(tool_name, tools):
        return "required"
    return {"type": "function", "function": {"name": name}}


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)


def decode(chunk: Any) -> Delta:
    """Read one chunk of a chat-completions stream, given as a mapping or an object."""
    usage = _field(chunk, "usage")
    choices = _field(chunk, "choices")
    if not choices:
        return Delta(usage=_usage(usage))
    piece = _field(choices[0], "delta")
    return Delta(
        text=_field(piece, "content") or _field(piece, "refusal") or "",
        reasoning=_field(piece, "reasoning_content") or "",
        thinking=tuple(_field(piece, "thinking_blocks") or ()),
        calls=tuple(_call_pieces(_field(piece, "tool_calls") or ())),
        finish=_field(choices[0], "finish_reason"),
        usage=_usage(usage),
    )


def _call_pieces(calls: Sequence[Any]) -> Iterator[CallPiece]:
    for position, call in enumerate(calls):
        function = _field(call, "function")
        index = _field(call, "index")
        yield CallPiece(
            index=position if index is None else index,
            id=_field(call, "id") or "",
            name=_field(function, "name") or "",
            arguments=_field(function, "arguments") or "",
        )


def _usage(usage: Any) -> Mapping[str, int] | None:
    counts = {
        name: count
        for name in ("prompt_tokens", "completion_tokens", "total_tokens")
        if isinstance(count := _field(usage, name), int)
    }
    return counts or None


def assistant_message(reply: ModelReply) -> dict[str, Any]:
    """Return the history entry of a reply: valid for the provider whatever the model wrote."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [_wire_call(call) for call in reply.calls]
    else:
        message["content"] = reply.text
    reasoning = [block for call in reply.calls for block in call.reasoning]
    reasoning.extend(reply.reasoning)
    if reasoning:
        message["reasoning_content"] = "\n\n".join(reasoning)
    if reply.thinking:
        message["thinking_blocks"] = plain_copy(reply.thinking)
    return message


def _wire_call(call: ToolCallDraft) -> dict[str, Any]:
    arguments = json.dumps(parse_arguments_text(call.arguments), ensure_ascii=False)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
