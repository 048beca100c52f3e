"""Every provider through LiteLLM; the only module that imports it, and only for the first call."""

import asyncio
import contextlib
import importlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mail.core.call_context import ModelRules
from mail.lazy import importing_much
from mail.llm.attempt import Attempt, LibraryModel
from mail.llm.fallback import Adaptations, Place, Tries
from mail.llm.ollama import chat_name, fitted, is_ollama, keep_from_asking, look_up, names_of
from mail.llm.profiles import (
    PROXY_PREFIX,
    REGISTERED,
    Profile,
    merged,
    overrides_for,
    profile_of,
)
from mail.llm.provider_env import (
    check_surroundings,
    configured_address,
    forget_empty_keys,
    is_ready_at_once,
    provider_of,
)
from mail.llm.remote import Guard, who_is_asked
from mail.llm.request import Delta, ModelRequest, Wire
from mail.llm.retry import RetryPolicy, Sleep
from mail.llm.silence import (
    AT_ONCE,
    Patience,
    aside,
    give_threads_to,
    listen_to,
    patience_of,
)
from mail.llm.streams import let_through, pieces_of
from mail.llm.thinking import effort_note
from mail.llm.wires import encoded
from mail.redaction import redact_foreign

_log = logging.getLogger(__name__)

_NO_KEY: Final = "the-user-token-is-in-the-header"
_CONNECT_SECONDS: Final = 10.0
_FEW_MESSAGES: Final = 64
_READY: Final = "_loaded_by_mail"
_ENVIRONMENT: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    # Else the library would read a .env file into this process in the middle of its work.
    "LITELLM_MODE": "PRODUCTION",
    # A connection whose other end has vanished ends after two minutes, however long silence is.
    "AIOHTTP_SO_KEEPALIVE": "True",
    "AIOHTTP_TCP_KEEPIDLE": "60",
    "AIOHTTP_TCP_KEEPINTVL": "15",
    "AIOHTTP_TCP_KEEPCNT": "4",
}
# The library warns of records that it made itself.
_OWN_WARNINGS: Final = (
    r"(?s)Pydantic serializer warnings:.*ResponseAPIUsage",
    r"Items? '.+' on TypedDict class '\w+' (?:is|are) using the `ReadOnly` qualifier",
)
# Where the library prepares calls in the threads of the event loop.
_IN_THREADS: Final = ("litellm.main", "litellm.responses.main")
_LOGGERS: Final = ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router")
_LOG_SETTING: Final = "LITELLM_LOG"
# What the library would import in the middle of its first call, on the event loop.
_ENCODING: Final = "litellm.litellm_core_utils.default_encoding"
_SLOW_PARTS: Final[Mapping[Wire, str]] = {
    "completions": "openai.resources.chat",
    "responses": "litellm.responses.mcp.litellm_proxy_mcp_handler",
    "anthropic": "litellm.llms.anthropic.chat.handler",
}
# Of two threads that import packages which import each other, one gets half of a module.
_IMPORTING: Final = threading.RLock()


def load_library() -> Any:
    """Import LiteLLM, kept from fetching or printing anything; takes seconds the first time."""
    litellm: Any = sys.modules.get("litellm")
    if litellm is not None and getattr(litellm, _READY, False):
        return litellm
    with _IMPORTING, importing_much():
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        forget_empty_keys()
        for message in _OWN_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        litellm = importlib.import_module("litellm")
        litellm.suppress_debug_info = True  # it prints advertisements to standard output otherwise
        httpx: Any = importlib.import_module("httpx")
        default: Any = importlib.import_module("litellm.llms.custom_httpx.aiohttp_transport")
        listen_to(default.LiteLLMAiohttpTransport, httpx.AsyncHTTPTransport)
        _take_over_log(litellm)
        give_threads_to(*(importlib.import_module(name) for name in _IN_THREADS))
        keep_from_asking()
        # It would ask Hugging Face for the length of a context, and for tokenizers to count with.
        litellm.disable_hf_tokenizer_download = True
        utils: Any = importlib.import_module("litellm.utils")
        utils._get_max_position_embeddings = lambda model_name: None  # noqa: SLF001
        setattr(litellm, _READY, True)
    return litellm


class _Relay(logging.Handler):
    """Passes on what the library logs, without secrets; what concerns a call is in its error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the text, and of an exception only its class."""
        if not _log.isEnabledFor(logging.DEBUG):
            return
        try:
            text = redact_foreign(record.getMessage())
        except (TypeError, ValueError):  # arguments that do not fit the text
            text = redact_foreign(str(record.msg))
        error = record.exc_info[0] if record.exc_info else None
        raised = "" if error is None else error.__name__
        _log.debug("LiteLLM: %s", text, extra={"said_as": record.levelname, "raised": raised})


