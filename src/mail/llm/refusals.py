"""Refusals in chat completions, which LiteLLM's stream would drop."""

from typing import Any, Self

from mail.llm.completions import field_of

__all__ = ["speak_refusals"]


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
