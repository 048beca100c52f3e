"""Agent functions over language models; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = [
    "ActionAgentFunction",
    "AgentFunction",
    "LiteLLMActionAgentFunction",
    "LiteLLMAgentFunction",
    "LiteLLMSupervisorFunction",
    "MAILAgentFunction",
    "SupervisorFunction",
    "action_agent_factory",
    "base_agent_factory",
    "supervisor_factory",
]

_BASE = "mail.factories.base"
_ACTION = "mail.factories.action"
_SUPERVISOR = "mail.factories.supervisor"
__getattr__ = lazy_exports(
    __name__,
    {
        "AgentFunction": "mail.core.agents",
        **dict.fromkeys(("LiteLLMAgentFunction", "MAILAgentFunction", "base_agent_factory"), _BASE),
        **dict.fromkeys(
            ("ActionAgentFunction", "LiteLLMActionAgentFunction", "action_agent_factory"), _ACTION
        ),
        **dict.fromkeys(
            ("LiteLLMSupervisorFunction", "SupervisorFunction", "supervisor_factory"), _SUPERVISOR
        ),
    },
)
