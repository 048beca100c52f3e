"""What plain text without a tool call means (ruling 33)."""

from mail.core.addresses import create_agent_address
from mail.core.compose import Subject
from mail.core.runtime.desk import Desk
from mail.core.runtime.dispatch import TEXT_TOOL
from mail.core.runtime.draft import Draft, Reply
from mail.core.runtime.parts import Parts
from mail.core.runtime.turn import ControlKind, Reprompt, Turn
from mail.errors import AgentError, ToolError

__all__ = ["take_text"]

_NOTHING = "You returned neither a tool call nor any text. Call one of your tools."
_USE_TOOLS = (
    "You answered in plain text, which reaches nobody here. Say it with a tool: send_response or "
    "send_request to an agent, or task_complete if you may finish the task."
)


def take_text(turn: Turn, draft: Draft, reply: Reply, parts: Parts) -> None:
    """Turn text into the answer, a response or a repair turn.

    Raises:
        AgentError: the agent was asked to mend its reply already and did not.
    """
    text = _text_of(reply)
    sender = turn.envelope.sender
    finishing = turn.control is not None and turn.control.kind is ControlKind.FINISH
    if not text:
        _repair(turn, draft, _NOTHING, parts.settings.max_repairs)
    elif finishing:
        draft.completes = text
    elif sender["address_type"] == "agent":
        _respond(turn, draft, text, parts)
    elif sender["address_type"] != "system" and parts.agents[turn.agent].can_complete_tasks:
        draft.completes = text
    else:
        _repair(turn, draft, _USE_TOOLS, 1)


def _text_of(reply: Reply) -> str:
    spoken = [
        str(call.tool_args.get("content") or "")
        for call in reply.calls
        if call.tool_name == TEXT_TOOL
    ]
    return "\n".join(filter(None, spoken)) or (reply.text or "")


def _respond(turn: Turn, draft: Draft, text: str, parts: Parts) -> None:
    desk = Desk(parts, turn)
    sender = turn.envelope.sender["address"]
    try:
        target = desk.target(sender)
    except ToolError as error:
        _repair(turn, draft, f"{_USE_TOOLS} ({error})", 1)
        return
    ref = desk.answers(sender)
    subject = turn.envelope.subject
    subject = subject if subject.lower().startswith("re: ") else f"Re: {subject}"
    draft.mail.append(
        desk.compose("response", [create_agent_address(target["address"])], subject, text, ref)
    )


def _repair(turn: Turn, draft: Draft, problem: str, limit: int) -> None:
    control = turn.control
    tried = control.attempt if control and control.kind is ControlKind.REPAIR else 0
    if tried >= limit:
        raise AgentError(f"agent '{turn.agent}' gave no usable reply, even when asked again")
    draft.reprompts.append(Reprompt(Subject.TOOL_CALL_ERROR, problem, error=True))
