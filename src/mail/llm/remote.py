"""Models of definitions that came over the network: which may be named, and how they are asked.

A name is a provider of an allow-list and the model there, and never an address. The request itself
goes through `mail.egress`: to the provider's public address, or to one that the operator has set.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from mail.core.call_context import ModelRules
from mail.egress.client import GuardedTransport, system_transport
from mail.egress.rules import EgressPolicy, RefusedAddress
from mail.errors import ConfigError, ModelError
from mail.llm.profiles import PROXY_PREFIX
from mail.llm.provider_env import configured_address
from mail.llm.request import Endpoint, Wire

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]*(?:/[A-Za-z0-9][A-Za-z0-9._:@+-]*)*")
_NUMBER: Final = r"(?:0x[0-9a-f]+|\d+)"
_HOST: Final = re.compile(
    rf"(?i)localhost\.?(?::\d+)?|{_NUMBER}(?:\.{_NUMBER})+\.?(?::\d+)?|{_NUMBER}:\d+|0x[0-9a-f]+|"
    r".*\.[a-z]+:\d{2,5}"
)
"""A part of a name that is an address, also of fewer than four numbers or of hexadecimal ones."""
_LONGEST: Final = 200
_PROXY: Final = PROXY_PREFIX.rstrip("/")
_THROUGH_SDK: Final = frozenset({"openai", _PROXY})
"""The providers whose chat completions LiteLLM asks for with OpenAI's client."""
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_PROVIDERS_SETTING: Final = "[server.swarm] remote_providers"
_BASES_SETTING: Final = "[server.swarm] remote_api_bases"


def check_remote_llm(
    llm: str, rules: ModelRules, *, use_proxy: bool, provider_of: Callable[[str], str]
) -> None:
    """Check the name of a model in a definition that came over the network.

    Args:
        llm: The name, not that of a script.
        rules: The permitted parameters.
        use_proxy: Whether a LiteLLM proxy is asked for it.
        provider_of: Returns the provider of a name that has none in front, or no text.

    Raises:
        ConfigError: it is no plain name, or its provider is not allowed.
    """
    plain = len(llm) <= _LONGEST and _NAME.fullmatch(llm) and ".." not in llm
    if not plain or any(_HOST.fullmatch(part) for part in llm.split("/")):
        raise ConfigError(
            f"llm '{llm[:_LONGEST]}' is not allowed in an external definition: it must be a "
            "provider and a model, such as openai/gpt-5-mini, and must not name an address"
        )
    provider = _PROXY if use_proxy else llm.partition("/")[0] if "/" in llm else provider_of(llm)
    if provider not in rules.providers:
        raise ConfigError(
            f"llm '{llm}' is not allowed in an external definition: its provider is "
            f"{provider or 'unknown'}; allowed: {', '.join(rules.providers) or 'none'} "
            f"({_PROVIDERS_SETTING})"
        )


class _Way(GuardedTransport):
    """The way to a provider: what makes the connections, and remembers that it did."""

    def __init__(self, policy: EgressPolicy) -> None:
        import httpx

        unreachable = (httpx.ConnectError, httpx.ConnectTimeout)
        super().__init__(policy, system_transport(), unreachable=unreachable)
        self.used = False
        self.refused: RefusedAddress | None = None

    async def handle_async_request(self, request: Any) -> Any:
        """Check the request's address, then send it there."""
        self.used = True
        try:
            return await super().handle_async_request(request)
        except RefusedAddress as error:
            self.refused = error
            raise


def _way_to(provider: str, rules: ModelRules) -> _Way:
    """Return the way to a provider: public addresses, and those that the operator has set."""
    allow = list(rules.api_bases)
    parts = urlsplit(configured_address(provider) or "")
    if parts.hostname:
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        allow.append(f"{host}:{parts.port or _PORTS.get(parts.scheme, 443)}")
    return _Way(EgressPolicy(allow=tuple(allow)))


class Guard:
    """Lets the calls of an agent that was defined elsewhere go through `mail.egress`.

    Args:
        rules: The permitted parameters; None permits all, for agents of this machine's own files.
    """

    def __init__(self, rules: ModelRules | None) -> None:
        self._rules = rules
        self._way: _Way | None = None
        self._client: Any = None

    def take(self, litellm: Any, model: str, wire: Wire, arguments: dict[str, Any]) -> None:
        """Give a call of LiteLLM the client that it must use.

        Raises:
            ModelError: the library would ask a provider that is not allowed.
        """
        if self._rules is None:
            return
        provider, key, base = who_is_asked(litellm, model)
        if provider not in self._rules.providers:
            text = f"the provider {provider or 'of this model'} is not allowed here"
            raise ModelError(f"model call failed: {text} ({_PROVIDERS_SETTING})", status=400)
        self._way = _way_to(provider, self._rules)
        if wire == "completions" and provider in _THROUGH_SDK:
            key = arguments.get("api_key") or key
            base = configured_address(provider) or base
            self._client = self._sdk_client(api_key=key, base_url=base)
        else:
            from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

            way: Any = self._way
            self._client = AsyncHTTPHandler(transport=way, follow_redirects=False)
        arguments["client"] = self._client

    def openai_client(self, endpoint: Endpoint) -> Any:
        """Return a client of OpenAI's library.

        Raises:
            ModelError: see `Endpoint.arguments`.
        """
        if self._rules is not None:
            self._way = _way_to("openai", self._rules)
        told = endpoint.arguments()
        base = {"base_url": told.pop("api_base")} if endpoint.base else {}
        return self._sdk_client(**told, **base)

    def _sdk_client(self, **options: Any) -> Any:
        import httpx
        import openai

        if self._way is not None:
            way: Any = self._way
            client = httpx.AsyncClient(transport=way, trust_env=False, follow_redirects=False)
            options["http_client"] = client
        return openai.AsyncOpenAI(max_retries=0, **options)  # retries are ours

    def check(self) -> None:
        """Check, when a reply has begun, that it came the way that it should.

        Raises:
            ModelError: it did not.
        """
        if self._rules is not None and not (self._way and self._way.used):
            raise ModelError("model call failed: the request was not checked", status=400)

    def refusal(self) -> ModelError | None:
        """Return why the provider's address was refused, if it was."""
        if self._way is None or self._way.refused is None:
            return None
        text = f"model call failed: {self._way.refused}; an operator can allow it in"
        self._way.refused = None  # a client may be used again
        return ModelError(f"{text} {_BASES_SETTING}", status=400)

    async def aclose(self) -> None:
        """Close the connections that were made for a call."""
        if self._client is not None:
            await self._client.close()


def who_is_asked(litellm: Any, model: str) -> tuple[str, str | None, str | None]:
    """Return the provider that the library will ask, its key and its address."""
    try:
        _, provider, key, base = litellm.get_llm_provider(model=model)
    except litellm.BadRequestError:
        return "", None, None
    given = litellm.api_key or litellm.openai_key if provider == "openai" else None
    return str(provider), key or given, base
