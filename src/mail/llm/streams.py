"""LiteLLM's streams, with what the library would keep from us: errors, refusals, citations."""

import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, Self

from mail.errors import ModelError
from mail.llm.anthropic import TEXT_BLOCK
from mail.llm.completions import field_of
from mail.llm.failures import ReportedError
from mail.llm.request import Wire

_RAISES: Final = "_maybe_raise_for_error_event"


async def pieces_of(reply: Any, wire: Wire) -> AsyncGenerator[Any, None]:
    """Yield a reply that was not streamed as the pieces of a stream, for the wire's decoder."""
    if wire != "responses":
        choices = field_of(reply, "choices") or ()
        yield {
            "choices": [
                {"delta": field_of(one, "message"), "finish_reason": field_of(one, "finish_reason")}
                for one in choices
            ],
            "usage": field_of(reply, "usage"),
        }
        return
    for at, item in enumerate(field_of(reply, "output") or ()):
        for kind, texts in (("reasoning_summary_text", "summary"), ("output_text", "content")):
            for part in field_of(item, texts) or ():
                text = field_of(part, "text") or field_of(part, "refusal") or ""
                yield {"type": f"response.{kind}.delta", "delta": text}
        yield {"type": "response.output_item.added", "output_index": at, "item": item}
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    yield {"type": "response.completed", "response": reply}


async def close_stream(stream: Any) -> None:
    """End a stream and its connection: the provider stops writing, and charging."""
    if hasattr(stream, "aclose"):
        await stream.aclose()
    elif (response := getattr(stream, "response", None)) is not None:
        await response.aclose()


def check_finished(stream: Any, *, finished: bool) -> None:
    """Refuse a stream that just stopped: LiteLLM would pass it off as a finished reply.

    Args:
        stream: The stream.
        finished: Whether a piece of it gave a reason for the end.

    Raises:
        ModelError: the provider gave no reason for the end.
    """
    names = ("received_finish_reason", "intermittent_finish_reason")
    if not finished or [getattr(stream, name, "unknown") for name in names] == [None, None]:
        raise ModelError("model call failed: the provider's stream ended in the middle")


def let_through(stream: Any, wire: Wire) -> None:
    """Let through what the library would keep from us.

    Args:
        stream: A stream of LiteLLM's, just opened.
        wire: Its format.
    """
    if wire == "responses":
        if hasattr(stream, _RAISES):  # the library knows one of the two shapes of errors
            setattr(stream, _RAISES, _only_frames)
    elif wire == "anthropic":
        _read_with(stream, _Events().read)
    else:
        _read_with(stream, _read_chunk)
        speak_refusals(stream)


def _only_frames(event: Any) -> None:
    """Raise nothing but an error that is no event; a proxy sends one once it has answered."""
    error = None if field_of(event, "type") else field_of(event, "error")
    if error is not None:
        raise ReportedError({"error": error})


_Parse = Callable[[Any], Any]


def _read_with(stream: Any, read: Callable[[Any, _Parse], Any]) -> None:
    """Let a function read the pieces of a stream, with the library's parser at hand."""
    reader = getattr(stream, "completion_stream", None)
    parse = getattr(type(reader), "chunk_parser", None)
    if reader is None or parse is None:  # a stream of OpenAI's client, or a proxy's
        return
    owner = weakref.ref(reader)  # the library lets go of a connection only together with its reader
    reader.chunk_parser = lambda chunk: read(chunk, lambda piece: parse(owner(), piece))


def _read_chunk(chunk: Any, parse: _Parse) -> Any:
    """Read errors among the pieces: each of the library's parsers knows the shape of one vendor."""
    if isinstance(chunk, Mapping) and chunk.get("error"):
        raise ReportedError(chunk)
    return parse(chunk)


class _Events:
    """Reads Anthropic's events: errors whole, and what the library does not know."""

    def __init__(self) -> None:
        self._texts = TextBlocks()

    def read(self, event: Mapping[str, Any], parse: _Parse) -> Any:
        """Return the library's piece for an event."""
        kind = event.get("type")
        if kind == "error":
            raise ReportedError(event)
        shown = event
        delta, block = event.get("delta") or {}, event.get("content_block") or {}
        if kind == "message_delta":
            if delta.get("stop_reason") == "model_context_window_exceeded":
                shown = {**event, "delta": {**delta, "stop_reason": "max_tokens"}}
        elif kind == "content_block_start" and block.get("type") == "mcp_tool_use":
            name = f"{block.get('server_name') or ''}/{block.get('name') or ''}"
            use = {"type": "server_tool_use", "id": block.get("id") or "", "name": name}
            shown = {**event, "content_block": use | {"input": {}}}
        piece = parse(shown)
        if (ended := self._texts.read(shown)) is not None:
            piece.choices[0].delta.provider_specific_fields = ended
        return piece


class TextBlocks:
    """Finds the ends of text blocks in a stream, and what they cite: LiteLLM passes on no ends.

    Only those are told that somebody has to know: where text with citations begins or ends. Each
    costs LiteLLM a piece more.
    """

    def __init__(self) -> None:
        self._citations: list[Mapping[str, Any]] | None = None

    def read(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take the stream's next event.

        Returns:
            If it ends a text block, or begins one right behind another, what `decode` is to find
            in LiteLLM's piece for it.
        """
        kind = event.get("type")
        if kind == "content_block_delta":
            if self._citations is not None and "citation" in event["delta"]:
                self._citations.append(event["delta"]["citation"])
        elif kind == "content_block_start":
            before, block = self._citations, event["content_block"]
            self._citations = (
                list(block.get("citations") or ()) if block.get("type") == "text" else None
            )
            if before is not None and self._citations is not None:
                return {TEXT_BLOCK: before}
        elif kind == "content_block_stop" and self._citations:
            found, self._citations = {TEXT_BLOCK: self._citations}, None
            return found
        return None


def speak_refusals(stream: Any) -> None:
    """Let refusals through LiteLLM's chat stream as text."""
    raw = getattr(stream, "completion_stream", None)
    if hasattr(raw, "__aiter__"):
        stream.completion_stream = _Spoken(raw)


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
