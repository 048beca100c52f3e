"""The variables that a model call needs, checked before anything is sent."""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from mail.errors import ModelError
from mail.llm.request import DEFAULT_ENDPOINT, Endpoint, ToolFormat

_PROXY: Final = "litellm_proxy"
_PROXY_ADDRESS: Final = "LITELLM_PROXY_API_BASE"
_PROXY_KEY: Final = "LITELLM_PROXY_API_KEY"
_OPENAI: Final = "openai"
_OPENAI_HOST: Final = "api.openai.com"
_OPENAI_KEY: Final = "OPENAI_API_KEY"
# In the order in which the library looks at them.
_ADDRESSES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        _PROXY: (_PROXY_ADDRESS,),
        _OPENAI: ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        "anthropic": ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
        "azure": ("AZURE_API_BASE",),
        "mistral": ("MISTRAL_AZURE_API_BASE",),
    }
)
_ANYWHERE: Final = frozenset({"hosted_vllm", "lm_studio"})
"""Servers of one's own, which have no usual address."""
_OWN_CLIENTS: Final = frozenset(
    {
        *(_PROXY, _OPENAI, "ai21", "azure_ai", "chatgpt", "cometapi", "github_copilot"),
        *("ragflow", "xinference"),
    }
)
"""Whom the library counts among those that are like OpenAI, but asks in another way."""
_FAILED: Final = "model call failed: "
_KEY_SUFFIX: Final = "_API_KEY"
_IDENTITY: Final = "OPENAI_IDENTITY_PROVIDER_ID"
_BAD_REQUEST: Final = 400
_UNAUTHORIZED: Final = 401


def forget_empty_keys() -> None:
    """Take keys without any text out of the environment, where the library counts them as set.

    A copy of ``.env.example`` that nobody has filled in leaves such ones.
    """
    for name in [name for name, value in os.environ.items() if not value]:
        if name.endswith(_KEY_SUFFIX):
            del os.environ[name]


def proxy_configured() -> bool:
    """Tell whether the environment names a LiteLLM proxy."""
    return bool(os.environ.get(_PROXY_ADDRESS))


