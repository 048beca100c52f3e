"""From deltas to a reply: the one path for streamed and plain calls."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mail.core.call_context import StreamSink
from mail.errors import ModelError
from mail.llm.anthropic import server_tool
from mail.llm.history import arguments_so_far, unique_id
from mail.llm.request import (
    BuiltinResult,
    CallPiece,
    Delta,
    FunctionCall,
    ModelReply,
    Part,
    Speech,
    Thought,
    Wire,
)
from mail.llm.responses import history_items, parts_of

if TYPE_CHECKING:
    from mail.core.usage import Usage

__all__ = ["collect"]

_REDACTED = "[redacted thinking]"
_CUT = frozenset({"content_filter", "length", "max_output_tokens", "max_tokens"})
"""Why a reply ends that the model had not finished."""


@dataclass(slots=True)
class _Call:
    """A call under way, at its place among the parts."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    builtin: bool = False

    def add(self, piece: CallPiece) -> None:
        self.id = self.id or piece.id
        self.name = self.name or piece.name
        self.builtin = self.builtin or piece.builtin
        self.arguments.append(piece.arguments)

    def cut(self) -> None:
        """End here, where the reply was cut off."""
        if not self.builtin:
            self.arguments = [arguments_so_far("".join(self.arguments))]


class _Draft:
    """A reply under way."""

    def __init__(self) -> None:
        self._parts: list[Part | _Call] = []
        self._calls: dict[int, _Call] = {}
        self._said: list[str] = []
        self._thought: list[str] = []
        self._signed: list[str] = []
        self._results: dict[str, Mapping[str, Any]] = {}
        self._items: dict[int, Any] = {}
        self._wire: Wire = "completions"
        self._finish: str | None = None
        self._usage: Usage | None = None

    def add(self, delta: Delta) -> None:
        if delta.reasoning:
            self._end_speech()
            self._thought.append(delta.reasoning)
        for piece in delta.thinking:
            self._think(piece)
        if delta.reasoning_done:
            self._end_thought()
        if delta.text:
            self._end_thought()
            self._said.append(delta.text)
        for call in delta.calls:
            self._call(call)
        for result in delta.results:
            self._result(result)
        self._items.update(delta.items)
        self._wire = delta.wire or self._wire
        self._finish = delta.finish or self._finish
        self._usage = delta.usage or self._usage

    def _think(self, piece: Mapping[str, Any]) -> None:
        """Take a piece of a provider's own thinking; its signature ends a block."""
        if piece.get("type") == "redacted_thinking":
            self._end_thought()
            self._end_speech()
            block = {"type": "redacted_thinking", "data": piece.get("data") or ""}
            self._parts.append(Thought(_REDACTED, block))
            return
        self._signed.append(piece.get("thinking") or "")
        if signature := piece.get("signature"):
            text = _joined(self._signed) or _joined(self._thought)
            self._signed.clear()
            self._thought.clear()
            self._end_speech()
            block = {"type": "thinking", "thinking": text, "signature": signature}
            self._parts.append(Thought(text, block))

    def _end_thought(self) -> None:
        if not (self._thought or self._signed):
            return
        text = _joined(self._thought)
        self._signed.clear()
        self._thought.clear()
        if text.strip():
            self._parts.append(Thought(text))

    def _end_speech(self) -> None:
        if not self._said:
            return
        text = _joined(self._said)
        self._said.clear()
        if text:
            self._parts.append(Speech(text))

    def _call(self, piece: CallPiece) -> None:
        call = self._calls.get(piece.index)
        # Some providers give every call the same index.
        if call is None or (piece.name and call.id and piece.id not in ("", call.id)):
            self._end_thought()
            self._end_speech()
            call = self._calls[piece.index] = _Call()
            self._parts.append(call)
        call.add(piece)

    def _result(self, block: Mapping[str, Any]) -> None:
        """Take what a provider's tool found; streams repeat the earlier ones."""
        call_id = str(block.get("tool_use_id") or "")
        if call_id not in self._results:
            self._end_thought()
            self._end_speech()
            self._results[call_id] = block
            self._parts.append(BuiltinResult(block))

    def reply(self) -> ModelReply:
        self._end_thought()
        self._end_speech()
        cut = self._finish in _CUT
        if cut and self._parts and isinstance(last := self._parts[-1], _Call):
            last.cut()
        items = history_items(self._items, cut=cut)
        parts = parts_of(items, *self._streamed()) if items else tuple(self._finished())
        return ModelReply(
            parts=parts,
            items=items,
            wire=self._wire,
            finish=self._finish,
            usage=self._usage,
        )

    def _streamed(self) -> tuple[dict[str, list[str]], list[str]]:
        """Return the reasoning that came before each call, by the call's id, and the rest."""
        before: dict[str, list[str]] = {}
        pending: list[str] = []
        for part in self._parts:
            if isinstance(part, Thought):
                pending.append(part.text)
            elif isinstance(part, _Call):
                before.setdefault(part.id, pending)
                pending = []
        return before, pending

    def _finished(self) -> list[Part]:
        seen: set[str] = set()
        return [
            self._finished_call(part, seen) if isinstance(part, _Call) else part
            for part in self._parts
        ]

    def _finished_call(self, call: _Call, seen: set[str]) -> Part:
        arguments = _joined(call.arguments)
        if call.builtin:
            return server_tool(call.id, call.name, arguments, self._results.get(call.id))
        return FunctionCall(unique_id(call.id, seen), call.name or "unnamed_tool", arguments)


def _joined(pieces: Sequence[str]) -> str:
    """Join the pieces of a text; halves of a character that came apart become one."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _size(delta: Delta) -> int:
    """Return how many characters a piece of a reply adds, or a few less."""
    size = len(delta.text) + len(delta.reasoning)
    size += sum(len(piece.arguments) for piece in delta.calls)
    return size + sum(len(piece.get("thinking") or "") for piece in delta.thinking)


async def collect(
    deltas: AsyncGenerator[Delta, None], sink: StreamSink, most: int | None = None
) -> ModelReply:
    """Read a stream to its end, pass text and reasoning to ``sink``, return the whole reply.

    Args:
        deltas: The stream.
        sink: Where text and reasoning go.
        most: A reply with more characters is broken off; None for no limit.

    Raises:
        ModelError: the call failed for good, or the reply is too long.
    """
    draft, size = _Draft(), 0
    async with aclosing(deltas):
        async for delta in deltas:
            if delta.restart:
                draft, size = _Draft(), 0
                sink.restart()
                continue
            size += _size(delta)
            if most is not None and size > most:
                raise ModelError(
                    f"the model's reply was broken off after {most:,} bytes (max_reply_bytes)"
                )
            draft.add(delta)
            if delta.reasoning:
                sink.reasoning(delta.reasoning)
            if delta.text:
                sink.text(delta.text)
    return draft.reply()
