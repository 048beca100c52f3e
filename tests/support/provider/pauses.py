"""Turns that Anthropic paused: which steps answer the request that continues one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.provider.record import Seen
from tests.support.provider.steps import AnyStep, Held, PauseTurn
from tests.support.provider.wire import Reply
from tests.support.provider.wire_anthropic import blocks_of

__all__ = ["Pauses"]

Key = tuple[str, tuple[str, ...], str]


class Pauses:
    """Remembers the steps behind each pause.

    A paused turn is known by the messages before it, and by its built-in calls and its text so far.
    """

    def __init__(self) -> None:
        self._later: dict[Key, list[AnyStep]] = {}

    def resumed(self, seen: Seen) -> list[AnyStep] | None:
        """Return the steps that continue the turn of a request, if it has any left."""
        before, turn = _split(seen)
        return self._later.get(_key(before, turn)) if turn else None

    def until_pause(self, reply: Reply) -> Reply:
        """Return the reply up to and with its first pause; remember the rest."""
        steps = reply.steps
        at = next((at for at, step in enumerate(steps) if isinstance(step, PauseTurn)), None)
        if at is None:
            return reply
        paused = replace(reply, steps=steps[: at + 1])
        later = steps[at + 1 :]
        whole = blocks_of(replace(reply, steps=steps[:at]))
        if len(whole) > len(blocks_of(paused)):
            later = [Held(whole[-1]), *later]
        before, turn = _split(reply.seen)
        if later:
            self._later[_key(before, [*turn, *whole])] = later
        return paused


def _split(seen: Seen) -> tuple[str, list[dict[str, Any]]]:
    """Return what identifies the messages before the assistant's turn, and the turn's blocks."""
    messages = seen.messages
    turn: list[dict[str, Any]] = []
    while messages and messages[-1].get("role") == "assistant":
        content = messages.pop()["content"]
        turn = [*(content if isinstance(content, list) else ()), *turn]
    return json.dumps(_unmarked(messages), sort_keys=True), turn


def _unmarked(value: Any) -> Any:
    """Leave cache marks out, which move from request to request."""
    if isinstance(value, dict):
        return {key: _unmarked(part) for key, part in value.items() if key != "cache_control"}
    return [_unmarked(part) for part in value] if isinstance(value, list) else value


def _key(before: str, turn: Sequence[dict[str, Any]]) -> Key:
    uses = tuple(block["id"] for block in turn if block.get("type") == "server_tool_use")
    text = "".join(block["text"] for block in turn if block.get("type") == "text")
    return before, uses, "".join(text.split())
