"""What is made of a provider's refusal: a reply that the agent can mend."""

import json
import logging
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Final

from mail.llm.failures import Named, RefusedCall
from mail.llm.request import CallPiece, Delta

__all__ = ["with_unaccepted"]

_log = logging.getLogger(__name__)

_UNACCEPTED: Final = "tool_use_failed"
_NO_CALL: Final = "did not call"
_NOT_WANTED: Final = "choice is none"
_TAGGED: Final = re.compile(r"<function[=/]\s*([\w.-]{1,128})\s*[=>(,]?\s*")
_MOST_CALLS: Final = 16


async def with_unaccepted(
    deltas: AsyncGenerator[Delta, None], model: str = ""
) -> AsyncGenerator[Delta, None]:
    """Yield an attempt's deltas; a reply that the provider did not accept as one is a reply, too.

    Groq checks what a model wrote: text in place of a call that was forced, or a call that it
    cannot read, is refused with the model's words in the error. The first is the answer, and the
    second goes to the agent's repair turn; the same request would only be paid again.

    Args:
        deltas: The attempt.
        model: The model's name, for the log.
    """
    begun = False
    try:
        async with aclosing(deltas):
            async for delta in deltas:
                begun = True
                yield delta
    except RefusedCall as error:
        written = _written(error.named)
        if written is None:
            raise
        known = {"model": model, "reason": str(error)}
        _log.info("the provider did not accept what the model wrote; it is a reply", extra=known)
        if begun:
            yield Delta(restart=True)
        yield written


def _written(named: Named) -> Delta | None:
    """Return what the model wrote, if that is why the provider failed the call."""
    if _UNACCEPTED not in (named.code, named.kind) or _NOT_WANTED in named.text.lower():
        return None
    text = named.generation or ""
    if _NO_CALL in named.text.lower() or not text.strip():
        return Delta(text=text, finish="stop")
    calls = list(_calls_in(text)) or [("", text)]
    pieces = (CallPiece(at, name=name, arguments=given) for at, (name, given) in enumerate(calls))
    return Delta(calls=tuple(pieces), finish="tool_calls")


def _calls_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and arguments of calls in the forms in which open models write them."""
    tags = list(_TAGGED.finditer(text))[:_MOST_CALLS]
    for tag in tags:
        value, end = _json_at(text, tag.end())
        yield tag[1], text[tag.end() : end] if isinstance(value, dict) else text[tag.end() :]
    if tags:
        return
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    value, _ = _json_at(text, start) if start >= 0 else (None, 0)
    for one in (value if isinstance(value, list) else [value])[:_MOST_CALLS]:
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            given = one.get("arguments", one.get("parameters", {}))
            yield one["name"], given if isinstance(given, str) else json.dumps(given)


def _json_at(text: str, start: int) -> tuple[Any, int]:
    try:
        return json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
