"""Replies in the format of Anthropic Messages: content blocks, whole or as a stream."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from mail.llm.script import Call, Say, Think
from tests.support.provider.faults import Fault
from tests.support.provider.seals import seal, signature
from tests.support.provider.steps import (
    AnyStep,
    Cited,
    Held,
    OutOfTokens,
    PauseTurn,
    Redacted,
    Refuse,
    RunCode,
    Search,
    arguments_of,
)
from tests.support.provider.thinking import hides, interleaves, thinks
from tests.support.provider.wire import Event, Reply, Wire, pieces

__all__ = ["ANTHROPIC", "blocks_of"]

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def blocks_of(reply: Reply) -> list[dict[str, Any]]:
    """Return the content blocks of a reply, complete, in the order of its steps.

    A pause midway leaves out the result that it holds back.
    """
    blocks = _all_blocks(reply)
    paused = reply.steps[-1] if reply.steps else None
    if isinstance(paused, PauseTurn) and paused.midway and blocks:
        return blocks[:-1] if blocks[-1]["type"].endswith("_tool_result") else blocks
    return blocks


def _all_blocks(reply: Reply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    body, headers = reply.seen.body, reply.seen.headers
    used = False
    for at, step in enumerate(reply.steps):
        if isinstance(step, Think | Redacted):
            if thinks(body) and (not used or interleaves(body, headers)):
                blocks.append(_thought(step, hidden=hides(body)))
        else:
            used = used or isinstance(step, Call | Search | RunCode)
            blocks += _blocks(reply, step, at)
    return blocks


def _thought(step: Think | Redacted, *, hidden: bool) -> dict[str, Any]:
    if isinstance(step, Redacted):
        return {"type": "redacted_thinking", "data": seal(step.text)}
    if hidden:
        return {"type": "thinking", "thinking": "", "signature": seal(step.text)}
    return {"type": "thinking", "thinking": step.text, "signature": signature(step.text)}


def _blocks(reply: Reply, step: AnyStep, at: int) -> list[dict[str, Any]]:
    if isinstance(step, Say | Refuse):
        cited = {"citations": [_source(step)]} if isinstance(step, Cited) else {}
        return [{"type": "text", "text": step.text, **cited}] if step.text else []
    if isinstance(step, Call):
        used = {"name": step.name, "input": _input(arguments_of(step))}
        return [{"type": "tool_use", "id": reply.id("toolu", at), **used}]
    if isinstance(step, Held):
        return [step.block]
    if not isinstance(step, Search | RunCode):
        return []
    use_id = reply.id("srvtoolu", at)
    name, given, kind, content = _searched(step) if isinstance(step, Search) else _ran(step)
    use = {"type": "server_tool_use", "id": use_id, "name": name, "input": given}
    return [use, {"type": kind, "tool_use_id": use_id, "content": content}]


def _source(step: Cited) -> dict[str, Any]:
    """Return where a text is from."""
    quoted = f"In full: {step.text}"
    if step.page is None:
        return {
            "type": "char_location",
            "cited_text": quoted,
            "document_index": 0,
            "document_title": None,
            "start_char_index": 0,
            "end_char_index": len(quoted),
            "file_id": None,
        }
    return {
        "type": "web_search_result_location",
        "cited_text": quoted,
        "url": step.page.url,
        "title": step.page.title,
        "encrypted_index": seal(f"{step.page.url} {quoted}"),
    }


def _input(text: str) -> Any:
    """Return the arguments as an object. Broken ones can only be streamed, so keep their text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def _searched(step: Search) -> tuple[str, dict[str, Any], str, Any]:
    found = [
        {
            "type": "web_search_result",
            "title": page.title,
            "url": page.url,
            "encrypted_content": seal(f"{page.title} {page.url}"),
            "page_age": None,
        }
        for page in step.results
    ]
    return "web_search", {"query": step.query}, "web_search_tool_result", found


def _ran(step: RunCode) -> tuple[str, dict[str, Any], str, Any]:
    name = "bash_code_execution" if step.shell else "code_execution"
    content = {
        "type": f"{name}_result",
        "stdout": step.output,
        "stderr": "",
        "return_code": 0,
        "content": [],
    }
    given = {"command" if step.shell else "code": step.code}
    return name, given, f"{name}_tool_result", content


def _stop(reply: Reply) -> str:
    if reply.steps and isinstance(reply.steps[-1], PauseTurn):
        return "pause_turn"
    if reply.steps and isinstance(reply.steps[-1], OutOfTokens):
        return "max_tokens"
    if any(isinstance(step, Refuse) for step in reply.steps):
        return "refusal"
    return "tool_use" if any(isinstance(step, Call) for step in reply.steps) else "end_turn"


