"""One question, one whole reply, and the reply as an agent function returns it.

A reply that the provider broke off to go on is joined.
"""

import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from opentelemetry.trace import Span

from mail import traces
from mail.core.agents import AgentOutput
from mail.core.call_context import StreamSink, current_call
from mail.core.tools.call import AgentToolCall
from mail.core.usage import Usage
from mail.errors import AgentError, ModelError
from mail.llm import anthropic, completions
from mail.llm.anthropic import server_tool, with_results
from mail.llm.history import (
    arguments_so_far,
    parse_arguments_text,
    plain_copy,
    reader_of,
    unique_id,
)
from mail.llm.request import (
    BuiltinCall,
    BuiltinResult,
    CallPiece,
    ChatModel,
    Delta,
    FunctionCall,
    ModelReply,
    ModelRequest,
    Part,
    Speech,
    Thought,
    Wire,
)
from mail.llm.responses import history_items, marked, parts_of

_REDACTED = "[redacted thinking]"
_CUT = frozenset(
    {
        "content_filter",
        "length",
        "max_output_tokens",
        "max_tokens",
        "model_context_window_exceeded",
    }
)
"""Finish reasons of replies that were cut off."""


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
        self._ends: list[tuple[int, tuple[Mapping[str, Any], ...]]] = []
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
            if self._thought or self._signed:
                self._end_thought()
            self._said.append(delta.text)
        if delta.text_done:
            self._ends.append((len(self._said), delta.citations))
        for call in delta.calls:
            self._call(call)
        for result in delta.results:
            self._result(result)
        if delta.items:
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
        said, ends = self._said, self._ends
        self._said, self._ends = [], []
        if text := _joined(said):
            self._parts.append(Speech(text, _text_blocks(said, ends)))

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
        finished: list[Part] = []
        for part in self._parts:
            if not isinstance(part, _Call):
                finished.append(part)
                continue
            name, text = part.name, _joined(part.arguments)
            if part.builtin:
                found = self._results.get(part.id)
                finished.append(server_tool(part.id, name, text, found))
            else:
                call_id = unique_id(part.id, seen)
                finished.append(FunctionCall(call_id, name or "unnamed_tool", text))
        return finished


def _text_blocks(
    said: Sequence[str], ends: Sequence[tuple[int, tuple[Mapping[str, Any], ...]]]
) -> tuple[Mapping[str, Any], ...]:
    """Return text as blocks with their citations; nothing if there are no citations.

    Args:
        said: The pieces of the text.
        ends: After how many pieces each block ends, and its citations.
    """
    if not any(citations for _, citations in ends):
        return ()
    blocks: list[Mapping[str, Any]] = []
    begin = 0
    for end, citations in (*ends, (len(said), ())):
        text, begin = _joined(said[begin:end]), end
        block = {"type": "text", "text": text}
        if text.strip():  # others are refused
            blocks.append(block | {"citations": list(citations)} if citations else block)
    return tuple(blocks)


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
    for call in delta.calls:
        size += len(call.arguments)
    for citation in delta.citations:
        size += sum(len(value) for value in citation.values() if isinstance(value, str))
    for piece in delta.thinking:
        size += len(piece.get("thinking") or "")
    return size


