"""Waiting for the end of a run, but only as long as the client does."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

__all__ = ["CLIENT_GONE", "while_connected"]

CLIENT_GONE = 499
"""The status in the log of a request whose client left before its answer."""

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what ``work`` returns, or None when the client left first; then it is cancelled."""
    result = asyncio.create_task(work, name="run result")
    gone = asyncio.create_task(_disconnected(request), name="client watch")
    try:
        await asyncio.wait({result, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await result if result.done() else None
    finally:
        result.cancel()
        gone.cancel()
        await asyncio.gather(result, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