def _read(reply: Reply) -> dict[str, int]:
    """Input tokens; the cache is only used where the request has marks for it."""
    tokens = reply.tokens
    if '"cache_control"' not in json.dumps(reply.seen.body):
        return {
            "input_tokens": tokens.prompt,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }
    return {
        "input_tokens": 0,
        "cache_creation_input_tokens": tokens.prompt - tokens.cached,
        "cache_read_input_tokens": tokens.cached,
    }


def _written(reply: Reply) -> dict[str, Any]:
    shown = sum(isinstance(step, Search) for step in reply.steps)
    thought = reply.tokens.thought if thinks(reply.seen.body) else 0
    usage: dict[str, Any] = {
        "output_tokens": reply.tokens.written,
        "output_tokens_details": {"thinking_tokens": thought},
    }
    if shown:
        usage["server_tool_use"] = {"web_search_requests": shown, "web_fetch_requests": 0}
    return usage


def _container(reply: Reply) -> dict[str, Any]:
    if not any(isinstance(step, RunCode) for step in reply.steps):
        return {}
    return {"container": {"id": reply.id("container"), "expires_at": "2030-01-01T00:00:00Z"}}


def _message(reply: Reply, content: Sequence[Any], usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": reply.id("msg"),
        "type": "message",
        "role": "assistant",
        "model": reply.seen.model,
        "content": list(content),
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _start_usage(reply: Reply, written: dict[str, Any]) -> dict[str, Any]:
    read = _read(reply)
    created = read["cache_creation_input_tokens"]
    stored = {"ephemeral_5m_input_tokens": created, "ephemeral_1h_input_tokens": 0}
    return {**read, "cache_creation": stored, **written, "service_tier": "standard"}


def _whole(reply: Reply) -> dict[str, Any]:
    blocks = [
        block | {"input": {}} if isinstance(block.get("input"), str) else block
        for block in blocks_of(reply)
    ]
    message = _message(reply, blocks, _start_usage(reply, _written(reply)))
    return message | {"stop_reason": _stop(reply)} | _container(reply)


def _events(reply: Reply) -> Iterator[Event]:
    start = _message(reply, [], _start_usage(reply, {"output_tokens": 1}))
    yield _event("message_start", message=start)
    for index, block in enumerate(blocks_of(reply)):
        begun, deltas = _spelled(block)
        yield _event("content_block_start", index=index, content_block=begun)
        if index == 0:
            yield _event("ping")
        for kind, key, text in deltas:
            delta = {"type": kind, key: text}
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    stopped = {"stop_reason": _stop(reply), "stop_sequence": None, **_container(reply)}
    yield _event("message_delta", delta=stopped, usage={**_read(reply), **_written(reply)})
    yield _event("message_stop")


def _event(kind: str, **data: Any) -> Event:
    return Event({"type": kind, **data}, kind, content=kind == "content_block_delta")


def _spelled(block: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str, Any]]]:
    """Return a block as it begins, and its deltas: type, key and piece."""
    kind = block["type"]
    if kind == "text":
        said = [("text_delta", "text", piece) for piece in pieces(block["text"])]
        if "citations" not in block:
            return block | {"text": ""}, said
        sources = [("citations_delta", "citation", source) for source in block["citations"]]
        return block | {"text": "", "citations": []}, [*sources, *said]
    if kind == "thinking":
        deltas = [("thinking_delta", "thinking", piece) for piece in pieces(block["thinking"])]
        signed = ("signature_delta", "signature", block["signature"])
        return block | {"thinking": "", "signature": ""}, [*deltas, signed]
    if kind in ("tool_use", "server_tool_use"):
        given = block["input"]
        text = given if isinstance(given, str) else json.dumps(given)
        parts = ["", *pieces("" if text == "{}" else text, 16)]
        return block | {"input": {}}, [("input_json_delta", "partial_json", p) for p in parts]
    return block, []


def _error(status: int, message: str, named: str | None = None) -> dict[str, Any]:
    kind = _ERRORS.get(status, "api_error" if status >= 500 else _ERRORS[400])
    return {
        "type": "error",
        "error": {"type": named or kind, "message": message},
        "request_id": "req_fake",
    }


def _broken(reply: Reply, fault: Fault, sent: int) -> Event:
    kind = fault.code or "overloaded_error"
    error = {"type": kind, "message": fault.error_event or "Overloaded"}
    return _event("error", error=error)


ANTHROPIC = Wire(whole=_whole, events=_events, error=_error, broken=_broken)
