"""A model's reply as an agent function returns it."""

import uuid
from typing import Any

from mail.core.agents import AgentOutput
from mail.core.tools.call import AgentToolCall
from mail.llm.completions import assistant_message, parse_arguments_text
from mail.llm.request import ModelReply, ToolCallDraft

__all__ = ["agent_output"]

_TEXT_IDS = uuid.UUID("3f2d9a55-0f6c-5c0e-9b0b-6a3b7f2d1c11")


def agent_output(reply: ModelReply, step: str = "") -> AgentOutput:
    """Turn a reply into ``(text, calls)``.

    All calls share the assistant message as their ``completion``. A reply of text alone becomes
    one ``text_output`` call; a reply with neither gives ``(None, [])``.

    Args:
        reply: The model's whole reply.
        step: The turn; the id of a ``text_output`` call follows from it when it is given.
    """
    if not reply.calls and not reply.text.strip():
        return None, []
    message = assistant_message(reply)
    if reply.calls:
        return reply.text or None, [_tool_call(call, message) for call in reply.calls]
    call_id = uuid.uuid5(_TEXT_IDS, step) if step else uuid.uuid4()
    text_call = AgentToolCall(
        tool_name="text_output",
        tool_args={"content": reply.text},
        tool_call_id=str(call_id),
        completion=message,
        reasoning=list(reply.reasoning) or None,
    )
    return reply.text, [text_call]


def _tool_call(call: ToolCallDraft, message: dict[str, Any]) -> AgentToolCall:
    return AgentToolCall(
        tool_name=call.name,
        tool_args=parse_arguments_text(call.arguments),
        tool_call_id=call.id,
        completion=message,
        reasoning=list(call.reasoning) or None,
        preamble=call.preamble or None,
    )
