"""Agents: the template that says how to build one, and the one that was built."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mail.api.actions import MAILAction, ToolStyle
from mail.api.references import load_object, load_params, parse_object
from mail.core.agents import AgentCore, AgentFunction, AgentOutput, ToolChoice
from mail.errors import ConfigError
from mail.swarms_json.names import check_agent_name, hinted
from mail.swarms_json.types import SwarmsJSONAgent
from mail.swarms_json.utils import build_agent_from_swarms_json

__all__ = ["AgentFactory", "MAILAgent", "MAILAgentTemplate"]

logger = logging.getLogger(__name__)

AgentFactory = Callable[..., AgentFunction]
"""Called with keyword arguments only: the top-level parameters, then the agent's own."""

_EXAMPLES: Mapping[str, str] = {
    "supervisor": "mail.examples.supervisor:EXAMPLE",
    "weather": "mail.examples.weather_dummy:EXAMPLE",
    "math": "mail.examples.math_dummy:EXAMPLE",
}


@dataclass(eq=False, slots=True)
class MAILAgent:
    """An agent that can be called.

    Attributes:
        name: Unique within the swarm.
        factory: What built it, as it was named in the template.
        actions: Its own tools.
        function: The agent function (see `mail.core.agents.AgentFunction`).
        comm_targets: The agents that it may write to.
        agent_params: What the factory was given beside the top-level parameters.
        enable_entrypoint: It takes mail from users.
        enable_interswarm: It takes part in mail between swarms.
        can_complete_tasks: It is a supervisor: it may end tasks.
        tool_format: The style of its tool declarations.
        exclude_tools: Tools that it may not call.

    Raises:
        ConfigError: the name cannot be an agent's, or nobody can be reached: without targets it
            must be both entrypoint and supervisor.
    """

    name: str
    factory: str | AgentFactory
    actions: list[MAILAction]
    function: AgentFunction
    comm_targets: list[str]
    agent_params: dict[str, Any]
    enable_entrypoint: bool = False
    enable_interswarm: bool = False
    can_complete_tasks: bool = False
    tool_format: ToolStyle = "responses"
    exclude_tools: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.exclude_tools = list(self.exclude_tools or ())
        _check_agent(self.name, self.tool_format)
        if not (self.comm_targets or (self.can_complete_tasks and self.enable_entrypoint)):
            raise ConfigError(
                f"agent must have at least one communication target, got 0. Agent '{self.name}' "
                "could do without only with both enable_entrypoint and can_complete_tasks."
            )

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
    ) -> AgentOutput:
        """Call the agent function: ``(text or None, tool calls)`` for a history."""
        return await self.function(messages, tool_choice)

    def to_core(self) -> AgentCore:
        """Return the agent as the runtime takes it.

        Raises:
            ConfigError: an action's parameters are not a JSON Schema.
        """
        return AgentCore(
            function=self.function,
            comm_targets=list(self.comm_targets),
            actions={action.name: action.to_core() for action in self.actions},
            enable_entrypoint=self.enable_entrypoint,
            enable_interswarm=self.enable_interswarm,
            can_complete_tasks=self.can_complete_tasks,
            exclude_tools=frozenset(self.exclude_tools),
        )


