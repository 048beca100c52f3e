"""What the writers of SQLite and PostgreSQL share: units of work that are committed together.

There is no timer. What queues up during a commit shares the next one, at most `BATCH_LIMIT` units.
"""

import asyncio
import traceback
from collections.abc import Sequence
from typing import Any, Final

from mail.errors import StoreError

BATCH_LIMIT: Final = 64
"""At most so many units share a commit."""


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
            _let_go(result)
            future.set_exception(result)
        else:
            future.set_result(result)


def _let_go(error: BaseException | None) -> None:
    """Let go of what the frames of a failure hold: the unit, and by its future the failure itself.

    Such a circle, with all that was to be written, would stay in memory until the collector comes.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
