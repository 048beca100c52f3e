"""A served application in a thread with an event loop of its own, for tests that share one."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from starlette.applications import Starlette

from tests.server.kit import serving

__all__ = ["served"]


@contextmanager
def served(make: Callable[[], Awaitable[Starlette]]) -> Iterator[str]:
    """Serve an application and yield its URL.

    Args:
        make: Makes the application, within the loop that will serve it.
    """
    ready: list[str] = []
    failed: list[BaseException] = []
    known = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving(await make()) as client:
            ready.append(str(client.base_url).rstrip("/"))
            known.set()
            await stop.wait()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            failed.append(error)
        finally:
            known.set()

    thread = threading.Thread(target=run, name="served")
    thread.start()
    known.wait()
    try:
        if ready:
            yield ready[0]
            loop.call_soon_threadsafe(stop.set)
    finally:
        if thread.is_alive() and not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join()
    if failed:
        raise failed[0]