@dataclass(eq=False, slots=True)
class MAILAgentTemplate:
    """How to build an agent.

    The attributes are those of `MAILAgent`. ``factory`` is a callable or a ``module:object``
    reference to one; ``python::`` and ``url::`` strings inside ``agent_params`` are resolved when
    the template is made.

    Raises:
        ConfigError: the name cannot be an agent's, there is no such tool format, or a reference
            in ``agent_params`` cannot be loaded.
    """

    name: str
    factory: str | AgentFactory
    comm_targets: list[str]
    actions: list[MAILAction]
    agent_params: dict[str, Any]
    enable_entrypoint: bool = False
    enable_interswarm: bool = False
    can_complete_tasks: bool = False
    tool_format: ToolStyle = "responses"
    exclude_tools: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.exclude_tools = list(self.exclude_tools or ())
        _check_agent(self.name, self.tool_format)
        self.agent_params = load_params(self.agent_params, f"agent_params of agent '{self.name}'")

    def instantiate(
        self,
        instance_params: Mapping[str, Any],
        additional_exclude_tools: list[str] | None = None,
    ) -> MAILAgent:
        """Call the factory and return the agent.

        The factory gets the top-level parameters, then ``agent_params``, then
        ``instance_params``. What ``agent_params`` says about a top-level parameter is ignored
        with a warning.

        Args:
            instance_params: For this instance, above all ``user_token``.
            additional_exclude_tools: Excluded beside the agent's own, as a swarm does.

        Raises:
            ConfigError: the factory cannot be loaded, does not take these parameters, or does not
                return a callable; or the agent is not valid.
        """
        excluded = sorted({*self.exclude_tools, *(additional_exclude_tools or ())})
        top = self._top_level_params(excluded)
        own = {key: value for key, value in self.agent_params.items() if key not in top}
        for key in self.agent_params.keys() & top.keys():
            logger.warning(
                "'%s' inside agent_params of agent '%s' is ignored; set it on the template",
                key,
                self.name,
            )
        function = self._build({**top, **own, **instance_params, "exclude_tools": excluded})
        return MAILAgent(
            name=self.name,
            factory=self.factory,
            actions=list(self.actions),
            function=function,
            comm_targets=list(self.comm_targets),
            agent_params={**own, **instance_params},
            enable_entrypoint=self.enable_entrypoint,
            enable_interswarm=self.enable_interswarm,
            can_complete_tasks=self.can_complete_tasks,
            tool_format=self.tool_format,
            exclude_tools=excluded,
        )

    @staticmethod
    def from_swarms_json(
        agent_data: SwarmsJSONAgent, actions_by_name: Mapping[str, MAILAction] | None = None
    ) -> "MAILAgentTemplate":
        """Build a template from an agent's entry in ``swarms.json``.

        Args:
            agent_data: The entry.
            actions_by_name: The swarm's actions, to which the entry refers by name.

        Raises:
            ConfigError: the entry is wrong, or refers to an action that is not there.
        """
        data = build_agent_from_swarms_json(agent_data)
        return MAILAgentTemplate(
            name=data["name"],
            factory=data["factory"],
            comm_targets=data["comm_targets"],
            actions=_pick_actions(data, actions_by_name),
            agent_params=data["agent_params"],
            enable_entrypoint=data["enable_entrypoint"],
            enable_interswarm=data["enable_interswarm"],
            can_complete_tasks=data["can_complete_tasks"],
            tool_format=data["tool_format"],
            exclude_tools=data["exclude_tools"],
        )

    @staticmethod
    def from_swarm_json(
        json_str: str, actions_by_name: Mapping[str, MAILAction] | None = None
    ) -> "MAILAgentTemplate":
        """Build a template from the JSON text of an agent's entry in ``swarms.json``.

        Raises:
            ConfigError: as `from_swarms_json`.
        """
        return MAILAgentTemplate.from_swarms_json(parse_object(json_str, "agent"), actions_by_name)

    @staticmethod
    def from_example(
        name: str, comm_targets: list[str], *, llm: str | None = None
    ) -> "MAILAgentTemplate":
        """Return a bundled example agent.

        Args:
            name: ``supervisor``, ``weather`` or ``math``.
            comm_targets: The agents that it may write to.
            llm: A model, for example ``openai/gpt-5-mini``. By default the agent follows a script
                and needs no provider.

        Raises:
            ConfigError: there is no such example.
        """
        if name not in _EXAMPLES:
            known = ", ".join(f"'{example}'" for example in _EXAMPLES)
            text = f"example agent '{name}' not found; there are {known}"
            raise ConfigError(hinted(text, name, _EXAMPLES))
        example = load_object(_EXAMPLES[name], f"example agent '{name}'")
        fields: dict[str, Any] = {**example, "comm_targets": list(comm_targets)}
        fields["actions"] = list(fields["actions"])
        if llm is not None:
            fields["agent_params"] = {**fields["agent_params"], "llm": llm}
        return MAILAgentTemplate(name=name, **fields)

    def _top_level_params(self, exclude_tools: list[str] | None = None) -> dict[str, Any]:
        excluded = self.exclude_tools if exclude_tools is None else exclude_tools
        return {
            "name": self.name,
            "comm_targets": list(self.comm_targets),
            "tools": [
                action.to_tool_dict(self.tool_format)
                for action in self.actions
                if action.name not in excluded
            ],
            "enable_entrypoint": self.enable_entrypoint,
            "enable_interswarm": self.enable_interswarm,
            "tool_format": self.tool_format,
            "can_complete_tasks": self.can_complete_tasks,
            "exclude_tools": list(excluded),
        }

    def _build(self, params: dict[str, Any]) -> AgentFunction:
        what = f"factory of agent '{self.name}'"
        factory: Any = self.factory
        if isinstance(factory, str):
            factory = load_object(factory, what)
        if not callable(factory):
            raise ConfigError(f"{what} must be callable, got {type(factory).__name__}")
        try:
            function = factory(**params)
        except TypeError as error:
            raise ConfigError(f"{what} does not take the agent's parameters: {error}") from error
        if not callable(function):
            raise ConfigError(f"{what} must return a callable, got {type(function).__name__}")
        return function  # type: ignore[no-any-return]  # a callable, and the runtime checks replies


def _check_agent(name: str, tool_format: str) -> None:
    check_agent_name(name)
    if tool_format not in ("completions", "responses"):
        raise ConfigError(
            f"tool_format of agent '{name}' must be 'completions' or 'responses', "
            f"got '{tool_format}'"
        )


def _pick_actions(
    agent: SwarmsJSONAgent, known: Mapping[str, MAILAction] | None
) -> list[MAILAction]:
    name = agent["name"]
    if agent["actions"] and known is None:
        raise ConfigError(
            f"agent '{name}' declares actions but no action definitions were provided"
        )
    picked = []
    for action in agent["actions"]:
        if known is None or action not in known:
            text = f"agent '{name}' references unknown action '{action}'"
            raise ConfigError(hinted(text, action, known or ()))
        picked.append(known[action])
    return picked
