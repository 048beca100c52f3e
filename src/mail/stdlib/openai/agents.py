"""Agent functions that ask OpenAI's API through OpenAI's library, for each of its two APIs.

MAIL's side is the same as with `mail.factories`: its tools are offered, text alone becomes
``text_output``, calls carry reasoning and preamble, and failures are tried again.
"""

import asyncio
import importlib
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from mail.core.call_context import ModelRules
from mail.core.suggest import hinted
from mail.errors import ConfigError, ModelError
from mail.factories.action import ActionAgentFunction
from mail.factories.base import (
    LiteLLMAgentFunction,
    MAILAgentFunction,
    ToolFormat,
    parameters_of,
)
from mail.factories.checks import of_agent
from mail.factories.supervisor import SupervisorFunction
from mail.llm.attempt import Attempt, LibraryModel
from mail.llm.fallback import Place, Tries
from mail.llm.profiles import LIKE, PROXY_PREFIX, Profile, checked_fields, facts_of, overrides_for
from mail.llm.provider_env import asks_openai, configured_address
from mail.llm.remote import Guard
from mail.llm.request import Endpoint, ModelRequest, Wire
from mail.llm.retry import RetryPolicy, Sleep
from mail.llm.silence import listen_to, patience_of
from mail.llm.streams import pieces_of
from mail.llm.wires import encoded

if TYPE_CHECKING:
    import openai

_PREFIX: Final = "openai/"
_CONNECT_SECONDS: Final = 10.0
_BAD_REQUEST: Final = 400
_OPENAI: Final = "openai"
_TUNED: Final = "ft:"
_REASONS = re.compile(r"(?:o\d|gpt-[5-9](?!.*-chat)|codex|computer-use)")
# What the library would import in the middle of its first call, on the event loop.
_SLOW_PARTS: Final = ("openai", "openai.resources.chat", "openai.resources.responses")


