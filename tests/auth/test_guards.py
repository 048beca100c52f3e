"""The documented dependencies in a FastAPI application of somebody's own, over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI

from mail.auth.callers import hash_token, new_token
from mail.db.records import TokenRow
from mail.db.sqlite.driver import SQLiteStore
from mail.utils import (
    caller_is_admin,
    caller_is_admin_or_user,
    caller_is_agent,
    caller_is_user,
    extract_token,
    extract_token_info,
)
from tests.server.kit import serving
from tests.server.token_stub import Service

PATHS = {"admin": ("/admin", "/both"), "user": ("/user", "/both"), "agent": ("/agent",)}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a plain application that knows nothing of a MAIL server."""
    app = FastAPI()
    guards = {
        "/admin": caller_is_admin,
        "/user": caller_is_user,
        "/agent": caller_is_agent,
        "/both": caller_is_admin_or_user,
    }
    for path, guard in guards.items():
        app.get(path, dependencies=[Depends(guard)])(lambda: "in")

    @app.get("/who")
    async def who(info: Annotated[dict[str, Any], Depends(extract_token_info)]) -> dict[str, Any]:
        return info

    @app.get("/token")
    async def token(given: Annotated[str, Depends(extract_token)]) -> str:
        return given

    async with serving(app) as client:
        yield client


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run where nothing is configured."""
    monkeypatch.chdir(tmp_path)
    for name in ("AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT", "DATABASE_URL", "MAIL_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """The external token service that the environment names."""
    service = Service()
    async with service.serve() as auth:
        monkeypatch.setenv("AUTH_ENDPOINT", auth._auth_endpoint)
        monkeypatch.setenv("TOKEN_INFO_ENDPOINT", auth._token_info_endpoint)
        yield service


async def statuses(client: httpx.AsyncClient, token: str) -> dict[str, int]:
    """Ask every guarded route."""
    headers = {"Authorization": f"Bearer {token}"}
    paths = ("/admin", "/user", "/agent", "/both")
    return {path: (await client.get(path, headers=headers)).status_code for path in paths}


@pytest.mark.parametrize("role", PATHS)
async def test_the_token_service_decides(
    client: httpx.AsyncClient, service: Service, role: str
) -> None:
    service.info = {"role": role, "id": "alice", "api_key": "key"}
    allowed = PATHS[role]
    found = await statuses(client, "key")
    assert found == {path: 200 if path in allowed else 403 for path in found}
    refused = next(path for path in found if path not in allowed)
    answer = await client.get(refused, headers={"Authorization": "Bearer key"})
    assert answer.json()["detail"].startswith("invalid role: this requires ")
    info = await client.get("/who", headers={"Authorization": "Bearer key"})
    assert info.json() == {"role": role, "id": "alice", "api_key": "key"}


@pytest.mark.parametrize("path", ["/admin", "/user", "/agent", "/both", "/who", "/token"])
async def test_without_a_token_the_answer_is_401(client: httpx.AsyncClient, path: str) -> None:
    for headers in ({}, {"Authorization": "Basic x"}):
        answer = await client.get(path, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_token_that_the_service_refuses_is_401_and_an_outage_503(
    client: httpx.AsyncClient, service: Service
) -> None:
    service.status = 401
    assert set((await statuses(client, "key")).values()) == {401}
    service.status = 500
    assert set((await statuses(client, "key")).values()) == {503}


async def test_nothing_in_the_query_lets_anybody_in(
    client: httpx.AsyncClient, service: Service
) -> None:
    headers = {"Authorization": "Bearer key"}
    answer = await client.get("/admin?raise_on_false=false&roles=user", headers=headers)
    assert answer.status_code == 403


async def test_without_a_service_the_tokens_of_the_server_here_count(
    client: httpx.AsyncClient,
) -> None:
    headers = {"Authorization": f"Bearer {new_token()}"}
    nowhere = await client.get("/admin", headers=headers)
    assert nowhere.status_code == 503
    assert "AUTH_ENDPOINT and TOKEN_INFO_ENDPOINT" in nowhere.json()["detail"]
    token = new_token()
    store = SQLiteStore("mail.db")  # a server that runs here keeps its tokens in it
    await store.open()
    try:
        row = TokenRow(hash_token(token), role="admin", id="root", created_at="2026-01-01T00:00:00")
        await store.put_token(row)
        assert await statuses(client, token) == {
            "/admin": 200,
            "/user": 403,
            "/agent": 403,
            "/both": 200,
        }
        assert (await client.get("/admin", headers=headers)).status_code == 401
    finally:
        await store.close()


async def test_half_a_setting_is_503_and_says_what_to_set(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTH_ENDPOINT", "http://127.0.0.1:9/login")
    answer = await client.get("/admin", headers={"Authorization": "Bearer key"})
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith("TOKEN_INFO_ENDPOINT is not set")
