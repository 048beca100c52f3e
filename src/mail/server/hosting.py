"""A host that is told to stop must let the server drain before it waits for its connections.

`mail.server.run` does that itself. Under any other host (``uvicorn mail.server:app``) the app
listens to the same signals and passes them on.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

__all__ = ["STOP_SIGNALS", "call_on_stop"]

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def call_on_stop(begin: Callable[[], object]) -> Iterator[None]:
    """Call ``begin`` in the running event loop when the process is told to stop.

    The host's own handler is called afterwards. Outside the main thread, or where the host has no
    handler to pass the signal on to, nothing is hooked.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    hooked: dict[signal.Signals, tuple[Any, Any]] = {}
    for number in STOP_SIGNALS:
        previous = signal.getsignal(number)
        if callable(previous):
            handler = _chain(loop, begin, previous)
            hooked[number] = (handler, previous)
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, (handler, previous) in hooked.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, previous)


def _chain(
    loop: asyncio.AbstractEventLoop, begin: Callable[[], object], previous: Callable[..., Any]
) -> Callable[[int, FrameType | None], None]:
    def handler(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(begin)
        previous(number, frame)

    return handler
