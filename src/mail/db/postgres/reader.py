"""Reads: single statements, tried again for passing reasons, that leave the writer its place."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mail.db.postgres.connect import (
    ANSWER_SECONDS,
    Retries,
    borrowed,
    in_store_terms,
)
from mail.db.postgres.values import Pool
from mail.db.postgres.writer import Work
from mail.errors import StoreError

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Reader"]

T = TypeVar("T")


class Reader:
    """Runs queries for callers of any event loop."""

    def __init__(
        self, pool: Pool, loop: asyncio.AbstractEventLoop, retries: Retries | None = None
    ) -> None:
        """Take the pool, its loop, and the retries that its users share."""
        self._retries = retries or Retries()
        self._pool = pool
        self._loop = loop
        # One connection is for the writer, which may have lost its own.
        self._places = asyncio.Semaphore(pool.get_max_size() - 1)
        self._under_way: set[asyncio.Task[Any]] = set()
        self._gate = threading.Lock()
        self._open = True
        self._expired = False

    async def run(self, query: Work[T]) -> T:
        """Run a query and return its result.

        Raises:
            StoreError: it failed, or the reader is closed.
        """
        return await asyncio.wrap_future(self._begin(self._read(query)))

    def close(self) -> None:
        """Take no more; what is under way goes on, without further attempts."""
        with self._gate:
            self._open = False

    def under_way(self) -> set[asyncio.Task[Any]]:
        """Return the reads that go on. Call it in the loop, after `close`."""
        return set(self._under_way)

    def expire(self) -> None:
        """From now on, what is broken off ends with a StoreError. Call it in the loop."""
        self._expired = True

    def _begin(self, reading: Coroutine[Any, Any, T]) -> "Future[T]":
        with suppress(RuntimeError), self._gate:  # that one when the loop is closed
            if self._open:
                return asyncio.run_coroutine_threadsafe(reading, self._loop)
        reading.close()
        raise StoreError("the store is closed")

    async def _read(self, query: Work[T]) -> T:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._under_way.add(task)
        try:
            with in_store_terms():
                return await self._retries.run(lambda: self._once(query), lambda: self._open)
        except (StoreError, asyncio.CancelledError):
            if self._expired:
                raise StoreError("the store is closed") from None
            raise
        finally:
            self._under_way.discard(task)

    async def _once(self, query: Work[T]) -> T:
        async with (
            asyncio.timeout(ANSWER_SECONDS),
            self._places,
            borrowed(self._pool, ANSWER_SECONDS) as connection,
        ):
            return await query(connection)
