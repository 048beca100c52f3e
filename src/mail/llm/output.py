"""A model's reply as an agent function returns it."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mail.core.agents import AgentOutput
from mail.core.tools.call import AgentToolCall
from mail.errors import AgentError
from mail.llm import anthropic, completions
from mail.llm.history import parse_arguments_text, plain_copy
from mail.llm.request import (
    BuiltinCall,
    BuiltinResult,
    FunctionCall,
    ModelReply,
    Part,
    Speech,
    Thought,
)

__all__ = ["REFUSED", "Attributed", "agent_output", "attributed", "history_entries"]


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
