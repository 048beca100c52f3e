"""The chat-completions wire format as pure functions: request out, chunks in, history entry."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mail.core.agents import ToolChoice
from mail.core.usage import Usage
from mail.llm.history import (
    SEALED_BY,
    Replied,
    Said,
    conversation,
    plain_copy,
    reader_of,
    written_arguments,
)
from mail.llm.profiles import UNKNOWN, Forced, Profile, merged
from mail.llm.request import CallPiece, Delta, FunctionCall, ModelReply, ModelRequest, Thought
from mail.llm.thinking import effort_arguments, forced_by, may_think, thinking_arguments
from mail.llm.tools import choice_name, tools_for

_CACHED: Final = {"type": "ephemeral"}


def mark_for_cache(messages: Sequence[dict[str, Any]]) -> None:
    """Mark the end of the system prompt and of the conversation; tools stand before both."""
    if not messages:
        return
    first, last = messages[0], messages[-1]
    if first.get("role") == "system":
        _mark_content(first)
    if last.get("role") == "user":
        _mark_content(last)
    elif last.get("role") == "tool":
        last["cache_control"] = dict(_CACHED)


def _mark_content(message: dict[str, Any]) -> None:
    if not message.get("content"):
        return
    if isinstance(message["content"], str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    message["content"][-1]["cache_control"] = dict(_CACHED)


_REASONING_FIELDS: Final = ("reasoning_content", "thinking_blocks")
_NOTHING: Final = "(nothing)"


def encode(request: ModelRequest, profile: Profile = UNKNOWN) -> dict[str, Any]:
    """Build the keyword arguments of a chat-completions call.

    Args:
        request: The question; nothing in it is changed or shared with the result.
        profile: The facts about the model.

    Returns:
        ``model``, ``messages`` and, as far as there is something to say, ``tools``,
        ``tool_choice``, ``max_tokens``, what asks for thinking or against it, and ``store``.
    """
    settings = request.settings
    reader = reader_of(request)
    exchanges = [_readable(one, reader) for one in conversation(request.messages, profile)]
    choice = tool_choice(request.tool_choice, request.tools)
    forced = forced_by(choice, profile) if request.tools else None
    thinking = _thinking(request, exchanges, profile, forced)
    if forced == "unless_thinking":
        forced = "auto" if thinking.asked else "ok"
    messages = _messages(request, exchanges, profile, keep_reasoning=thinking.keep)
    if profile.cache_marks:
        mark_for_cache(messages)
    wire = merged({"model": request.model, "messages": messages}, thinking.arguments)
    cap = profile.max_tokens if settings.max_tokens is None else settings.max_tokens
    if cap is not None:
        wire.setdefault("max_tokens", cap)
    if profile.store is not None:
        wire["store"] = profile.store
    if request.tools:
        wire["tools"] = tools_for(request.tools, "completions")
        _choose(wire, choice, profile, forced)
    return wire


def _readable(exchange: Said | Replied, reader: str) -> Said | Replied:
    """Return an exchange without reasoning that another provider made; older replies do not say.

    What others thought concerns no provider, and their signatures are refused.
    """
    if isinstance(exchange, Said) or exchange.wire != "completions":
        return exchange
    entry = exchange.entries[0]
    maker = entry.get(SEALED_BY)
    if maker is None:
        return exchange
    unread = () if maker == reader else _REASONING_FIELDS
    kept = {k: v for k, v in entry.items() if k != SEALED_BY and k not in unread}
    return replace(exchange, entries=(kept,))


@dataclass(frozen=True, slots=True)
class _Thinking:
    """The arguments about thinking, whether they ask for it, and whether thoughts go back."""

    arguments: Mapping[str, Any]
    asked: bool
    keep: bool


def _thinking(
    request: ModelRequest,
    exchanges: Sequence[Said | Replied],
    profile: Profile,
    forced: Forced | None,
) -> _Thinking:
    settings = request.settings
    if profile.effort_via in ("thinking_budget", "adaptive"):
        able = may_think(request.tool_choice, exchanges, profile)
        effort = thinking_arguments(settings, profile) if able else {}
        asked = bool(effort)
    else:
        effort, able = effort_arguments(settings, profile), True
        asked = settings.effort not in (None, "none")
    silent = forced == "unless_thinking" and not asked
    if forced == "off" or silent or (settings.effort == "none" and profile.off_switch):
        # What has no switch may think all the same.
        keep = profile.send_back == "always" or (silent and able and not profile.off_switch)
        return _Thinking(profile.off_switch, False, keep and profile.send_back != "never")
    if asked or profile.thinks in ("default", "always"):
        effort = merged(profile.on_switch, effort)
    return _Thinking(effort, asked, able and profile.send_back != "never")


def _choose(
    wire: dict[str, Any], choice: ToolChoice, profile: Profile, forced: Forced | None
) -> None:
    """Set the tool choice of a call, in the way that the model takes it."""
    if forced == "auto":
        choice = "auto"
    elif forced == "one" and (name := choice_name(choice)) is not None:
        wire["tools"] = [tool for tool in wire["tools"] if choice_name(tool) == name]
        choice = "required"
    if choice == "auto" and profile.omit_auto:
        return
    if profile.raw_choice:
        wire["extra_body"] = {**wire.get("extra_body", {}), "tool_choice": choice}
    else:
        wire["tool_choice"] = choice


def tool_choice(
    choice: ToolChoice, tools: Sequence[Mapping[str, Any]], *, free: bool = False
) -> ToolChoice:
    """Return a choice in the chat-completions shape; a tool not on offer becomes "any tool".

    ``free`` tells that the model must not be forced to call a tool.
    """
    if free:
        return "none" if choice == "none" else "auto"
    if isinstance(choice, str):
        return choice
    name = choice_name(choice)
    if name is None or name not in (choice_name(dict(tool)) for tool in tools):
        return "required"
    return {"type": "function", "function": {"name": name}}


def _messages(
    request: ModelRequest,
    exchanges: Sequence[Said | Replied],
    profile: Profile,
    *,
    keep_reasoning: bool,
) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for exchange in exchanges:
        if isinstance(exchange, Said):
            if profile.bridge and messages and messages[-1]["role"] == "tool":
                messages.append({"role": "assistant", "content": profile.bridge})
            messages.append(plain_copy(exchange.message))
            continue
        messages.append(_assistant(exchange, profile, keep_reasoning))
        messages.extend(tool_results(exchange))
    has_system = bool(messages) and messages[0].get("role") == "system"
    if request.system and not has_system:
        messages.insert(0, {"role": "system", "content": request.system})
    return messages


def _assistant(reply: Replied, profile: Profile, keep_reasoning: bool) -> dict[str, Any]:
    if reply.wire == "completions":
        message: dict[str, Any] = plain_copy(reply.entries[0])
    else:
        calls = [_wire_call(call) for call in reply.calls]
        message = {"role": "assistant", "content": reply.text or (None if calls else "")}
        message |= {"tool_calls": calls} if calls else {}
    if not keep_reasoning:
        for name in _REASONING_FIELDS:
            message.pop(name, None)
    elif profile.fill_reasoning and message.get("tool_calls"):
        message["reasoning_content"] = message.get("reasoning_content") or " "
    if not message.get("tool_calls"):
        message.pop("tool_calls", None)  # an empty list is refused
        message["content"] = message.get("content") or _NOTHING
    else:
        if profile.lone_calls:
            message["content"] = None
        if message.get("content") is None and not profile.null_content:
            message["content"] = ""
    return message


def tool_results(reply: Replied) -> Iterator[dict[str, Any]]:
    """Yield the results of a reply's calls as chat messages, in the order of the calls."""
    for call, result in zip(reply.calls, reply.results, strict=True):
        yield {"role": "tool", "name": call.name, "content": result, "tool_call_id": call.id}


