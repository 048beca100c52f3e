"""The order of a task's changes: one at a time, first come, first served.

Who holds the order decides, commits and then applies: what it has read of the task stays true until
then. While a store fails, whoever holds it tries again; those that do not want to wait for that are
told of a failure that came after them.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Self

from mail.errors import StoreError


@dataclass(slots=True, eq=False)
class _Place:
    """A place in the queue; ``tried`` tells that an attempt began since it was taken."""

    patient: bool
    tried: bool = False
    turn: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class ChangeOrder:
    """The order of one task.

    Attributes:
        door: Held by whoever brings something from outside, from the first look until it is stored.
        closing: Whether the end of a run is being stored; see `passed`.
    """

    __slots__ = ("_holder", "_pause", "_waiting", "closing", "door")

    def __init__(self) -> None:
        self.door = asyncio.Lock()
        self.closing = False
        self._holder: object = None
        self._waiting: deque[_Place] = deque()
        self._pause: asyncio.Future[None] | None = None

    def try_enter(self) -> bool:
        """Take the order if nobody has it: the usual case, without a coroutine."""
        if self._holder is not None:
            return False
        self._holder = asyncio.current_task()
        return True

    async def enter(self, *, patient: bool) -> None:
        """Wait for the order.

        Raises:
            StoreError: who holds it cannot store its change, and this one is not patient.
            RuntimeError: the same asyncio task has the order already.
        """
        if self._holder is asyncio.current_task():
            raise RuntimeError("a change of a task inside another change of the same task")
        place = _Place(patient)
        self._waiting.append(place)
        if not patient and self._pause is not None:
            place.tried = True
            _end(self._pause)  # the store may work again: who holds it tries at once
        try:
            await place.turn
        except asyncio.CancelledError:
            if place.turn.done() and not place.turn.cancelled() and not place.turn.exception():
                self.leave()  # it has come at the same moment
            raise
        self._holder = asyncio.current_task()

    def leave(self) -> None:
        """Give the order to whoever has waited longest."""
        while self._waiting:
            place = self._waiting.popleft()
            if not (place.turn.done() or place.turn.get_loop().is_closed()):  # it may have gone
                place.turn.set_result(None)
                self._holder = place  # until it runs
                return
        self._holder = None

    async def pause(self, seconds: float, error: StoreError) -> None:
        """Wait before the next attempt.

        Those that are not patient, and came before this attempt, are told why it failed. Where one
        has come since, there is no pause.
        """
        pause = self._pause = asyncio.get_running_loop().create_future()
        for place in self._waiting:
            if place.patient or place.turn.done():
                continue
            if place.tried:
                place.turn.set_exception(error)
            else:
                place.tried = True
                _end(pause)
        timer = asyncio.get_running_loop().call_later(seconds, _end, pause)
        try:
            await pause
        finally:
            timer.cancel()
            self._pause = None

    async def passed(self) -> None:
        """Wait until the end of a run is stored, or is not to be: it may stop who waits."""
        async with self:
            pass

    async def __aenter__(self) -> Self:
        if not self.try_enter():
            await self.enter(patient=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()


def _end(pause: "asyncio.Future[None]") -> None:
    if not pause.done():
        pause.set_result(None)