def check_surroundings(
    litellm: Any,
    model: str,
    *,
    in_name: bool,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Refuse a call that cannot work, or would take a key to where it does not belong.

    Args:
        litellm: The library.
        model: The model's name.
        in_name: Whether the call carries the token of whoever asked.
        endpoint: The agent's own address and key.

    Raises:
        ModelError: an address or a key is missing or wrong; the text names the variable and
            never shows its value.
    """
    provider = provider_of(litellm, model)
    if endpoint.key:
        _check_key(endpoint.key, None)
    if any(endpoint):
        _check_address(() if endpoint.base else _ADDRESSES.get(provider, ()))
        return
    if provider == _PROXY and not proxy_configured():
        # The library would send the caller's token to whatever address it finds instead.
        raise _refused(
            f"{_PROXY_ADDRESS} is not set; set it, or set use_proxy to false for this agent"
        )
    _check_address(_ADDRESSES.get(provider, ()))
    if provider == _PROXY and not in_name:
        # The library would send the key of OpenAI to the proxy.
        _check_key(_PROXY_KEY, litellm.api_key)
    if provider == _OPENAI and not os.environ.get(_IDENTITY):
        _check_key(_OPENAI_KEY, litellm.api_key or litellm.openai_key)
    _check_text(f"{provider.upper()}{_KEY_SUFFIX}")
    missing = _own_missing(litellm, model, provider)
    if missing.endswith(_KEY_SUFFIX):
        _check_key(missing, None)
    elif missing:
        raise _refused(f"{missing} is not set; without it the request would go to OpenAI")


def _own_missing(litellm: Any, model: str, provider: str) -> str:
    """Return the variable of a provider's own that is not set, where OpenAI's would be used.

    The library asks many providers with OpenAI's client, which takes OpenAI's key, and OpenAI's
    address, where it is given none.
    """
    if provider in _OWN_CLIENTS or provider not in litellm.openai_compatible_providers:
        return ""
    try:
        _, _, key, address = litellm.get_llm_provider(model=model)
    except litellm.BadRequestError:
        return ""
    name = provider.upper().replace("-", "_")
    if provider in _ANYWHERE and not address:
        return f"{name}_API_BASE"
    if key or litellm.api_key:
        return ""
    listed = litellm.validate_environment(model=model)["missing_keys"]
    return str(next((one for one in listed if one.endswith(_KEY_SUFFIX)), f"{name}{_KEY_SUFFIX}"))


def configured_address(provider: str) -> str | None:
    """Return the address that the operator has set for a provider, if any."""
    usual = (f"{provider.upper()}_API_BASE",)
    values = (os.environ.get(name) for name in _ADDRESSES.get(provider, usual))
    return next(filter(None, values), None)


def is_ready_at_once(provider: str) -> bool:
    """Tell whether a provider's calls are made ready without asking anybody for credentials."""
    if provider == "anthropic":
        return bool(os.environ.get("ANTHROPIC_API_KEY"))  # else a token may have to be fetched
    return provider in (_OPENAI, _PROXY) and not os.environ.get(_IDENTITY)


def asks_openai(address: str = "") -> bool:
    """Tell whether calls to OpenAI go there, and not to a server that speaks like it."""
    address = address or configured_address(_OPENAI) or ""
    return not address or urlsplit(address).hostname == _OPENAI_HOST


class ModelUse(NamedTuple):
    """A provider's model that an agent asks."""

    agent: str
    model: str
    tool_format: ToolFormat
    use_proxy: bool
    endpoint: Endpoint = DEFAULT_ENDPOINT


def model_warnings(litellm: Any, uses: Iterable[ModelUse]) -> list[str]:
    """Return a line for every reason that the environment gives model calls to fail.

    Args:
        litellm: The library.
        uses: The agents with the models that they ask.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for use in uses:
        problem = model_problem(litellm, use, in_name=use.use_proxy)
        if problem:
            found.setdefault((use.model, problem), []).append(use.agent)
    return [
        f"model '{model}' of {', '.join(agents)} cannot be used: {problem}"
        for (model, problem), agents in found.items()
    ]


def model_problem(litellm: Any, use: ModelUse, *, in_name: bool) -> str | None:
    """Return why the environment makes calls of a model fail, or None.

    Args:
        litellm: The library.
        use: An agent with the model that it asks.
        in_name: Whether calls through the proxy carry the token of whoever asked.
    """
    model = _full_name(use)
    try:
        check_surroundings(litellm, model, in_name=in_name, endpoint=use.endpoint)
    except ModelError as error:
        return str(error).removeprefix(_FAILED)
    if (problem := name_problem(litellm, model)) is not None:
        return problem
    if any(use.endpoint):
        return None
    # Of what the library lists, only keys are needed in every set-up.
    missing = [name for name in _unset(litellm, model) if name.endswith(_KEY_SUFFIX)]
    return f"{' or '.join(missing)} is not set" if missing else None


def name_problem(litellm: Any, model: str) -> str | None:
    """Return why a model's name leads to no provider, or None."""
    try:
        litellm.get_llm_provider(model=model)
    except litellm.BadRequestError:
        return "LiteLLM has no such provider; write provider/model, such as openai/gpt-5-mini"
    return None


def missing_variables(litellm: Any, use: ModelUse) -> list[str]:
    """Return the environment variables that calls of a model may need and that are not set."""
    model, key = _full_name(use), use.endpoint.key
    if any(use.endpoint):
        return [key] if key and not os.environ.get(key) else []
    if provider_of(litellm, model) != _PROXY:
        return _unset(litellm, model)
    given = (os.environ.get(_PROXY_ADDRESS), os.environ.get(_PROXY_KEY) or litellm.api_key)
    return [
        name for name, value in zip((_PROXY_ADDRESS, _PROXY_KEY), given, strict=True) if not value
    ]


def _full_name(use: ModelUse) -> str:
    name = use.model.removeprefix(f"{_PROXY}/")
    return f"{_PROXY}/{name}" if use.use_proxy else use.model


def _unset(litellm: Any, model: str) -> list[str]:
    missing: list[str] = litellm.validate_environment(model=model)["missing_keys"]
    own = _own_missing(litellm, model, provider_of(litellm, model))
    missing = [*missing, *([own] if own and own not in missing else [])]
    return [] if _OPENAI_KEY in missing and os.environ.get(_IDENTITY) else missing


def provider_of(litellm: Any, model: str) -> str:
    """Return the provider that a model's name stands for; no text if there is none."""
    provider, slash, _ = model.partition("/")
    if slash:
        return provider
    try:
        return str(litellm.get_llm_provider(model=model)[1])
    except litellm.BadRequestError:
        return ""  # no such provider: the call itself says so


def _check_address(variables: Sequence[str]) -> None:
    variable = next(filter(os.environ.get, variables), None)
    if variable is None:
        return
    parts = _split(os.environ[variable])
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise _refused(
            f"{variable} is not a valid address; it must start with http:// or "
            "https:// and name a host"
        )
    if "@" in parts.netloc:
        raise _refused(f"{variable} must not contain a user name or password")


@lru_cache(maxsize=32)
def _split(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
        return None if parts.port == 0 or any(map(str.isspace, address)) else parts
    except ValueError:  # brackets, or a port that is no number
        return None


def _check_key(variable: str, given: str | None) -> None:
    if not given and not os.environ.get(variable):
        text = f"{variable} is not set; set it (to any text if the address needs no key)"
        raise _refused(text, _UNAUTHORIZED)
    _check_text(variable)


def _check_text(variable: str) -> None:
    """Refuse a key that no header can carry, such as the dots of an example."""
    value = os.environ.get(variable, "")
    if not (value.isascii() and value.isprintable()):
        raise _refused(f"{variable} is no key: it has characters that keys do not have")


def _refused(text: str, status: int = _BAD_REQUEST) -> ModelError:
    return ModelError(f"{_FAILED}{text}", status=status)
