"""Blocks of Anthropic's replies, and how LiteLLM sends a request with them."""

import copy
from collections.abc import Mapping
from typing import Any

from mail.llm.settings import LLMSettings
from tests.llm.streams import library

USER = {"role": "user", "content": "hi"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
HIDDEN = {"type": "redacted_thinking", "data": "d"}
SAID = {"type": "text", "text": "Well."}
USE = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"word": "ü"}}
RESULT = {"role": "tool", "name": "look_up", "content": "SUCCESS", "tool_call_id": "t1"}
SERVER_USE = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "q"},
}
PAGES = [{"type": "web_search_result", "title": "T", "url": "https://t", "encrypted_content": "e"}]
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": PAGES}
LOW = LLMSettings.resolve("low")


def replied(*blocks: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def sent(wire: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages as LiteLLM puts them on the wire to Anthropic."""
    library()
    from litellm.litellm_core_utils.prompt_templates.factory import anthropic_messages_pt

    messages = [m for m in copy.deepcopy(wire["messages"]) if m["role"] != "system"]
    found: list[dict[str, Any]] = anthropic_messages_pt(messages, "claude", "anthropic")
    return found
