"""From deltas to a reply: the one path for streamed and plain calls."""

import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from mail.core.call_context import StreamSink
from mail.llm.request import CallPiece, Delta, ModelReply, ToolCallDraft

__all__ = ["collect"]

_REDACTED = "[redacted thinking]"


@dataclass(slots=True)
class _Call:
    reasoning: tuple[str, ...]
    preamble: str
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, piece: CallPiece) -> None:
        self.id = self.id or piece.id
        self.name = self.name or piece.name
        self.arguments.append(piece.arguments)


class _Thinking:
    """Joins the pieces of thinking blocks; a signature ends a block."""

    def __init__(self) -> None:
        self.blocks: list[Mapping[str, Any]] = []
        self._text: list[str] = []

    def add(self, piece: Mapping[str, Any]) -> bool:
        """Take a piece and tell whether a block ended with it."""
        if piece.get("type") == "redacted_thinking":
            self.blocks.append({"type": "redacted_thinking", "data": piece.get("data") or ""})
            return True
        self._text.append(piece.get("thinking") or "")
        signature = piece.get("signature")
        if not signature:
            return False
        block = {"type": "thinking", "thinking": "".join(self._text), "signature": signature}
        self.blocks.append(block)
        self._text.clear()
        return True


class _Draft:
    """A reply under way."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._preamble: list[str] = []
        self._thought: list[str] = []
        self._reasoning: list[str] = []
        self._thinking = _Thinking()
        self._calls: dict[int, _Call] = {}
        self._finish: str | None = None
        self._usage: Mapping[str, int] | None = None

    def add(self, delta: Delta) -> None:
        if delta.reasoning:
            self._thought.append(delta.reasoning)
        for block in delta.thinking:
            if self._thinking.add(block):
                self._end_thought(_REDACTED if block.get("type") == "redacted_thinking" else "")
        if delta.text:
            self._text.append(delta.text)
            self._preamble.append(delta.text)
        for piece in delta.calls:
            if piece.index not in self._calls:
                self._begin_call(piece.index)
            self._calls[piece.index].add(piece)
        self._finish = delta.finish or self._finish
        self._usage = delta.usage or self._usage

    def _end_thought(self, extra: str = "") -> None:
        thought = "".join(self._thought)
        self._thought.clear()
        self._reasoning.extend(block for block in (thought, extra) if block.strip())

    def _begin_call(self, index: int) -> None:
        self._end_thought()
        self._calls[index] = _Call(tuple(self._reasoning), "".join(self._preamble).strip())
        self._reasoning.clear()
        self._preamble.clear()

    def _drafts(self) -> tuple[ToolCallDraft, ...]:
        seen: set[str] = set()
        drafts: list[ToolCallDraft] = []
        for call in self._calls.values():
            # Some providers give no id, or the same one twice; results could not be told apart.
            call_id = call.id if call.id and call.id not in seen else f"call_{uuid.uuid4().hex}"
            seen.add(call_id)
            drafts.append(
                ToolCallDraft(
                    id=call_id,
                    name=call.name or "unnamed_tool",
                    arguments="".join(call.arguments),
                    reasoning=call.reasoning,
                    preamble=call.preamble,
                )
            )
        return tuple(drafts)

    def reply(self) -> ModelReply:
        self._end_thought()
        return ModelReply(
            text="".join(self._text),
            reasoning=tuple(self._reasoning),
            thinking=tuple(self._thinking.blocks),
            calls=self._drafts(),
            finish=self._finish,
            usage=self._usage,
        )


async def collect(deltas: AsyncGenerator[Delta, None], sink: StreamSink) -> ModelReply:
    """Read a stream to its end, pass text and reasoning to ``sink``, return the whole reply.

    Raises:
        ModelError: the call failed for good.
    """
    draft = _Draft()
    async with aclosing(deltas):
        async for delta in deltas:
            if delta.restart:
                draft = _Draft()
                sink.restart()
                continue
            draft.add(delta)
            if delta.reasoning:
                sink.reasoning(delta.reasoning)
            if delta.text:
                sink.text(delta.text)
    return draft.reply()
