"""Ollama: what its server says of a model, asked for without keeping anybody waiting.

LiteLLM would ask a server for models that its tables lack by itself: several times with every call,
in threads that all calls share and on the event loop, for as long as the server is silent. It is
kept from that; what we learn from the server goes into LiteLLM's tables instead.
"""

import importlib
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mail.llm.profiles import Profile, overrides_for

NUM_CTX: Final = 32_768
"""The context in tokens that is asked for if nobody says how large it shall be: the server's own
default is 4,096 on most machines, and it cuts what is longer without a word."""

_log = logging.getLogger(__name__)

OLLAMA: Final = "ollama"
"""LiteLLM's name of the provider, which its addresses have."""
_GENERATE: Final = f"{OLLAMA}/"
_CHAT: Final = "ollama_chat/"
_SOURCE: Final = "/api/show"
_NUM_CTX_LINE: Final = re.compile(r"^num_ctx\s+(\d+)\s*$", re.MULTILINE)
_THINKING: Final = "supports_reasoning"
_TOOLS: Final = "supports_function_calling"
_CONTEXT: Final = "max_input_tokens"
_SET_BY_MODEL: Final = "num_ctx_in_modelfile"
_SAID_AT: Final = "said_at"


def is_ollama(model: str) -> bool:
    """Tell whether a model's name leads to an Ollama server directly."""
    return model.startswith((_GENERATE, _CHAT))


def chat_name(model: str) -> str:
    """Return the name under which LiteLLM calls tools as Ollama does.

    Under ``ollama/`` it would paste the tools into the prompt of an older API.
    """
    return _CHAT + model.removeprefix(_GENERATE) if model.startswith(_GENERATE) else model


def names_of(model: str) -> tuple[str, ...]:
    """Return both names of an Ollama model: operators may set its fields under either."""
    if not is_ollama(model):
        return ()
    bare = model.removeprefix(_GENERATE).removeprefix(_CHAT)
    return f"{_CHAT}{bare}", f"{_GENERATE}{bare}"


def keep_from_asking() -> None:
    """Keep LiteLLM from asking servers about models: it would block whoever waits for an answer."""
    common: Any = importlib.import_module("litellm.llms.ollama.common_utils")

    def unknown(
        asked: Any, model: str, api_base: str | None = None, api_key: str | None = None
    ) -> Any:
        none = dict.fromkeys(("max_tokens", _CONTEXT, "max_output_tokens"))
        return {**none, **_free(), "key": model, "litellm_provider": "ollama", "mode": "chat"}

    common.OllamaModelInfo.get_runtime_model_info = unknown


def _free() -> dict[str, Any]:
    return {
        "input_cost_per_token": 0.0,
        "output_cost_per_token": 0.0,
        "cache_creation_input_token_cost": 0.0,
        "cache_read_input_token_cost": 0.0,
    }


async def look_up(litellm: Any, model: str) -> bool:
    """Ask the server about a model, unless this one told before in this process.

    A server that cannot tell is no error: the call itself will say what is wrong.

    Returns:
        Whether more is known now than before.
    """
    name = chat_name(model)
    if _known(litellm, name):
        return False
    common: Any = importlib.import_module("litellm.llms.ollama.common_utils")
    base = _address(litellm)
    key = litellm.ollama_key or common.OllamaModelInfo.get_api_key()
    try:
        answer = await litellm.module_level_aclient.post(
            url=f"{base}{_SOURCE}",
            json={"model": name.removeprefix(_CHAT)},
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )
        shown = answer.json()
    except Exception as error:  # noqa: BLE001 - the library raises whatever its transport raises
        _log.debug("Ollama tells nothing", extra={"model": model, "reason": type(error).__name__})
        return False
    if not isinstance(shown, Mapping):
        return False
    _register(litellm, name, shown, base)
    if name != model:
        _log.info("Ollama models are called through its chat API", extra={"model": model})
    return True


def _address(litellm: Any) -> str:
    common: Any = importlib.import_module("litellm.llms.ollama.common_utils")
    return str(common.OllamaModelInfo.get_server_api_base(litellm.api_base))


def _register(litellm: Any, name: str, shown: Mapping[str, Any], base: str) -> None:
    """Put what a server says of a model into LiteLLM's tables, under both of its names."""
    able = shown.get("capabilities")
    able = able if isinstance(able, list) else None
    line = _NUM_CTX_LINE.search(str(shown.get("parameters") or ""))
    size = int(line[1]) if line else min(_longest(shown) or NUM_CTX, NUM_CTX)
    entry = {
        **_free(),
        "mode": "chat",
        "source": _SOURCE,
        _SAID_AT: base,
        _CONTEXT: size,
        _SET_BY_MODEL: line is not None,
        _TOOLS: able is None or "tools" in able,
        _THINKING: able is None or "thinking" in able,
    }
    bare = name.removeprefix(_CHAT)
    for prefix in (_CHAT, _GENERATE):
        provider = prefix.rstrip("/")
        litellm.register_model({f"{prefix}{bare}": {**entry, "litellm_provider": provider}})


def _longest(shown: Mapping[str, Any]) -> int | None:
    """Return the context in tokens that a model can have at most."""
    details = shown.get("model_info")
    for name, value in details.items() if isinstance(details, Mapping) else ():
        if str(name).endswith(".context_length") and isinstance(value, int) and value > 0:
            return value
    return None


def _known(litellm: Any, name: str) -> Mapping[str, Any]:
    """Return what the server of today said of a model; nothing if it was not asked."""
    entry = litellm.model_cost.get(name)
    if not isinstance(entry, Mapping) or entry.get("source") != _SOURCE:
        return {}
    return entry if entry.get(_SAID_AT) == _address(litellm) else {}


def known_context(litellm: Any, model: str) -> int | None:
    """Return how many tokens a model reads for who sets nothing, if its server told."""
    return _known(litellm, chat_name(model)).get(_CONTEXT)


def context_set(model: str, own: Mapping[str, Any]) -> int | None:
    """Return how many tokens an Ollama model is to read, if its agent or the operator says it.

    Raises:
        ConfigError: see `mail.llm.profiles.configured_models`.
    """
    if not is_ollama(model):
        return None
    size = overrides_for(model, own, also=names_of(model)).get("arguments", {}).get("num_ctx")
    return size if isinstance(size, int) else None


def fitted(litellm: Any, profile: Profile, model: str) -> Profile:
    """Return the profile of an Ollama model as its server says what the model can do."""
    known = _known(litellm, chat_name(model))
    if "num_ctx" not in profile.arguments and not known.get(_SET_BY_MODEL):
        size = known.get(_CONTEXT) or NUM_CTX
        profile = replace(profile, arguments={"num_ctx": size, **profile.arguments})
    if not known.get(_THINKING, True):  # refused by the server
        profile = replace(profile, thinks="no", effort_via="none")
    return profile if known.get(_TOOLS, True) else replace(profile, tools=False)
