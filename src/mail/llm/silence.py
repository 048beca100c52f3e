"""How long a provider may be silent, watched at the price of one timer for many pieces."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["Silence"]

T = TypeVar("T")


class Silence:
    """Bounds each of many waits, like `asyncio.timeout_at` around each of them.

    A wait only notes its deadline; the one timer behind it looks at that note when it goes off and
    is set anew if there is time left, so that a piece that comes in time costs next to nothing.

    Args:
        seconds: How long a wait may take.
        end: When the last wait must be over, in the loop's time.
    """

    def __init__(self, seconds: float, end: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._end = end
        self._due = 0.0
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False

    async def wait(self, piece: Awaitable[T]) -> T:
        """Wait for something.

        Raises:
            TimeoutError: it took too long.
            RuntimeError: not within an asyncio task.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can wait with a time limit")
        before = task.cancelling()
        self._due = min(self._end, self._loop.time() + self._seconds)
        self._task = task
        if self._timer is None or self._timer.when() > self._due:
            self._set()
        try:
            return await piece
        except asyncio.CancelledError:
            if self._expired and task.uncancel() <= before:
                raise TimeoutError from None
            raise
        finally:
            self._task = None

    def alive(self) -> None:
        """Begin the wait under way anew: there was a sign of life that is not waited for."""
        self._due = min(self._end, self._loop.time() + self._seconds)

    def close(self) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self) -> None:
        self.close()
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._task is None:  # nobody waits now; the next wait sets a timer
            return
        if self._loop.time() < self._due:
            self._set()
        else:
            self._expired = True
            self._task.cancel()