async def collect(
    deltas: AsyncGenerator[Delta, None], sink: StreamSink, most: int | None = None
) -> ModelReply:
    """Read a stream to its end, pass text and reasoning to ``sink``, return the whole reply.

    Args:
        deltas: The stream.
        sink: The receiver of text and reasoning.
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
            if most is not None and (size := size + _size(delta)) > most:
                raise ModelError(
                    f"the model's reply was broken off after {most:,} bytes (max_reply_bytes)"
                )
            draft.add(delta)
            if delta.reasoning:
                sink.reasoning(delta.reasoning)
            if delta.text:
                sink.text(delta.text)
    return draft.reply()


@dataclass(frozen=True, slots=True)
class Attributed:
    """A call with what the model thought and said since the call before it."""

    call: FunctionCall | BuiltinCall
    reasoning: tuple[str, ...]
    preamble: str


def attributed(parts: Sequence[Part]) -> tuple[list[Attributed], tuple[str, ...], str]:
    """Attribute reasoning and text to calls in one pass.

    Returns:
        The calls, and the reasoning and the text after the last of them.
    """
    calls: list[Attributed] = []
    reasoning: list[str] = []
    said: list[str] = []
    for part in parts:
        match part:
            case Thought(text=text):
                if text.strip():
                    reasoning.append(text)
            case Speech(text=text):
                said.append(text)
            case FunctionCall() | BuiltinCall():
                preamble = "\n".join(text.strip() for text in said if text.strip())
                calls.append(Attributed(part, tuple(reasoning), preamble))
                reasoning.clear()
                said.clear()
            case BuiltinResult():
                pass
    return calls, tuple(reasoning), "".join(said)


_TEXT_IDS = uuid.UUID("3f2d9a55-0f6c-5c0e-9b0b-6a3b7f2d1c11")
REFUSED: Final = frozenset({"content_filter", "refusal"})
"""Finish reasons of replies that the provider withheld, or the rest of them."""


def agent_output(reply: ModelReply, step: str = "") -> AgentOutput:
    """Turn a reply into ``(text, calls)``.

    All calls share the history entries of the reply, as their ``completion`` or ``responses``. Text
    that is the answer, because no tool of the agent is called, becomes one ``text_output`` call
    behind the calls of the provider's own tools. A reply with neither gives ``(None, [])``.

    Args:
        reply: The model's whole reply.
        step: The turn; the id of a ``text_output`` call follows from it when it is given.

    Raises:
        AgentError: the provider withheld the reply.
    """
    found, reasoning, tail = attributed(reply.parts)
    if not found and not tail.strip():
        if reply.finish in REFUSED:
            raise AgentError(f"the model refused to answer ({reply.finish})")
        return None, []
    origin = history_entries(reply)
    calls = [_tool_call(one, origin) for one in found]
    answers = all(isinstance(one.call, BuiltinCall) for one in found) and bool(tail.strip())
    if answers:
        call_id = uuid.uuid5(_TEXT_IDS, step) if step else uuid.uuid4()
        text_call = AgentToolCall(
            tool_name="text_output",
            tool_args={"content": tail},
            tool_call_id=str(call_id),
            reasoning=list(reasoning) or None,
            **origin,
        )
        calls.append(text_call)
    # What was said before one of the provider's own tools is no answer when nothing follows.
    text = tail if answers else reply.text if reply.calls else ""
    return text or None, calls


def history_entries(reply: ModelReply) -> dict[str, Any]:
    """Return a reply as it goes into a history: ``completion`` or ``responses`` of its calls."""
    if reply.wire == "responses" and reply.items:
        return {"responses": plain_copy(reply.items)}
    if reply.wire == "anthropic":
        return {"completion": anthropic.assistant_message(reply)}
    return {"completion": completions.assistant_message(reply)}


def _tool_call(one: Attributed, origin: dict[str, Any]) -> AgentToolCall:
    call = one.call
    return AgentToolCall(
        tool_name=call.name,
        tool_args=(
            dict(call.shown)
            if isinstance(call, BuiltinCall)
            else parse_arguments_text(call.arguments)
        ),
        tool_call_id=call.id,
        reasoning=list(one.reasoning) or None,
        preamble=one.preamble or None,
        **origin,
    )


_ROUNDS: Final = 8

Report = Callable[[str, Usage], None]


async def ask(
    model: ChatModel, request: ModelRequest, sink: StreamSink, report: Report
) -> ModelReply:
    """Ask a model and return its whole reply.

    Anthropic ends a reply early while its own tools still work (``pause_turn``) and wants it back
    to go on; that happens here, so that nobody else sees half a reply.

    Args:
        model: The model.
        request: The question.
        sink: The receiver of text and reasoning as they stream in.
        report: Takes the model's name and what a call used, once for each call.

    Raises:
        ModelError: a call failed for good.
        AgentError: the provider's tools did not come to an end.
    """
    reply = await _one(model, request, sink, report)
    rounds = 0
    while _unfinished(reply):
        if rounds == _ROUNDS:
            raise AgentError(f"the provider's own tools did not finish within {rounds} rounds")
        rounds += 1
        so_far = [*request.messages, history_entries(reply)["completion"]]
        rest = _Rest(sink, reply.parts)
        more = await _one(model, replace(request, messages=so_far), rest, report)
        parts = with_results((*reply.parts, *more.parts))
        both = reply.usage and more.usage and reply.usage + more.usage
        usage = both or reply.usage or more.usage
        reply = replace(more, parts=parts, wire=reply.wire, usage=usage)
        if not more.parts:
            break  # it has nothing to add
    return reply


class _Rest:
    """The sink of a reply's later part: when that begins anew, what came before is told again."""

    def __init__(self, sink: StreamSink, before: Sequence[Part]) -> None:
        self._sink = sink
        self._before = before
        self.text, self.reasoning = sink.text, sink.reasoning

    def restart(self) -> None:
        """Begin anew behind the earlier parts."""
        self._sink.restart()
        for part in self._before:
            if isinstance(part, Speech):
                self._sink.text(part.text)
            elif isinstance(part, Thought):
                self._sink.reasoning(part.text)

    def without_console(self) -> StreamSink:
        """Return the same sink, silent on the console."""
        return _Rest(self._sink.without_console(), self._before)


