"""search_memory: what the agent has stored by acknowledging broadcasts (ruling 14)."""

from pydantic_core import from_json

from mail.core.compose import Subject
from mail.core.runtime.tool_context import Desk
from mail.core.runtime.turn import Outcome, Reprompt
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import SearchMemoryArgs, parse_arguments
from mail.errors import StoreError, ToolError

__all__ = ["handle_search_memory"]


async def handle_search_memory(desk: Desk, call: AgentToolCall) -> Outcome:
    """Search the calling agent's own memory; the findings are the tool result."""
    args = parse_arguments(call.tool_name, call.tool_args, SearchMemoryArgs)
    try:
        rows = await desk.search_memory(args.query, args.limit)
    except StoreError:
        raise ToolError("the memory cannot be searched at the moment") from None
    found = [_text(from_json(row.value)) for row in rows]
    details = f"{len(found)} memories found" + "".join(f"\n\n{text}" for text in found)
    return Outcome(details=details, reprompt=Reprompt(Subject.ACTION_COMPLETE, "Memory searched."))


def _text(value: object) -> str:
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    return str(value)
