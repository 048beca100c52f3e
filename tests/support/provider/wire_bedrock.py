"""Bedrock's Converse: requests as those of Anthropic's inside, replies in Amazon's event stream.

What a request must look like is what Amazon's own client checks before it sends one, and the
events are those of https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html,
in the frames of https://smithy.io/2.0/aws/amazon-eventstream.html.
"""

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from tests.support.provider.faults import Fault
from tests.support.provider.inbound import claude_body
from tests.support.provider.record import Seen
from tests.support.provider.steps import OutOfTokens, Refuse
from tests.support.provider.wire import Event, Reply, Wire, pieces
from tests.support.provider.wire_anthropic import blocks_of

__all__ = ["BEDROCK", "hosted_request", "unfit"]

_TEXT = 7  # the type of a header's value


def unfit(seen: Seen) -> str:
    """Return what makes a request none of Converse's; nothing if it is one."""
    from botocore.validate import ParamValidator

    given = {"modelId": seen.model, **seen.body}
    return str(ParamValidator().validate(given, _request_shape()).generate_report())


@cache
def _request_shape() -> Any:
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    described = Loader().load_service_model("bedrock-runtime", "service-2")
    return ServiceModel(described).operation_model("ConverseStream").input_shape


def hosted_request(seen: Seen) -> Seen:
    """Return the request that the model behind Bedrock gets."""
    beta = (seen.body.get("additionalModelRequestFields") or {}).get("anthropic_beta") or ()
    headers = {"anthropic-version": "bedrock-2023-05-31", "anthropic-beta": ",".join(beta)}
    return replace(seen, wire="anthropic", body=claude_body(seen.body, seen.model), headers=headers)


def _written(event: Event) -> bytes:
    """Return an event in its frame: lengths, headers, payload, and checksums of both halves."""
    name = event.name or ""
    kind = "exception" if name.endswith("Exception") else "event"
    named = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    headers = b"".join(map(_header, named, named.values()))
    payload = json.dumps(event.data).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))


def _header(name: str, value: str) -> bytes:
    parts = struct.pack("!B", len(name)), name.encode(), struct.pack("!BH", _TEXT, len(value))
    return b"".join(parts) + value.encode()


def _content(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block of Anthropic's as it stands in a whole reply."""
    if block["type"] == "thinking":
        thought = {"text": block["thinking"], "signature": block["signature"]}
        return {"reasoningContent": {"reasoningText": thought}}
    if block["type"] == "redacted_thinking":
        return {"reasoningContent": {"redactedContent": _sealed(block)}}
    if block["type"] == "tool_use":
        given = block["input"] if isinstance(block["input"], dict) else {}
        used = {"toolUseId": block["id"], "name": block["name"], "input": given}
        return {"toolUse": used}
    return {"text": block["text"]}


def _sealed(block: dict[str, Any]) -> str:
    return base64.b64encode(block["data"].encode()).decode()


def _stop(reply: Reply) -> str:
    if reply.steps and isinstance(reply.steps[-1], OutOfTokens):
        return "max_tokens"
    if any(isinstance(step, Refuse) for step in reply.steps):
        return "content_filtered"
    return "tool_use" if any(b["type"] == "tool_use" for b in blocks_of(reply)) else "end_turn"


def _metadata(reply: Reply) -> dict[str, Any]:
    tokens = reply.tokens
    cached = tokens.cached if '"cache_control"' in json.dumps(reply.seen.body) else 0
    usage = {
        "inputTokens": tokens.prompt - cached,
        "outputTokens": tokens.written,
        "totalTokens": tokens.prompt + tokens.written,
        "cacheReadInputTokens": cached,
        "cacheWriteInputTokens": 0,
    }
    return {"usage": usage, "metrics": {"latencyMs": 1}}


def _whole(reply: Reply) -> dict[str, Any]:
    content = [_content(block) for block in blocks_of(reply)]
    message = {"role": "assistant", "content": content}
    return {"output": {"message": message}, "stopReason": _stop(reply), **_metadata(reply)}


def _events(reply: Reply) -> Iterator[Event]:
    yield Event({"role": "assistant"}, "messageStart")
    for index, block in enumerate(blocks_of(reply)):
        at = {"contentBlockIndex": index}
        if block["type"] == "tool_use":
            used = {"toolUseId": block["id"], "name": block["name"]}
            yield Event({**at, "start": {"toolUse": used}}, "contentBlockStart")
        for delta in _deltas(block):
            yield Event({**at, "delta": delta}, "contentBlockDelta", content=True)
        yield Event(at, "contentBlockStop")
    yield Event({"stopReason": _stop(reply)}, "messageStop")
    yield Event(_metadata(reply), "metadata")


def _deltas(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if block["type"] == "thinking":
        for piece in pieces(block["thinking"]):
            yield {"reasoningContent": {"text": piece}}
        yield {"reasoningContent": {"signature": block["signature"]}}
    elif block["type"] == "tool_use":
        given = block["input"]
        text = given if isinstance(given, str) else json.dumps(given)
        for piece in pieces(text, 16):
            yield {"toolUse": {"input": piece}}
    elif block["type"] == "text":
        for piece in pieces(block["text"]):
            yield {"text": piece}
    else:
        yield _content(block)


def _error(status: int, message: str, named: str | None = None) -> dict[str, Any]:
    return {"message": message}


def _broken(reply: Reply, fault: Fault, sent: int) -> Event:
    return Event({"message": fault.error_event}, fault.code or "modelStreamErrorException")


BEDROCK = Wire(
    whole=_whole,
    events=_events,
    error=_error,
    broken=_broken,
    written=_written,
    media="application/vnd.amazon.eventstream",
)
