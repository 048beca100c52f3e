"""A proxy on loopback that drops connections to its client in the middle of what a server sends."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

__all__ = ["CuttingProxy", "cutting_proxy"]

_BLANK = b"\r\n\r\n"


@dataclass(eq=False)
class CuttingProxy:
    """Passes connections on, and cuts one after the other of those that are still to be cut.

    A cut is a number of bytes of the server's, headers and all, or a pair ``(blank, offset)``: so
    many bytes before or after the end of the ``blank``-th blank line, the one after the headers
    being number 0. A connection that ends before its cut leaves it to the next one.
    """

    upstream: int
    cuts: "deque[int | tuple[int, int]]"
    port: int = 0
    made: int = 0
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            with suppress(ConnectionError):
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
                there = asyncio.create_task(_pass(reader, up_writer))
                try:
                    await self._back(up_reader, writer)
                finally:
                    up_writer.transport.abort()  # before the wait, which may be cancelled
                    there.cancel()
                    await asyncio.gather(there, return_exceptions=True)
        finally:
            writer.transport.abort()
            self.tasks.discard(task)

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent, seen = 0, b""
        while piece := await reader.read(65536):
            seen += piece
            end = _where(self.cuts[0], seen) if self.cuts else len(seen)
            if end is None:  # the place is not there yet, and may begin in the last bytes
                end = max(sent, len(seen) - len(_BLANK))
            elif self.cuts and end <= len(seen):
                writer.write(seen[sent:end])
                await writer.drain()
                await asyncio.sleep(0.002)  # lets them leave before the connection is reset
                self.cuts.popleft()
                self.made += 1
                return
            else:
                end = len(seen)
            writer.write(seen[sent:end])
            await writer.drain()
            sent = end
        writer.write(seen[sent:])
        writer.write_eof()
        await writer.drain()
        await asyncio.sleep(0.002)


def _where(cut: int | tuple[int, int], seen: bytes) -> int | None:
    """Return where to cut, or None while that is open."""
    if isinstance(cut, int):
        return cut
    blank, offset = cut
    at = -1
    for _ in range(blank + 1):
        at = seen.find(_BLANK, at + 1)
        if at < 0:
            return None
    return at + len(_BLANK) + offset


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()


@asynccontextmanager
async def cutting_proxy(
    upstream: int, cuts: Iterable[int | tuple[int, int]]
) -> AsyncIterator[CuttingProxy]:
    """Run a proxy before a port of this machine."""
    proxy = CuttingProxy(upstream, deque(cuts))
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in list(proxy.tasks):
            task.cancel()
        await asyncio.gather(*proxy.tasks, return_exceptions=True)
