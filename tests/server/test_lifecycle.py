"""Start, restart and stop: unfinished work continues, waiting callers get an answer."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from mail.db.memory import MemoryStore
from mail.errors import StoreLocked
from mail.server.app import create_app
from mail.server.run import run_server
from scripts.ports import free_port
from tests.server.kit import Script, Template, bearer, config, frames, serving

HANG = {"body": "hang", "task_id": "t-1"}


async def test_a_drain_answers_everybody_and_a_restart_finishes_the_work(
    store: MemoryStore, app: FastAPI, script: Script
) -> None:
    async with serving(app) as client:
        waiting = asyncio.create_task(client.post("/message", json=HANG, headers=bearer("alice")))
        await asyncio.wait_for(script.entered.wait(), 20)
        stream_body = HANG | {"task_id": "t-2", "stream": True}
        streaming = asyncio.create_task(
            client.post("/message", json=stream_body, headers=bearer("bob"))
        )
        replaying = asyncio.create_task(client.get("/tasks/t-1/events", headers=bearer("alice")))
        while not await store.open_owners("test-swarm") or len(app.state.mail.pool._live) < 2:
            await asyncio.sleep(0.01)
        while app.state.mail.quotas.open_streams < 2:
            await asyncio.sleep(0.01)
        drain = app.state.mail.begin_drain()
        refused = await client.post("/message", json=HANG, headers=bearer("alice"))
        health = await client.get("/health")
        await drain
        answers = await asyncio.gather(waiting, streaming, replaying)
    for answer in (refused, health, answers[0]):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
    assert health.json()["status"] == "draining"
    assert answers[0].json()["task_id"] == "t-1"
    for answer in answers[1:]:
        assert frames(answer.text)[-1]["event"] == "server_drain"

    script.gate.set()
    template = Template(script)
    again = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with serving(again) as client:
        for task_id, who in (("t-1", "alice"), ("t-2", "bob")):
            events = await client.get(f"/tasks/{task_id}/events", headers=bearer(who))
            assert frames(events.text)[-1]["event"] == "task_complete"
    assert sorted(template.started) == [("user", "alice"), ("user", "bob")]


async def test_unfinished_tasks_of_a_swarm_with_user_tokens_wait_for_their_owner(
    store: MemoryStore, app: FastAPI, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(app) as client:
        body = HANG | {"kwargs": {"timeout": 0.05}}
        answer = await client.post("/message", json=body, headers=bearer("alice"))
        assert answer.status_code == 504
    script.gate.set()
    template = Template(script)
    template.agents[0].agent_params = {"use_proxy": True}
    again = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with serving(again) as client:
        await asyncio.sleep(0.05)
        task = await client.get("/tasks/t-1", headers=bearer("alice"))
        assert task.json()["status"] == "running"
        assert template.started == []
        assert "1 callers have unfinished tasks" in caplog.text
        events = await client.get("/tasks/t-1/events", headers=bearer("alice"))
        assert frames(events.text)[-1]["event"] == "task_complete"


async def test_one_owner_that_cannot_be_taken_up_does_not_keep_the_others_waiting(
    store: MemoryStore, app: FastAPI, script: Script
) -> None:
    async with serving(app) as client:
        for who in ("alice", "bob"):
            body = HANG | {"kwargs": {"timeout": 0.05}}
            await client.post("/message", json=body, headers=bearer(who))
    script.gate.set()
    template = Template(script)
    make = template.instantiate

    def refuse_alice(*args: object, **kwargs: object) -> object:
        if args[1] == "alice":
            raise RuntimeError("no alice today")
        return make(*args, **kwargs)  # type: ignore[arg-type]

    template.instantiate = refuse_alice  # type: ignore[method-assign, assignment]
    again = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with serving(again) as client:
        events = await client.get("/tasks/t-1/events", headers=bearer("bob"))
        assert frames(events.text)[-1]["event"] == "task_complete"
        tasks = await client.get("/tasks", headers=bearer("alice"))  # reading needs no instance
        assert tasks.json()["t-1"]["status"] == "running"
        posted = await client.post("/message", json={"body": "hi"}, headers=bearer("alice"))
        assert posted.status_code == 500


PROGRAM = """
import asyncio, sys
import uvicorn
from mail.server.app import create_app
from mail.db.records import TokenRow
from mail.db.memory import MemoryStore
from mail.server.run import run_server
from mail.auth.builtin import hash_token
from tests.server.kit import TOKENS, Script, Template, config

