"""Agent functions over OpenAI's own library; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = [
    "OpenAIChatCompletionsAgentFunction",
    "OpenAIChatCompletionsSupervisorFunction",
    "OpenAIModel",
    "OpenAIResponsesAgentFunction",
    "OpenAIResponsesSupervisorFunction",
]

_AGENTS = "mail.stdlib.openai.agents"
__getattr__ = lazy_exports(
    __name__,
    {
        "OpenAIChatCompletionsAgentFunction": _AGENTS,
        "OpenAIChatCompletionsSupervisorFunction": _AGENTS,
        "OpenAIModel": "mail.stdlib.openai.agents",
        "OpenAIResponsesAgentFunction": _AGENTS,
        "OpenAIResponsesSupervisorFunction": _AGENTS,
    },
)
