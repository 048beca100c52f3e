"""An event loop whose clock jumps to its next timer: waiting takes no time, and is always alike."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["run_virtually"]

Complaint = Callable[[dict[str, Any]], None]


class _Jumping(selectors.DefaultSelector):
    """Never waits: what would be waited for is added to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing will ever happen again")
        if not ready and timeout:
            self.now += timeout + 1e-6  # timers are a little late, never early
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtually(main: Coroutine[Any, Any, Any], complain: Complaint | None = None) -> Any:
    """Run a coroutine on a clock of its own; nothing in it may wait for a thread or a socket.

    Args:
        main: What to run.
        complain: Gets what the loop would log, for example exceptions that nobody took.
    """
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        if complain is not None:
            handler = complain
            runner.get_loop().set_exception_handler(lambda loop, context: handler(context))
        return runner.run(main)
