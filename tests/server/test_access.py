"""Who may do what: tokens, roles, and nothing in the query that changes it."""

import asyncio
import logging

import httpx
import pytest
from fastapi import FastAPI

from mail.auth.callers import Caller
from mail.errors import ConfigError
from mail.server.app import create_app
from tests.server.contract import TABLE
from tests.server.kit import TOKENS, Script, Template, bearer, config, serving
from tests.server.token_stub import Service


async def test_public_routes_need_no_token(client: httpx.AsyncClient) -> None:
    root = (await client.get("/")).json()
    assert root.pop("uptime") >= 0
    assert root == {
        "name": "mail",
        "version": "1.3.6",
        "protocol_version": "1.3",
        "swarm": {
            "name": "test-swarm",
            "version": "1.3.6",
            "description": "a swarm for tests",
            "entrypoint": "supervisor",
            "keywords": ["test"],
            "public": False,
        },
        "status": "running",
    }
    health = (await client.get("/health")).json()
    assert (health["status"], health["swarm_name"]) == ("healthy", "test-swarm")


async def test_whoami_and_status_make_no_instance(
    client: httpx.AsyncClient, template: Template
) -> None:
    whoami = await client.get("/whoami", headers=bearer("alice"))
    assert whoami.json() == {"id": "alice", "role": "user", "username": "alice"}
    status = await client.get("/status", headers=bearer("alice"))
    assert status.json() == {
        "swarm": {"name": "test-swarm", "status": "ready"},
        "active_users": 0,
        "user_mail_ready": True,
        "user_task_running": False,
        "storage": {
            "bytes": 0,
            "max_bytes": 2**30,
            "tasks": 0,
            "open_tasks": 0,
        },
    }
    assert (await client.get("/tasks", headers=bearer("alice"))).json() == {}
    assert template.started == []


async def test_status_tells_whose_tasks_run(
    client: httpx.AsyncClient, app: FastAPI, script: Script
) -> None:
    async def status(who: str) -> tuple[int, bool, bool]:
        told = (await client.get("/status", headers=bearer(who))).json()
        return told["active_users"], told["user_mail_ready"], told["user_task_running"]

    def post(who: str, body: str) -> "asyncio.Task[httpx.Response]":
        return asyncio.create_task(
            client.post("/message", json={"body": body}, headers=bearer(who))
        )

    await post("alice", "Hello")
    assert await status("alice") == (0, True, False)  # the instance is there, and idle
    begun = [post(who, "hang") for who in ("alice", "alice", "admin")]
    async with asyncio.timeout(20):
        while script.calls < 4:
            await asyncio.sleep(0.005)
    assert await status("alice") == (2, True, True)
    assert await status("bob") == (2, True, False)
    script.gate.set()
    await asyncio.gather(*begun)
    assert await status("alice") == (0, True, False)
    await app.state.mail.begin_drain()
    assert await status("alice") == (0, False, False)


async def test_the_built_in_authority_serves_other_servers(client: httpx.AsyncClient) -> None:
    login = await client.post("/auth/login", headers=bearer("swarm"))
    assert login.json() == {"token": TOKENS["swarm"]}
    check = await client.get("/auth/check", headers=bearer("swarm"))
    assert check.json() == {"role": "agent", "id": "beta", "api_key": TOKENS["swarm"]}


class Elsewhere:
    """An authority that is not built in."""

    def __init__(self, answer: Caller | Exception) -> None:
        self.answer = answer
        self.asked = 0

    async def authenticate(self, token: str) -> Caller:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None: ...


async def test_another_authority_is_asked_once_per_request_and_not_imitated(
    template: Template,
) -> None:
    auth = Elsewhere(Caller("user", "alice"))
    app = create_app(config(), template=template, auth=auth)  # type: ignore[arg-type]
    async with serving(app) as client:
        assert (await client.get("/status", headers=bearer("alice"))).status_code == 200
        assert auth.asked == 1
        for method, path in (("POST", "/auth/login"), ("GET", "/auth/check")):
            answer = await client.request(method, path, headers=bearer("alice"))
            assert answer.status_code == 404


async def test_fifty_requests_at_once_are_one_login_and_one_info(template: Template) -> None:
    service = Service()
    async with service.serve() as auth:
        app = create_app(config(), template=template, auth=auth)  # type: ignore[arg-type]
        async with serving(app) as client:
            requests = [client.get("/whoami", headers=bearer("alice")) for _ in range(50)]
            answers = await asyncio.gather(*requests)
            assert {answer.text for answer in answers} == {answers[0].text}
            assert answers[0].json()["id"] == "alice"
            assert [kind for kind, _ in service.calls] == ["login", "info"]


async def test_a_hanging_service_holds_up_only_the_requests_that_need_it(
    template: Template,
) -> None:
    service = Service()
    service.hangs = True
    async with service.serve(timeout=1.5) as auth:
        app = create_app(config(), template=template, auth=auth)  # type: ignore[arg-type]
        async with serving(app) as client:
            waiting = asyncio.create_task(client.get("/whoami", headers=bearer("alice")))
            await asyncio.sleep(0.05)
            assert (await client.get("/health")).status_code == 200
            assert not waiting.done()
            answer = await waiting
    assert answer.status_code == 503
    assert answer.headers["retry-after"]


def test_half_an_external_service_stops_the_start(
    template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTH_ENDPOINT", "http://127.0.0.1:1/login")
    with pytest.raises(ConfigError, match="TOKEN_INFO_ENDPOINT"):
        create_app(config(), template=template)  # type: ignore[arg-type]


async def test_no_token_reaches_a_log_line(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    wrong = {"Authorization": "Bearer mail_a-wrong-token-with-many-letters"}
    caplog.set_level(logging.DEBUG)
    async with serving(app) as client:
        for headers in ({}, bearer("alice"), bearer("admin"), bearer("swarm"), wrong):
            for row in TABLE:
                await client.request(row.method, row.path, headers=headers)
        await client.get("/whoami?api_key=" + TOKENS["bob"])
    lines = [record for record in caplog.records if not record.name.startswith("httpcore")]
    lines = [record for record in lines if not record.name.startswith("httpx")]
    assert any(record.name == "mail.server.access" for record in lines)
    text = "\n".join(f"{record.getMessage()} {record.exc_text}" for record in lines)
    for token in (*TOKENS.values(), "mail_a-wrong-token"):
        assert token not in text
