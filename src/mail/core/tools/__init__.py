"""MAIL's own tools and how models are offered them; names resolve on first use."""

from mail.lazy import lazy_exports

_BUILD = (
    "create_acknowledge_broadcast_tool",
    "create_await_message_tool",
    "create_broadcast_tool",
    "create_help_tool",
    "create_ignore_broadcast_tool",
    "create_interrupt_tool",
    "create_interswarm_broadcast_tool",
    "create_mail_tools",
    "create_request_tool",
    "create_response_tool",
    "create_search_memory_tool",
    "create_supervisor_tools",
    "create_swarm_discovery_tool",
    "create_task_complete_tool",
)

__all__ = [
    "CATALOGUE",
    "MAIL_TOOL_NAMES",
    "AgentToolCall",
    "build_mail_help_string",
    "convert_call_to_mail_message",
    "get_tool_help",
    "get_tool_spec_name",
    "normalize_breakpoint_tool_call",
    "pydantic_function_tool",
    "pydantic_model_to_tool",
    *_BUILD,
]

__getattr__ = lazy_exports(
    __name__,
    {
        "CATALOGUE": "mail.core.tools.catalogue",
        "MAIL_TOOL_NAMES": "mail.core.tools.catalogue",
        "AgentToolCall": "mail.core.tools.call",
        "build_mail_help_string": "mail.core.tools.helptext",
        "convert_call_to_mail_message": "mail.core.tools.convert",
        "get_tool_help": "mail.core.tools.helptext",
        "get_tool_spec_name": "mail.core.tools.schema",
        "normalize_breakpoint_tool_call": "mail.core.tools.convert",
        "pydantic_function_tool": "mail.core.tools.schema",
        "pydantic_model_to_tool": "mail.core.tools.schema",
        "_make_tools": "mail.core.tools.schema",
        **dict.fromkeys(_BUILD, "mail.core.tools.build"),
    },
)
