"""Agents: the template that says how to build one, and the one that was built."""

import copy
import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, get_args

from mail.api.actions import MAILAction, ToolStyle
from mail.api.references import (
    fresh_copy,
    load_callable,
    load_object,
    load_params,
)
from mail.api.validation import check_agent_fields, check_mapping, check_reach
from mail.core.agents import AgentCore, AgentFunction, AgentOutput, ToolChoice
from mail.core.suggest import hinted
from mail.errors import ConfigError, MAILError
from mail.factories.checks import of_agent
from mail.llm.resolve import played_params
from mail.redaction import logged, redact_foreign
from mail.swarms_json.decode import parse_json
from mail.swarms_json.references import TRUSTED, ReferencePolicy
from mail.swarms_json.types import SwarmsJSONAgent
from mail.swarms_json.utils import build_agent_from_swarms_json

logger = logging.getLogger(__name__)

AgentFactory = Callable[..., AgentFunction]
"""Called with keyword arguments only: the top-level parameters, then the agent's own."""

_EXAMPLES: Mapping[str, str] = {
    "supervisor": "mail.examples.supervisor:EXAMPLE",
    "weather": "mail.examples.weather_dummy:EXAMPLE",
    "math": "mail.examples.math_dummy:EXAMPLE",
    "consultant": "mail.examples.consultant_dummy:EXAMPLE",
    "analyst": "mail.examples.analyst_dummy:EXAMPLE",
    "research": "mail.examples.research:EXAMPLE",
    "support": "mail.examples.support:EXAMPLE",
    "data_analysis": "mail.examples.data_analysis:EXAMPLE",
}


