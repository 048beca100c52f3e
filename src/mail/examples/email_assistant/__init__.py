"""The email assistant: triage, drafts that a person approves, and a mailbox; see its docs page."""

from mail.lazy import lazy_exports

__all__ = [
    "GMAIL_TOOLS_PROMPT",
    "agent_system_prompt_hitl_memory",
    "default_background",
    "default_cal_preferences",
    "default_response_preferences",
    "default_triage_preferences",
    "format_for_display",
    "format_gmail_markdown",
    "get_memory",
    "parse_gmail",
    "triage_system_prompt",
    "triage_user_prompt",
    "update_memory",
]

_FORMATTING = ("format_for_display", "format_gmail_markdown", "parse_gmail")

__getattr__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(__all__, "mail.examples.email_assistant.prompts"),
        **dict.fromkeys(("get_memory", "update_memory"), "mail.memory"),
        **dict.fromkeys(_FORMATTING, "mail.examples.email_assistant.formatting"),
    },
)
