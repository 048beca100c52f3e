"""Requests of every wire format, translated to what scripts read: a chat-style conversation."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mail.llm.script_view import ScriptView

__all__ = ["Conversation", "WireName", "claude_body", "conversation_of", "messages_of", "text_of"]

WireName = Literal["completions", "responses", "anthropic", "gemini", "ollama", "bedrock"]

_SYSTEM = ("system", "developer")
_ANY = {"any": "required"}
_LONGEST_REPLY = 64_000
"""What a model may write at Bedrock if the request does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A request as a chat. ``messages`` leave the system prompt out where it is ``system``."""

    messages: Sequence[Mapping[str, Any]]
    system: str
    tools: Sequence[str]
    choice: str | dict[str, Any]

    def view(self, model: str) -> ScriptView:
        """Return what a script sees."""
        return ScriptView(
            self.messages,
            system=self.system,
            model=model,
            tools=self.tools,
            tool_choice=self.choice,
        )


def messages_of(wire: WireName, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a request as they were sent: messages, or input items."""
    if wire == "responses":
        given = body.get("input")
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
    else:
        given = body.get("contents" if wire == "gemini" else "messages")
    entries = given if isinstance(given, list) else ()
    return [entry for entry in entries if isinstance(entry, dict)]


def conversation_of(wire: WireName, body: Mapping[str, Any]) -> Conversation:
    """Translate the body of a request; what makes no sense is left out."""
    if wire == "bedrock":
        wire, body = "anthropic", claude_body(body, "")
    entries = messages_of(wire, body)
    messages = entries if wire == "completions" else list(_READERS[wire](entries))
    return Conversation(
        messages=messages,
        system=_system(wire, body, entries),
        tools=[name for tool in _tools(body) if (name := _tool_name(tool))],
        choice=_google_choice(body) if wire == "gemini" else _choice(body.get("tool_choice")),
    )