class OpenAIModel(LibraryModel):
    """A model of OpenAI's, or of a server that speaks like it, always streamed.

    The key is taken from ``OPENAI_API_KEY`` and the address from ``OPENAI_BASE_URL`` when the first
    call is made; the client made then is kept until `aclose`. The first call to a model reads its
    ``[models."NAME"]`` table in ``mail.toml``.

    Args:
        wire: The API: ``completions`` or ``responses``. OpenAI's newest models call
            tools only over the latter, so there they are spoken to like that in any case.
        reasons: Whether the model reasons, for the Responses API; None goes by its name. A
            ``thinks`` of the request's profile comes before it.
        retry: The policy of retries.
        sleep: Waits between attempts.
    """

    def __init__(
        self,
        wire: ToolFormat,
        *,
        reasons: bool | None = None,
        retry: RetryPolicy | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__(retry, sleep)
        self._wire: ToolFormat = wire
        self._reasons = reasons
        self._client: openai.AsyncOpenAI | None = None
        self._guard = Guard(None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._given: dict[tuple[str, str], Mapping[str, Any]] = {}

    async def aclose(self) -> None:
        """Close the client and its connections; a later call makes a new one."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    async def _prepare(
        self, request: ModelRequest, rules: ModelRules | None, tries: Tries, end: float
    ) -> Attempt:
        key = request.model, repr(request.profile)
        if key not in self._given:
            read = partial(_profile_fields, request.model, request.profile)
            try:
                self._given[key] = await asyncio.to_thread(read)
            except ConfigError as error:
                raise ModelError(f"model call failed: {error}", status=_BAD_REQUEST) from None
        profile = tries.begin(self._profile(request, self._given[key]))
        patience = patience_of(request.settings, profile)
        client = await self._open_client(rules, request.endpoint)
        return Attempt(
            wire=profile.wire,
            name=request.model,
            patience=patience,
            guard=self._guard,
            open=partial(self._ask, client, request, profile, patience.read),
        )

    async def _open_client(
        self, rules: ModelRules | None, endpoint: Endpoint
    ) -> "openai.AsyncOpenAI":
        """Return the client of the running loop; connections of another loop are of no use."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            await asyncio.to_thread(_load)
        # Nothing is awaited from here on, so calls that begin together share one client.
        if self._client is None or self._loop is not loop:
            self._guard = Guard(rules)
            self._client = self._guard.openai_client(endpoint)
            self._loop = loop
        return self._client

    async def _ask(
        self, client: "openai.AsyncOpenAI", request: ModelRequest, profile: Profile, silence: float
    ) -> Any:
        """Begin a call and return its stream."""
        import httpx

        timeout = httpx.Timeout(silence, connect=_CONNECT_SECONDS)
        arguments = encoded(request, profile) | {"model": _bare(request.model)}
        if profile.wire == "responses":
            call: Any = client.responses.create
        else:
            if "thinking" in arguments:  # of a server that speaks like OpenAI's
                more = {"thinking": arguments.pop("thinking")}
                arguments["extra_body"] = more | arguments.get("extra_body", {})
            if "max_tokens" in arguments:  # the old name, which reasoning models refuse
                arguments["max_completion_tokens"] = arguments.pop("max_tokens")
            if profile.stream and "stream_options" not in profile.without:
                arguments["stream_options"] = {"include_usage": True}
            call = client.chat.completions.create
        if profile.stream:
            return await call(**arguments, stream=True, timeout=timeout)
        return pieces_of(await call(**arguments, timeout=timeout), profile.wire)

    def _place(self, request: ModelRequest) -> Place:
        own = request.endpoint.arguments()
        key = own.get("api_key") or os.environ.get("OPENAI_API_KEY", "")
        address = request.endpoint.base or configured_address(_OPENAI) or ""
        return Place.of(address, key, request.model, self._wire)

    def _profile(self, request: ModelRequest, fields_given: Mapping[str, Any]) -> Profile:
        """Return what a model accepts and needs; LiteLLM's tables are not loaded for that."""
        given = dict(fields_given)
        like = str(given.pop(LIKE, "")).removeprefix(PROXY_PREFIX)
        name = _bare(like or request.model).removeprefix(_TUNED)
        provider, slash, rest = name.partition("/")
        fields = dict(facts_of(provider, rest) if like and slash else facts_of(_OPENAI, name))
        asked = request.settings.reasoning_effort is not None
        if self._reasons is not None:
            fields["thinks"] = "asked" if self._reasons else "no"
        elif "thinks" not in fields:
            fields["thinks"] = "asked" if asked or _REASONS.match(name) else "no"
        own = asks_openai(request.endpoint.base)
        chats = bool((fields | given).get("chat_tools", True))
        bridged = own and bool(request.tools) and not chats
        usual: Wire = "responses" if self._wire == "responses" or bridged else "completions"
        responses = given.get("wire", usual) == "responses"
        fields |= {
            "wire": usual,
            "effort_via": "reasoning" if responses else "reasoning_effort",
            "send_back": "always" if responses else "never",
            "store": False if own else None,
        }
        return Profile(**fields | given)


def _bare(model: str) -> str:
    return model.removeprefix(_PREFIX)


def _profile_fields(model: str, own: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a profile that the agent sets, and behind it the operator.

    Raises:
        ConfigError: see `checked_fields`; or a format that OpenAI's library does not speak.
    """
    fields = checked_fields(own or {}, "model_profile")
    fields = overrides_for(model, fields, also=(_bare(model), _PREFIX + _bare(model)))
    if fields.get("wire") == "anthropic":
        raise ConfigError(f"model '{model}': OpenAI's library does not speak the wire 'anthropic'")
    return fields


def _load() -> None:
    for part in _SLOW_PARTS:
        importlib.import_module(part)
    listen_to(importlib.import_module("httpx").AsyncHTTPTransport)


_WIRING: Final = frozenset(signature(MAILAgentFunction).parameters)
_OWN: Final = frozenset({"reasons", "retry"})
OPTIONS: Final = _OWN.union(signature(LiteLLMAgentFunction).parameters) - (
    _WIRING | {"llm", "model", "use_proxy"}
)
"""Keyword options of the agents; `mail.factories.LiteLLMAgentFunction` says what they mean.

``reasons`` and ``retry`` are those of `OpenAIModel`. ``user_token`` is taken because swarms give it
to every agent; it is sent to nobody.
"""


class _OpenAIFunction(LiteLLMAgentFunction):
    """The common part of the agents; ``wire`` is the API of the class."""

    wire: ToolFormat
    model: OpenAIModel

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        /,
        name: str,
        comm_targets: Sequence[str],
        model: str,
        tools: Sequence[Any],
        enable_entrypoint: bool = False,
        enable_interswarm: bool = False,
        can_complete_tasks: bool = False,
        tool_format: ToolFormat | None = None,
        exclude_tools: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        given: Any = model  # another factory's `model` is an object
        if not isinstance(given, str) or not given:
            raise ConfigError(f"agent '{name}': model must be the name of an OpenAI model")
        unknown = sorted(kwargs.keys() - OPTIONS)
        if unknown:
            text = f"agent '{name}' has no option '{unknown[0]}'"
            raise ConfigError(hinted(text, unknown[0], OPTIONS))
        reasons, retry = kwargs.pop("reasons", None), kwargs.pop("retry", None)
        with of_agent(name):
            profile = _profile_fields(model, kwargs.pop("model_profile", None))
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
            model_profile=profile,
            **kwargs,
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

    OpenAI's newest models refuse tools there; those of them that OpenAI serves itself are asked
    over its Responses API.

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
        kwargs: See `OPTIONS`.

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
