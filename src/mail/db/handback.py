"""Results of a writing thread on their way to callers in any number of event loops."""

import asyncio
from collections.abc import Sequence
from typing import Any

from mail.errors import StoreError

__all__ = ["hand_back"]


def hand_back(futures: Sequence[asyncio.Future[Any]], results: Sequence[object]) -> None:
    """Give every caller its result, or the StoreError in its place: one wake-up for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], object]]] = {}
    for future, result in zip(futures, results, strict=True):
        by_loop.setdefault(future.get_loop(), []).append((future, result))
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, settled)
        except RuntimeError:
            # The caller's loop is closed: the commit stands, nobody waits for it.
            continue


def _settle(settled: Sequence[tuple[asyncio.Future[Any], object]]) -> None:
    for future, result in settled:
        if future.done():
            continue
        if isinstance(result, StoreError):
            future.set_exception(result)
        else:
            future.set_result(result)
