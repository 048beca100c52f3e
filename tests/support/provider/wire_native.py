"""Replies in formats of their own: Google's ``generateContent`` and Ollama's ``/api/chat``."""

import json
from collections.abc import Iterator
from typing import Any

from mail.llm.script import Call, Say, Think
from tests.support.provider.faults import Fault
from tests.support.provider.seals import seal
from tests.support.provider.steps import AnyStep, OutOfTokens, Refuse, arguments_of
from tests.support.provider.wire import Event, Reply, Wire, as_line, pieces

__all__ = ["GEMINI", "OLLAMA", "signatures_of"]

_STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}
_AT = "2026-11-23T00:00:00Z"


def _arguments(step: Call) -> dict[str, Any]:
    """Both formats hold arguments as an object, so broken ones come as none."""
    try:
        value = json.loads(arguments_of(step))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def signatures_of(reply: Reply) -> list[str]:
    """Return the signatures of a reply of Gemini's."""
    return [part["thoughtSignature"] for part in _parts(reply) if "thoughtSignature" in part]


def _parts(reply: Reply) -> list[dict[str, Any]]:
    """Return the parts: the first call has the signature of the thoughts before it."""
    parts: list[dict[str, Any]] = []
    signed = False
    for step in reply.steps:
        if isinstance(step, Think):
            parts.append({"text": step.text, "thought": True})
        elif isinstance(step, Say | Refuse):
            parts.append({"text": step.text})
        elif isinstance(step, Call):
            part: dict[str, Any] = {"functionCall": {"name": step.name, "args": _arguments(step)}}
            if not signed:
                part["thoughtSignature"] = seal(f"{reply.seed}/{len(parts)}")
                signed = True
            parts.append(part)
    return parts


def _google_frame(
    reply: Reply, parts: list[dict[str, Any]], finish: str | None = None
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    frame = {"candidates": [candidate], "modelVersion": reply.seen.model, "responseId": "fake"}
    if finish is None:
        return frame
    candidate["finishReason"] = finish
    tokens = reply.tokens
    usage = {
        "promptTokenCount": tokens.prompt,
        "candidatesTokenCount": tokens.written - tokens.thought,
        "thoughtsTokenCount": tokens.thought,
        "cachedContentTokenCount": tokens.cached,
        "totalTokenCount": tokens.total,
    }
    return frame | {"usageMetadata": usage}


def _google_finish(reply: Reply) -> str:
    return "MAX_TOKENS" if _is_cut(reply) else "STOP"


def _is_cut(reply: Reply) -> bool:
    return bool(reply.steps) and isinstance(reply.steps[-1], OutOfTokens)


def _google_whole(reply: Reply) -> dict[str, Any]:
    return _google_frame(reply, _parts(reply), _google_finish(reply))


def _google_events(reply: Reply) -> Iterator[Event]:
    for part in _parts(reply):
        cut = pieces(part["text"]) if "text" in part else [None]
        for piece in cut:
            said = part if piece is None else part | {"text": piece}
            yield Event(_google_frame(reply, [said]), content=True)
    yield Event(_google_frame(reply, [{"text": ""}], _google_finish(reply)))


def _google_error(status: int, message: str, named: str | None = None) -> dict[str, Any]:
    word = named or _STATUS.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    return {"error": {"code": status, "message": message, "status": word}}


def _google_broken(reply: Reply, fault: Fault, sent: int) -> Event:
    return Event(_google_error(500, fault.error_event or "", fault.code))


GEMINI = Wire(
    whole=_google_whole, events=_google_events, error=_google_error, broken=_google_broken
)


def _local_frame(reply: Reply, message: dict[str, Any]) -> dict[str, Any]:
    whole = {"role": "assistant", "content": "", **message}
    return {"model": reply.seen.model, "created_at": _AT, "message": whole, "done": False}


def _local_end(reply: Reply) -> dict[str, Any]:
    return {
        "done": True,
        "done_reason": "length" if _is_cut(reply) else "stop",
        "total_duration": 1,
        "prompt_eval_count": reply.tokens.prompt,
        "eval_count": reply.tokens.written,
    }


def _local_call(step: Call) -> dict[str, Any]:
    return {"function": {"name": step.name, "arguments": _arguments(step)}}


def _joined(steps: list[AnyStep], *kinds: type) -> str:
    return "".join(getattr(step, "text", "") for step in steps if isinstance(step, kinds))


def _local_whole(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"content": _joined(reply.steps, Say, Refuse)}
    if thought := _joined(reply.steps, Think):
        message["thinking"] = thought
    if calls := [_local_call(step) for step in reply.steps if isinstance(step, Call)]:
        message["tool_calls"] = calls
    return _local_frame(reply, message) | _local_end(reply)


def _local_events(reply: Reply) -> Iterator[Event]:
    for step in reply.steps:
        if isinstance(step, Think):
            messages = [{"thinking": piece} for piece in pieces(step.text)]
        elif isinstance(step, Say | Refuse):
            messages = [{"content": piece} for piece in pieces(step.text)]
        else:
            messages = [{"tool_calls": [_local_call(step)]}] if isinstance(step, Call) else []
        for message in messages:
            yield Event(_local_frame(reply, message), content=True)
    yield Event(_local_frame(reply, {}) | _local_end(reply))


def _local_error(status: int, message: str, named: str | None = None) -> dict[str, Any]:
    return {"error": message}


def _local_broken(reply: Reply, fault: Fault, sent: int) -> Event:
    return Event({"error": fault.error_event})


OLLAMA = Wire(
    whole=_local_whole,
    events=_local_events,
    error=_local_error,
    broken=_local_broken,
    written=as_line,
    media="application/x-ndjson",
)
