"""The registry of a server: what it registers, whom it asks, what it shows, and what it keeps."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from mail.config.server import FederationConfig, ServerConfig, SwarmConfig
from mail.db.memory import MemoryStore
from mail.net.endpoints import missing_token
from mail.net.peers import PeerAccess
from mail.server.app import create_app
from scripts.ports import free_port
from tests.net.test_registry import INWARD, inward, root, town
from tests.server.kit import TOKENS, Template, bearer, config, running_server, serving
from tests.stdlib.outside import Outside

LOOPBACK = {
    "http://127.0.0.1:8000",
    "http://127.0.0.1.",
    "http://localhost",
    "http://LOCALHOST.",
    "http://[::1]",
    "http://[::ffff:127.0.0.1]",
    "http://[64:ff9b::7f00:1]",
}
ADMIN = bearer("admin")


def settings(file: Path, **federation: Any) -> ServerConfig:
    swarm = SwarmConfig(name="test-swarm", registry_file=str(file))
    return config(shutdown_grace=0.1).model_copy(
        update={"swarm": swarm, "federation": FederationConfig(**federation)}
    )


def app_of(store: MemoryStore, file: Path, name: str = "test-swarm", **federation: Any) -> FastAPI:
    template = Template()
    template.name, template.public = name, True
    made: Any = template
    return create_app(settings(file, **federation), template=made, store=store)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "registries" / "test.json"


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[str]:
    """Another server, with the public swarm 'beta'."""
    app = app_of(MemoryStore(), tmp_path / "beta.json", "beta")
    async with running_server(app) as server:
        app.state.mail.registry.register_local_swarm(server.url)
        yield server.url


@pytest.fixture
async def app(store: MemoryStore, file: Path) -> FastAPI:
    return app_of(store, file)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app) as client:
        yield client


async def register(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post("/swarms", json=body, headers=ADMIN)


async def everything(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/swarms/registry", headers=ADMIN)
    found: dict[str, Any] = answer.json()
    return found


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def keep(file: Path, **entries: Any) -> None:
    file.parent.mkdir()
    file.write_text(json.dumps({"endpoints": entries}))


async def test_two_servers_register_each_other_as_in_the_readme(
    client: httpx.AsyncClient, peer: str, app: FastAPI
) -> None:
    answer = await register(client, name="beta", base_url=peer)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"status": "registered", "swarm_name": "beta"}
    shown = (await client.get("/swarms")).json()["swarms"]
    assert [swarm["swarm_name"] for swarm in shown] == ["test-swarm", "beta"]
    assert set(shown[1]) == {
        "swarm_name",
        "base_url",
        "version",
        "last_seen",
        "is_active",
        "latency",
        "swarm_description",
        "keywords",
        "metadata",
        "public_keys",
    }
    assert (shown[1]["base_url"], shown[1]["version"]) == (peer, "1.3")
    assert (shown[1]["swarm_description"], shown[1]["keywords"]) == ("a swarm for tests", ["test"])
    # What the router of the next messages will ask.
    registry = app.state.mail.registry
    assert registry.get_swarm_endpoint("beta")["base_url"] == peer
    assert registry.get_resolved_auth_token("beta") is None


async def test_the_public_list_has_no_private_swarm_and_nothing_of_a_token(
    client: httpx.AsyncClient, peer: str, app: FastAPI
) -> None:
    body = {"name": "beta", "base_url": peer, "auth_token": "s3cret-s3cret", "volatile": False}
    assert (await register(client, **body, metadata={"team": "b"})).status_code == 200
    public = (await client.get("/swarms")).text
    assert "s3cret" not in public
    assert "SWARM_AUTH_TOKEN" not in public
    whole = await everything(client)
    assert "s3cret" not in str(whole)
    [_, found] = whole["swarms"]
    assert (found["token_variable"], found["has_token"]) == ("SWARM_AUTH_TOKEN_BETA", True)
    assert (found["public"], found["volatile"]) == (True, False)
    app.state.mail.registry.endpoints["beta"]["public"] = False
    shown = (await client.get("/swarms")).json()["swarms"]
    assert [swarm["swarm_name"] for swarm in shown] == ["test-swarm"]


async def test_only_administrators_register(client: httpx.AsyncClient, peer: str) -> None:
    body = {"name": "beta", "base_url": peer}
    for who in ("alice", "swarm"):
        for path in ("/swarms", "/swarms/register"):
            answer = await client.post(path, json=body, headers=bearer(who))
            assert answer.status_code == 403
    assert (await client.post("/swarms", json=body)).status_code == 401
    assert len((await everything(client))["swarms"]) == 1


async def test_the_own_name_and_another_swarm_are_refused(
    client: httpx.AsyncClient, peer: str
) -> None:
    answer = await register(client, name="test-swarm", base_url=peer)
    assert answer.status_code == 400
    assert "own swarm" in answer.json()["detail"]
    answer = await register(client, name="gamma", base_url=peer)
    assert answer.status_code == 400
    assert "serves the swarm 'beta', not 'gamma'" in answer.json()["detail"]
    assert [problem["field"] for problem in answer.json()["errors"]] == ["base_url"]
    answer = await client.delete("/swarms/test-swarm", headers=ADMIN)
    assert answer.status_code == 404
    assert "own swarm" in answer.json()["detail"]


async def test_a_server_that_starts_later_is_registered_and_shown_as_unreachable(
    client: httpx.AsyncClient, app: FastAPI, tmp_path: Path
) -> None:
    url = f"http://localhost:{free_port()}"
    answer = await register(client, name="beta", base_url=url, volatile=False)
    assert answer.status_code == 200, answer.text
    [_, beta] = (await everything(client))["swarms"]
    assert (beta["is_active"], beta["last_seen"], beta["base_url"]) == (False, None, url)
    registry = app.state.mail.registry
    await registry.stop_health_checks()
    registry.health_check_interval = 0.01
    await registry.start_health_checks()
    other = app_of(MemoryStore(), tmp_path / "beta.json", "beta")
    async with running_server(other, port=int(url.rpartition(":")[2])), asyncio.timeout(10):
        while not (beta := (await everything(client))["swarms"][1])["is_active"]:
            await asyncio.sleep(0.005)
    assert beta["swarm_description"] == "a swarm for tests"
    assert [s["swarm_name"] for s in (await client.get("/swarms")).json()["swarms"]][1:] == ["beta"]


async def test_a_second_registration_changes_only_what_it_says(
    client: httpx.AsyncClient, peer: str
) -> None:
    first = {"name": "beta", "base_url": peer, "auth_token": "tok", "metadata": {"team": "b"}}
    assert (await register(client, **first, volatile=False)).status_code == 200
    answer = await register(client, name="beta", base_url=peer)  # the README's curl, once more
    assert answer.status_code == 200, answer.text
    [_, beta] = (await everything(client))["swarms"]
    assert (beta["volatile"], beta["metadata"], beta["has_token"]) == (False, {"team": "b"}, True)
    answer = await register(client, name="beta", base_url=peer, volatile=True)
    assert answer.status_code == 400
    assert "register it with volatile=false" in answer.json()["detail"]


@pytest.mark.parametrize("secret", ["${OPENAI_API_KEY}", "${SWARM_AUTH_TOKEN_GAMMA}", "${HOME}"])
async def test_no_other_variable_can_be_named(
    client: httpx.AsyncClient,
    peer: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    secret: str,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "do-not-tell")
    monkeypatch.setenv("SWARM_AUTH_TOKEN_GAMMA", "do-not-tell")
    for volatile in (True, False):
        answer = await register(
            client, name="beta", base_url=peer, auth_token=secret, volatile=volatile
        )
        assert answer.status_code == 400
        assert "may only name ${SWARM_AUTH_TOKEN_BETA}" in answer.json()["detail"]
        assert "do-not-tell" not in answer.text + caplog.text


@pytest.mark.parametrize("url", [*INWARD, "http://[::ffff:169.254.169.254]", "http://127.0.0.1."])
async def test_registering_and_discovery_do_not_lead_inside(
    store: MemoryStore, file: Path, url: str
) -> None:
    """But for a registration that names a loopback address as such."""
    app = app_of(store, file)
    world = inward()
    async with serving(app) as client:
        registry = app.state.mail.registry
        policy = registry.access.policy
        registry.access = PeerAccess(policy, "hint", world.resolve, world.transport)
        if url not in LOOPBACK:
            answer = await register(client, name="beta", base_url=url)
            assert answer.status_code == 400, answer.text
        body = {"discovery_urls": [url]}
        answer = await client.post("/swarms/discover", json=body, headers=ADMIN)
        assert answer.status_code == 200
        assert answer.json()["proposed"] == []
        assert len(answer.json()["problems"]) == 1
    assert world.requests == []


@pytest.mark.parametrize("url", sorted(LOOPBACK))
async def test_an_administrator_may_name_a_loopback_address(
    store: MemoryStore, file: Path, url: str
) -> None:
    app = app_of(store, file)
    world = inward()
    world.handler = lambda _: httpx.Response(200, json=root("", "beta"))
    async with serving(app) as client:
        registry = app.state.mail.registry
        policy = registry.access.policy
        registry.access = PeerAccess(policy, "hint", world.resolve, world.transport)
        answer = await register(client, name="beta", base_url=url)
        assert answer.status_code == 200, answer.text
    assert len(world.requests) == 2


@pytest.mark.parametrize("url", ["http://10.0.0.1", "http://inward.example"])
async def test_a_refused_address_names_the_setting(
    store: MemoryStore, file: Path, url: str
) -> None:
    app = app_of(store, file)
    world = inward()
    async with serving(app) as client:
        registry = app.state.mail.registry
        own = registry.access
        registry.access = PeerAccess(own.policy, own.setting, world.resolve, world.transport)
        answer = await register(client, name="beta", base_url=url)
    assert answer.status_code == 400
    assert "[server.federation] allow_private allows" in answer.json()["detail"]
    assert world.requests == []


async def test_swarms_that_another_server_lists_wait_for_approval(
    client: httpx.AsyncClient, app: FastAPI, file: Path
) -> None:
    peer, world = "http://beta", town("beta")
    registry = app.state.mail.registry
    registry.access = PeerAccess(registry.access.policy, None, world.resolve, world.transport)

    async def discover(*urls: str) -> dict[str, Any]:
        answer = await client.post("/swarms/discover", json={"discovery_urls": urls}, headers=ADMIN)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    found = await discover(peer, "http://127.0.0.1:1")
    assert found["proposed"] == ["beta"]
    assert [problem["field"] for problem in found["problems"]] == ["http://127.0.0.1:1"]
    assert [s["swarm_name"] for s in (await client.get("/swarms")).json()["swarms"]] == [
        "test-swarm"
    ]
    [proposed] = (await everything(client))["proposed"]
    assert (proposed["swarm_name"], proposed["listed_by"]) == ("beta", peer)
    gone = await client.post("/swarms/gamma/accept", headers=ADMIN)
    assert gone.status_code == 404
    answer = await client.post("/swarms/beta/accept", headers=ADMIN)
    assert answer.json() == {"status": "registered", "swarm_name": "beta"}
    whole = await everything(client)
    assert whole["proposed"] == []
    assert whole["swarms"][1]["volatile"] is False
    assert set(json.loads(text_of(file))["endpoints"]) == {"test-swarm", "beta"}
    assert await discover(peer) == {"proposed": [], "problems": []}
    answer = await client.delete("/swarms/beta", headers=ADMIN)
    assert answer.json() == {"status": "removed", "swarm_name": "beta", "open_tasks": 0}
    assert (await client.delete("/swarms/beta", headers=ADMIN)).status_code == 404


async def test_what_is_kept_survives_a_restart_and_volatile_entries_do_not(
    store: MemoryStore, file: Path, peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(app_of(store, file)) as client:
        body = {"base_url": peer, "auth_token": "s3cret"}
        assert (await register(client, name="beta", volatile=False, **body)).status_code == 200
    assert "s3cret" not in text_of(file)
    monkeypatch.setenv("SWARM_AUTH_TOKEN_BETA", "s3cret")
    app = app_of(store, file)
    async with serving(app) as client:
        assert app.state.mail.registry.get_resolved_auth_token("beta") == "s3cret"
        assert (await client.delete("/swarms/beta", headers=ADMIN)).status_code == 200
        assert (await register(client, name="beta", **body)).status_code == 200
    async with serving(app_of(store, file)) as client:
        assert len((await everything(client))["swarms"]) == 1


@pytest.mark.parametrize("exchanges_mail", [True, False])
async def test_a_server_that_starts_without_a_token_for_a_peer_says_how_to_get_one(
    store: MemoryStore,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    exchanges_mail: bool,
) -> None:
    """Also for one that was registered without a token; not where no mail is exchanged."""
    entry = {"base_url": "http://127.0.0.1:9"}
    kept = {"beta": entry, "gamma": {**entry, "auth_token_ref": "${SWARM_AUTH_TOKEN_GAMMA}"}}
    keep(file, **kept, delta=entry)
    monkeypatch.setenv("SWARM_AUTH_TOKEN_DELTA", "t")
    template: Any = Template()
    template.enable_interswarm = exchanges_mail
    async with serving(create_app(settings(file), template=template, store=store)):
        pass
    told = [r.getMessage() for r in caplog.records if "there is no token" in r.getMessage()]
    assert (
        told
        == [missing_token(name, "test-swarm") for name in ("beta", "gamma")][: 2 * exchanges_mail]
    )


async def test_the_health_of_peers_is_followed(
    client: httpx.AsyncClient, app: FastAPI, tmp_path: Path
) -> None:
    registry = app.state.mail.registry
    other = app_of(MemoryStore(), tmp_path / "beta.json", "beta")

    async def becomes(*, active: bool) -> None:
        async with asyncio.timeout(10):
            while registry.get_swarm_endpoint("beta")["is_active"] is not active:
                await asyncio.sleep(0.005)

    async with running_server(other) as server:
        assert (await register(client, name="beta", base_url=server.url)).status_code == 200
        await registry.stop_health_checks()  # its first round was before there was a peer
        registry.health_check_interval = 0.01
        await registry.start_health_checks()
        async with asyncio.timeout(10):
            while registry.get_swarm_endpoint("beta")["latency"] is None:
                await asyncio.sleep(0.005)
        await other.state.mail.begin_drain()  # answers 503 now
        await becomes(active=False)
    [_, beta] = (await client.get("/swarms")).json()["swarms"]
    assert beta["is_active"] is False
    assert beta["latency"] > 0


async def test_an_answer_is_repeated_for_the_same_key(client: httpx.AsyncClient, peer: str) -> None:
    for replayed in (None, "true"):
        answer = await client.post(
            "/swarms",
            json={"name": "beta", "base_url": peer},
            headers=ADMIN | {"Idempotency-Key": "k"},
        )
        assert answer.status_code == 200
        assert answer.headers.get("Idempotency-Replayed") == replayed


async def test_a_swarm_that_is_loaded_takes_the_place_of_the_own(
    client: httpx.AsyncClient, app: FastAPI, peer: str
) -> None:
    from tests.support.till import definition

    app.state.mail.config.swarm.remote_imports.append("tests.support.till")
    assert (await register(client, name="beta", base_url=peer)).status_code == 200
    taken = json.dumps(json.loads(definition()) | {"name": "beta"})
    answer = await client.post("/swarms/load", json={"json": taken}, headers=ADMIN)
    assert answer.status_code == 400
    assert "'beta' is registered as another swarm" in answer.json()["detail"]
    other = json.dumps(json.loads(definition()) | {"name": "delta", "public": True})
    await app.state.mail.load(other)
    shown = (await client.get("/swarms")).json()["swarms"]
    assert [swarm["swarm_name"] for swarm in shown] == ["delta", "beta"]


async def test_what_cannot_be_kept_is_503_and_nothing_was_registered(
    store: MemoryStore, tmp_path: Path, peer: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    app = app_of(store, tmp_path / "file" / "registry.json")
    async with serving(app) as client:
        answer = await register(client, name="beta", base_url=peer, volatile=False)
        assert answer.status_code == 503
        assert (await register(client, name="beta", base_url=peer)).status_code == 200
        assert (await client.delete("/swarms/beta", headers=ADMIN)).status_code == 200
    assert "cannot write to" in caplog.text


async def test_a_server_says_where_others_reach_it(store: MemoryStore, file: Path) -> None:
    async with serving(app_of(store, file, base_url="https://mail.example.org/")) as client:
        [own] = (await client.get("/swarms")).json()["swarms"]
    assert own["base_url"] == "https://mail.example.org"


async def test_no_token_gets_into_the_log(
    client: httpx.AsyncClient, peer: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for token in ("s3cret", "white space"):
            await register(client, name="beta", base_url=peer, auth_token=token)
    assert "registered the swarm 'beta'" in caplog.text
    for hidden in ("s3cret", "white space", TOKENS["admin"]):
        assert hidden not in caplog.text


async def test_hostile_words_of_a_peer_do_no_harm(store: MemoryStore, file: Path) -> None:
    app = app_of(store, file)
    world = Outside({"evil.example": ["93.184.215.14"]})
    world.handler = lambda request: httpx.Response(
        200,
        text='{"swarm": {"name": "evil", "public": true, "description": "\\u001b[2J<script>", '
        '"keywords": {"a": 1}}, "protocol_version": ["1"]}',
    )
    async with serving(app) as client:
        registry = app.state.mail.registry
        registry.access = PeerAccess(registry.access.policy, None, world.resolve, world.transport)
        body = {"name": "evil", "base_url": "http://evil.example"}
        assert (await register(client, **body)).status_code == 200
        [_, evil] = (await client.get("/swarms")).json()["swarms"]
    assert evil["swarm_description"] == " [2J<script>"
    assert (evil["keywords"], evil["version"]) == ([], "1.3")
