"""The table from tool name to handler. A test holds it against the catalogue."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from mail.core.runtime.handlers.broadcasts import handle_acknowledge, handle_ignore
from mail.core.runtime.handlers.completion import handle_complete
from mail.core.runtime.handlers.help import handle_help
from mail.core.runtime.handlers.memory import handle_search_memory
from mail.core.runtime.handlers.send import (
    handle_broadcast,
    handle_interrupt,
    handle_request,
    handle_response,
)
from mail.core.runtime.handlers.waiting import handle_await
from mail.core.runtime.tool_context import Desk
from mail.core.runtime.turn import Outcome
from mail.core.tools.call import AgentToolCall

__all__ = ["HANDLERS", "Handler"]

Handler = Callable[[Desk, AgentToolCall], Awaitable[Outcome]]

HANDLERS: Final[Mapping[str, Handler]] = {
    "send_request": handle_request,
    "send_response": handle_response,
    "send_interrupt": handle_interrupt,
    "send_broadcast": handle_broadcast,
    "acknowledge_broadcast": handle_acknowledge,
    "ignore_broadcast": handle_ignore,
    "await_message": handle_await,
    "help": handle_help,
    "search_memory": handle_search_memory,
    "task_complete": handle_complete,
}
