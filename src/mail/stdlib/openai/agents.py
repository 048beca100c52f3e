"""Agent functions that ask OpenAI's API through OpenAI's library, for each of its two APIs.

MAIL's side is the same as with `mail.factories`: its tools are offered, text alone becomes
``text_output``, calls carry reasoning and preamble, and failures are tried again.
"""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from mail.core.agents import ToolChoice
from mail.core.suggest import hinted
from mail.errors import ConfigError
from mail.factories.action import ActionAgentFunction
from mail.factories.base import (
    LiteLLMAgentFunction,
    ReasoningEffort,
    ToolFormat,
    parameters_of,
)
from mail.factories.supervisor import SupervisorFunction
from mail.llm.retry import RetryPolicy
from mail.stdlib.openai.model import OpenAIModel

__all__ = [
    "OpenAIChatCompletionsAgentFunction",
    "OpenAIChatCompletionsSupervisorFunction",
    "OpenAIOptions",
    "OpenAIResponsesAgentFunction",
    "OpenAIResponsesSupervisorFunction",
]


class OpenAIOptions(TypedDict, total=False):
    """Keyword options of the agents; `mail.factories.LiteLLMAgentFunction` says what they mean.

    ``reasons`` and ``retry`` are those of `OpenAIModel`. ``user_token`` is taken because swarms
    give it to every agent; it is sent to nobody.
    """

    system: str
    user_token: str
    reasoning_effort: ReasoningEffort | None
    thinking_budget: int | None
    max_tokens: int | None
    memory: bool
    stream_tokens: bool
    print_llm_streams: bool
    default_tool_choice: ToolChoice | None
    timeout: float | None
    deadline: float | None
    reasons: bool | None
    retry: RetryPolicy | None
    _debug_include_mail_tools: bool


class _OpenAIFunction(LiteLLMAgentFunction):
    """What the agents have in common; ``wire`` is the API of the class."""

    wire: ToolFormat
    model: OpenAIModel

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        name: str,
        comm_targets: Sequence[str],
        model: str,
        tools: Sequence[Any],
        enable_entrypoint: bool = False,
        enable_interswarm: bool = False,
        can_complete_tasks: bool = False,
        tool_format: ToolFormat | None = None,
        exclude_tools: Sequence[str] | None = None,
        **kwargs: Unpack[OpenAIOptions],
    ) -> None:
        given: Any = model  # another factory's `model` is an object
        if not isinstance(given, str) or not given:
            raise ConfigError(f"agent '{name}': model must be the name of an OpenAI model")
        rest: dict[str, Any] = dict(kwargs)
        unknown = sorted(rest.keys() - OpenAIOptions.__annotations__.keys())
        if unknown:
            text = f"agent '{name}' has no option '{unknown[0]}'"
            raise ConfigError(hinted(text, unknown[0], OpenAIOptions.__annotations__))
        reasons, retry = rest.pop("reasons", None), rest.pop("retry", None)
        super().__init__(
            name=name,
            comm_targets=comm_targets,
            tools=tools,
            llm=model,
            enable_entrypoint=enable_entrypoint,
            enable_interswarm=enable_interswarm,
            can_complete_tasks=can_complete_tasks,
            tool_format=self.wire,
            exclude_tools=exclude_tools,
            use_proxy=False,
            model=OpenAIModel(self.wire, reasons=reasons, retry=retry),
            **rest,
        )

    async def aclose(self) -> None:
        """Close the connections; a swarm does it when it shuts down."""
        await self.model.aclose()


class _OpenAIAgent(_OpenAIFunction, ActionAgentFunction):
    """An agent that is no supervisor."""


class _OpenAISupervisor(_OpenAIFunction, SupervisorFunction):
    """A supervisor."""

    @parameters_of(
        _OpenAIFunction.__init__,
        moved={"can_complete_tasks": "enable_entrypoint"},
        can_complete_tasks=True,
    )
    def __init__(self, **params: Any) -> None:
        super().__init__(**params)


class OpenAIChatCompletionsAgentFunction(_OpenAIAgent):
    """An agent over OpenAI's Chat Completions API.

    Args:
        name: The agent's name.
        comm_targets: Whom it may write to; with anyone at all it gets MAIL's tools.
        model: A model of OpenAI's, for example ``gpt-5-mini``.
        tools: Declarations of its actions in either style, or pydantic models.
        enable_entrypoint: Whether users may write to it.
        enable_interswarm: Whether it may write to other swarms.
        can_complete_tasks: Whether it may end tasks.
        tool_format: Ignored; the class decides.
        exclude_tools: MAIL tools that it does not get.
        kwargs: See `OpenAIOptions`.

    Raises:
        ConfigError: a wrong setting or an unknown option.
    """

    wire = "completions"


class OpenAIChatCompletionsSupervisorFunction(_OpenAISupervisor):
    """A supervisor over OpenAI's Chat Completions API; it may always complete tasks.

    The arguments are those of `OpenAIChatCompletionsAgentFunction`.
    """

    wire = "completions"


class OpenAIResponsesAgentFunction(_OpenAIAgent):
    """An agent over OpenAI's Responses API: reasoning is seen, kept and sent back.

    The arguments are those of `OpenAIChatCompletionsAgentFunction`.
    """

    wire = "responses"


class OpenAIResponsesSupervisorFunction(_OpenAISupervisor):
    """A supervisor over OpenAI's Responses API; it may always complete tasks.

    The arguments are those of `OpenAIChatCompletionsAgentFunction`.
    """

    wire = "responses"
