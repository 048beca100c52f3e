"""help: the runtime explains MAIL to the agent in its next prompt."""

from mail.core.compose import Subject
from mail.core.runtime.tool_context import Desk
from mail.core.runtime.turn import EventDraft, Outcome, Reprompt
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import HelpArgs, parse_arguments
from mail.core.tools.helptext import build_mail_help_string

__all__ = ["handle_help"]


async def handle_help(desk: Desk, call: AgentToolCall) -> Outcome:
    """Build the help text that the agent asked for."""
    args = parse_arguments(call.tool_name, call.tool_args, HelpArgs)
    text = build_mail_help_string(
        name=desk.name,
        swarm=desk.swarm,
        get_summary=args.get_summary,
        get_identity=args.get_identity,
        get_tool_help=list(args.get_tool_help or ()),
        get_full_protocol=args.get_full_protocol,
    )
    event = EventDraft("help_called", f"agent {desk.name} called help", {"caller": desk.name})
    return Outcome(
        details="help string generated; will be sent to you in a subsequent prompt",
        reprompt=Reprompt(Subject.HELP, text),
        events=(event,),
    )
