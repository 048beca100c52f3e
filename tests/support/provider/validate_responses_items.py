"""What OpenAI refuses of the single items of a Responses input."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.provider.seals import is_sealed

__all__ = ["item_problems"]

_CALL = {"type", "id", "status"}
_KEYS = {
    "message": {"type", "role", "content", "id", "status", "phase"},
    "function_call": _CALL | {"call_id", "name", "arguments", "caller", "namespace"},
    "function_call_output": _CALL | {"call_id", "output", "caller"},
    "reasoning": _CALL | {"summary", "content", "encrypted_content"},
    "web_search_call": _CALL | {"action"},
    "code_interpreter_call": _CALL | {"code", "container_id", "outputs"},
    "file_search_call": _CALL | {"queries", "results"},
    "image_generation_call": _CALL
    | {"result", "background", "output_format", "quality", "revised_prompt", "size"},
    "mcp_call": _CALL
    | {"arguments", "name", "server_label", "output", "error", "approval_request_id"},
    "mcp_list_tools": _CALL | {"server_label", "tools", "error"},
    "item_reference": {"type", "id"},
}
_NEEDED = {
    "message": {"role", "content"},
    "function_call": {"call_id", "name", "arguments"},
    "function_call_output": {"call_id", "output"},
    "reasoning": {"id", "summary"},
    "web_search_call": {"id", "status"},
    "code_interpreter_call": {"id", "code", "container_id"},
    "item_reference": {"id"},
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PREFIX = {
    "message": "msg",
    "function_call": "fc",
    "reasoning": "rs",
    "web_search_call": "ws",
    "code_interpreter_call": "ci",
}
_INPUT_PARTS = {"input_text": "text", "input_image": None, "input_file": None}
_OUTPUT_PARTS = {"output_text": "text", "refusal": "refusal"}
_STATUS = ("in_progress", "searching", "interpreting", "completed", "incomplete", "failed")


def item_problems(items: Sequence[Any]) -> Iterator[str]:
    """Yield what is wrong with items, each by itself, and with their ids."""
    ids: set[Any] = set()
    for at, item in enumerate(items):
        where = f"input[{at}]"
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind not in _KEYS:
            yield f"Invalid value: '{kind}' for '{where}.type'"
            continue
        yield from (f"{where}: {problem}" for problem in _one(item, kind))
        if item.get("id") in ids and kind != "item_reference":
            yield f"{where}: Duplicate item found with id {item['id']}"
        ids |= {item["id"]} if item.get("id") else set()


def _one(item: dict[str, Any], kind: str) -> Iterator[str]:
    for key in item.keys() - _KEYS[kind]:
        yield f"Unknown parameter: '{key}'."
    missing = _NEEDED.get(kind, {"id"}) - item.keys()
    for key in missing:
        yield f"Missing required parameter: '{key}'."
    if missing:
        return
    if "status" in item and item["status"] not in _STATUS:
        yield f"Invalid value: '{item['status']}' for 'status'"
    prefix = _PREFIX.get(kind)
    if prefix and item.get("id") is not None and not str(item["id"]).startswith(prefix):
        yield f"Invalid 'id': '{item['id']}'. Expected an ID that begins with '{prefix}'."
    if kind == "message":
        yield from _message_problems(item)
    elif kind == "function_call":
        yield from _function_problems(item)
    elif kind == "function_call_output":
        yield from _part_problems(item["output"], _INPUT_PARTS)
    elif kind == "reasoning":
        yield from _reasoning_problems(item)


def _message_problems(item: dict[str, Any]) -> Iterator[str]:
    role = item["role"]
    if role not in ("user", "assistant", "system", "developer"):
        yield f"Invalid value: '{role}' for 'role'"
        return
    parts = _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS
    yield from _part_problems(item["content"], parts)


def _part_problems(content: Any, known: dict[str, Any]) -> Iterator[str]:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield "Invalid type: expected text or a list of parts"
        return
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in known:
            yield f"Invalid value: '{kind}' in part {at}. Supported values are: {list(known)}"
        elif known[kind] and not isinstance(part.get(known[kind]), str):
            yield f"Missing required parameter: '{known[kind]}' of part {at}"


def _function_problems(item: dict[str, Any]) -> Iterator[str]:
    if not _NAME.fullmatch(str(item["name"])):
        yield f"Invalid 'name': string does not match pattern '^{_NAME.pattern}$'."
    try:
        json.loads(item["arguments"])
    except (TypeError, ValueError):
        yield f"the arguments of '{item['call_id']}' are no JSON text"


def _reasoning_problems(item: dict[str, Any]) -> Iterator[str]:
    summary = item["summary"]
    if not isinstance(summary, list) or any(
        not isinstance(part, dict) or part.get("type") != "summary_text" for part in summary
    ):
        yield "Invalid 'summary': expected a list of summary_text parts"
    sealed = item.get("encrypted_content")
    if sealed is not None and not is_sealed(sealed):
        yield f"The encrypted content for item {item['id']} could not be verified."
