"""await_message: the agent has nothing more to say until mail arrives."""

from mail.core.compose import Subject
from mail.core.runtime.tool_context import Desk
from mail.core.runtime.turn import ControlKind, EventDraft, Outcome, Reprompt
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import AwaitArgs, parse_arguments

__all__ = ["handle_await"]


async def handle_await(desk: Desk, call: AgentToolCall) -> Outcome:
    """End the turn quietly, unless nothing can ever arrive (ruling 34).

    An agent that insists after it was told so may wait: a stalled task is the finisher's affair.
    """
    args = parse_arguments(call.tool_name, call.tool_args, AwaitArgs)
    control = desk.turn.control
    told = control is not None and control.kind is ControlKind.REPAIR
    if not (told or desk.can_expect_mail()):
        problem = (
            "no message can arrive: the task's message queue is empty, no agent is at work on it "
            "and no request is open"
        )
        body = f"You called await_message, but {problem}. Send a message or finish the task."
        return Outcome(
            ok=False,
            details=problem,
            reprompt=Reprompt(Subject.TOOL_CALL_ERROR, body, error=True),
            events=(
                EventDraft(
                    "agent_error",
                    f"agent {desk.name} called await_message but {problem}",
                    {"caller": desk.name},
                ),
            ),
        )
    reason = {"reason": args.reason} if args.reason else {}
    event = EventDraft(
        "await_message",
        f"agent '{desk.name}' is awaiting a new message"
        + (f": {args.reason}" if args.reason else ""),
        {"caller": desk.name, **reason},
    )
    details = "waiting for a new message" + (f" (reason: '{args.reason}')" if args.reason else "")
    return Outcome(details=details, events=(event,))