def field_of(value: Any, name: str) -> Any:
    """Return a field of a mapping or an object, or None.

    Pydantic takes microseconds to find that a model lacks a field, and most pieces lack most.
    """
    if value is None:
        return None
    if isinstance(value, dict):
        return value.get(name)
    fields = getattr(value, "__dict__", None)
    if fields is not None and name in fields:
        return fields[name]
    extra = getattr(value, "__pydantic_extra__", None)
    if extra is not None:
        return extra.get(name)
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def decode(chunk: Any) -> Delta:
    """Read one chunk of a chat-completions stream, given as a mapping or an object."""
    return read_chunk(chunk)[0]


def read_chunk(chunk: Any) -> tuple[Delta, Mapping[str, Any]]:
    """Read one chunk; return with it the fields of the library's own delta, which may be more."""
    usage = usage_of(field_of(chunk, "usage"))
    choices = field_of(chunk, "choices")
    if not choices:
        return Delta(usage=usage), {}
    choice = fields_of(choices[0])
    piece = fields_of(choice.get("delta"))
    thinking = tuple(piece.get("thinking_blocks") or ())
    calls = piece.get("tool_calls")
    delta = Delta(
        text=piece.get("content") or piece.get("refusal") or "",
        reasoning=piece.get("reasoning_content")
        or "".join([block.get("thinking") or "" for block in thinking]),
        thinking=thinking,
        calls=tuple(_call_pieces(calls)) if calls else (),
        finish=choice.get("finish_reason"),
        usage=usage,
    )
    return delta, piece


