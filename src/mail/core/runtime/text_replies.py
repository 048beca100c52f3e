"""What plain text without a tool call means (MAIL-TURN-11 to 13)."""

from mail.core.addresses import create_agent_address
from mail.core.compose import Subject
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.handlers import ToolContext
from mail.core.runtime.tool_dispatch import TEXT_TOOL
from mail.core.runtime.turn import ControlKind, Origin, Turn
from mail.core.runtime.turn_result import Reply, Reprompt, TurnResult
from mail.errors import AgentError, ToolError

__all__ = ["take_text"]

_NOTHING = "You returned neither a tool call nor any text. Call one of your tools."
_USE_TOOLS = (
    "You answered in plain text, which is not delivered to anyone here. Use a "
    "tool: send_response or "
    "send_request to an agent, or task_complete if you may finish the task."
)
_YOUR_REQUEST = "your request"
_SPEAK = "Your tool calls were executed. Now give your answer in plain text."


def take_text(turn: Turn, turn_result: TurnResult, reply: Reply, context: RuntimeContext) -> None:
    """Turn text into the answer, a response or a repair turn.

    Raises:
        AgentError: the agent was asked to mend its reply already and did not.
    """
    text = _text_of(reply)
    asker = _asker(turn)
    if turn.manual is not None:
        _speak(turn, turn_result, text, context)
        return
    if not text:
        _repair(turn, turn_result, _NOTHING, context.settings.max_repairs)
    elif turn.finishing:
        turn_result.completes = text
    elif asker is not None and asker.address_type == "agent":
        _respond(turn, turn_result, text, asker.address, context)
    elif asker is not None and context.agents[turn.agent].can_complete_tasks:
        turn_result.completes = text
    else:
        _repair(turn, turn_result, _USE_TOOLS, 1)


def _speak(turn: Turn, turn_result: TurnResult, text: str, context: RuntimeContext) -> None:
    """End a manual step: the words go where its driver said, and nowhere else."""
    step = turn.manual
    if step is None or not text:
        _repair(turn, turn_result, _SPEAK, context.settings.max_repairs)
        return
    tools = ToolContext(context, turn)
    to = [create_agent_address(name) for name in step.targets]
    if step.response_type == "broadcast":
        spoken = [tools.compose("broadcast", to, "", text)]
    else:
        answering = step.response_type == "response"
        spoken = [
            tools.compose(
                step.response_type,
                [address],
                "",
                text,
                tools.answers(address["address"]) if answering else None,
            )
            for address in to
        ]
    turn_result.mail.extend(spoken)
    turn_result.spoken = spoken[0]


def _asker(turn: Turn) -> Origin | None:
    """Return whom text answers: the sender, after a breakpoint whoever the agent worked for then.

    Mail of the system is answered by nobody's text.
    """
    resumed = turn.control is not None and turn.control.kind is ControlKind.RESUME
    return turn.origin if resumed or turn.envelope.sender["address_type"] != "system" else None


def _text_of(reply: Reply) -> str:
    spoken = [
        str(call.tool_args.get("content") or "")
        for call in reply.calls
        if call.tool_name == TEXT_TOOL
    ]
    return "\n".join(filter(None, spoken)) or (reply.text or "")


def _respond(
    turn: Turn, turn_result: TurnResult, text: str, sender: str, context: RuntimeContext
) -> None:
    tools = ToolContext(context, turn)
    try:
        target = tools.target(sender)
    except ToolError as error:
        _repair(turn, turn_result, f"{_USE_TOOLS} ({error})", 1)
        return
    ref = tools.answers(sender)
    # A resumed agent's mail is the system's; what was asked of it came in an earlier turn.
    own = turn.envelope.sender["address_type"] != "system"
    subject = turn.envelope.subject if own else _YOUR_REQUEST
    subject = subject if subject.lower().startswith("re: ") else f"Re: {subject}"
    turn_result.mail.append(
        tools.compose("response", [create_agent_address(target["address"])], subject, text, ref)
    )


def _repair(turn: Turn, turn_result: TurnResult, problem: str, limit: int) -> None:
    control = turn.control
    tried = control.attempt if control and control.kind is ControlKind.REPAIR else 0
    if tried >= limit:
        raise AgentError(f"agent '{turn.agent}' gave no usable reply, even when asked again")
    turn_result.reprompts.append(Reprompt(Subject.TOOL_CALL_ERROR, problem, error=True))
