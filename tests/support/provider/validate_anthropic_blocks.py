"""What Anthropic refuses of single messages: their roles, the shapes of their blocks, seals."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.provider.seals import is_sealed, signature

__all__ = ["message_problems"]

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
_USE = {"type", "id", "name", "input", "cache_control", "caller"}
_RESULT = {"type", "tool_use_id", "content", "cache_control", "caller"}
_SOURCE = {"type", "source", "cache_control", "citations", "context", "title"}
_USER = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": _SOURCE,
    "document": _SOURCE,
    "tool_result": _RESULT | {"is_error"},
}
_CITED = {"type", "cited_text"}
_DOCUMENT = _CITED | {"document_index", "document_title"}
# What is missing here, as ``file_id``, stands in replies, and is refused all the same:
# https://github.com/langchain-ai/langchain/pull/32592
_CITATIONS = {
    "char_location": _DOCUMENT | {"start_char_index", "end_char_index"},
    "page_location": _DOCUMENT | {"start_page_number", "end_page_number"},
    "content_block_location": _DOCUMENT | {"start_block_index", "end_block_index"},
    "web_search_result_location": _CITED | {"url", "title", "encrypted_index"},
    "search_result_location": _CITED
    | {"search_result_index", "source", "title", "start_block_index", "end_block_index"},
}
_ASSISTANT = {
    "text": {"type", "text", "cache_control", "citations"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": _USE,
    "server_tool_use": _USE,
    "web_search_tool_result": _RESULT,
    "web_fetch_tool_result": _RESULT,
    "code_execution_tool_result": _RESULT,
    "bash_code_execution_tool_result": _RESULT,
    "text_editor_code_execution_tool_result": _RESULT,
}


def message_problems(messages: Sequence[Any]) -> Iterator[str]:
    """Yield what is wrong with messages, each by itself, and with the order of their roles."""
    before = "assistant"
    for at, message in enumerate(messages):
        where = f"messages.{at}"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant"):
            yield f"{where}: role must be 'user' or 'assistant'"
            continue
        for key in message.keys() - {"role", "content"}:
            yield f"{where}.{key}: Extra inputs are not permitted"
        if role == before:
            yield f"{where}: roles must alternate between 'user' and 'assistant', 'user' first"
        before = role
        yield from _content_problems(message.get("content"), role, where)
    yield from _id_problems(messages)
    yield from _ending_problems(messages)


def _content_problems(content: Any, role: str, where: str) -> Iterator[str]:
    if isinstance(content, str):
        if not content.strip():
            yield f"{where}: text content blocks must contain non-whitespace text"
        return
    if not isinstance(content, list) or not content:
        yield f"{where}: all messages must have non-empty content"
        return
    known = _USER if role == "user" else _ASSISTANT
    for place, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in known:
            yield f"{where}.content.{place}: '{kind}' is no block of role '{role}'"
            continue
        for key in block.keys() - known[kind]:
            yield f"{where}.content.{place}.{kind}.{key}: Extra inputs are not permitted"
        yield from (f"{where}.content.{place}: {problem}" for problem in _block_problems(block))
    if kind in ("thinking", "redacted_thinking"):
        yield f"{where}: The final block in an assistant message cannot be `thinking`."


def _block_problems(block: dict[str, Any]) -> Iterator[str]:
    kind = block["type"]
    if kind == "text":
        if not isinstance(block.get("text"), str) or not block["text"].strip():
            yield "text content blocks must contain non-whitespace text"
        yield from _citation_problems(block.get("citations") or [])
    elif kind == "thinking":
        hidden = block.get("thinking") == "" and is_sealed(block.get("signature"))
        if not hidden and block.get("signature") != signature(str(block.get("thinking"))):
            yield "Invalid `signature` in `thinking` block"
    elif kind == "redacted_thinking":
        if not is_sealed(block.get("data")):
            yield "Invalid `data` in `redacted_thinking` block"
    elif kind in ("tool_use", "server_tool_use"):
        yield from _use_problems(block)
    elif kind == "web_search_tool_result":
        yield from _found_problems(block.get("content"))
    elif kind == "tool_result":
        yield from _result_problems(block.get("content"))


def _citation_problems(citations: list[Any]) -> Iterator[str]:
    for at, citation in enumerate(citations):
        kind = citation.get("type") if isinstance(citation, dict) else None
        if kind not in _CITATIONS:
            yield f"text.citations.{at}: '{kind}' is no citation"
            continue
        where = f"text.citations.{at}.{kind}"
        for key in citation.keys() - _CITATIONS[kind]:
            yield f"{where}.{key}: Extra inputs are not permitted"
        for key in _CITATIONS[kind] - citation.keys():
            yield f"{where}.{key}: Field required"
        sealed = f"{citation.get('url')} {citation.get('cited_text')}"
        if "encrypted_index" in citation and not is_sealed(citation["encrypted_index"], sealed):
            yield f"{where}: Invalid `encrypted_index`"


def _use_problems(block: dict[str, Any]) -> Iterator[str]:
    pattern = _ID if block["type"] == "tool_use" else _SERVER_ID
    if not pattern.fullmatch(str(block.get("id") or "")):
        yield f"{block['type']}.id: String should match pattern '^{pattern.pattern}$'"
    if not _NAME.fullmatch(str(block.get("name") or "")):
        yield f"{block['type']}.name: String should match pattern '^{_NAME.pattern}$'"
    if not isinstance(block.get("input"), dict):
        yield f"{block['type']}.input: Input should be an object"


def _found_problems(found: Any) -> Iterator[str]:
    for page in _dicts(found):
        sealed = f"{page.get('title')} {page.get('url')}"
        if not is_sealed(page.get("encrypted_content"), sealed):
            yield "Invalid `encrypted_content` in `search_result` block"


def _result_problems(content: Any) -> Iterator[str]:
    for part in _dicts(content):
        empty = part.get("type") == "text" and not part.get("text")
        if part.get("type") not in ("text", "image", "document", "search_result") or empty:
            yield f"tool_result.content: '{part.get('type')}' is empty or not allowed here"
    if not isinstance(content, str | list | None):
        yield "tool_result.content: must be a string or a list of blocks"


def _dicts(parts: Any) -> list[dict[str, Any]]:
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _id_problems(messages: Sequence[Any]) -> Iterator[str]:
    ids: set[Any] = set()
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and "id" in block:
                if block["id"] in ids:
                    yield f"`tool_use` ids must be unique: '{block['id']}'"
                ids.add(block["id"])


def _ending_problems(messages: Sequence[Any]) -> Iterator[str]:
    last = messages[-1]
    if not isinstance(last, dict) or last.get("role") != "assistant":
        return
    content = last.get("content")
    text = content if isinstance(content, str) else None
    if isinstance(content, list) and content and isinstance(content[-1], dict):
        text = content[-1].get("text")
    if isinstance(text, str) and text != text.rstrip():
        yield "final assistant content cannot end with trailing whitespace"
