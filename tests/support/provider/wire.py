"""Replies in the format of OpenAI chat completions, whole or as a stream of events."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from mail.llm.script import Call, Say, Step, Think
from mail.llm.scripted import call_id, words

__all__ = ["cut_arguments", "events_of", "whole_reply"]


def _arguments(step: Call) -> str:
    return step.arguments if isinstance(step.arguments, str) else json.dumps(step.arguments)


def cut_arguments(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with the last call's arguments broken off in the middle."""
    cut = list(steps)
    for at in range(len(cut) - 1, -1, -1):
        step = cut[at]
        if isinstance(step, Call):
            text = _arguments(step)
            cut[at] = Call(step.name, text[: max(1, len(text) // 2)])
            break
    return cut


def _tool_call(step: Call, seed: str, index: int) -> dict[str, Any]:
    function = {"name": step.name, "arguments": _arguments(step)}
    return {"id": call_id(seed, index), "type": "function", "function": function}


def _usage(steps: Sequence[Step], prompt: int) -> dict[str, int]:
    written = sum(
        len(words(_arguments(step) if isinstance(step, Call) else step.text))
        for step in steps
        if isinstance(step, Call | Say | Think)
    )
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
    }


def _frame(model: str, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-fake",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": choices,
    }


def whole_reply(steps: Sequence[Step], model: str, seed: str, prompt: int) -> dict[str, Any]:
    """Return the body of a plain reply."""
    calls = [step for step in steps if isinstance(step, Call)]
    text = "".join(step.text for step in steps if isinstance(step, Say))
    thought = "".join(step.text for step in steps if isinstance(step, Think))
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [_tool_call(step, seed, at) for at, step in enumerate(calls)]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return _frame(model, "chat.completion", [choice]) | {"usage": _usage(steps, prompt)}


def _deltas(steps: Sequence[Step], seed: str) -> Iterator[dict[str, Any]]:
    index = 0
    for step in steps:
        if isinstance(step, Say):
            yield from ({"content": word} for word in words(step.text))
        elif isinstance(step, Think):
            yield from ({"reasoning_content": word} for word in words(step.text))
        elif isinstance(step, Call):
            whole = _tool_call(step, seed, index)
            text = whole["function"].pop("arguments")
            whole["function"]["arguments"] = ""
            yield {"tool_calls": [{"index": index, **whole}]}
            for start in range(0, len(text), 16):
                piece = {"arguments": text[start : start + 16]}
                yield {"tool_calls": [{"index": index, "function": piece}]}
            index += 1


def events_of(
    steps: Sequence[Step], model: str, seed: str, prompt: int, *, usage: bool
) -> Iterator[dict[str, Any]]:
    """Yield the events of a streamed reply."""

    def event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _frame(model, "chat.completion.chunk", [choice])

    yield event({"role": "assistant", "content": ""})
    for delta in _deltas(steps, seed):
        yield event(delta)
    called = any(isinstance(step, Call) for step in steps)
    yield event({}, "tool_calls" if called else "stop")
    if usage:
        frame = _frame(model, "chat.completion.chunk", [])
        yield frame | {"usage": _usage(steps, prompt)}
