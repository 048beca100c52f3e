"""A participant in a process of its own, with the official MCP client: it does as it is told.

``python -m tests.e2e.desk_participant http URL`` or ``stdio URL``; the token is in MAIL_API_KEY.
A line of standard input is a call, ``[tool, arguments]``; a line of standard output its outcome,
``[whether it failed, structured content or text]``. The first line tells that it is ready.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

__all__ = ["Outside"]

_SECONDS = 60.0


class Outside:
    """Such a process, as a test uses it."""

    def __init__(self, kind: str, url: str, token: str) -> None:
        self._command = ("-m", "tests.e2e.desk_participant", kind, url)
        self._environment = {**os.environ, "MAIL_API_KEY": token}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it is connected."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *self._command, stdin=pipe, stdout=pipe, env=self._environment
        )
        assert await self._line() == "ready"

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that succeeds."""
        self.begin(tool, **arguments)
        failed, outcome = await self.outcome()
        assert not failed, outcome
        return outcome

    def begin(self, tool: str, **arguments: Any) -> None:
        """Call a tool without waiting."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps([tool, arguments]).encode() + b"\n")

    async def outcome(self) -> tuple[bool, Any]:
        """Return what became of the call: whether it failed, and its result."""
        failed, result = await self._line()
        return bool(failed), result

    async def _line(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        async with asyncio.timeout(_SECONDS):
            line = await self._process.stdout.readline()
        assert line, "the participant has ended"
        return json.loads(line)

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()


@asynccontextmanager
async def _connected(kind: str, url: str) -> AsyncIterator[Client]:
    if kind == "stdio":
        arguments = ["-m", "mail.cli", "mcp", url, "--tools", "threads"]
        given = StdioServerParameters(command=sys.executable, args=arguments, env={**os.environ})
        async with Client(stdio_client(given)) as client:
            yield client
        return
    headers = {"Authorization": f"Bearer {os.environ['MAIL_API_KEY']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=_SECONDS) as http,
        Client(streamable_http_client(f"{url}/mcp?tools=threads", http_client=http)) as client,
    ):
        yield client


async def _main(kind: str, url: str) -> None:
    async with _connected(kind, url) as client:
        _say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            tool, arguments = json.loads(line)
            result = await client.call_tool(tool, arguments)
            texts = " ".join(getattr(content, "text", "") for content in result.content)
            _say([result.is_error, result.structured_content or texts])


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
