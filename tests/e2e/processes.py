"""The processes of a test: a provider that outlives servers, and servers that are killed."""

import asyncio
import json
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import httpx

from scripts.ports import free_port
from tests.e2e.evidence import Evidence
from tests.e2e.served import Options, provide, serve_logged
from tests.server.kit import know

ROOT = Path(__file__).parents[2]
PROVIDER_KEY = "provider-key-Zq81Xw77Kd20"
TOKENS = {
    "alice": ("user", "alice-token-Lr44Pb91Vn38-of-no-known-shape"),
    "bob": ("user", "mail_bob-token-Hc62Ty05Qm17Sd80Wf43"),
    "root": ("admin", "mail_root-token-Gx29Ju73Ze56Ka14Bv98"),
}
_SECONDS = 60.0
_CONTEXT = multiprocessing.get_context("forkserver")


def bearer(who: str) -> dict[str, str]:
    """Return a caller's Authorization header."""
    return {"Authorization": f"Bearer {TOKENS[who][1]}"}


def warm_up() -> None:
    """Start the process that servers are forked from."""
    multiprocessing.set_forkserver_preload(["tests.e2e.warm"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before]))
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


@dataclass(eq=False)
class Place:
    """A folder with a database (or ``dsn``), the address of its server, and the provider's log."""

    folder: Path
    provider_port: int
    port: int = field(default_factory=free_port)
    process: ForkServerProcess | None = None
    dsn: str = ""

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"
        self.evidence = Evidence(self.folder, self.dsn, provider_port=self.provider_port)
        self.store_url = self.dsn or f"sqlite:///{self.folder / 'mail.db'}"
        self.gates = self.folder / "gates"
        self.gates.mkdir()

    def close_gate(self, name: str) -> None:
        """Let an agent's model (``model-<agent>``) or an action (``action-<name>``) wait."""
        (self.gates / name).touch()

    def open_gate(self, name: str) -> None:
        """Let it go on."""
        (self.gates / name).unlink()

    @property
    def log(self) -> str:
        """What the servers wrote so far."""
        file = self.folder / "server.log"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    async def make_tokens(self) -> None:
        """Make the callers' tokens, as ``mail token create`` does."""
        await know(self.store_url, *((token, role, who) for who, (role, token) in TOKENS.items()))

    async def start(self, kill: str = "", **options: Any) -> None:
        """Start a server and wait until it answers."""
        environment = {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.provider_port}/v1",
            "OPENAI_API_KEY": PROVIDER_KEY,
            "LITELLM_PROXY_API_BASE": f"http://127.0.0.1:{self.provider_port}/v1",
            "MAIL_LOG_LEVEL": "DEBUG",
        } | options.pop("environment", {})
        made = Options(
            folder=str(self.folder),
            port=self.port,
            store=self.store_url,
            kill=kill,
            environment=environment,
            **options,
        )
        self.process = _CONTEXT.Process(target=serve_logged, args=(made,), name="server")
        self.process.start()
        async with asyncio.timeout(_SECONDS), httpx.AsyncClient(base_url=self.url) as client:
            while True:
                assert self.process.is_alive(), self.log
                try:
                    answer = await client.get("/health")
                except httpx.TransportError:
                    await asyncio.sleep(0.01)
                    continue
                assert answer.status_code == 200, answer.text
                return

    async def died(self) -> None:
        """Wait until the server is dead by SIGKILL."""
        assert self.process is not None
        async with asyncio.timeout(_SECONDS):
            while self.process.is_alive():
                await asyncio.sleep(0.005)
        assert self.process.exitcode == -signal.SIGKILL, self.log

    async def kill(self) -> None:
        """Kill the server with SIGKILL."""
        assert self.process is not None and self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        await self.died()

    async def stop(self) -> None:
        """Stop the server in good order."""
        assert self.process is not None and self.process.pid is not None
        os.kill(self.process.pid, signal.SIGTERM)
        async with asyncio.timeout(_SECONDS):
            while self.process.is_alive():
                await asyncio.sleep(0.01)
        assert self.process.exitcode == 0, self.log

    def client(self, who: str = "alice") -> httpx.AsyncClient:
        """Return a caller's client."""
        return httpx.AsyncClient(base_url=self.url, headers=bearer(who), timeout=_SECONDS)

    def clean_up(self) -> None:
        """Kill what still runs."""
        if self.process is not None and self.process.is_alive():
            self.process.kill()
            self.process.join(5)


@asynccontextmanager
async def provider(
    folder: Path,
    *faults: Mapping[str, object],
    key: str | None = PROVIDER_KEY,
    script: str = "tests.e2e.script:reply",
) -> AsyncIterator[int]:
    """Run the fake provider; yield its port. Its log is ``provider.jsonl`` in the folder."""
    port = free_port()
    arguments = ["--port", str(port), "--script", script]
    arguments += ["--log", str(folder / "provider.jsonl")]
    arguments += ["--port-file", str(folder / "provider.port")]
    arguments += ["--key", key] if key else []
    for fault in faults:
        arguments += ["--fault", json.dumps(fault)]
    process = _CONTEXT.Process(target=provide, args=(str(folder), arguments), name="provider")
    process.start()
    try:
        async with asyncio.timeout(_SECONDS):
            while not (folder / "provider.port").exists():
                assert process.is_alive(), (folder / "provider.log").read_text()
                await asyncio.sleep(0.01)
        yield port
    finally:
        process.kill()
        process.join(5)


@asynccontextmanager
async def place_of(
    folder: Path,
    *faults: Mapping[str, object],
    dsn: str = "",
    **options: str | None,
) -> AsyncIterator[Place]:
    """Make a place with tokens and a running provider; the server is started by the test.

    Without ``dsn`` the store is an SQLite file in the folder. See `provider` for the rest.
    """
    async with provider(folder, *faults, **options) as port:
        place = Place(folder, port, dsn=dsn)
        await place.make_tokens()
        try:
            yield place
        finally:
            place.clean_up()
