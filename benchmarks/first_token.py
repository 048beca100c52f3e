"""How soon the first piece of a reply is at the reader, after the provider wrote it.

Provider, ``mail server`` and reader are three processes. The reader posts a message and waits for
the first ``model_delta``; in turns with that it asks LiteLLM itself. What a request takes on its
way to the provider does not count, nor what the provider takes to think.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import httpx

from benchmarks.provider import MODELS, running_provider
from mail.auth.callers import hash_token, new_token
from mail.db import open_store
from mail.db.records import TokenRow
from mail.llm.litellm_model import load_library
from mail.llm.request import Wire
from mail.llm.wires import decoder_of
from scripts.ports import free_port

__all__ = ["report_first_tokens"]

_WORDS = 10
_TOKEN_DELAY = 0.005
_WARM_UP = 3
_SECONDS = 60.0
_BARE, _SERVED = "LiteLLM's first piece", "model_delta over SSE"
_FOREIGN = ("AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT", "DATABASE_URL")


async def report_first_tokens(requests: int) -> None:
    """Print how long the first pieces took, for so many requests of each kind on each wire."""
    warm_up = min(_WARM_UP, requests)
    async with running_provider(_WORDS, _TOKEN_DELAY) as provider, _server() as reader:
        read: list[tuple[Wire, str, float]] = []
        for wire in get_args(Wire):
            for _ in range(warm_up + requests):
                read.append((wire, _BARE, await _bare(wire)))
                read.append((wire, _SERVED, await _served(reader, wire)))
        written = await provider.first_tokens()
    if len(written) != len(read):
        raise RuntimeError(f"the provider saw {len(written)} requests, not {len(read)}")
    late = [(wire, kind, at - out) for (wire, kind, at), out in zip(read, written, strict=True)]
    for wire in MODELS:
        medians = []
        for kind in (_BARE, _SERVED):
            samples = [seconds for w, k, seconds in late if (w, k) == (wire, kind)][warm_up:]
            medians.append(_print(wire, kind, sorted(samples)))
        print(f"{wire:12s} SSE over LiteLLM {medians[1] / medians[0]:39.2f}x")


def _print(wire: str, kind: str, samples: Sequence[float]) -> float:
    middle, most = statistics.median(samples), samples[len(samples) * 95 // 100]
    print(
        f"{wire:12s} first token to {kind:22s}"
        f" median {middle * 1e3:7.2f} ms   p95 {most * 1e3:7.2f} ms"
    )
    return middle


async def _bare(wire: Wire) -> float:
    """Ask LiteLLM and return when the first piece of text was there."""
    litellm = load_library()
    question: Any = [{"role": "user", "content": "What is to be done?"}]
    given = {"model": MODELS[wire][0], "stream": True}
    if wire == "responses":
        stream = await litellm.aresponses(**given, input=question, store=False)
    else:
        stream = await litellm.acompletion(**given, messages=question)
    decode = decoder_of(wire)
    first = 0.0
    async for piece in stream:
        if not first and (delta := decode(piece)) is not None and delta.text:
            first = time.perf_counter()
    return first


async def _served(reader: httpx.AsyncClient, wire: Wire) -> float:
    """Post a message to the agent on a wire and return when its first piece was there."""
    body = {"body": "What is to be done?", "entrypoint": wire, "stream": True}
    first, last = 0.0, ""
    async with reader.stream("POST", "/message", json=body | {"stream_tokens": True}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                last = line.removeprefix("event: ")
                if not first and last == "model_delta":
                    first = time.perf_counter()
    if not first or last != "task_complete":
        raise RuntimeError(f"the stream ended with {last!r} (HTTP {answer.status_code})")
    return first


@asynccontextmanager
async def _server() -> AsyncIterator[httpx.AsyncClient]:
    """Run ``mail server`` in a folder of its own; yield a caller's client."""
    with TemporaryDirectory(prefix="mail-bench-") as name:
        folder, port, token = Path(name), free_port(), new_token()
        _write_files(folder, port)
        await _put_token(folder, token)
        environment = {key: os.environ[key] for key in os.environ if key not in _FOREIGN}
        with (folder / "server.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "mail.cli", "server", "--config", "mail.toml"),
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
            )
        try:
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}",
                headers={"Authorization": f"Bearer {token}"},
                timeout=_SECONDS,
            ) as client:
                await _healthy(client, process, folder / "server.log")
                yield client
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def _write_files(folder: Path, port: int) -> None:
    agents = [
        {
            "name": wire,
            "factory": "python::mail.factories:LiteLLMSupervisorFunction",
            "comm_targets": [],
            "enable_entrypoint": True,
            "can_complete_tasks": True,
            "tool_format": tool_format,
            "agent_params": {"llm": llm, "system": "You answer questions.", "use_proxy": False},
        }
        for wire, (llm, tool_format) in MODELS.items()
    ]
    swarm = {"name": "bench", "version": "1.3.6", "entrypoint": "completions", "agents": agents}
    (folder / "swarms.json").write_text(json.dumps([swarm | {"actions": []}]), encoding="utf-8")
    (folder / "mail.toml").write_text(
        f'[server]\nhost = "127.0.0.1"\nport = {port}\n'
        '[server.swarm]\nname = "bench"\nsource = "swarms.json"\nregistry = "registry.json"\n'
        "[server.settings]\nprint_llm_streams = false\n"
        f'[server.store]\nurl = "{_store_url(folder)}"\n',
        encoding="utf-8",
    )


def _store_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'mail.db'}"


async def _put_token(folder: Path, token: str) -> None:
    store = open_store(_store_url(folder))
    await store.open()
    try:
        made = datetime.now(UTC).isoformat()
        await store.put_token(TokenRow(hash_token(token), "user", "bench", made))
    finally:
        await store.close()


async def _healthy(
    client: httpx.AsyncClient, process: asyncio.subprocess.Process, log: Path
) -> None:
    """Wait until the server answers.

    Raises:
        RuntimeError: it ended, or did not start in time.
    """
    end = time.monotonic() + _SECONDS
    while process.returncode is None and time.monotonic() < end:
        try:
            if (await client.get("/health")).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            await asyncio.sleep(0.05)
    told = await asyncio.to_thread(log.read_text, "utf-8")
    raise RuntimeError(f"the server did not start:\n{told}")
