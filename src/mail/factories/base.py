"""Agent functions over a chat model: what every agent has, and the plain LiteLLM agent."""

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial, wraps
from typing import Any, ClassVar, Concatenate, Final, Literal, ParamSpec, TypedDict, get_args

from pydantic_core import to_json

from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.core.call_context import CallContext, current_call
from mail.core.render import PRIMER
from mail.core.teams import Team
from mail.core.tools.build import (
    create_extra_tools,
    create_file_tools,
    create_letter_tools,
    create_mail_tools,
    create_team_tools,
)
from mail.core.tools.call import AgentToolCall
from mail.db.records import Owner
from mail.errors import ConfigError
from mail.factories.checks import (
    check_endpoint,
    check_flags,
    check_listed,
    check_model,
    check_texts,
    check_tool_choice,
    checked_sampling,
    of_agent,
)
from mail.llm.ask import agent_output, ask
from mail.llm.compress import Compressor
from mail.llm.profiles import checked_fields
from mail.llm.provider_env import proxy_configured
from mail.llm.request import DEFAULT_ENDPOINT, ChatModel, Endpoint, ModelRequest, ToolFormat
from mail.llm.resolve import model_for
from mail.llm.settings import LLMSettings
from mail.llm.tools import ToolSet
from mail.services.preferences import filled_prompt, stored_text

__all__ = [
    "PEERS_HEADLINE",
    "AgentFunction",
    "AgentToolCall",
    "CallOptions",
    "LiteLLMAgentFunction",
    "MAILAgentFunction",
    "ReasoningEffort",
    "ToolFormat",
    "base_agent_factory",
    "deprecated_factory",
    "parameters_of",
    "remembered",
]

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

PEERS_HEADLINE: Final = "Here are details about the agents you can communicate with:"
"""Begins what a system prompt says about other agents; a swarm replaces all that follows."""


_REST: Final = inspect.Parameter.VAR_KEYWORD

P = ParamSpec("P")


class CallOptions(TypedDict, total=False):
    """The keyword-only options of `LiteLLMAgentFunction`, for subclasses that pass them on."""

    model: ChatModel | None
    model_profile: Mapping[str, Any] | None
    timeout: float | None
    deadline: float | None


