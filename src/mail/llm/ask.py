"""One question, one whole reply, and the reply as an agent function returns it.

A reply that the provider broke off to go on is joined.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mail.core.agents import AgentOutput
from mail.core.call_context import StreamSink, current_call
from mail.core.tools.call import AgentToolCall
from mail.core.usage import Usage
from mail.errors import AgentError
from mail.llm import anthropic, completions
from mail.llm.accumulate import collect
from mail.llm.anthropic import with_results
from mail.llm.history import parse_arguments_text, plain_copy
from mail.llm.request import (
    BuiltinCall,
    BuiltinResult,
    ChatModel,
    FunctionCall,
    ModelReply,
    ModelRequest,
    Part,
    Speech,
    Thought,
)

__all__ = ["REFUSED", "Attributed", "agent_output", "ask", "attributed", "history_entries"]


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
"""Why a reply ends that the provider withheld, or the rest of it."""


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
        sink: Where text and reasoning go as they stream in.
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
        reply = replace(more, parts=parts, wire=reply.wire, usage=_sum(reply, more))
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
    reply = await collect(model.stream(request), sink, current_call().max_reply_bytes)
    if reply.usage is not None:
        report(request.model, reply.usage)
    return reply


def _unfinished(reply: ModelReply) -> bool:
    """Tell whether a reply just stops at one of the provider's own tools.

    The reason for the end does not say: LiteLLM passes a pause off as a normal end.
    """
    if reply.wire != "anthropic" or not reply.parts or reply.calls or reply.finish in REFUSED:
        return False
    return isinstance(reply.parts[-1], BuiltinCall | BuiltinResult)


def _sum(reply: ModelReply, more: ModelReply) -> Usage | None:
    if reply.usage is None or more.usage is None:
        return reply.usage or more.usage
    return reply.usage + more.usage
