"""JSON in one line, and large texts, which are made one at a time while others go on."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from pydantic_core import to_json

LARGE: Final = 64 * 1024
"""Characters of a text that takes more than a fraction of a millisecond to read or write."""

LARGE_AT_ONCE: Final = 4
"""The number of large answers, or pages of streams, in memory at a time for one caller."""

_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_BREAKS: Final = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_thread: Final = ThreadPoolExecutor(1, thread_name_prefix="mail-large")

_turns: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]()
_no_turn: Final = nullcontext()

T = TypeVar("T")
S = TypeVar("S", str, bytes)


def json_line(value: object) -> str:
    """Return a value as one line of compact JSON in which nothing breaks a line for any reader."""
    try:
        text = to_json(value).decode()
    except ValueError:  # an unpaired surrogate
        text = _COMPACT.encode(value)
    return unbroken(text)


def unbroken(text: str) -> str:
    """Return JSON of one line in the form of `json_line`."""
    if text.isascii():
        return text
    for character, escaped in _BREAKS.items():
        text = text.replace(character, escaped)
    return text.encode("utf-8", "backslashreplace").decode()  # unpaired surrogates become \udXXX


async def in_turn(size: int, work: Callable[[], T]) -> T:
    """Return what ``work`` returns, whose texts have ``size`` characters.

    What is large is done in a thread, after the other large work of the process.
    """
    if size <= LARGE:
        return work()
    known = partial(copy_context().run, work)  # what is logged belongs to the request
    return await asyncio.get_running_loop().run_in_executor(_thread, known)


def large_turn() -> asyncio.Lock:
    """Return the lock of large commits and of pages of stored events, one for each event loop.

    One of them goes after the other, and small commits, which do not hold it, get in between.
    """
    return _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def turn_of(size: int) -> AbstractAsyncContextManager[None]:
    """Return what a commit of texts of ``size`` characters holds: nothing, unless it is large."""
    return large_turn() if size > LARGE else _no_turn


def slices(data: S) -> Iterator[S]:
    """Yield what is sent, so little at a time that a slow reader is seen to go on."""
    return (data[at : at + LARGE] for at in range(0, len(data), LARGE))