def parameters_of(
    pattern: Callable[Concatenate[Any, P], None], moved: Mapping[str, str], **defaults: Any
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor that takes keyword arguments the parameters of another constructor.

    Args:
        pattern: The constructor that declares the parameters.
        moved: The parameters whose position differs, each to the one that it precedes.
        defaults: Defaults that differ; `inspect.Parameter.empty` makes a parameter required.
    """
    signature = inspect.signature(pattern)
    order = [name for name in signature.parameters if name not in moved]
    for name, following in moved.items():
        order.insert(order.index(following), name)
    found = [signature.parameters[name] for name in order]
    found = [one.replace(default=defaults.get(one.name, one.default)) for one in found]
    signature = inspect.Signature(found)
    required = {one.name for one in found[1:] if one.default is one.empty and one.kind != _REST}

    def decorate(constructor: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        @wraps(constructor)
        def init(self: Any, /, *args: P.args, **options: P.kwargs) -> None:
            if args or not required <= options.keys():
                given = signature.bind(self, *args, **options).arguments
                given.pop("self")
                constructor(self, **given.pop("kwargs", {}), **given)
            else:  # as a swarm calls it, for each of its callers: binding takes 15 times as long
                constructor(self, **options)

        setattr(init, "__signature__", signature)  # noqa: B010 - what `inspect.signature` reads
        return init

    return decorate


class MAILAgentFunction(ABC):
    """The parameters that every agent function is made with.

    Args:
        name: The agent's name.
        comm_targets: Whom the agent may write to.
        tools: Tool declarations of its actions, in the style of ``tool_format``.
        enable_entrypoint: Whether users may write to the agent.
        enable_interswarm: Whether it may write to other swarms.
        can_complete_tasks: Whether it may end tasks.
        tool_format: ``completions`` or ``responses``.
        exclude_tools: MAIL tools that the agent does not get.
        kwargs: Anything else, kept as it is.

    Attributes:
        peers: The system prompt's part about the agents it may write to; see `set_peers`.
        teams: The teams it is in; see `set_contacts`.
        participants: The participants that it may write to; see `set_contacts`.
        files: Whether participants write to it; see `set_contacts`.

    Raises:
        ConfigError: an unknown ``tool_format``, or an argument of the wrong type.
    """

    peers: str = ""
    teams: tuple[Team, ...] = ()
    participants: tuple[str, ...] = ()
    files: bool = False
    _tools_are: ClassVar[str] = "declarations"

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        /,
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
        if tool_format not in get_args(ToolFormat):
            raise ConfigError(
                f"agent '{name}': tool_format must be 'completions' or 'responses', "
                f"got '{tool_format}'"
            )
        with of_agent(name):
            check_texts(name=name)
            check_listed("comm_targets", comm_targets, str, "names")
            check_listed("tools", tools, object, self._tools_are)
            check_listed("exclude_tools", exclude_tools or (), str, "names")
            check_flags(
                enable_entrypoint=enable_entrypoint,
                enable_interswarm=enable_interswarm,
                can_complete_tasks=can_complete_tasks,
            )
        self.name = name
        self.comm_targets = list(comm_targets)
        self.enable_entrypoint = enable_entrypoint
        self.enable_interswarm = enable_interswarm
        self.can_complete_tasks = can_complete_tasks
        self.tool_format: ToolFormat = tool_format
        self.exclude_tools = list(exclude_tools or ())
        self.kwargs = kwargs
        self._given_tools = list(tools)
        self.tools = self._declared_tools()

    def _declared_tools(self) -> list[Any]:
        """Return the declarations of the agent's tools; subclasses convert them or add some."""
        return list(self._given_tools)

    def set_peers(self, comm_targets: Sequence[str], peers: str) -> None:
        """Change whom the agent may write to, from its next call on.

        The swarm calls it when it is made and whenever its wiring changes.

        Args:
            comm_targets: The agents.
            peers: The system prompt's part about them; begins with `PEERS_HEADLINE` or is empty.
        """
        changed = list(comm_targets) != self.comm_targets
        self.comm_targets, self.peers = list(comm_targets), peers
        if changed:
            self._declare()

    def set_contacts(
        self, teams: Sequence[Team], participants: Sequence[str], *, files: bool
    ) -> None:
        """Change whom else the agent has to do with, from its next call on.

        The swarm calls it when it is made and whenever its wiring changes.

        Args:
            teams: The teams that it is in.
            participants: The participants that it may write to.
            files: Whether participants write to it, so that it gets the files they send.
        """
        before = (self.teams, bool(self.participants), self.files)
        self.teams, self.participants, self.files = tuple(teams), tuple(participants), files
        if before != (self.teams, bool(self.participants), self.files):
            self._declare()

    def _declare(self) -> None:
        """Declare the agent's tools anew."""
        self.tools = self._declared_tools()

    @abstractmethod
    def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
    ) -> Awaitable[AgentOutput]:
        """Answer a history.

        Args:
            messages: The agent's history; it is not changed.
            tool_choice: ``required``, ``auto``, ``none``, or the one tool that must be called.

        Returns:
            The text of the reply, if any, and its tool calls.
        """


