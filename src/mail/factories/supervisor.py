"""Supervisors: agents that may interrupt, broadcast and end tasks."""

from collections.abc import Sequence
from typing import Any

from mail.core.agents import AgentFunction
from mail.core.tools.build import create_supervisor_tools
from mail.factories.base import (
    LiteLLMAgentFunction,
    MAILAgentFunction,
    deprecated_factory,
    parameters_of,
)


class SupervisorFunction(MAILAgentFunction):
    """An agent with the supervisor tools added to its own; it may always complete tasks.

    Tools for writing within the swarm are added only if there is somebody to write to. The other
    arguments are those of `MAILAgentFunction`.
    """

    @parameters_of(
        MAILAgentFunction.__init__,
        moved={"can_complete_tasks": "enable_entrypoint"},
        can_complete_tasks=True,
    )
    def __init__(self, **params: Any) -> None:
        super().__init__(**{**params, "can_complete_tasks": True})

    def _declared_tools(self) -> list[Any]:
        control = create_supervisor_tools(
            self.comm_targets,
            can_complete_tasks=True,
            enable_interswarm=self.enable_interswarm,
            exclude_tools=self.exclude_tools,
            style=self.tool_format,
            _debug_include_intraswarm=bool(self.comm_targets),
        )
        return [*super()._declared_tools(), *control]


class LiteLLMSupervisorFunction(LiteLLMAgentFunction, SupervisorFunction):
    """A supervisor that asks a language model.

    The arguments are those of `LiteLLMAgentFunction`.
    """

    @parameters_of(
        LiteLLMAgentFunction.__init__,
        moved={
            "can_complete_tasks": "enable_entrypoint",
            "_debug_include_mail_tools": "stream_tokens",
        },
        can_complete_tasks=True,
    )
    def __init__(self, **params: Any) -> None:
        super().__init__(**params)

    @property
    def supervisor_fn(self) -> LiteLLMAgentFunction:
        """The function that asks the model: the agent itself."""
        return self


def supervisor_factory(
    comm_targets: Sequence[str],
    tools: Sequence[Any],
    user_token: str,
    llm: str,
    system: str,
    name: str = "supervisor",
    enable_entrypoint: bool = True,
    **options: Any,
) -> AgentFunction:
    """Build a supervisor (deprecated: use `LiteLLMSupervisorFunction`, same options)."""
    agent = LiteLLMSupervisorFunction(
        name,
        comm_targets,
        tools,
        llm,
        system,
        user_token,
        enable_entrypoint=enable_entrypoint,
        **options,
    )
    return deprecated_factory("supervisor_factory", "LiteLLMSupervisorFunction", agent)
