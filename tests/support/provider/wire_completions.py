"""Replies in the format of OpenAI chat completions."""

import hashlib
import time
from collections.abc import Iterator
from typing import Any

from mail.llm.script import Call, Say, Think
from mail.llm.scripted import call_id
from tests.support.provider.faults import Fault
from tests.support.provider.steps import OutOfTokens, Refuse, arguments_of
from tests.support.provider.tokens import Tokens
from tests.support.provider.wire import Event, Reply, Wire, noise, openai_error, pieces

__all__ = ["COMPLETIONS"]


def _tool_call(step: Call, reply: Reply, index: int) -> dict[str, Any]:
    function = {"name": step.name, "arguments": arguments_of(step)}
    made = call_id(reply.seed, index)
    if reply.traits.ids == "nine":
        made = hashlib.sha256(made.encode()).hexdigest()[:9]
    return {"id": made, "type": "function", "function": function}


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.written,
        "total_tokens": tokens.total,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": tokens.thought,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _frame(reply: Reply, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-fake",
        "object": kind,
        "created": int(time.time()),
        "model": reply.seen.model,
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
        "choices": choices,
    }


def _chunk(
    reply: Reply, choices: list[dict[str, Any]], usage: dict[str, Any] | None
) -> dict[str, Any]:
    counted = {"usage": usage} if reply.counted else {}
    frame = _frame(reply, "chat.completion.chunk", choices)
    return frame | counted | {"obfuscation": noise(reply.seed, str(choices))}


def _finish(reply: Reply) -> str:
    if reply.steps and isinstance(reply.steps[-1], OutOfTokens):
        return "length"
    return "tool_calls" if any(isinstance(step, Call) for step in reply.steps) else "stop"


def _whole(reply: Reply) -> dict[str, Any]:
    calls = [step for step in reply.steps if isinstance(step, Call)]
    text = "".join(step.text for step in reply.steps if isinstance(step, Say))
    thought = "".join(step.text for step in reply.steps if isinstance(step, Think))
    refusal = "".join(step.text for step in reply.steps if isinstance(step, Refuse))
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    message |= {"refusal": refusal or None, "annotations": []}
    if thought:
        message[reply.traits.thoughts] = thought
    if calls:
        message["tool_calls"] = [_tool_call(step, reply, at) for at, step in enumerate(calls)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
    return _frame(reply, "chat.completion", [choice]) | {"usage": _usage(reply.tokens)}


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    index = 0
    for step in reply.steps:
        if isinstance(step, Say):
            yield from ({"content": word} for word in pieces(step.text))
        elif isinstance(step, Refuse):
            yield from ({"refusal": word} for word in pieces(step.text))
        elif isinstance(step, Think):
            yield from ({reply.traits.thoughts: word} for word in pieces(step.text))
        elif isinstance(step, Call):
            whole = _tool_call(step, reply, index)
            if reply.traits.whole_calls:
                yield {"tool_calls": [{"index": index, **whole}]}
                index += 1
                continue
            text = whole["function"].pop("arguments")
            whole["function"]["arguments"] = ""
            yield {"tool_calls": [{"index": index, **whole}]}
            for piece in pieces(text, 16):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            index += 1


def _events(reply: Reply) -> Iterator[Event]:
    def event(delta: dict[str, Any], finish: str | None = None, *, content: bool = False) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return Event(_chunk(reply, [choice], None), content=content)

    said = any(isinstance(step, Say) for step in reply.steps)
    yield event({"role": "assistant", "content": "" if said else None, "refusal": None})
    for delta in _deltas(reply):
        yield event(delta, content=True)
    yield event({}, _finish(reply))
    if reply.counted:
        yield Event(_chunk(reply, [], _usage(reply.tokens)))


def _broken(reply: Reply, fault: Fault, sent: int) -> Event:
    error = {"message": fault.error_event, "code": fault.code or 500}
    return Event({"error": error | ({"type": fault.code} if fault.code else {})})


COMPLETIONS = Wire(
    whole=_whole, events=_events, error=openai_error, broken=_broken, done=b"data: [DONE]\n\n"
)
