"""``GET /health``: what a load balancer may believe."""

import asyncio
import time
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from mail.db.memory import MemoryStore
from mail.errors import StoreError
from mail.server.app import create_app
from tests.server.kit import Script, Template, bearer, config, serving


async def down(*_: Any, **__: Any) -> Any:
    """Fail as a store does."""
    raise StoreError("disk full")


async def health_of(client: httpx.AsyncClient, wanted: str) -> httpx.Response:
    """Wait until the server says so about itself."""
    async with asyncio.timeout(10):
        while (answer := await client.get("/health")).json()["status"] != wanted:
            await asyncio.sleep(0.01)
    return answer


async def test_a_store_that_does_not_answer_makes_the_server_degraded(
    client: httpx.AsyncClient, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store, "commit_nothing", down)
        answer = await health_of(client, "degraded")
        assert answer.status_code == 200
        assert "disk" not in answer.text
    await health_of(client, "healthy")


async def test_however_many_ask_the_store_is_asked_once(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    commit = store.commit_nothing

    async def counted() -> Any:
        asked.append(time.monotonic())
        await asyncio.sleep(0.01)
        return await commit()

    monkeypatch.setattr(store, "commit_nothing", counted)
    monkeypatch.setattr("mail.server.state._LOOK_SECONDS", 3600.0)
    app = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        answers = await asyncio.gather(*(client.get("/health") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(asked) == 1


async def test_those_who_ask_while_the_store_hangs_take_nobodys_place(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, hangs = asyncio.Event(), asyncio.Event()
    app = create_app(config(max_requests=2), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        assert (await client.get("/whoami", headers=bearer("alice"))).status_code == 200

        async def hang() -> None:
            asked.set()
            await hangs.wait()

        with monkeypatch.context() as patch:
            patch.setattr(store, "commit_nothing", hang)
            asking = [asyncio.create_task(client.get("/health")) for _ in range(5)]
            await asyncio.wait_for(asked.wait(), 20)
            served = [await client.get("/whoami", headers=bearer("alice")) for _ in range(10)]
            assert not any(task.done() for task in asking)
            hangs.set()
            await asyncio.gather(*asking)
    assert {answer.status_code for answer in served} == {200}


async def test_an_instance_whose_commits_fail_makes_the_server_degraded_until_they_succeed(
    client: httpx.AsyncClient,
    app: FastAPI,
    store: MemoryStore,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = {"body": "hang", "task_id": "t-1"}
    running = asyncio.create_task(client.post("/message", json=body, headers=bearer("alice")))
    await asyncio.wait_for(script.entered.wait(), 20)
    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", down)
        script.gate.set()
        await health_of(client, "degraded")
        assert app.state.mail.pool.degraded
    assert (await running).status_code == 200
    await health_of(client, "healthy")


async def test_what_an_administrator_says_comes_after_the_facts(
    client: httpx.AsyncClient, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.post("/health", json={"status": "tired"}, headers=bearer("admin"))
    assert (await client.get("/health")).json()["status"] == "tired"
    monkeypatch.setattr(store, "commit_nothing", down)
    await health_of(client, "degraded")
