"""Supervisors: agents that may interrupt, broadcast and end tasks."""

from collections.abc import Sequence
from typing import Any, Unpack

from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.core.tools.build import create_supervisor_tools
from mail.factories.base import (
    CallOptions,
    LiteLLMAgentFunction,
    MAILAgentFunction,
    ReasoningEffort,
    ToolFormat,
    deprecated_factory,
)

__all__ = ["LiteLLMSupervisorFunction", "SupervisorFunction", "supervisor_factory"]


class SupervisorFunction(MAILAgentFunction):
    """An agent with the supervisor tools added to its own; it may always complete tasks.

    Tools for writing within the swarm are added only if there is somebody to write to. The other
    arguments are those of `MAILAgentFunction`.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        name: str,
        comm_targets: Sequence[str],
        tools: Sequence[Any],
        can_complete_tasks: bool = True,
        enable_entrypoint: bool = False,
        enable_interswarm: bool = False,
        tool_format: ToolFormat = "responses",
        exclude_tools: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            name,
            comm_targets,
            tools,
            enable_entrypoint,
            enable_interswarm,
            True,
            tool_format,
            exclude_tools,
            **kwargs,
        )
        self._own_tools = list(tools)
        self.tools = [*self._own_tools, *self._control_tools()]

    def _control_tools(self) -> list[dict[str, Any]]:
        return create_supervisor_tools(
            self.comm_targets,
            can_complete_tasks=True,
            enable_interswarm=self.enable_interswarm,
            exclude_tools=self.exclude_tools,
            style=self.tool_format,
            _debug_include_intraswarm=bool(self.comm_targets),
        )

    def set_peers(self, comm_targets: Sequence[str], peers: str) -> None:
        """See `MAILAgentFunction.set_peers`."""
        changed = list(comm_targets) != self.comm_targets
        super().set_peers(comm_targets, peers)
        if changed:
            self.tools = [*self._own_tools, *self._control_tools()]


class LiteLLMSupervisorFunction(SupervisorFunction):
    """A supervisor that asks a language model, through ``supervisor_fn``.

    The arguments are those of `LiteLLMAgentFunction`.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        name: str,
        comm_targets: Sequence[str],
        tools: Sequence[Any],
        llm: str,
        system: str = "",
        user_token: str = "",
        can_complete_tasks: bool = True,
        enable_entrypoint: bool = False,
        enable_interswarm: bool = False,
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
            can_complete_tasks,
            enable_entrypoint,
            enable_interswarm,
            tool_format,
            exclude_tools,
        )
        self.supervisor_fn = LiteLLMAgentFunction(
            name=name,
            comm_targets=comm_targets,
            tools=self.tools,
            llm=llm,
            system=system,
            user_token=user_token,
            enable_entrypoint=enable_entrypoint,
            enable_interswarm=enable_interswarm,
            can_complete_tasks=True,
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
        self.use_proxy = self.supervisor_fn.use_proxy

    def set_peers(self, comm_targets: Sequence[str], peers: str) -> None:
        """See `MAILAgentFunction.set_peers`."""
        super().set_peers(comm_targets, peers)
        self.supervisor_fn.tools = self.tools
        self.supervisor_fn.set_peers(comm_targets, peers)

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
    ) -> AgentOutput:
        """Ask the model; see `LiteLLMAgentFunction.__call__`."""
        return await self.supervisor_fn(messages, tool_choice)


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
