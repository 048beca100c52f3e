"""Which wire format a model is spoken to in, and what it can do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mail.llm import anthropic, completions, responses
from mail.llm.request import Delta, ModelRequest, ToolFormat, Wire

__all__ = ["PROXY_PREFIX", "Abilities", "abilities_of", "decoder_of", "encoded"]

PROXY_PREFIX: Final = "litellm_proxy/"

_ANTHROPIC: Final = "anthropic"
_CLAUDE: Final = "claude"
_BLOCK_HOSTS: Final = frozenset({"azure_ai", "vertex_ai"})
"""Others whose Claude models LiteLLM speaks to in Anthropic's own message blocks."""
_MARKED_HOSTS: Final = frozenset({_ANTHROPIC, *_BLOCK_HOSTS, "bedrock"})
"""Where Claude's requests can be marked for the cache; the rest cache by themselves, or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What is known of a model: its wire, and whether it thinks, reasons and caches.

    ``thinks`` means that it can be told to think, ``adapts`` that it then takes an effort in place
    of a budget, ``signs`` that it signs its thinking, ``reasons`` that it is a reasoning model,
    ``caches`` that parts of a request can be marked for its cache.
    """

    wire: Wire
    thinks: bool = False
    adapts: bool = False
    signs: bool = False
    reasons: bool = False
    caches: bool = False


def abilities_of(litellm: Any, model: str, tool_format: ToolFormat) -> Abilities:
    """Find out what a model can do from LiteLLM's tables.

    Claude models are spoken to in Anthropic's blocks, whatever the tool format is; ``responses``
    applies to providers that have that API, and to a proxy, which has it for every model; all
    others speak chat completions.

    Args:
        litellm: The library.
        model: A model's name; what a proxy stands for decides, not the proxy.
        tool_format: The agent's tool format.
    """
    inner = model.removeprefix(PROXY_PREFIX)
    proxied = inner != model
    name, provider = _provider(litellm, inner)
    claude = provider == _ANTHROPIC or _CLAUDE in name.lower()
    if provider == _ANTHROPIC or (provider in _BLOCK_HOSTS and claude):
        wire: Wire = "anthropic"
    elif tool_format == "responses" and (proxied or _has_responses(litellm, name, provider)):
        wire = "responses"
    else:
        wire = "completions"
    supported = _asked(litellm.get_supported_openai_params, model=inner) or ()
    return Abilities(
        wire=wire,
        thinks="thinking" in supported,
        adapts=claude and _adapts(litellm, name, provider),
        signs=claude,
        reasons=bool(_asked(litellm.supports_reasoning, model=inner)),
        caches=claude
        and provider in _MARKED_HOSTS
        and bool(_asked(litellm.utils.supports_prompt_caching, model=inner)),
    )


def _adapts(litellm: Any, model: str, provider: str) -> bool:
    """Tell whether a Claude model refuses thinking budgets."""

    def able(ability: str) -> bool:
        asked = litellm.AnthropicConfig.supports_model_capability
        given = {"key": ability, "custom_llm_provider": provider}
        return bool(_asked(asked, model=model, **given))

    return able("supports_adaptive_thinking") and not able("supports_legacy_thinking")


def _asked(question: Callable[..., Any], **arguments: Any) -> Any:
    """Ask the library about a model that it may not know."""
    try:
        return question(**arguments)
    except Exception:  # noqa: BLE001 - it knows no such model: the call itself says so
        return None


def _provider(litellm: Any, model: str) -> tuple[str, str]:
    found = _asked(litellm.get_llm_provider, model=model)
    return (str(found[0]), str(found[1])) if found else (model, "")


def _has_responses(litellm: Any, model: str, provider: str) -> bool:
    known = _asked(lambda: litellm.LlmProviders(provider))
    manager = litellm.utils.ProviderConfigManager
    config = _asked(manager.get_provider_responses_api_config, model=model, provider=known)
    return known is not None and config is not None


def encoded(request: ModelRequest, abilities: Abilities) -> dict[str, Any]:
    """Build the arguments of LiteLLM's call in the model's wire format."""
    if abilities.wire == "responses":
        return responses.encode(request, reasoning=abilities.reasons)
    if abilities.wire == "anthropic":
        return anthropic.encode(
            request,
            thinking=abilities.thinks,
            adapts=abilities.adapts,
            caching=abilities.caches,
        )
    return completions.encode(
        request,
        thinking=abilities.thinks,
        adapts=abilities.adapts,
        signed=abilities.signs,
        caching=abilities.caches,
    )


def decoder_of(wire: Wire) -> Callable[[Any], Delta]:
    """Return what reads the pieces of a wire's stream."""
    return _DECODERS[wire]


_DECODERS: Final[Mapping[Wire, Callable[[Any], Delta]]] = {
    "completions": completions.decode,
    "responses": responses.decode,
    "anthropic": anthropic.decode,
}
