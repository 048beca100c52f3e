"""Agents with actions: their tools may also be given as pydantic models."""

from collections.abc import Sequence
from typing import Any, Unpack

from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.core.tools.schema import get_tool_spec_name, pydantic_model_to_tool
from mail.errors import ConfigError
from mail.factories.base import (
    CallOptions,
    LiteLLMAgentFunction,
    MAILAgentFunction,
    ReasoningEffort,
    ToolFormat,
    deprecated_factory,
)
from mail.factories.checks import check_listed, of_agent

__all__ = ["ActionAgentFunction", "LiteLLMActionAgentFunction", "action_agent_factory"]


def _declared(agent: str, tool: Any, style: ToolFormat) -> dict[str, Any]:
    if isinstance(tool, dict):
        if tool.get("type", "function") == "function" and get_tool_spec_name(tool) is None:
            raise ConfigError(f"agent '{agent}' has a function tool without a name")
        return tool
    if isinstance(tool, type) and hasattr(tool, "model_json_schema"):
        return pydantic_model_to_tool(tool, style=style)
    raise ConfigError(
        f"agent '{agent}': a tool must be a declaration (dict) or a pydantic model, "
        f"got {type(tool).__name__}"
    )


class ActionAgentFunction(MAILAgentFunction):
    """An agent with actions; pydantic models among ``tools`` become tool declarations.

    The arguments are those of `MAILAgentFunction`.

    Raises:
        ConfigError: a tool that is neither a declaration nor a pydantic model.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        name: str,
        comm_targets: Sequence[str],
        tools: Sequence[Any],
        enable_entrypoint: bool = False,
        enable_interswarm: bool = False,
        can_complete_tasks: bool = False,
        tool_format: ToolFormat = "responses",
        exclude_tools: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        with of_agent(name):
            check_listed("tools", tools, object, "declarations and pydantic models")
        super().__init__(
            name,
            comm_targets,
            [_declared(name, tool, tool_format) for tool in tools],
            enable_entrypoint,
            enable_interswarm,
            can_complete_tasks,
            tool_format,
            exclude_tools,
            **kwargs,
        )


class LiteLLMActionAgentFunction(ActionAgentFunction):
    """An agent with actions that asks a language model, through ``action_agent_fn``.

    The arguments are those of `LiteLLMAgentFunction`; ``system`` is required.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        name: str,
        comm_targets: Sequence[str],
        tools: Sequence[Any],
        llm: str,
        system: str,
        user_token: str = "",
        enable_entrypoint: bool = False,
        enable_interswarm: bool = False,
        can_complete_tasks: bool = False,
        tool_format: ToolFormat = "responses",
        exclude_tools: Sequence[str] | None = None,
        reasoning_effort: ReasoningEffort | None = None,
        thinking_budget: int | None = None,
        max_tokens: int | None = None,
        memory: bool = True,
        use_proxy: bool = True,
        _debug_include_mail_tools: bool = True,
        stream_tokens: bool = False,
        print_llm_streams: bool = True,
        default_tool_choice: ToolChoice | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        super().__init__(
            name,
            comm_targets,
            tools,
            enable_entrypoint,
            enable_interswarm,
            can_complete_tasks,
            tool_format,
            exclude_tools,
        )
        self.action_agent_fn = LiteLLMAgentFunction(
            name=name,
            comm_targets=comm_targets,
            tools=self.tools,
            llm=llm,
            system=system,
            user_token=user_token,
            enable_entrypoint=enable_entrypoint,
            enable_interswarm=enable_interswarm,
            can_complete_tasks=can_complete_tasks,
            tool_format=tool_format,
            exclude_tools=exclude_tools,
            reasoning_effort=reasoning_effort,
            thinking_budget=thinking_budget,
            max_tokens=max_tokens,
            memory=memory,
            use_proxy=use_proxy,
            stream_tokens=stream_tokens,
            print_llm_streams=print_llm_streams,
            _debug_include_mail_tools=_debug_include_mail_tools,
            default_tool_choice=default_tool_choice,
            **options,
        )
        self.use_proxy = self.action_agent_fn.use_proxy

    def set_peers(self, comm_targets: Sequence[str], peers: str) -> None:
        """See `MAILAgentFunction.set_peers`."""
        super().set_peers(comm_targets, peers)
        self.action_agent_fn.set_peers(comm_targets, peers)

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
    ) -> AgentOutput:
        """Ask the model; see `LiteLLMAgentFunction.__call__`."""
        return await self.action_agent_fn(messages, tool_choice)


def action_agent_factory(
    comm_targets: Sequence[str],
    tools: Sequence[Any],
    user_token: str,
    llm: str,
    system: str,
    name: str = "action",
    **options: Any,
) -> AgentFunction:
    """Build an action agent (deprecated: use `LiteLLMActionAgentFunction`, same options)."""
    agent = LiteLLMActionAgentFunction(
        name, comm_targets, tools, llm, system, user_token, **options
    )
    return deprecated_factory("action_agent_factory", "LiteLLMActionAgentFunction", agent)
