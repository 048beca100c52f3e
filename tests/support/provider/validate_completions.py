"""What OpenAI refuses of a chat-completions request."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["OPENAI", "Dialect", "problems_of", "strict_problems"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEYS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "refusal"},
    "tool": {"role", "content", "name", "tool_call_id"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a provider takes beside OpenAI's: keys of assistant messages, and tool choices."""

    keys: frozenset[str] = frozenset()
    choices: frozenset[str] = frozenset()


OPENAI = Dialect()


def problems_of(body: Mapping[str, Any], dialect: Dialect = OPENAI) -> list[str]:
    """Return what is wrong with the body of a chat-completions request.

    Args:
        body: The request.
        dialect: How the provider differs from OpenAI.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["'messages' must be a list with at least one entry"]
    if not isinstance(body.get("model"), str):
        return ["'model' must be a string"]
    return [
        *_message_problems(messages, dialect.keys),
        *_pairing_problems(messages),
        *_tool_problems(body.get("tools")),
        *_choice_problems(body.get("tool_choice"), body.get("tools") or [], dialect.choices),
    ]


def _message_problems(messages: Sequence[Any], keys: frozenset[str]) -> Iterator[str]:
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        if not isinstance(message, dict) or message.get("role") not in _KEYS:
            yield f"{where}: no message with a known role"
            continue
        role = message["role"]
        known = _KEYS[role] | (keys if role == "assistant" else frozenset())
        for key in message.keys() - known:
            yield f"{where}: unknown parameter '{key}' for role '{role}'"
        if role == "assistant" and message.get("tool_calls"):
            yield from _call_problems(message["tool_calls"], where)
        elif not _is_content(message.get("content"), empty=role in ("assistant", "tool")):
            yield f"{where}: 'content' must be a string for role '{role}'"
        if role == "system" and at > 0:
            yield f"{where}: a system message must be the first"


def _is_content(content: Any, *, empty: bool) -> bool:
    if isinstance(content, str):
        return empty or bool(content.strip())
    return isinstance(content, list) and bool(content)


def _call_problems(calls: Any, where: str) -> Iterator[str]:
    ids = [call.get("id") for call in calls]
    if not all(ids) or len(set(ids)) < len(ids):
        yield f"{where}: tool calls need different ids"
    for call in calls:
        function = call.get("function") or {}
        if call.get("type") != "function" or not _NAME.fullmatch(function.get("name") or ""):
            yield f"{where}: tool call '{call.get('id')}' names no function"
        try:
            arguments = json.loads(function.get("arguments"))
        except (TypeError, ValueError):
            arguments = None
        if not isinstance(arguments, dict):
            yield f"{where}: the arguments of '{call.get('id')}' are no JSON object"


def _pairing_problems(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    waiting: list[str] = []
    for at, message in enumerate(messages):
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id in waiting:
                waiting.remove(call_id)
            else:
                yield f"messages[{at}]: a tool result must follow the call '{call_id}'"
            continue
        if waiting:
            yield f"messages[{at}]: tool calls {waiting} have no results before this message"
        waiting = [call.get("id") for call in message.get("tool_calls") or ()]
    if waiting:
        yield f"tool calls {waiting} have no results"


def _tool_problems(tools: Any) -> Iterator[str]:
    if tools is None:
        return
    if not isinstance(tools, list) or not tools:
        yield "'tools' must be a list with at least one tool"
        return
    names: list[str] = []
    for at, tool in enumerate(tools):
        function = tool.get("function") if tool.get("type") == "function" else None
        if not isinstance(function, dict) or not _NAME.fullmatch(function.get("name") or ""):
            yield f"tools[{at}]: no function with a name"
            continue
        names.append(function["name"])
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        if schema.get("type") != "object":
            yield f"tools[{at}]: 'parameters' must be an object schema"
        if function.get("strict"):
            yield from (f"tools[{at}]: {problem}" for problem in strict_problems(schema))
    for name in {name for name in names if names.count(name) > 1}:
        yield f"two tools are named '{name}'"


def strict_problems(schema: Any, path: str = "$") -> Iterator[str]:
    """Yield what a strict schema may not be."""
    if isinstance(schema, list):
        for at, item in enumerate(schema):
            yield from strict_problems(item, f"{path}[{at}]")
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object" and "properties" in schema:
        if schema.get("additionalProperties") is not False:
            yield f"{path}: a strict schema needs additionalProperties: false"
        if set(schema.get("required") or ()) != set(schema["properties"]):
            yield f"{path}: a strict schema must require every property"
    for key, value in schema.items():
        yield from strict_problems(value, f"{path}.{key}")


def _choice_problems(
    choice: Any, tools: Sequence[dict[str, Any]], more: frozenset[str]
) -> Iterator[str]:
    if choice is None:
        return
    if not tools:
        yield "'tool_choice' is only allowed with 'tools'"
    elif isinstance(choice, dict):
        name = (choice.get("function") or {}).get("name")
        if choice.get("type") != "function" or name is None:
            yield "'tool_choice' must name a function: {type, function: {name}}"
        elif name not in [(tool.get("function") or {}).get("name") for tool in tools]:
            yield f"'tool_choice' names the tool '{name}', which is not offered"
    elif choice not in {"auto", "none", "required", *more}:
        yield f"'tool_choice' is '{choice}'"
