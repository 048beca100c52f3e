"""One limit of turns at work for all the runtimes of a process."""

import asyncio
from typing import Protocol


class Starts(Protocol):
    """The part of a runtime's scheduler that the limit uses."""

    @property
    def at_work(self) -> int:
        """The number of the runtime's turns that are at work."""

    def start_one(self) -> bool:
        """Start the next turn; tell whether there was one."""


class TurnLimit:
    """A limit of the turns that are at work at the same time in the runtimes that share it.

    A free place goes to the runtime with the fewest turns at work, among those that have mail.

    Args:
        most: The number of places.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._asking: dict[Starts, None] = {}

    def fill(self, scheduler: Starts) -> None:
        """Start what a runtime has ready as places become free, side by side with the others."""
        self._asking[scheduler] = None
        self._hand_out()

    def leave(self) -> None:
        """Give a place back."""
        self._free += 1
        if self._asking:
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _hand_out(self) -> None:
        while self._free > 0 and self._asking:
            if len(self._asking) == 1:
                (least,) = self._asking
            else:
                least = min(self._asking, key=lambda scheduler: scheduler.at_work)
            if least.start_one():
                self._free -= 1
            else:
                del self._asking[least]
