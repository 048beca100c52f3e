"""Every provider through LiteLLM; the only module that imports it, and only for the first call."""

import asyncio
import contextlib
import importlib
import os
import sys
from collections.abc import AsyncGenerator
from typing import Any, Final

from mail.errors import ModelError
from mail.llm.completions import decode, encode
from mail.llm.failures import model_error
from mail.llm.request import Delta, ModelRequest
from mail.llm.retry import RetryPolicy, Sleep, retrying

__all__ = ["LiteLLMModel", "close_clients"]

_PROXY: Final = "litellm_proxy/"
_NO_KEY: Final = "the-user-token-is-in-the-header"
_CONNECT_SECONDS: Final = 10.0
_SLACK_SECONDS: Final = 5.0
_PREPARING_SECONDS: Final = 0.02
_LOCAL_ONLY: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    # Else the library would read a .env file into this process in the middle of its work.
    "LITELLM_MODE": "PRODUCTION",
}
# What the library would import in the middle of its first call, on the event loop.
_SLOW_PARTS: Final = ("openai.resources.chat", "litellm.litellm_core_utils.default_encoding")


def _library() -> Any:
    for name, value in _LOCAL_ONLY.items():
        os.environ.setdefault(name, value)
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True  # it prints advertisements to standard output otherwise
    for name in _SLOW_PARTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return litellm


async def close_clients() -> None:
    """Close the HTTP clients that LiteLLM keeps, if it was used; later calls make new ones."""
    litellm: Any = sys.modules.get("litellm")
    if litellm is not None:
        await litellm.close_litellm_async_clients()
        litellm.in_memory_llm_clients_cache.flush_cache()


class LiteLLMModel:
    """Any model that LiteLLM reaches, over chat completions, always streamed.

    Args:
        retry: What is tried again.
        sleep: Waits between attempts.
    """

    def __init__(self, retry: RetryPolicy | None = None, sleep: Sleep = asyncio.sleep) -> None:
        self._retry = retry or RetryPolicy()
        self._sleep = sleep

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model; see `mail.llm.request.ChatModel.stream`."""

        def attempt(seconds: float) -> AsyncGenerator[Delta, None]:
            return _attempt(request, seconds)

        deadline = request.settings.deadline
        deltas = retrying(attempt, self._retry, deadline, self._sleep)
        try:
            async for delta in deltas:
                yield delta
        finally:
            await deltas.aclose()


def _prepared(request: ModelRequest) -> tuple[Any, dict[str, Any]]:
    litellm = _library()
    return litellm, _arguments(litellm, request)


def _thinks(litellm: Any, model: str) -> bool:
    try:
        supported = litellm.get_supported_openai_params(model=model)
    except Exception:  # noqa: BLE001 - the library knows no such model: the call itself says so
        return False
    return "thinking" in (supported or ())


def _arguments(litellm: Any, request: ModelRequest) -> dict[str, Any]:
    # Behind a proxy the capabilities are those of the model it stands for.
    arguments = encode(request, thinking=_thinks(litellm, request.model.removeprefix(_PROXY)))
    if request.use_proxy:
        arguments["model"] = _PROXY + request.model.removeprefix(_PROXY)
        if request.user_token:
            # As a header, because the library keeps an HTTP client for every key it is given.
            arguments["extra_headers"] = {"Authorization": f"Bearer {request.user_token}"}
            arguments["api_key"] = _NO_KEY
    import httpx

    silence = request.settings.timeout + _SLACK_SECONDS
    return arguments | {
        "stream": True,
        "stream_options": {"include_usage": True},
        "timeout": httpx.Timeout(silence, connect=_CONNECT_SECONDS),
        "drop_params": True,
        "max_retries": 0,
        "num_retries": 0,
        "_skip_mcp_handler": True,  # looking for MCP gateway tools needs a package we do not
    }


async def _opened(litellm: Any, arguments: dict[str, Any]) -> Any:
    """Begin the call and return its stream.

    The library prepares a call in a thread; cancelled there, it would drop a coroutine that nobody
    ever awaits. So a cancellation leaves it the moment that the preparation takes.
    """
    opening = asyncio.ensure_future(litellm.acompletion(**arguments))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        try:
            await asyncio.wait([opening], timeout=_PREPARING_SECONDS)
        finally:
            opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().aclose()
        raise


async def _attempt(request: ModelRequest, seconds: float) -> AsyncGenerator[Delta, None]:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    silence = request.settings.timeout
    # Each attempt has arguments of its own, because the library may change what it is given.
    litellm, arguments = await asyncio.to_thread(_prepared, request)
    stream: Any = None
    try:
        async with asyncio.timeout_at(min(end, loop.time() + silence)):
            stream = await _opened(litellm, arguments)
        while True:
            async with asyncio.timeout_at(min(end, loop.time() + silence)):
                chunk = await anext(stream, None)
            if chunk is None:
                break
            yield decode(chunk)
        _check_finished(stream)
    except TimeoutError as error:
        raise ModelError("model call failed: the provider did not answer in time") from error
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 - the library raises whatever its providers raise
        raise model_error(error, [request.user_token]) from None
    finally:
        if stream is not None:
            await stream.aclose()


def _check_finished(stream: Any) -> None:
    """Refuse a stream that just stopped: the library would pass it off as a finished reply."""
    reasons = [
        getattr(stream, name, "unknown")
        for name in ("received_finish_reason", "intermittent_finish_reason")
    ]
    if reasons == [None, None]:
        raise ModelError("model call failed: the provider's stream ended in the middle")
