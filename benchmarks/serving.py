"""Servers to measure, each in a process of its own."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

import aiohttp

from scripts.ports import free_port

__all__ = ["serving"]

_SECONDS_TO_START = 60


@asynccontextmanager
async def serving(
    module: str,
    *arguments: str,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Run a module with these arguments and a port; yield the server's URL and process id.

    It starts in this folder with this environment, and writes to ``output`` what it prints; where
    these are left out they are our own.
    """
    port = free_port()
    command = [sys.executable, "-m", module, *arguments, str(port)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environ, stdout=output, stderr=output
    )
    try:
        url = f"http://127.0.0.1:{port}"
        await _answers(url)
        yield url, process.pid
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def _answers(url: str) -> None:
    async with asyncio.timeout(_SECONDS_TO_START), aiohttp.ClientSession(url) as session:
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get("/health"):
                    return
            await asyncio.sleep(0.05)
