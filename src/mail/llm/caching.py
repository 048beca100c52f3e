"""Marks for the provider's cache, in LiteLLM's chat messages."""

from collections.abc import Sequence
from typing import Any, Final

__all__ = ["mark_for_cache"]

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
