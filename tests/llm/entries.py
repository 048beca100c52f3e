"""Entries of histories in all formats: chat messages, Anthropic's blocks, output items."""

from typing import Any

Entry = dict[str, Any]

USER = {"role": "user", "content": "hi"}


def called(*ids: str, **more: Any) -> Entry:
    function = {"name": "look_up", "arguments": "{}"}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(call_id: str, content: str = "SUCCESS") -> Entry:
    return {"role": "tool", "name": "look_up", "content": content, "tool_call_id": call_id}


def output(call_id: str, content: str = "SUCCESS") -> Entry:
    return {"type": "function_call_output", "call_id": call_id, "output": content}


def call_item(call_id: str, arguments: str = "{}") -> Entry:
    body = {"call_id": call_id, "name": "look_up", "arguments": arguments}
    return {"id": f"fc_{call_id}", "type": "function_call", "status": "completed", **body}


def said_item(text: str) -> Entry:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": content}


def reasoning_item(item_id: str = "rs_1") -> Entry:
    summary = [{"type": "summary_text", "text": "hm"}]
    sealed = "gAAAAABsealed"
    return {"id": item_id, "type": "reasoning", "summary": summary, "encrypted_content": sealed}


SEARCH_ITEM = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}


def use(call_id: str, **given_: Any) -> Entry:
    return {"type": "tool_use", "id": call_id, "name": "look_up", "input": given_}
