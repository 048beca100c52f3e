"""The connection that writes, with group commit, and commits whose outcome is never guessed.

As with SQLite, units of work that queue up during a commit share the next one, at most
`BATCH_LIMIT`, and a unit that fails is the only one that fails. A batch that fails for a temporary
reason is tried again. Each transaction writes its number to the writer's row in ``writers``. If
the connection breaks during COMMIT, the row tells whether the transaction was committed, as soon
as the server answers again and holds no lock on it. Until then its callers wait: no unit is
written twice, and none is reported that was not written. Units that have waited behind them for
`_PATIENCE` seconds are refused, because the database is unavailable.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from uuid import uuid4

from mail.db.driver import BATCH_LIMIT, hand_back
from mail.db.postgres.connect import (
    ANSWER_SECONDS,
    Retries,
    as_store_error,
    borrowed,
    drop,
    expire_if_read_only,
    is_transient,
    pause_before,
)
from mail.db.postgres.dialect import LEASE_SECONDS, Connection, Pool
from mail.errors import StoreError

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]
"""A unit of work: runs inside a transaction that somebody else begins and commits."""

logger = logging.getLogger(__name__)

_ASK_SECONDS: Final = 5.0
_PATIENCE: Final = 1.0

# What a process that is frozen or cut off has locked must be free when others take it for dead.
_BEGIN: Final = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL idle_in_transaction_session_timeout = '{LEASE_SECONDS} s'
"""

_CLEAR: Final = "DELETE FROM writers WHERE updated_at < now() - interval '7 days'"

_REGISTER: Final = "INSERT INTO writers (id, number) VALUES ($1, 0) ON CONFLICT DO NOTHING"

_LEAVE_NUMBER: Final = """
UPDATE writers SET number = $2, updated_at = now() WHERE id = $1 RETURNING number
"""

# The lock waits for a transaction that is still being committed.
_NUMBER_LEFT: Final = "SELECT number FROM writers WHERE id = $1 FOR UPDATE"


class _OutcomeUnknown(StoreError):
    """A COMMIT was not answered, and nobody can be asked any more."""


class _Unit(NamedTuple):
    work: Work[Any]
    future: asyncio.Future[Any]
    since: float