def fields_of(value: Any) -> Mapping[str, Any]:
    """Return the fields of a mapping or an object, to look for several of them."""
    if value is None or isinstance(value, dict):
        return value or {}
    fields: dict[str, Any] = vars(value)
    extra = getattr(value, "__pydantic_extra__", None)
    return fields | extra if extra else fields


def _call_pieces(calls: Sequence[Any]) -> Iterator[CallPiece]:
    for position, call in enumerate(calls):
        function = field_of(call, "function")
        index = field_of(call, "index")
        yield CallPiece(
            index=position if index is None else index,
            id=field_of(call, "id") or "",
            name=field_of(function, "name") or "",
            arguments=field_of(function, "arguments") or "",
        )


def usage_of(usage: Any) -> Usage | None:
    """Read the usage of a call in the fields of chat completions or of the Responses API."""
    if usage is None:
        return None

    def count(holder: Any, *names: str) -> int:
        found = (field_of(holder, name) for name in names)
        return next((number for number in found if isinstance(number, int)), 0)

    prompt = count(usage, "prompt_tokens", "input_tokens")
    completion = count(usage, "completion_tokens", "output_tokens")
    total = count(usage, "total_tokens") or prompt + completion
    if not total:
        return None
    asked = field_of(usage, "prompt_tokens_details") or field_of(usage, "input_tokens_details")
    made = field_of(usage, "completion_tokens_details") or field_of(usage, "output_tokens_details")
    cost = field_of(usage, "cost")
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=total,
        cached_tokens=count(asked, "cached_tokens"),
        reasoning_tokens=count(made, "reasoning_tokens"),
        cost=float(cost) if isinstance(cost, int | float) and cost > 0 else None,
    )


def assistant_message(reply: ModelReply) -> dict[str, Any]:
    """Return the history entry of a reply: valid for the provider whatever the model wrote."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [_wire_call(call) for call in reply.calls]
    else:
        message["content"] = reply.text
    thoughts = [part for part in reply.parts if isinstance(part, Thought)]
    if any(thought.text for thought in thoughts):
        message["reasoning_content"] = "\n\n".join(t.text for t in thoughts if t.text)
    native = [plain_copy(thought.native) for thought in thoughts if thought.native]
    if native:
        message["thinking_blocks"] = native
    if reply.maker and not message.keys().isdisjoint(_REASONING_FIELDS):
        message[SEALED_BY] = reply.maker
    return message


def _wire_call(call: FunctionCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": written_arguments(call.arguments)},
    }
