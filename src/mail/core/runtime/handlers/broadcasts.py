"""acknowledge_broadcast and ignore_broadcast (document 000)."""

import logging

from pydantic_core import to_json

from mail.core.runtime.tool_context import Desk
from mail.core.runtime.turn import EventDraft, Outcome
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import AcknowledgeArgs, IgnoreArgs, parse_arguments
from mail.db.base import MemoryRow

__all__ = ["handle_acknowledge", "handle_ignore"]

logger = logging.getLogger(__name__)


async def handle_acknowledge(desk: Desk, call: AgentToolCall) -> Outcome:
    """Store the broadcast in the agent's memory and tell nobody; on other mail do nothing."""
    args = parse_arguments(call.tool_name, call.tool_args, AcknowledgeArgs)
    broadcast = desk.turn.envelope
    if broadcast.kind != "broadcast":
        logger.debug("acknowledge_broadcast on a %s: nothing to store", broadcast.kind)
        return Outcome(details="there is no broadcast to acknowledge; nothing was stored")
    shown = broadcast.to_entry()
    reply = "<acknowledged broadcast/>" + (f"\n{args.note}" if args.note else "")
    entries = [shown, {"role": "assistant", "content": reply}]
    now = desk.parts.clock.now()
    memory = MemoryRow(
        namespace=(f"{desk.name}_memory",),
        key=broadcast.ref,
        value=to_json({"messages": entries, "text": f"{shown['content']}\n{reply}"}).decode(),
        created_at=now,
        updated_at=now,
    )
    return Outcome(details="broadcast acknowledged", memories=(memory,))


async def handle_ignore(desk: Desk, call: AgentToolCall) -> Outcome:
    """Let the broadcast go: nothing is stored, nothing is sent, the reason stays in the log."""
    args = parse_arguments(call.tool_name, call.tool_args, IgnoreArgs)
    logger.info("agent '%s' ignored a broadcast: %s", desk.name, args.reason or "no reason given")
    event = EventDraft(
        "broadcast_ignored", f"agent {desk.name} called ignore_broadcast", {"caller": desk.name}
    )
    return Outcome(details="broadcast ignored", events=(event,))
