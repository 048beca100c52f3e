"""One question, one whole reply: a reply that the provider broke off to go on is joined."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from mail.core.call_context import StreamSink
from mail.core.usage import Usage
from mail.errors import AgentError
from mail.llm.accumulate import collect
from mail.llm.anthropic import with_results
from mail.llm.output import REFUSED, history_entries
from mail.llm.request import (
    BuiltinCall,
    BuiltinResult,
    ChatModel,
    ModelReply,
    ModelRequest,
    Part,
    Speech,
    Thought,
)

__all__ = ["ask"]

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
    reply = await collect(model.stream(request), sink)
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