class Writer:
    """Runs units of work in the order in which they were handed in, from any event loop."""

    def __init__(
        self,
        pool: Pool,
        loop: asyncio.AbstractEventLoop,
        retries: Retries | None = None,
    ) -> None:
        """Take the pool, its loop, and the retries that its users share.

        Await `serve` in that loop.
        """
        self._retries = retries or Retries()
        self._pool = pool
        self._loop = loop
        self._connection: Connection = None
        self._id = uuid4()
        self._number = 0
        self._registered = False
        self._queue: asyncio.Queue[_Unit | None] = asyncio.Queue()
        self._gate = threading.Lock()
        self._open = True
        self._expired = False

    async def run(self, work: Work[T]) -> T:
        """Run a unit of work and return its result once it is committed.

        When the caller is cancelled the unit is committed all the same.

        Raises:
            StoreError: the unit failed and left nothing behind, or the writer is closed.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._gate:
            if not self._open:
                raise StoreError("the store is closed")
            unit = _Unit(work, future, self._loop.time())
            self._loop.call_soon_threadsafe(self._queue.put_nowait, unit)
        try:
            return await future
        finally:
            del future, unit  # a failure that is raised here would hold itself

    def close(self) -> None:
        """Take no more; `serve` ends when what is queued is done."""
        with self._gate:
            if self._open:
                self._open = False
                self._loop.call_soon_threadsafe(self._queue.put_nowait, None)

    def expire(self) -> None:
        """Refuse what is still queued; cancel `serve` with it. Call it in the loop."""
        self._expired = True

    async def serve(self) -> None:
        """Commit until the writer is closed."""
        try:
            while await self._round():
                pass
        finally:
            await self._forget()

    async def _round(self) -> bool:
        """Do one commit; a function of its own so that an idle writer holds on to no unit."""
        batch, more = await self._take()
        if batch:
            hand_back([unit.future for unit in batch], await self._commit(batch))
        return more

    async def _take(self) -> tuple[list[_Unit], bool]:
        """Wait for a unit, take what is queued behind it, and tell whether more may come."""
        batch: list[_Unit] = []
        unit = await self._queue.get()
        while unit is not None:
            batch.append(unit)
            if len(batch) == BATCH_LIMIT or self._queue.empty():
                return batch, True
            unit = self._queue.get_nowait()
        return batch, False

    async def _commit(self, batch: Sequence[_Unit]) -> list[object]:
        """Return each unit's result, or the StoreError it failed with."""
        if self._expired:
            return [StoreError("the store is closed") for _ in batch]
        try:
            return await self._retries.run(partial(self._transaction, batch), lambda: self._open)
        except asyncio.CancelledError:
            if not self._expired:
                raise
            return [StoreError("the store is closed") for _ in batch]
        # Whatever a unit raises is its caller's; the writer serves the others.
        except Exception as exc:  # noqa: BLE001
            if is_transient(exc):
                self._turn_away(as_store_error(exc))
            if len(batch) == 1 or is_transient(exc) or isinstance(exc, _OutcomeUnknown):
                return [as_store_error(exc) for _ in batch]
        results = []
        for unit in batch:
            results += await self._commit([unit])
        return results

    def _turn_away(self, error: StoreError) -> None:
        """Refuse what has waited for long behind a batch that found no database."""
        queued = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        late = self._loop.time() - _PATIENCE
        refused = [unit for unit in queued if unit is not None and unit.since < late]
        for unit in queued:
            if unit is None or unit.since >= late:
                self._queue.put_nowait(unit)
        hand_back([unit.future for unit in refused], [error for _ in refused])

    async def _transaction(self, batch: Sequence[_Unit]) -> list[object]:
        """Write a batch in one transaction; when this raises, nothing of it is there."""
        async with asyncio.timeout(ANSWER_SECONDS):
            connection = await self._connect()
        try:
            results = await self._statements(connection, batch)
        except BaseException as exc:  # whatever it is, the transaction ends
            left = await expire_if_read_only(self._pool, exc)
            if left or self._expired or isinstance(exc, TimeoutError):
                await self._forget()
                raise
            try:
                await connection.execute("ROLLBACK", timeout=5.0)
            except Exception:  # noqa: BLE001 - the server rolls back what is left of it
                await self._forget()
            raise
        try:
            await connection.execute("COMMIT", timeout=ANSWER_SECONDS)
        except BaseException:
            await self._forget()
            if not await self._was_committed():
                raise
        return results

    async def _statements(self, connection: Connection, batch: Sequence[_Unit]) -> list[object]:
        async with asyncio.timeout(ANSWER_SECONDS):
            await connection.execute(_BEGIN)
            self._number += 1
            if await connection.fetchval(_LEAVE_NUMBER, self._id, self._number) is None:
                self._registered = False
                raise ConnectionError("the writer's row is gone")  # it is made again next time
        results = []
        for unit in batch:
            async with asyncio.timeout(ANSWER_SECONDS):
                results.append(await unit.work(connection))
        return results

    async def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = await self._pool.acquire()
        if not self._registered:
            try:
                await self._connection.execute(_CLEAR)
                await self._connection.execute(_REGISTER, self._id)
            except BaseException as exc:  # whatever it is, the next batch begins with another one
                await expire_if_read_only(self._pool, exc)
                await self._forget()
                raise
            self._registered = True
        return self._connection

    async def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await drop(self._pool, connection)

    async def _was_committed(self) -> bool:
        """Tell what became of the transaction whose COMMIT was not answered; wait for it.

        Raises:
            _OutcomeUnknown: the store is closed before the database tells.
        """
        attempt = 0
        try:
            while not self._expired:
                if (number := await self._ask()) is not None:
                    return number == self._number
                attempt += 1
                await asyncio.sleep(pause_before(attempt))
        except asyncio.CancelledError:
            if not self._expired:
                raise
        raise _OutcomeUnknown("the connection broke during a commit, and its outcome is unknown")

    async def _ask(self) -> int | None:
        """Return the number in the writer's row, None when nobody answers."""
        try:
            async with borrowed(self._pool, _ASK_SECONDS) as connection:
                return int(await connection.fetchval(_NUMBER_LEFT, self._id) or 0)
        # Whatever it is, guessing would be worse than waiting.
        except Exception as exc:  # noqa: BLE001
            error = as_store_error(exc)
            logger.warning("no answer to a commit; asking for its outcome: %s", error)
            self._turn_away(error)
            return None
