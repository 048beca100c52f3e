"""Ways to a database whose connections can be cut, one for each server."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress


class Way:
    """Passes connections on to a database until they are cut.

    Attributes:
        upstream: The port to which new ones lead.
    """

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self._open: set[asyncio.StreamWriter] = set()
        self.carrying: set[asyncio.Task[None]] = set()
        self.url = ""

    def cut(self) -> None:
        """Break all connections, in the middle of whatever they carry."""
        for writer in self._open:
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on."""
        task = asyncio.current_task()
        assert task is not None
        self.carrying.add(task)
        task.add_done_callback(self.carrying.discard)
        with suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self.upstream)
            self._open |= {writer, back}
            passing = [
                asyncio.create_task(_pass(reader, back)),
                asyncio.create_task(_pass(there, writer)),
            ]
            try:
                await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in passing:
                    task.cancel()
                await asyncio.gather(*passing, return_exceptions=True)
                self._open -= {writer, back}
                back.transport.abort()
        writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()


@asynccontextmanager
async def ways_to(url: str, count: int) -> AsyncIterator[list[Way]]:
    """Open so many ways to the database of a URL."""
    port = int(re.findall(r":(\d+)/", url)[0])
    async with AsyncExitStack() as stack:
        ways = [Way(port) for _ in range(count)]
        for way in ways:
            server = await asyncio.start_server(way.carry, "127.0.0.1", 0)
            stack.push_async_callback(_close, server, way)
            way.url = url.replace(f":{port}/", f":{server.sockets[0].getsockname()[1]}/")
        yield ways


async def _close(server: asyncio.Server, way: Way) -> None:
    server.close()
    way.cut()
    await asyncio.gather(*way.carrying, return_exceptions=True)