@dataclass(eq=False, slots=True)
class MAILAgent:
    """An agent that can be called.

    Attributes:
        name: Unique within the swarm.
        factory: The factory that built it, as named in the template.
        actions: Its own tools.
        function: The agent function (see `mail.core.agents.AgentFunction`).
        comm_targets: The agents that it may write to.
        agent_params: The factory's arguments beside the top-level parameters.
        enable_entrypoint: It takes mail from users.
        enable_interswarm: It takes part in interswarm messaging.
        can_complete_tasks: It is a supervisor: it may end tasks.
        tool_format: The style of its tool declarations.
        exclude_tools: Tools that it may not call.
        template: The template that it was made from, or None.

    Raises:
        ConfigError: a field is of the wrong type, the name cannot be an agent's, or nobody can be
            reached: without targets it must be both entrypoint and supervisor.
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
    template: "MAILAgentTemplate | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._validate()
        self.exclude_tools = list(self.exclude_tools or ())
        self.actions, self.comm_targets = list(self.actions), list(self.comm_targets)

    def _validate(self) -> None:
        check_agent_fields(self)
        check_reach(self, self.comm_targets)

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
            models=self.template.references.models if self.template else None,
        )

    def _to_template(self, names: list[str]) -> "MAILAgentTemplate":
        template = as_template(self)
        template.comm_targets = [t for t in self.comm_targets if "@" in t or t in names]
        return template


@dataclass(eq=False, slots=True)
class MAILAgentTemplate:
    """The parts that an agent is built of.

    The attributes are those of `MAILAgent`. ``factory`` is a callable or a ``module:object``
    reference to one; ``python::`` and ``url::`` strings inside ``agent_params`` are resolved when
    the template is made. ``references`` says what both may lead to.

    Raises:
        ConfigError: a field is of the wrong type, the name cannot be an agent's, or a reference in
            ``agent_params`` cannot be loaded.
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
    references: ReferencePolicy = field(default=TRUSTED, repr=False)

    def __post_init__(self) -> None:
        self._validate()
        self.exclude_tools = list(self.exclude_tools or ())
        self.actions, self.comm_targets = list(self.actions), list(self.comm_targets)
        what = f"agent_params of agent '{self.name}'"
        self.agent_params = played_params(load_params(self.agent_params, what, self.references))

    def _validate(self) -> None:
        check_agent_fields(self)

    def instantiate(
        self,
        instance_params: Mapping[str, Any],
        additional_exclude_tools: list[str] | None = None,
        *,
        interswarm: bool = True,
    ) -> MAILAgent:
        """Call the factory and return the agent.

        The factory gets the top-level parameters, then ``agent_params``, then
        ``instance_params``. What these two say about a top-level parameter is ignored with a
        warning. Lists and dictionaries inside ``agent_params`` are the instance's own copies.

        Args:
            instance_params: For this instance, above all ``user_token``.
            additional_exclude_tools: Excluded beside the agent's own, as a swarm does.
            interswarm: Whether the swarm exchanges mail with others; if not, the factory is not
                given the agent's ``enable_interswarm``.

        Raises:
            ConfigError: the factory cannot be loaded, does not take these parameters, or does not
                return a callable; or the agent is not valid.
        """
        check_mapping("instance_params", instance_params)
        excluded = sorted({*self.exclude_tools, *(additional_exclude_tools or ())})
        top = self._top_level_params(excluded)
        top["enable_interswarm"] = self.enable_interswarm and interswarm
        own = self._beside(top, fresh_copy(self.agent_params), "agent_params")
        given = self._beside(top, instance_params, "instance_params")
        function: AgentFunction
        function = call_factory(self.name, self._load_factory(), {**top, **own, **given})
        if not callable(function):
            got = type(function).__name__
            raise ConfigError(f"factory of agent '{self.name}' must return a callable, got {got}")
        fields = _shared_fields(self)
        fields |= {"agent_params": {**own, **given}, "exclude_tools": excluded}
        return MAILAgent(**fields, function=function, template=copy.copy(self))

    def check_factory(self, instance_params: Mapping[str, Any]) -> None:
        """Check that the factory takes its parameters; code of the swarm's author is not run.

        Args:
            instance_params: As for `instantiate`.

        Raises:
            ConfigError: the factory cannot be loaded, or does not take these parameters.
        """
        top = self._top_level_params()
        beside = {**fresh_copy(self.agent_params), **instance_params}
        check_factory(self.name, self._load_factory(), {**beside, **top})

    def _beside(
        self, top: Mapping[str, Any], given: Mapping[str, Any], where: str
    ) -> dict[str, Any]:
        for key in sorted(given.keys() & top.keys()):
            logger.warning(
                "'%s' inside %s of agent '%s' is ignored; set it on the template",
                key,
                where,
                self.name,
            )
        return {key: value for key, value in given.items() if key not in top}

    @staticmethod
    def from_swarms_json(
        agent_data: SwarmsJSONAgent,
        actions_by_name: Mapping[str, MAILAction] | None = None,
        *,
        references: ReferencePolicy = TRUSTED,
    ) -> "MAILAgentTemplate":
        """Build a template from an agent's entry in ``swarms.json``.

        Args:
            agent_data: The entry.
            actions_by_name: The swarm's actions, to which the entry refers by name.
            references: The permitted targets of its references.

        Raises:
            ConfigError: the entry is wrong, or refers to an action that is not there.
        """
        data = build_agent_from_swarms_json(agent_data)
        return agent_from_entry(data, actions_by_name, references)

    @staticmethod
    def from_swarm_json(
        json_str: str,
        actions_by_name: Mapping[str, MAILAction] | None = None,
        *,
        references: ReferencePolicy = TRUSTED,
    ) -> "MAILAgentTemplate":
        """Build a template from the JSON text of an agent's entry in ``swarms.json``.

        Raises:
            ConfigError: as `from_swarms_json`.
        """
        return MAILAgentTemplate.from_swarms_json(
            parse_json(json_str, "agent"), actions_by_name, references=references
        )

    @staticmethod
    def from_example(
        name: str, comm_targets: list[str], *, llm: str | None = None
    ) -> "MAILAgentTemplate":
        """Return a bundled example agent.

        Args:
            name: ``supervisor``, ``weather``, ``math``, ``consultant``, ``analyst``,
                ``research``, ``support`` or ``data_analysis``.
            comm_targets: The agents that it may write to.
            llm: A model, for example ``openai/gpt-5-mini``. By default ``MAIL_LLM`` of the
                environment; without it the agent follows a script and needs no provider.

        Raises:
            ConfigError: there is no such example.
        """
        if name not in _EXAMPLES:
            known = ", ".join(f"'{example}'" for example in _EXAMPLES)
            text = f"example agent '{name}' not found; available: {known}"
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

    def _load_factory(self) -> AgentFactory:
        what = f"factory of agent '{self.name}'"
        factory: Any = self.factory
        if isinstance(factory, str):
            factory = load_callable(factory, what, self.references)
        if not callable(factory):
            raise ConfigError(f"{what} must be callable, got {type(factory).__name__}")
        loaded: AgentFactory = factory
        return loaded


