"""send_request, send_response, send_interrupt, send_broadcast."""

from mail.core.addresses import MAIL_ALL_LOCAL_AGENTS
from mail.core.runtime.policy import local_recipients
from mail.core.runtime.tool_context import Desk
from mail.core.runtime.turn import Outcome
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import BroadcastArgs, SendArgs, parse_arguments
from mail.errors import ToolError

__all__ = ["handle_broadcast", "handle_interrupt", "handle_request", "handle_response"]

_SENT = "message sent"


def _arguments(call: AgentToolCall) -> SendArgs:
    return parse_arguments(call.tool_name, call.tool_args, SendArgs)


async def handle_request(desk: Desk, call: AgentToolCall) -> Outcome:
    """Ask another agent for something."""
    args = _arguments(call)
    mail = desk.compose("request", [desk.target(args.target)], args.subject, args.body)
    return Outcome(details=_SENT, mail=(mail,))


async def handle_response(desk: Desk, call: AgentToolCall) -> Outcome:
    """Answer another agent; the newest open request of that agent is the one answered."""
    args = _arguments(call)
    target = desk.target(args.target)
    ref = desk.answers(target["address"])
    mail = desk.compose("response", [target], args.subject, args.body, ref)
    return Outcome(details=_SENT, mail=(mail,))


async def handle_interrupt(desk: Desk, call: AgentToolCall) -> Outcome:
    """Stop another agent's running model call and give it new word (ruling 11)."""
    args = _arguments(call)
    mail = desk.compose("interrupt", [desk.target(args.target)], args.subject, args.body)
    return Outcome(details=_SENT, mail=(mail,))


async def handle_broadcast(desk: Desk, call: AgentToolCall) -> Outcome:
    """Tell the named agents, or all of the swarm when none is named (ruling 13)."""
    args = parse_arguments(call.tool_name, call.tool_args, BroadcastArgs)
    named = [target for target in args.targets or () if target != "all"]
    recipients = [desk.target(target) for target in named]
    if not recipients:
        recipients = [MAIL_ALL_LOCAL_AGENTS]
    mail = desk.compose("broadcast", recipients, args.subject, args.body)
    if not local_recipients(mail, desk.agents, desk.swarm):
        raise ToolError("there is no other agent in this swarm to hear a broadcast")
    return Outcome(details=_SENT, mail=(mail,))
