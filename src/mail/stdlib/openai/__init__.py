"""Agent functions over OpenAI's own library; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = [
    "OpenAIChatCompletionsAgentFunction",
    "OpenAIChatCompletionsSupervisorFunction",
    "OpenAIModel",
    "OpenAIResponsesAgentFunction",
    "OpenAIResponsesSupervisorFunction",
]

__getattr__ = lazy_exports(__name__, dict.fromkeys(__all__, "mail.stdlib.openai.agents"))