async def _one(
    model: ChatModel, request: ModelRequest, sink: StreamSink, report: Report
) -> ModelReply:
    call, settings = current_call(), request.settings
    given = {"max_tokens": settings.max_tokens, **settings.sampling}
    with traces.chat_span(request.model, call.task_id, given) as span:
        reply = await collect(model.stream(request), sink, call.max_reply_bytes)
        if span.is_recording():
            _note(span, request, reply)
    if reply.usage is not None:
        report(request.model, reply.usage)
    maker = reader_of(request)
    return replace(reply, items=marked(reply.items, maker), maker=maker)


def _note(span: Span, request: ModelRequest, reply: ModelReply) -> None:
    """Note on the span of a model call what came of it, and what was said if that is wanted."""
    usage, finish = reply.usage, reply.finish or ""
    if finish:
        span.set_attribute("gen_ai.response.finish_reasons", [finish])
    if usage is not None:
        span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
        span.set_attribute("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens)
    if traces.wants_content(span):
        asked = [_shown(each) for each in request.messages]
        told = [{"role": "assistant", "content": reply.text}, *map(asdict, reply.calls)]
        said = [part for each in told for part in _shown(each)["parts"]]
        answer = {"role": "assistant", "parts": said, "finish_reason": finish}
        system = _shown({"content": request.system})["parts"]
        traces.add_content(
            span, system_instructions=system, input__messages=asked, output__messages=[answer]
        )


def _shown(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a history, in any of its formats, as a message of the conventions."""
    content, parts = entry.get("content"), []
    call_id = entry.get("tool_call_id") or entry.get("call_id") or entry.get("id")
    if entry.get("role") == "tool" or "output" in entry:
        answer = entry.get("output", content)
        parts = [{"type": "tool_call_response", "id": call_id, "response": answer}]
    elif "arguments" in entry:
        named = {"name": entry.get("name"), "arguments": entry["arguments"]}
        parts = [{"type": "tool_call", "id": call_id, **named}]
    elif content:
        parts = [{"type": "text", "content": content}] if isinstance(content, str) else content
    for call in entry.get("tool_calls") or ():
        parts = [*parts, *_shown({**call, **call.get("function", {})})["parts"]]
    return {"role": entry.get("role") or "assistant", "parts": parts}


def _unfinished(reply: ModelReply) -> bool:
    """Tell whether a reply just stops at one of the provider's own tools.

    The reason for the end does not say: LiteLLM passes a pause off as a normal end.
    """
    if reply.wire != "anthropic" or not reply.parts or reply.calls or reply.finish in REFUSED:
        return False
    return isinstance(reply.parts[-1], BuiltinCall | BuiltinResult)