def claude_body(body: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return a request of Bedrock's Converse as the one of Anthropic's that it stands for.

    What belongs to other models than Claude (``additionalModelRequestFields``) is left out.
    """
    inference = body.get("inferenceConfig") or {}
    made: dict[str, Any] = {
        "model": model,
        "max_tokens": inference.get("maxTokens", _LONGEST_REPLY),
        "messages": [
            {"role": message.get("role"), "content": _claude_blocks(message.get("content"))}
            for message in messages_of("bedrock", body)
        ],
    }
    if body.get("system"):
        made["system"] = _claude_blocks(body["system"])
    config = body.get("toolConfig") or {}
    if config.get("tools"):
        made["tools"] = _claude_blocks(config["tools"])
    if config.get("toolChoice"):
        kind, given = next(iter(config["toolChoice"].items()))
        made["tool_choice"] = {"type": kind, **given}
    if "claude" in model:
        extra = dict(body.get("additionalModelRequestFields") or {})
        extra.pop("anthropic_beta", None)
        made |= extra
    return made


def _claude_blocks(blocks: Any) -> list[dict[str, Any]]:
    """Return blocks of Converse as Anthropic's; a point for the cache marks the one before it."""
    made: list[dict[str, Any]] = []
    for block in blocks or ():
        kind, given = next(iter(block.items()))
        if kind == "cachePoint" and made:
            made[-1]["cache_control"] = {"type": "ephemeral"}
        else:
            made.append(_claude_block(kind, given))
    return made


def _claude_block(kind: str, given: Any) -> dict[str, Any]:
    if kind == "text":
        return {"type": "text", "text": given}
    if kind == "toolSpec":
        schema = given["inputSchema"]["json"]
        described = {"description": given["description"]} if "description" in given else {}
        return {"name": given["name"], **described, "input_schema": schema}
    if kind == "toolUse":
        called = {"name": given["name"], "input": given["input"]}
        return {"type": "tool_use", "id": given["toolUseId"], **called}
    if kind == "toolResult":
        content = _claude_blocks(given["content"])
        return {"type": "tool_result", "tool_use_id": given["toolUseId"], "content": content}
    return _claude_thought(given) if kind == "reasoningContent" else {"type": kind}


def _claude_thought(given: Mapping[str, Any]) -> dict[str, Any]:
    if "redactedContent" in given:
        data = base64.b64decode(given["redactedContent"]).decode()
        return {"type": "redacted_thinking", "data": data}
    thought = given["reasoningText"]
    return {"type": "thinking", "thinking": thought["text"], "signature": thought.get("signature")}


def text_of(content: Any) -> str:
    """Return the text of a content: itself, or what its parts say."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _system(wire: WireName, body: Mapping[str, Any], entries: Sequence[dict[str, Any]]) -> str:
    if wire == "anthropic":
        given = body.get("system")
        if isinstance(given, list):
            return "\n\n".join(text_of([block]) for block in given)
        return text_of(given)
    if wire == "gemini":
        return text_of(_either(body, "systemInstruction", "system_instruction").get("parts"))
    if wire == "responses" and body.get("instructions"):
        return str(body["instructions"])
    if entries and entries[0].get("role") in _SYSTEM:
        return text_of(entries[0].get("content"))
    return ""


def _tool_name(tool: Any) -> str | None:
    if not isinstance(tool, dict):
        return None
    nested = tool.get("function")
    name = nested.get("name") if isinstance(nested, dict) else tool.get("name")
    return str(name or tool.get("type") or "") or None


def _tools(body: Mapping[str, Any]) -> Iterator[Any]:
    for tool in body.get("tools") or ():
        declared = isinstance(tool, dict) and (
            tool.get("functionDeclarations") or tool.get("function_declarations")
        )
        yield from declared or [tool]


def _either(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the object with one of the names: Google takes both ways to write them."""
    found = next((body[name] for name in names if isinstance(body.get(name), dict)), {})
    return dict(found)


def _google_choice(body: Mapping[str, Any]) -> str | dict[str, Any]:
    config = _either(body, "toolConfig", "tool_config")
    config = _either(config, "functionCallingConfig", "function_calling_config")
    names = config.get("allowedFunctionNames") or config.get("allowed_function_names") or ()
    if config.get("mode") != "ANY":
        return str(config.get("mode", "auto")).lower()
    return {"type": "function", "function": {"name": names[0]}} if len(names) == 1 else "required"


def _choice(given: Any) -> str | dict[str, Any]:
    if isinstance(given, dict):
        kind = given.get("type")
        if kind in ("auto", "any", "none"):
            return _ANY.get(kind, str(kind))
        return given
    return given or "auto"


def _called(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _of_items(items: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every item of the model's, be it a thought, is a message of the assistant."""
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            yield {"role": item.get("role"), "content": item.get("content")}
        elif kind == "function_call_output":
            content = {"content": text_of(item.get("output")), "tool_call_id": item.get("call_id")}
            yield {"role": "tool", **content}
        elif kind == "function_call":
            call = _called(item.get("call_id"), item.get("name"), item.get("arguments"))
            yield {"role": "assistant", "content": None, "tool_calls": [call]}
        else:
            yield {"role": "assistant", "content": None}


def _of_blocks(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Clients join what several wrote before a reply, so each text of a user is a message."""
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        blocks = [block for block in content or () if isinstance(block, dict)]
        if message.get("role") == "assistant":
            yield _assistant(blocks)
            continue
        for block in blocks:
            if block.get("type") == "tool_result":
                text = text_of(block.get("content"))
                yield {"role": "tool", "content": text, "tool_call_id": block.get("tool_use_id")}
            else:
                yield {"role": message.get("role"), "content": text_of([block])}


def _assistant(blocks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    calls = [
        _called(block.get("id"), block.get("name"), block.get("input"))
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    message = {"role": "assistant", "content": text_of(list(blocks))}
    return message | ({"tool_calls": calls} if calls else {})


def _of_contents(contents: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Gemini's turns; its calls need no ids, so results are known by their order."""
    waiting: list[str] = []
    for at, content in enumerate(contents):
        parts = [part for part in content.get("parts") or () if isinstance(part, dict)]
        if content.get("role") == "model":
            calls = []
            for part in parts:
                called = _either(part, "functionCall", "function_call")
                if called:
                    waiting.append(f"{at}/{len(calls)}")
                    calls.append(_called(waiting[-1], called.get("name"), called.get("args")))
            text = text_of([part for part in parts if not part.get("thought")])
            yield {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
            continue
        for part in parts:
            if answer := _either(part, "functionResponse", "function_response"):
                text = str(answer.get("response", {}).get("content", answer.get("response")))
                call_id = waiting.pop(0) if waiting else ""
                yield {"role": "tool", "content": text, "tool_call_id": call_id}
            else:
                yield {"role": "user", "content": text_of([part])}


def _of_local(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Ollama's messages; its calls have no ids, so results are known by their order."""
    waiting: list[str] = []
    for at, message in enumerate(messages):
        if message.get("role") == "tool":
            call_id = waiting.pop(0) if waiting else ""
            yield {"role": "tool", "content": message.get("content"), "tool_call_id": call_id}
        elif message.get("tool_calls"):
            calls = []
            for place, call in enumerate(message["tool_calls"]):
                waiting.append(f"{at}/{place}")
                called = call.get("function") or {}
                calls.append(_called(waiting[-1], called.get("name"), called.get("arguments")))
            yield {"role": "assistant", "content": message.get("content"), "tool_calls": calls}
        else:
            yield message


_READERS = {
    "responses": _of_items,
    "anthropic": _of_blocks,
    "gemini": _of_contents,
    "ollama": _of_local,
}