class LiteLLMAgentFunction(MAILAgentFunction):
    """An agent that asks a language model.

    Args:
        llm: The model: a LiteLLM name, or ``scripted/<module>:<object>``.
        system: The system prompt. It goes to the model first and never into a history.
        user_token: The caller's token, sent to the proxy.
        reasoning_effort: The effort of the model's thinking; sets a thinking budget.
        thinking_budget: Thinking tokens.
        max_tokens: Tokens of a whole reply.
        memory: Kept for compatibility.
        use_proxy: Whether calls go through the LiteLLM proxy; if ``LITELLM_PROXY_API_BASE`` is set
            when None.
        stream_tokens: Whether this agent's replies are printed as they stream in, if the runtime
            prints at all.
        print_llm_streams: False keeps this agent off the console, whatever the runtime says.
        default_tool_choice: Used in place of the runtime's choice, unless that forces one tool.
        model: Answers in place of the model that ``llm`` names (for tests).
        model_profile: Fields of the model's profile that differ from the table of models
            (`mail.llm.profiles.Profile`), and ``like``, the name of a model that it is like.
        timeout: The longest silence of the provider in seconds; 120 when None.
        deadline: The longest that a call may take in seconds, with all its retries; 600 when None.
        api_base: The address of the provider, in place of the environment's.
        api_key: The environment variable with the key for it. Without one, an address of the
            agent's own gets no key.
        temperature, top_p, top_k, seed, frequency_penalty, presence_penalty, stop: How the model
            chooses words, as the provider takes it; the provider's defaults when None.

    The other arguments are those of `MAILAgentFunction`.

    Raises:
        ConfigError: an argument of the wrong type, or a wrong setting; see `LLMSettings.resolve`
            and `model_for`.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        name: str,
        comm_targets: Sequence[str],
        tools: Sequence[Any],
        llm: str,
        system: str = "",
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
        use_proxy: bool | None = None,
        stream_tokens: bool = False,
        print_llm_streams: bool = True,
        _debug_include_mail_tools: bool = True,
        default_tool_choice: ToolChoice | None = None,
        *,
        model: ChatModel | None = None,
        model_profile: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        api_base: str = "",
        api_key: str = "",
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        seed: int | None = None,
        frequency_penalty: float | None = None,
        presence_penalty: float | None = None,
        stop: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            name=name,
            comm_targets=comm_targets,
            tools=tools,
            enable_entrypoint=enable_entrypoint,
            enable_interswarm=enable_interswarm,
            can_complete_tasks=can_complete_tasks,
            tool_format=tool_format,
            exclude_tools=exclude_tools,
        )
        self.llm, self.system, self.user_token = llm, system, user_token
        self.memory = memory
        self.api_base, self.api_key = api_base, api_key
        proxied = proxy_configured() and not api_base
        self.use_proxy = proxied if use_proxy is None else use_proxy
        self.stream_tokens, self.print_llm_streams = stream_tokens, print_llm_streams
        self.default_tool_choice = default_tool_choice
        self._with_mail_tools = _debug_include_mail_tools
        with of_agent(name):
            self._check_arguments(model)
            check_endpoint(api_base, api_key, use_proxy=self.use_proxy)
            words = (temperature, top_p, top_k, seed, frequency_penalty, presence_penalty, stop)
            sampling, times = checked_sampling(words), (timeout, deadline)
            self.settings = LLMSettings.resolve(
                reasoning_effort, thinking_budget, max_tokens, *times, sampling
            )
            self.model_profile = checked_fields(model_profile or {}, "model_profile")
            self.model = model or model_for(llm)
        self.tool_specs = self._specs()
        self._compressor = Compressor()

    def _check_arguments(self, model: object) -> None:
        check_texts(llm=self.llm, system=self.system, user_token=self.user_token)
        check_listed("tools", self.tools, Mapping, "declarations")
        check_flags(
            memory=self.memory,
            use_proxy=self.use_proxy,
            stream_tokens=self.stream_tokens,
            print_llm_streams=self.print_llm_streams,
            _debug_include_mail_tools=self._with_mail_tools,
        )
        check_tool_choice(self.default_tool_choice)
        check_model(model)

    def _declare(self) -> None:
        super()._declare()
        self.tool_specs = self._specs()

    @property
    def endpoint(self) -> Endpoint:
        """The address and key of the agent's own provider, if it has one."""
        return Endpoint(self.api_base, self.api_key)

    @property
    def system_prompt(self) -> str:
        """The system prompt as the model gets it: ``system``, then what there is about peers."""
        if not self.peers:
            return self.system
        own = self.system.partition(PEERS_HEADLINE)[0].rstrip()
        return f"{own}\n\n{self.peers}" if own else self.peers

    def _specs(self) -> ToolSet:
        """Build the declarations once; they are the same, byte for byte, in every call."""
        own = to_json(self.tools)
        if not self._with_mail_tools:
            return ToolSet.shared(own)
        mail_tools, excluded, style = [], frozenset(self.exclude_tools), self.tool_format
        if self.comm_targets or self.enable_interswarm:
            targets = tuple(self.comm_targets)
            mail_tools += [
                _shared(create_mail_tools, targets, self.enable_interswarm, style, excluded),
                _shared(create_extra_tools, style, excluded),
            ]
        if self.teams:
            mail_tools.append(_shared(create_team_tools, self.teams, style, excluded))
        if self.participants:
            mail_tools.append(_shared(create_letter_tools, style, excluded))
        if self.files:
            mail_tools.append(_shared(create_file_tools, style, excluded))
        # Providers refuse two tools of one name: MAIL's own come first and stay.
        return ToolSet.shared(*mail_tools, own)

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
    ) -> AgentOutput:
        """Ask the model; see `MAILAgentFunction.__call__`.

        Raises:
            ModelError: the call failed for good.
        """
        call = current_call()
        tools = self.tool_specs
        if call.offered:  # what the caller lends the agent comes behind its own
            tools = ToolSet(call.offered if call.only_offered else [*tools, *call.offered])
        if call.only_offered:
            tool_choice = "required"
        elif isinstance(tool_choice, str):
            tool_choice = self.default_tool_choice or tool_choice
        model = model_for(call.llm) if call.llm else self.model
        request = ModelRequest(
            model=call.llm or self.llm,
            messages=messages,
            system=await self._prompt(call),
            tools=tools,
            tool_choice=tool_choice,
            tool_format=self.tool_format,
            settings=self.settings,
            profile={} if call.llm else self.model_profile,
            use_proxy=self.use_proxy,
            endpoint=DEFAULT_ENDPOINT if call.llm else self.endpoint,
            user_token=self.user_token,
            step=call.step,
        )
        printed = self.stream_tokens and self.print_llm_streams
        sink = call.sink if printed else call.sink.without_console()
        key = (call.task_id, call.agent)
        request = await self._compressor.fit(request, model, call.dynamic_ctx_ratio, key)
        reply = await ask(model, request, sink, call.report)
        return agent_output(reply, call.step)

    async def _prompt(self, call: CallContext) -> str:
        own = self.system_prompt if call.system is None else call.system
        if "{memory:" in own:
            own = await filled_prompt(own, partial(remembered, call))
        return "\n\n".join(filter(None, (own, PRIMER, call.instructions)))


