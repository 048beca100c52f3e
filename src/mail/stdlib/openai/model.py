"""OpenAI's API through OpenAI's library, as a `mail.llm.request.ChatModel`."""

import asyncio
import importlib
import re
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

from mail.core.call_context import ModelRules, current_call
from mail.errors import ModelError
from mail.llm import completions, responses
from mail.llm.failures import model_error
from mail.llm.remote import Guard
from mail.llm.request import Delta, ModelRequest, ToolFormat
from mail.llm.retry import RetryPolicy, Sleep, retrying
from mail.llm.silence import Silence
from mail.llm.wires import decoder_of

if TYPE_CHECKING:
    import openai

__all__ = ["OpenAIModel"]

_PREFIX: Final = "openai/"
_CONNECT_SECONDS: Final = 10.0
_SLACK_SECONDS: Final = 5.0
_REASONS = re.compile(r"(?:ft:)?(?:o\d|gpt-[5-9](?!.*-chat)|codex|computer-use)")
# What the library would import in the middle of its first call, on the event loop.
_SLOW_PARTS: Final = ("openai", "openai.resources.chat", "openai.resources.responses")


class OpenAIModel:
    """A model of OpenAI's, or of a server that speaks like it, always streamed.

    The key is taken from ``OPENAI_API_KEY`` and the address from ``OPENAI_BASE_URL`` when the first
    call is made; the client made then is kept until `aclose`.

    Args:
        wire: Which API is spoken: ``completions`` or ``responses``.
        reasons: Whether the model reasons, for the Responses API; None goes by its name.
        retry: What is tried again.
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
        self._wire: ToolFormat = wire
        self._reasons = reasons
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._client: openai.AsyncOpenAI | None = None
        self._guard = Guard(None)
        self._loop: asyncio.AbstractEventLoop | None = None

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model; see `mail.llm.request.ChatModel.stream`."""

        rules = current_call().models

        def attempt(seconds: float) -> AsyncGenerator[Delta, None]:
            return self._attempt(request, seconds, rules)

        return retrying(
            attempt, self._retry, request.settings.deadline, self._sleep, model=request.model
        )

    async def aclose(self) -> None:
        """Close the client and its connections; a later call makes a new one."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    async def _attempt(
        self, request: ModelRequest, seconds: float, rules: ModelRules | None
    ) -> AsyncGenerator[Delta, None]:
        loop = asyncio.get_running_loop()
        watch = Silence(request.settings.timeout, loop.time() + seconds)
        decode = decoder_of(self._wire)
        finished = False
        stream: Any = None
        try:
            client = await self._open_client(rules)
            stream = await watch.wait(self._ask(client, request))
            while (piece := await watch.wait(anext(stream, None))) is not None:
                self._guard.check()
                delta = decode(piece)
                finished = finished or delta.finish is not None
                yield delta
        except TimeoutError as error:
            raise ModelError("model call failed: the provider did not answer in time") from error
        except Exception as error:  # noqa: BLE001 - the library passes on what its transport raises
            began = stream is not None
            told = model_error(error, [request.user_token], began=began)
            raise self._guard.refusal() or told from None
        finally:
            watch.close()
            if stream is not None:
                await stream.close()
        if not finished:
            raise ModelError("model call failed: the provider's stream ended in the middle")

    async def _open_client(self, rules: ModelRules | None) -> "openai.AsyncOpenAI":
        """Return the client of the running loop; connections of another loop are of no use."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            await asyncio.to_thread(_load)
        # Nothing is awaited from here on, so calls that begin together share one client.
        if self._client is None or self._loop is not loop:
            self._guard = Guard(rules)
            self._client, self._loop = self._guard.openai_client(), loop
        return self._client

    async def _ask(self, client: "openai.AsyncOpenAI", request: ModelRequest) -> Any:
        """Begin a call and return its stream."""
        import httpx

        silence = request.settings.timeout + _SLACK_SECONDS
        around = {"stream": True, "timeout": httpx.Timeout(silence, connect=_CONNECT_SECONDS)}
        if self._wire == "responses":
            arguments = responses.encode(request, reasoning=self._reasons_for(request))
            call: Any = client.responses.create
        else:
            arguments = completions.encode(request)
            if "max_tokens" in arguments:  # the old name, which reasoning models refuse
                arguments["max_completion_tokens"] = arguments.pop("max_tokens")
            arguments["stream_options"] = {"include_usage": True}
            call = client.chat.completions.create
        arguments["model"] = _bare(request.model)
        return await call(**arguments, **around)

    def _reasons_for(self, request: ModelRequest) -> bool:
        if self._reasons is not None:
            return self._reasons
        asked = request.settings.reasoning_effort is not None
        return asked or _REASONS.match(_bare(request.model)) is not None


def _bare(model: str) -> str:
    return model.removeprefix(_PREFIX)


def _load() -> None:
    for part in _SLOW_PARTS:
        importlib.import_module(part)
