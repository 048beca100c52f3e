"""What a provider sends and LiteLLM's streams would swallow: refusals, failures, signs of life."""

import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from mail.llm.completions import field_of
from mail.llm.failures import ReportedError
from mail.llm.request import Wire

__all__ = ["let_through", "speak_refusals"]

Alive = Callable[[], None]
_RAISES: Final = "_maybe_raise_for_error_event"


def let_through(stream: Any, wire: Wire, alive: Alive) -> None:
    """Let through what the library would keep from us.

    Args:
        stream: A stream of LiteLLM's, just opened.
        wire: Its format.
        alive: Told of events that are no piece of the reply.
    """
    _LET_THROUGH[wire](stream, alive)


def _refusals(stream: Any, alive: Alive) -> None:
    speak_refusals(stream)


def _responses_errors(stream: Any, alive: Alive) -> None:
    """Leave events of errors to our decoder: the library knows one of their two shapes."""
    if hasattr(stream, _RAISES):
        setattr(stream, _RAISES, _pass)


def _pass(event: Any) -> None:
    """Raise nothing."""


def _anthropic_events(stream: Any, alive: Alive) -> None:
    """Read the events that have no content; of an error the library keeps only the message."""
    reader = getattr(stream, "completion_stream", None)
    parse = getattr(type(reader), "chunk_parser", None)
    if reader is None or parse is None:  # a proxy's stream
        return
    owner = weakref.ref(reader)  # the library lets go of a connection only together with its reader

    def read(chunk: Mapping[str, Any]) -> Any:
        kind = chunk.get("type")
        if kind == "ping":
            alive()
        elif kind == "error":
            raise ReportedError(chunk)
        return parse(owner(), chunk)

    reader.chunk_parser = read


_LET_THROUGH: Final[Mapping[Wire, Callable[[Any, Alive], None]]] = MappingProxyType(
    {
        "completions": _refusals,
        "responses": _responses_errors,
        "anthropic": _anthropic_events,
    }
)


class _Spoken:
    """A provider's stream whose refusals are content, since pieces without any get lost."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._pieces = stream.__aiter__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        piece = await self._pieces.__anext__()
        for choice in field_of(piece, "choices") or ():
            delta = field_of(choice, "delta")
            refusal = field_of(delta, "refusal")
            if refusal and not isinstance(delta, dict) and not delta.content:
                delta.content = refusal
        return piece

    async def aclose(self) -> None:
        """Close the provider's stream."""
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()
        else:
            await self._stream.close()


def speak_refusals(stream: Any) -> None:
    """Let refusals through LiteLLM's chat stream as text."""
    raw = getattr(stream, "completion_stream", None)
    if hasattr(raw, "__aiter__"):
        stream.completion_stream = _Spoken(raw)
