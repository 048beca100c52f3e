"""Who may do what: tokens, roles, and nothing in the query that changes it."""

import asyncio
import logging
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from mail.auth.callers import Caller
from mail.errors import AuthUnavailable, ConfigError
from mail.server.app import create_app
from tests.server.kit import TOKENS, Script, Template, bearer, config, serving
from tests.server.token_stub import Service

ROUTES = [
    ("POST", "/health", {"admin"}),
    ("GET", "/whoami", {"admin", "alice"}),
    ("GET", "/status", {"admin", "alice"}),
    ("POST", "/message", {"admin", "alice"}),
    ("GET", "/tasks", {"admin", "alice"}),
    ("GET", "/task?task_id=t", {"admin", "alice"}),
    ("GET", "/tasks/t", {"admin", "alice"}),
    ("GET", "/tasks/t/events", {"admin", "alice"}),
    ("POST", "/tasks/t/cancel", {"admin", "alice"}),
    ("POST", "/swarms", {"admin"}),
    ("POST", "/swarms/register", {"admin"}),
    ("POST", "/swarms/discover", {"admin"}),
    ("POST", "/swarms/x/accept", {"admin"}),
    ("DELETE", "/swarms/x", {"admin"}),
    ("GET", "/swarms/registry", {"admin"}),
    ("POST", "/interswarm/forward", {"swarm"}),
    ("POST", "/interswarm/back", {"swarm"}),
    ("POST", "/interswarm/message", {"admin", "alice"}),
    ("GET", "/outbox", {"admin"}),
    ("POST", "/outbox/1/retry", {"admin"}),
    ("DELETE", "/outbox/1", {"admin"}),
    ("GET", "/webhook", {"admin"}),
    ("POST", "/webhook/1/retry", {"admin"}),
    ("DELETE", "/webhook/1", {"admin"}),
    ("POST", "/auth/login", {"admin", "alice", "swarm"}),
    ("GET", "/auth/check", {"admin", "alice", "swarm"}),
]


@pytest.mark.parametrize("query", ["", "raise_on_false=false", "role=admin", "debug=true"])
@pytest.mark.parametrize("who", ["nobody", "alice", "swarm", "admin"])
async def test_the_role_matrix_holds_whatever_the_query_says(
    client: httpx.AsyncClient, who: str, query: str
) -> None:
    headers = {} if who == "nobody" else bearer(who)
    for method, path, allowed in ROUTES:
        url = path + ("&" if "?" in path else "?") + query
        answer = await client.request(method, url, headers=headers)
        if who == "nobody":
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json() == {"detail": "no API key provided", "errors": []}
        elif who in allowed:
            assert answer.status_code in (200, 400, 404), path
        else:
            assert answer.status_code == 403, path
            refused = "no participant" if path == "/whoami" else "invalid role"
            assert refused in answer.json()["detail"]


@pytest.mark.parametrize("header", ["Basic x", "Bearer", "Bearer a b", TOKENS["alice"]])
async def test_a_header_that_is_no_bearer_token_is_401(
    client: httpx.AsyncClient, header: str
) -> None:
    answer = await client.get("/whoami", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.json()["detail"] == "invalid API key format"


async def test_a_wrong_token_is_401_before_its_body_is_looked_at(client: httpx.AsyncClient) -> None:
    headers = {"Authorization": "Bearer mail_wrong"}
    answer = await client.post("/message", content=b"{", headers=headers)
    assert answer.status_code == 401
    assert answer.json()["detail"] == "invalid API key"


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


async def test_an_administrator_sets_the_health(client: httpx.AsyncClient) -> None:
    before = (await client.get("/health")).json()
    answer = await client.post("/health", json={"status": "tired"}, headers=bearer("admin"))
    assert answer.status_code == 200
    assert answer.json() == (await client.get("/health")).json()
    assert answer.json()["status"] == "tired"
    assert answer.json()["timestamp"] > before["timestamp"]


@pytest.mark.parametrize("status", [None, "", " ", 5, {"a": 1}, "a\nb", "x" * 257])
async def test_health_takes_only_a_line_of_text(client: httpx.AsyncClient, status: Any) -> None:
    answer = await client.post("/health", json={"status": status}, headers=bearer("admin"))
    assert answer.status_code == 400
    [problem] = answer.json()["errors"]
    assert problem["field"] == "status"
    assert status is not None or problem["problem"] == "is missing"


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


async def test_an_authority_that_does_not_answer_is_503(template: Template) -> None:
    auth = Elsewhere(AuthUnavailable("the authentication service did not answer"))
    app = create_app(config(), template=template, auth=auth)  # type: ignore[arg-type]
    async with serving(app) as client:
        answer = await client.get("/whoami", headers=bearer("alice"))
    assert answer.status_code == 503
    assert answer.headers["retry-after"]


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
            for method, path, _ in ROUTES:
                await client.request(method, path, headers=headers)
        await client.get("/whoami?api_key=" + TOKENS["bob"])
    lines = [record for record in caplog.records if not record.name.startswith("httpcore")]
    lines = [record for record in lines if not record.name.startswith("httpx")]
    assert any(record.name == "mail.server.access" for record in lines)
    text = "\n".join(f"{record.getMessage()} {record.exc_text}" for record in lines)
    for token in (*TOKENS.values(), "mail_a-wrong-token"):
        assert token not in text