def _take_over_log(litellm: Any) -> None:
    """Keep the library's warnings off standard error, unless its own setting asks for them."""
    if os.environ.get(_LOG_SETTING):
        return
    own: logging.Handler | None = getattr(litellm._logging, "handler", None)  # noqa: SLF001
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if own is not None:
            logger.removeHandler(own)
        logger.setLevel(max(logger.level, logging.WARNING))
        logger.propagate = False
        logger.addHandler(_Relay())


def load_parts(wires: Iterable[Wire] = ("anthropic", "completions", "responses")) -> None:
    """Import LiteLLM with what the first calls of some wires need; blocks for seconds."""
    with _IMPORTING, importing_much():
        load_library()
        for name in (_ENCODING, *(_SLOW_PARTS[wire] for wire in wires)):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


async def close_clients() -> None:
    """Close the HTTP clients that LiteLLM keeps, if it was used; later calls make new ones."""
    litellm: Any = sys.modules.get("litellm")
    if not getattr(litellm, _READY, False):  # a thread may still be importing it
        return
    await litellm.close_litellm_async_clients()
    litellm.in_memory_llm_clients_cache.flush_cache()
    shared = vars(litellm).pop("module_level_aclient", None)  # made anew when it is asked for
    if shared is not None:
        await shared.close()


class LiteLLMModel(LibraryModel):
    """Any model that LiteLLM reaches, in the wire format that suits it, always streamed.

    The arguments are those of `LibraryModel`.
    """

    def __init__(
        self,
        retry: RetryPolicy | None = None,
        sleep: Sleep = asyncio.sleep,
        adaptations: Adaptations | None = None,
    ) -> None:
        super().__init__(retry, sleep, adaptations)
        self._profiles: dict[tuple[str, str, str], Profile] = {}

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model; see `mail.llm.request.ChatModel.stream`."""
        if request.use_proxy:
            name = request.model.removeprefix(PROXY_PREFIX)
            request = replace(request, model=PROXY_PREFIX + name)
        return super().stream(request)

    def _place(self, request: ModelRequest) -> Place:
        provider, key, base = who_is_asked(load_library(), request.model)
        address = request.endpoint.base or configured_address(provider) or base or ""
        key = request.user_token if _authorization(request) else key
        key = request.endpoint.arguments().get("api_key") or key
        key = key or os.environ.get(f"{provider.upper()}_API_KEY", "")
        return Place.of(address, key, request.model, request.tool_format)

    def _profile(self, litellm: Any, request: ModelRequest, tries: Tries) -> Profile:
        """Return what the model accepts and needs, as far as it is known by now."""
        key = _key(request)
        profile = self._profiles.get(key)
        if profile is None:
            own = overrides_for(request.model, request.profile, also=names_of(request.model))
            profile = profile_of(
                litellm,
                chat_name(request.model),
                request.tool_format,
                own,
                address=request.endpoint.base,
            )
            if note := effort_note(request.settings, profile):
                _log.warning("%s: %s", request.model, note)
            load_parts([profile.wire])
            if profile.wire == "responses":
                _stream_unknown(litellm, request.model)
            self._profiles[key] = profile
        if is_ollama(request.model):
            profile = fitted(litellm, profile, request.model)
        now = tries.begin(profile)
        if now.wire != profile.wire:
            load_parts([now.wire])
            _stream_unknown(litellm, request.model)
        return now

    async def _prepare(
        self, request: ModelRequest, rules: ModelRules | None, tries: Tries, end: float
    ) -> Attempt:
        build = partial(self._built, request, rules, tries)
        async with asyncio.timeout_at(end):
            if _key(request) in self._profiles and not tries.changed:
                attempt = build()
            else:  # the first call to a model, or in a way: importing its parts takes seconds
                attempt = await aside(build, _threads_for(request.model))
            # A server of Ollama's says what its model can do; else only checked requests are made.
            if rules is None and is_ollama(request.model) and not request.endpoint.base:
                async with asyncio.timeout(attempt.patience.silence):
                    news = await look_up(load_library(), request.model)
                attempt = build() if news else attempt
        return attempt

    def _built(self, request: ModelRequest, rules: ModelRules | None, tries: Tries) -> Attempt:
        """Build one attempt; each has arguments of its own, because the library changes them."""
        litellm = load_library()
        in_name = bool(_authorization(request))
        check_surroundings(
            litellm,
            request.model,
            in_name=in_name,
            endpoint=request.endpoint,
        )
        profile = self._profile(litellm, request, tries)
        wire, model = profile.wire, request.model
        request = replace(request, model=chat_name(model))
        patience = patience_of(request.settings, profile)
        arguments = encoded(request, profile) | _around(request, patience)
        for name in ("thinking", "reasoning"):
            if name in arguments and _is_lost(litellm, name, request.model, wire):
                inside: dict[str, Any] = {name: arguments.pop(name)}
                arguments["extra_body"] = merged(inside, arguments.get("extra_body", {}))
        headers = arguments.pop("extra_headers", {}) | _authorization(request)
        if headers:
            arguments["extra_headers"] = headers
        if not profile.stream:
            arguments["stream"] = False
        elif wire != "responses" and "stream_options" not in profile.without:
            arguments["stream_options"] = {"include_usage": True}
        guard, name = Guard(rules), arguments["model"]

        async def opened() -> Any:
            guard.take(litellm, model, wire, arguments)
            call = litellm.aresponses if wire == "responses" else litellm.acompletion
            stream = await call(**arguments)
            if not profile.stream:
                return pieces_of(stream, wire)
            let_through(stream, wire)
            return stream

        return Attempt(
            wire=wire,
            name=name,
            patience=patience,
            guard=guard,
            open=opened,
            provider=_prepared_by(request, name),
        )

    def _priced(self, request: ModelRequest, delta: Delta, piece: Any) -> Delta:
        """Return a delta whose usage has its price in US dollars, as far as that is known."""
        usage = delta.usage
        if usage is None or usage.cost is not None:
            return delta
        litellm = load_library()
        given = getattr(piece, "usage", None)  # which may have more detail
        if not isinstance(given, litellm.Usage):
            given = litellm.Usage(
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                total_tokens=usage.total_tokens,
                prompt_tokens_details={"cached_tokens": usage.cached_tokens},
            )
        try:
            name = request.model.removeprefix(PROXY_PREFIX)
            asked, made = litellm.cost_per_token(model=name, usage_object=given)
        except Exception:  # noqa: BLE001 - it knows no price of this model
            return delta
        delta.usage = replace(usage, cost=float(asked + made) or None)
        return delta


def _key(request: ModelRequest) -> tuple[str, str, str]:
    """Return what decides a profile: agents may share a model and set fields of their own."""
    own = repr((request.profile, request.endpoint.base)) if request.profile else ""
    own = own or request.endpoint.base
    return request.model, request.tool_format, own


def _threads_for(model: str) -> str:
    """Return whose threads do what blocks in a model's calls."""
    return chat_name(model).partition("/")[0]


