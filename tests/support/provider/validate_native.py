"""What Google and Ollama refuse of requests in their own formats, whatever the model."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.provider.inbound import WireName

__all__ = ["problems_of"]


def problems_of(body: Mapping[str, Any], wire: WireName) -> list[str]:
    """Return what is wrong with the body of a request."""
    name = "contents" if wire == "gemini" else "messages"
    entries = body.get(name)
    if not isinstance(entries, list) or not entries:
        return [f"{name} is not specified"]
    return list(_contents(entries) if wire == "gemini" else _messages(entries))


def _contents(contents: Sequence[Any]) -> Iterator[str]:
    for at, content in enumerate(contents):
        parts = content.get("parts") if isinstance(content, dict) else None
        if not isinstance(parts, list) or not parts:
            yield f"contents[{at}].parts must not be empty."
        elif content.get("role") not in ("user", "model"):
            yield "Please use a valid role: user, model."
        elif any(part.get("text") == "" for part in parts):
            yield f"contents[{at}].parts: required oneof field 'data' must have one field"


def _messages(messages: Sequence[Any]) -> Iterator[str]:
    for at, message in enumerate(messages):
        if message.get("role") not in ("system", "user", "assistant", "tool"):
            yield f"messages[{at}]: invalid role"
        if not isinstance(message.get("content", ""), str):
            yield f"json: cannot unmarshal into messages[{at}].content of type string"
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"].get("arguments"), dict):
                given = json.dumps(call["function"].get("arguments"))
                yield f"json: cannot unmarshal {given[:40]} into tool_calls.function.arguments"
