"""A model behind a provider's library: one attempt to ask it, read as it streams in."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mail.core.call_context import ModelRules, current_call
from mail.llm.failures import model_error
from mail.llm.fallback import Adaptations, Place, Tries, process_adaptations
from mail.llm.recording import asking
from mail.llm.remote import Guard
from mail.llm.request import Delta, ModelRequest, Wire
from mail.llm.retry import RetryPolicy, Sleep, answered
from mail.llm.silence import Patience, Silence, too_late
from mail.llm.streams import check_finished, close_stream
from mail.llm.wires import decoder_of
from mail.traces import note_response


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt, ready to be made: ``open`` makes it and returns the pieces of the reply.

    ``name`` is what the library calls the model, ``provider`` whose threads prepare the request
    (`Silence.hearing`).
    """

    wire: Wire
    name: str
    patience: Patience
    guard: Guard
    open: Callable[[], Awaitable[Any]]
    provider: str = ""


class LibraryModel(ABC):
    """A model that is asked through a library, always streamed.

    Args:
        retry: The policy of retries.
        sleep: Waits between attempts.
        adaptations: The lessons of refusals; by default all agents of a process share them.
    """

    def __init__(
        self,
        retry: RetryPolicy | None = None,
        sleep: Sleep = asyncio.sleep,
        adaptations: Adaptations | None = None,
    ) -> None:
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._adaptations = process_adaptations() if adaptations is None else adaptations

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model; see `mail.llm.request.ChatModel.stream`."""
        tries = Tries(self._adaptations, partial(self._place, request))
        attempt = partial(self._attempt, request, current_call().models, tries)
        return answered(attempt, request, tries, self._retry, self._sleep)

    @abstractmethod
    def _place(self, request: ModelRequest) -> Place:
        """Return where a request goes, and in whose name."""

    @abstractmethod
    async def _prepare(
        self, request: ModelRequest, rules: ModelRules | None, tries: Tries, end: float
    ) -> Attempt:
        """Prepare an attempt that must be ready at the end, in the loop's time."""

    def _priced(self, request: ModelRequest, delta: Delta, piece: Any) -> Delta:
        """Return what was read of a piece of the stream, with its price if that is known."""
        return delta

    async def _attempt(
        self, request: ModelRequest, rules: ModelRules | None, tries: Tries, seconds: float
    ) -> AsyncGenerator[Delta, None]:
        started = asyncio.get_running_loop().time()
        end = started + seconds
        made: Attempt | None = None
        watch: Silence | None = None
        stream: Any = None
        finished = False
        try:
            made = await self._prepare(request, rules, tries, end)
            patience = made.patience
            watch = Silence(patience.silence, min(end, started + patience.total))
            decode = decoder_of(made.wire)
            with asking(made.name), watch.hearing(made.provider), watch:
                stream = await made.open()
                piece = await anext(stream, None)  # LiteLLM asks Gemini only now
            note_response(piece)
            while piece is not None:
                made.guard.check()
                delta = decode(piece)
                if delta is not None:
                    finished = finished or delta.finish is not None
                    yield self._priced(request, delta, piece)
                with watch:
                    piece = await anext(stream, None)
            check_finished(stream, finished=finished)
        except TimeoutError as error:
            raise too_late(made is not None and made.patience.thinks) from error
        except Exception as error:  # noqa: BLE001 - libraries raise whatever their providers raise
            told = model_error(error, [request.user_token], began=stream is not None)
            raise (made and made.guard.refusal()) or told from None
        finally:
            if watch is not None:
                watch.close()
            if stream is not None:
                await close_stream(stream)
            if made is not None:
                await made.guard.aclose()