def _shared_fields(agent: MAILAgent | MAILAgentTemplate) -> dict[str, Any]:
    """Return the fields that an agent and its template have in common."""
    return {name: getattr(agent, name) for name in SwarmsJSONAgent.__annotations__}


def as_template(agent: MAILAgent | MAILAgentTemplate) -> MAILAgentTemplate:
    """Return a template of an agent that can be changed without changing the agent.

    Of an agent that was made from a template it is that template, with the agent's targets: what
    belongs to the instance (above all the user's token) stays behind.
    """
    origin = agent if isinstance(agent, MAILAgentTemplate) else agent.template
    if origin is None:
        return MAILAgentTemplate(**_shared_fields(agent))
    template = copy.copy(origin)
    template.comm_targets = list(agent.comm_targets)
    return template


def agent_from_entry(
    data: SwarmsJSONAgent, actions: Mapping[str, MAILAction] | None, references: ReferencePolicy
) -> MAILAgentTemplate:
    """Build a template from a validated entry.

    Raises:
        ConfigError: it refers to an action that is not there, or to what may not be used.
    """
    fields: dict[str, Any] = {**data, "actions": _pick_actions(data, actions)}
    template = MAILAgentTemplate(**fields, references=references)
    if not references.trusted:
        # What may not be used is told at once, not when the first caller comes.
        load_callable(data["factory"], f"factory of agent '{data['name']}'", references)
    return template


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


def call_factory(agent: str, factory: Callable[..., Any], params: Mapping[str, Any]) -> Any:
    """Call a factory and return what it makes.

    Args:
        agent: The agent's name, for errors.
        factory: Any callable.
        params: Its keyword arguments.

    Raises:
        ConfigError: the factory does not take these parameters, or refuses a value of one. What
            else a factory says is told without what looks like a secret (a `MAILError`), or as a
            class and a reference to the log (`TypeError`, `SystemExit`).
    """
    try:
        with of_agent(agent):
            return factory(**params)
    except MAILError as error:
        said = [str(error), *map(str, getattr(error, "problems", ()))]
        told = [redact_foreign(text) for text in said]
        if told == said:
            raise
        raise ConfigError(told[0]) from error
    except (TypeError, SystemExit) as error:
        if isinstance(error, TypeError):
            _check_fit(agent, factory, params)
        did = "failed" if isinstance(error, TypeError) else "tried to exit the program"
        told_error = logged(logger, error, "factory of agent '%s' %s", agent, did)
        hint = _unknown_parameter(factory, params) if isinstance(error, TypeError) else ""
        text = f"factory of agent '{agent}' {did}: {told_error}{hint and '; '}{hint}"
        raise ConfigError(text) from error


def check_factory(agent: str, factory: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Check that a factory takes its parameters, without running code of the swarm's author.

    Factories of this package are called: all they do is to check and keep what they are given.

    Raises:
        ConfigError: as `call_factory`.
    """
    made_by: Any = factory
    if isinstance(factory, type):
        made_by = made_by.__init__
    if str(getattr(made_by, "__module__", "")).startswith("mail."):
        call_factory(agent, factory, params)
    else:
        _check_fit(agent, factory, params)


def _check_fit(agent: str, factory: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Refuse parameters that do not fit a factory's signature."""
    try:
        signature = inspect.signature(factory)
    except (ValueError, TypeError):  # a callable of C, which says nothing about itself
        return
    try:
        signature.bind(**params)
    except TypeError as error:
        problem = _unknown_parameter(factory, params) or str(error)
        raise ConfigError(
            f"factory of agent '{agent}' does not take the agent's parameters: {problem}"
        ) from None


def _unknown_parameter(factory: Callable[..., Any], params: Mapping[str, Any]) -> str:
    """Say which parameter neither a factory nor the agent function that it makes may have."""
    from mail.factories.base import LiteLLMAgentFunction

    known: list[str] = []
    for made in (*getattr(factory, "__mro__", (factory,)), LiteLLMAgentFunction):
        with suppress(ValueError):  # a callable of C
            for parameter in inspect.signature(made).parameters.values():
                known.append(parameter.name)
                for options in get_args(parameter.annotation):
                    known.extend(getattr(options, "__annotations__", ()))
    for name in params:
        if name not in known and not name.startswith("_"):
            shown = getattr(factory, "__name__", type(factory).__name__)
            left = [each for each in known if each not in params]
            return hinted(f"{shown} has no parameter '{name}'", name, left)
    return ""