def _stream_unknown(litellm: Any, model: str) -> None:
    """Make the library stream a model that its tables lack; it would fetch the reply whole.

    The tables say of the few known models without streaming that they have none.
    """
    try:
        name, provider, *_ = litellm.get_llm_provider(model=model)
    except litellm.BadRequestError:
        return  # no such provider: the call itself says so
    try:
        litellm.get_model_info(model=name, custom_llm_provider=provider)
    except Exception:  # noqa: BLE001 - whatever the library raises for a model it does not know
        known = {"litellm_provider": provider, "supports_native_streaming": True}
        known["source"] = REGISTERED
        litellm.register_model({f"{provider}/{name}": known})


def _authorization(request: ModelRequest) -> dict[str, str]:
    """Return the caller's token as a header: the library keeps a client for every key it gets."""
    if not request.use_proxy or not request.user_token:
        return {}
    return {"Authorization": f"Bearer {request.user_token}"}


def _around(request: ModelRequest, patience: Patience) -> dict[str, Any]:
    """Return the arguments that every call has, whatever its format."""
    import httpx

    return {
        **({"api_key": _NO_KEY} if _authorization(request) else request.endpoint.arguments()),
        "stream": True,
        "timeout": httpx.Timeout(patience.read, connect=_CONNECT_SECONDS),
        "drop_params": True,
        "max_retries": 0,
        "num_retries": 0,
        "_skip_mcp_handler": True,  # the library would look for tools at an MCP gateway
    }


def _prepared_by(request: ModelRequest, name: str) -> str:
    """Return in whose threads the library prepares a call: its provider's, or none.

    It fetches the images of some messages, and takes long over many.
    """
    provider = _threads_for(name)
    short = len(request.messages) <= _FEW_MESSAGES and all(
        isinstance(message.get("content"), str)
        for message in request.messages
        if message.get("role") in ("user", "system", "developer")
    )
    return AT_ONCE if short and is_ready_at_once(provider) else provider


def _is_lost(litellm: Any, name: str, model: str, wire: Wire) -> bool:
    """Tell whether the library drops what asks a model to think, or not to.

    A server with OpenAI's API may have any model (`mail.llm.profiles.LIKE`); the library knows only
    OpenAI's there. Over Responses it drops the effort of those that we registered.
    """
    if name == "reasoning":
        ours: Mapping[str, Any] = litellm.model_cost.get(model) or {}
        return wire == "responses" and ours.get("source") == REGISTERED
    provider = provider_of(litellm, model)
    chats = wire == "completions" and provider in litellm.openai_compatible_providers
    if provider != "openai" and not chats:
        return False
    return name not in (litellm.get_supported_openai_params(model=model) or ())
