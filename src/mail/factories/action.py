"""Agents with actions: their tools may also be given as pydantic models."""

from collections.abc import Sequence
from inspect import Parameter
from typing import Any

from mail.core.agents import AgentFunction
from mail.core.tools.schema import get_tool_spec_name, pydantic_model_to_tool
from mail.errors import ConfigError
from mail.factories.base import (
    LiteLLMAgentFunction,
    MAILAgentFunction,
    ToolFormat,
    deprecated_factory,
    parameters_of,
)


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

    _tools_are = "declarations and pydantic models"

    def _declared_tools(self) -> list[Any]:
        declared = super()._declared_tools()
        return [_declared(self.name, tool, self.tool_format) for tool in declared]


class LiteLLMActionAgentFunction(LiteLLMAgentFunction, ActionAgentFunction):
    """An agent with actions that asks a language model.

    The arguments are those of `LiteLLMAgentFunction`; ``system`` is required.
    """

    @parameters_of(
        LiteLLMAgentFunction.__init__,
        moved={"_debug_include_mail_tools": "stream_tokens"},
        system=Parameter.empty,
    )
    def __init__(self, **params: Any) -> None:
        super().__init__(**params)

    @property
    def action_agent_fn(self) -> LiteLLMAgentFunction:
        """The function that asks the model: the agent itself."""
        return self


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