store = MemoryStore()
row = TokenRow(token_hash=hash_token(TOKENS["alice"]), role="user", id="alice", created_at="2026")
asyncio.run(store.put_token(row))
port, grace, how = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
settings = config(shutdown_grace=grace).model_copy(update={"port": port})
if how == "run_server":
    run_server(settings, template=Template(Script()), store=store)
else:
    app = create_app(settings, template=Template(Script()), store=store)
    uvicorn.run(app, port=port, log_config=None)
"""


class Process:
    """A server in its own process."""

    def __init__(self, process: asyncio.subprocess.Process, client: httpx.AsyncClient) -> None:
        self.process, self.client = process, client

    async def begin(self, **body: object) -> "asyncio.Task[httpx.Response]":
        """Post a message that hangs, and wait until the server has accepted it."""
        request = self.client.post("/message", json=HANG | body, headers=bearer("alice"))
        running = asyncio.create_task(request)
        task_id = str((HANG | body)["task_id"])
        while (await self.get(f"/tasks/{task_id}")).status_code != 200:
            assert not running.done(), running.result().text
            await asyncio.sleep(0.02)
        return running

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(path, headers=bearer("alice"))

    async def signal_and_drain(self) -> None:
        """Tell the server to stop, and wait until it drains."""
        self.process.send_signal(signal.SIGTERM)
        while (await self.get("/health")).status_code != 503:
            await asyncio.sleep(0.01)

    async def stopped(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 60)


@asynccontextmanager
async def process(folder: Path, grace: float, how: str = "run_server") -> AsyncIterator[Process]:
    """Run a server in a process of its own."""
    program = folder / "serve.py"
    program.write_text(PROGRAM)
    port = free_port()
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root / "src"), str(root), *sys.path])
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        str(port),
        str(grace),
        how,
        env={**os.environ, "PYTHONPATH": paths},
        cwd=folder,
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            async with asyncio.timeout(60):
                while True:
                    assert started.returncode is None
                    with suppress(httpx.TransportError):
                        await client.get("/health")
                        break
                    await asyncio.sleep(0.05)
            yield Process(started, client)
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


@pytest.mark.e2e
async def test_the_first_signal_drains_and_the_process_ends_well(tmp_path: Path) -> None:
    async with process(tmp_path, grace=1.0) as server:
        waiting = await server.begin()
        streaming = await server.begin(task_id="t-2", stream=True)
        began = time.monotonic()
        await server.signal_and_drain()
        refused = await server.client.post("/message", json=HANG, headers=bearer("alice"))
        answer, stream = await waiting, await streaming
        assert await server.stopped() == 0
        assert time.monotonic() - began < 40
    assert refused.status_code == 503
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.json()["task_id"] == "t-1"
    assert frames(stream.text)[-1]["event"] == "server_drain"
    assert json.loads(frames(stream.text)[-1]["data"])["task_id"] == "t-2"


def test_a_store_that_cannot_be_opened_is_told_to_whoever_runs_the_server() -> None:
    class Locked(MemoryStore):
        async def open(self) -> None:
            raise StoreLocked("mail.db is in use")

    with pytest.raises(StoreLocked, match="in use"):
        run_server(config(), template=Template(), store=Locked())  # type: ignore[arg-type]


@pytest.mark.e2e
async def test_the_second_signal_exits_at_once(tmp_path: Path) -> None:
    async with process(tmp_path, grace=60.0) as server:
        waiting = await server.begin()
        await server.signal_and_drain()
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert await server.stopped() == 128 + signal.SIGTERM
        assert time.monotonic() - began < 40
        with pytest.raises(httpx.TransportError):
            await waiting


@pytest.mark.e2e
async def test_under_another_host_the_app_drains_by_itself(tmp_path: Path) -> None:
    async with process(tmp_path, grace=0.5, how="uvicorn") as server:
        waiting = await server.begin()
        streaming = await server.begin(task_id="t-2", stream=True)
        server.process.send_signal(signal.SIGTERM)
        answer, stream = await waiting, await streaming
        assert await server.stopped() == -signal.SIGTERM  # uvicorn's own way to end
    assert answer.status_code == 503
    assert frames(stream.text)[-1]["event"] == "server_drain"