async def remembered(call: CallContext, name: str, default: str = "") -> str:
    """Return a memory of the caller's: as it is stored, else as the swarm has it."""
    text = None
    if call.owner is not None and call.store is not None:
        text = await stored_text(call.store, Owner(*call.owner), name)
    return call.memories.get(name, default) if text is None else text


@lru_cache(maxsize=1024)  # an agent has the same for every caller
def _shared(create: Callable[..., list[dict[str, Any]]], *arguments: Any) -> bytes:
    """Return tools of MAIL's own as JSON."""
    return to_json(create(*arguments))


def deprecated_factory(old: str, new: str, agent: MAILAgentFunction) -> AgentFunction:
    """Warn that a factory function is deprecated and wrap the agent as it used to.

    Returns:
        An async function of history and tool choice; ``_mail_agent`` on it is the agent.
    """
    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)

    async def run(
        messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
    ) -> AgentOutput:
        return await agent(messages, tool_choice)

    setattr(run, "_mail_agent", agent)  # noqa: B010 - the documented handle
    for name in ("set_peers", "set_contacts"):
        setattr(run, name, getattr(agent, name))
    return run


def base_agent_factory(
    comm_targets: Sequence[str],
    tools: Sequence[Any],
    user_token: str,
    llm: str,
    system: str,
    name: str = "base_agent",
    **options: Any,
) -> AgentFunction:
    """Build a plain agent (deprecated: use `LiteLLMAgentFunction`, same options)."""
    agent = LiteLLMAgentFunction(name, comm_targets, tools, llm, system, user_token, **options)
    return deprecated_factory("base_agent_factory", "LiteLLMAgentFunction", agent)
