"""Replies in the format of OpenAI Responses: output items, and the events that spell them out."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from mail.llm.script import Call, Say, Think
from mail.llm.scripted import call_id
from tests.support.provider.faults import Fault
from tests.support.provider.seals import seal
from tests.support.provider.steps import AnyStep, OutOfTokens, Refuse, RunCode, Search, arguments_of
from tests.support.provider.wire import Event, Reply, Wire, openai_error
from tests.support.provider.wire_responses_events import events_of_items

__all__ = ["RESPONSES", "items_of"]


def items_of(reply: Reply) -> list[dict[str, Any]]:
    """Return the output items of a reply, complete, in the order of its steps."""
    items: list[dict[str, Any]] = []
    calls = 0
    for step in reply.steps:
        item = _item(reply, step, len(items), calls)
        if item is not None:
            items.append(item)
            calls += isinstance(step, Call)
    if _is_cut(reply) and items and items[-1].get("status"):
        items[-1]["status"] = "incomplete"
    return items


def _is_cut(reply: Reply) -> bool:
    return bool(reply.steps) and isinstance(reply.steps[-1], OutOfTokens)


def _item(reply: Reply, step: AnyStep, at: int, calls: int) -> dict[str, Any] | None:
    if isinstance(step, Think):
        return _reasoning(reply, step, at)
    if isinstance(step, Say) and step.text:
        return _message(reply, {"type": "output_text", **_text(step.text)}, at)
    if isinstance(step, Refuse):
        return _message(reply, {"type": "refusal", "refusal": step.text}, at)
    if isinstance(step, Call):
        return {
            "id": reply.id("fc", at),
            "type": "function_call",
            "status": "completed",
            "arguments": arguments_of(step),
            "call_id": call_id(reply.seed, calls),
            "name": step.name,
        }
    if isinstance(step, Search):
        return _search(reply, step, at)
    return _code(reply, step, at) if isinstance(step, RunCode) else None


def _text(text: str) -> dict[str, Any]:
    return {"annotations": [], "logprobs": [], "text": text}


def _message(reply: Reply, part: dict[str, Any], at: int) -> dict[str, Any]:
    return {
        "id": reply.id("msg", at),
        "type": "message",
        "status": "completed",
        "content": [part],
        "role": "assistant",
    }


def _included(reply: Reply, what: str) -> bool:
    return what in (reply.seen.body.get("include") or ())


def _reasoning(reply: Reply, step: Think, at: int) -> dict[str, Any]:
    """Without a request for a summary there is none; encrypted content only comes when asked."""
    wanted = (reply.seen.body.get("reasoning") or {}).get("summary")
    parts = step.text.split("\n\n") if wanted else []
    item = {
        "id": reply.id("rs", at),
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": part} for part in parts],
    }
    if _included(reply, "reasoning.encrypted_content"):
        item["encrypted_content"] = seal(f"{item['id']}/{step.text}")
    return item


def _search(reply: Reply, step: Search, at: int) -> dict[str, Any]:
    action: dict[str, Any] = {"type": "search", "query": step.query}
    if _included(reply, "web_search_call.action.sources"):
        action["sources"] = [{"type": "url", "url": found.url} for found in step.results]
    return {
        "id": reply.id("ws", at),
        "type": "web_search_call",
        "status": "completed",
        "action": action,
    }


def _code(reply: Reply, step: RunCode, at: int) -> dict[str, Any]:
    """Outputs only come when they are asked for."""
    outputs = [{"type": "logs", "logs": step.output}]
    return {
        "id": reply.id("ci", at),
        "type": "code_interpreter_call",
        "status": "completed",
        "code": step.code,
        "container_id": reply.id("cntr"),
        "outputs": outputs if _included(reply, "code_interpreter_call.outputs") else None,
    }


def _usage(reply: Reply) -> dict[str, Any]:
    tokens = reply.tokens
    return {
        "input_tokens": tokens.prompt,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
        "output_tokens": tokens.written,
        "output_tokens_details": {"reasoning_tokens": tokens.thought},
        "total_tokens": tokens.total,
    }


def _response(reply: Reply, status: str, output: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the response object, which repeats what was asked for."""
    body = reply.seen.body
    reasoning = body.get("reasoning") or {}
    return {
        "id": reply.id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": None,
        "model": reply.seen.model,
        "output": list(output),
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "safety_identifier": None,
        "service_tier": "default",
        "store": body.get("store", True),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(reply) if status in ("completed", "incomplete") else None,
        "user": None,
        "metadata": body.get("metadata") or {},
    }


def _ended(reply: Reply, output: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not _is_cut(reply):
        return _response(reply, "completed", output)
    why = {"incomplete_details": {"reason": "max_output_tokens"}}
    return _response(reply, "incomplete", output) | why


def _whole(reply: Reply) -> dict[str, Any]:
    return _ended(reply, items_of(reply))


def _events(reply: Reply) -> Iterator[Event]:
    """Yield a stream; its last event leaves the reasoning items out, as OpenAI's does."""
    items = items_of(reply)
    ended = _ended(reply, [item for item in items if item["type"] != "reasoning"])
    frames = [
        ("response.created", {"response": _response(reply, "in_progress", [])}),
        ("response.in_progress", {"response": _response(reply, "in_progress", [])}),
        *events_of_items(items, reply.seed, whole_calls=reply.traits.whole_calls),
        (f"response.{ended['status']}", {"response": ended}),
    ]
    for number, (kind, data) in enumerate(frames):
        numbered = {"type": kind, "sequence_number": number, **data}
        yield Event(numbered, kind, content=kind.endswith(".delta"))


def _broken(reply: Reply, fault: Fault, sent: int) -> Event:
    error: dict[str, Any] = {"code": fault.code or "server_error", "message": fault.error_event}
    if fault.failed:
        kind = "response.failed"
        data = {"response": _response(reply, "failed", []) | {"error": error}}
    elif fault.flat:
        kind, data = "error", {**error, "param": None}
    else:
        kind = "error"
        data = {"error": {"type": error["code"], **error, "param": None}}
    return Event({"type": kind, "sequence_number": sent, **data}, kind)


RESPONSES = Wire(whole=_whole, events=_events, error=openai_error, broken=_broken)
