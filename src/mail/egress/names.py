"""Look host names up in threads that nobody waits for.

The system's resolver can take half a minute and cannot be interrupted. So it runs in daemon threads
of its own, a bounded number of them: a call that is out of time goes on without its answer, other
work keeps the default threads of the event loop, and the process can end meanwhile.
"""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache, partial
from typing import Any, Final

__all__ = ["AsideThreads", "system_addresses"]

_LOOK_UPS_AT_ONCE: Final = 32


class AsideThreads:
    """Runs blocking functions in daemon threads; those beyond ``most`` wait in line."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = 0

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Return what will hold the result; cancelled before its turn, the work is not done."""
        future: Future[Any] = Future()
        with self._lock:
            # Whoever gave up must not keep a place in the line.
            self._waiting = deque(job for job in self._waiting if not job[0].cancelled())
            self._waiting.append((future, work))
            is_needed = self._running < self._most
            self._running += is_needed
        if is_needed:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while (job := self._next()) is not None:
            future, work = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
                future.set_exception(error)
            else:
                future.set_result(result)

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            return None


async def system_addresses(host: str, port: int) -> list[str]:
    """Return what the system's resolver says, each address once.

    Raises:
        OSError: the name cannot be resolved.
    """
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.wrap_future(_look_ups().submit(look_up))
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@cache
def _look_ups() -> AsideThreads:
    return AsideThreads(_LOOK_UPS_AT_ONCE, "mail-names")
