"""A registry in PostgreSQL, which the servers of a swarm share."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail.auth.callers import hash_token
from mail.config.server import FederationConfig, SwarmConfig
from mail.db.keys import RegistryVerbs
from mail.db.memory import MemoryStore
from mail.db.postgres.driver import PostgresStore
from mail.db.records import TokenRow
from mail.db.sqlite.driver import SQLiteStore
from mail.errors import StoreConflict, StoreError
from mail.net import SwarmRegistry
from mail.net.registry_file import shared_registry
from mail.server.app import create_app
from tests.net.test_registry import alpha, root, text_of
from tests.net.test_registry_file import ABOUT, beta, keep
from tests.server.kit import TOKENS, Template, bearer, config, running_server, serving
from tests.stdlib.outside import PUBLIC, Outside
from tests.support.postgres import Cluster, query


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.schema()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, exclusive=False)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "registries"
    folder.mkdir()
    return folder / "alpha.json"


@pytest.fixture
def world() -> Outside:
    names = [f"p{n}.example" for n in range(10)]
    world = Outside({name: [PUBLIC] for name in ("beta.example", *names)})
    world.handler = lambda request: httpx.Response(
        200, json=root(request.url, request.headers["host"].partition(".")[0])
    )
    return world


async def opened(store: Any, file: Path, world: Outside | None = None, **more: Any) -> Any:
    """Return the registry of one of the servers of a swarm."""

    def make() -> SwarmRegistry:
        return alpha(file, world, storage=shared_registry(store, "alpha", str(file)), **more)

    return await asyncio.to_thread(make)


async def register(registry: SwarmRegistry, name: str = "beta", **more: Any) -> None:
    await registry.register_swarm(name, f"http://{name}.example", volatile=False, **more)


async def until_known(registry: SwarmRegistry, name: str, *, known: bool = True) -> None:
    async with asyncio.timeout(10):
        while (registry.get_swarm_endpoint(name) is not None) is not known:
            await asyncio.sleep(0.02)


def damaged(file: Path) -> None:
    file.write_text("{")


def content(url: str) -> dict[str, Any]:
    ((text,),) = query(url, "SELECT content FROM swarm_registry WHERE swarm_name = 'alpha'")
    found: dict[str, Any] = json.loads(text)
    return found


class TestStore:
    async def test_a_change_names_what_it_replaces(self, store: PostgresStore) -> None:
        assert await store.load_registry("alpha") is None
        with pytest.raises(StoreConflict):
            await store.save_registry("alpha", "{}", 1)
        assert await store.save_registry("alpha", '{"a": 1}', 0) == 1
        with pytest.raises(StoreConflict):
            await store.save_registry("alpha", '{"b": 1}', 0)
        assert await store.load_registry("alpha") == (1, '{"a": 1}')
        assert await store.load_registry("alpha", 1) is None
        assert await store.save_registry("alpha", '{"c": "\0"}', 1) == 2
        assert await store.load_registry("alpha", 1) == (2, '{"c": "\0"}')
        assert await store.load_registry("beta") is None

    async def test_only_a_store_that_servers_share_has_registries(self, tmp_path: Path) -> None:
        assert shared_registry(MemoryStore(), "alpha", "r.json") is None
        assert shared_registry(SQLiteStore(tmp_path / "mail.db"), "alpha", "r.json") is None
        assert isinstance(PostgresStore("postgresql://u@h/d"), RegistryVerbs)


class TestSharing:
    async def test_what_is_kept_is_in_the_database_without_the_token(
        self, store: PostgresStore, url: str, file: Path, world: Outside
    ) -> None:
        registry = await opened(store, file, world)
        await register(registry, auth_token="s3cret", metadata={"a": 1})
        await registry.register_swarm("p1", "http://p1.example")
        found = content(url)
        assert {name: found[name] for name in ABOUT} == ABOUT
        assert set(found["endpoints"]) == {"alpha", "beta"}
        assert found["endpoints"]["beta"]["auth_token_ref"] == "${SWARM_AUTH_TOKEN_BETA}"
        assert registry.get_resolved_auth_token("beta") == "s3cret"
        assert "s3cret" not in json.dumps(found)
        assert text_of(file) == ""
        again = await opened(store, file)
        assert set(again.get_all_endpoints()) == {"alpha", "beta"}
        assert again.get_persistent_endpoints()["beta"]["metadata"] == {"a": 1}
        await registry.aclose()
        assert set((await opened(store, file)).get_all_endpoints()) == {"alpha", "beta"}
        assert query(url, "SELECT version FROM swarm_registry") == [(1,)]

    async def test_one_server_sees_what_another_changes(
        self, store: PostgresStore, url: str, file: Path, world: Outside
    ) -> None:
        world.handler = lambda request: httpx.Response(
            200,
            json={"swarms": [{"swarm_name": "p1", "base_url": "http://p1.example"}]}
            if request.url.path == "/swarms"
            else root(request.url, "beta"),
        )
        other_store = PostgresStore(url, exclusive=False)
        await other_store.open()
        one = await opened(store, file, world, proposes=True)
        other = await opened(other_store, file, world, proposes=True)
        await other.start_health_checks()
        await register(one)
        await until_known(other, "beta")
        assert (await one.discover_swarms(["http://beta.example"])).found == ["p1"]
        async with asyncio.timeout(10):
            while not other.get_proposed_swarms():
                await asyncio.sleep(0.02)
        assert await asyncio.to_thread(other.unregister_swarm, "beta")
        assert await asyncio.to_thread(one.unregister_swarm, "p1")  # reads before it writes
        assert one.get_swarm_endpoint("beta") is None
        await until_known(other, "p1", known=False)
        await other.aclose()
        await other_store.close()
        assert set(content(url)["endpoints"]) == {"alpha"}

    async def test_no_change_of_several_servers_is_lost(
        self, store: PostgresStore, url: str, file: Path, world: Outside
    ) -> None:
        registries = [await opened(store, file, world) for _ in range(5)]
        await asyncio.gather(*(register(each, f"p{n}") for n, each in enumerate(registries)))
        assert set(content(url)["endpoints"]) == {"alpha", *(f"p{n}" for n in range(5))}
        ((version,),) = query(url, "SELECT version FROM swarm_registry")
        assert version == 5

    async def test_looking_up_waits_for_nothing(
        self, store: PostgresStore, file: Path, world: Outside
    ) -> None:
        registry = await opened(store, file, world)
        await register(registry)
        await store.close()
        assert registry.get_swarm_endpoint("beta") is not None
        with pytest.raises(StoreError):
            await asyncio.to_thread(registry.unregister_swarm, "beta")
        assert registry.get_swarm_endpoint("beta") is not None

    async def test_a_database_that_was_away_is_asked_again(
        self, url: str, file: Path, world: Outside
    ) -> None:
        store, other_store = PostgresStore(url, exclusive=False), PostgresStore(url)
        await store.open()
        registry = await opened(store, file, world)
        await registry.start_health_checks()
        await store.close()
        await asyncio.sleep(1.2)
        await store.open()
        await other_store.open()
        await register(await opened(other_store, file, world))
        await until_known(registry, "beta")
        await registry.aclose()
        await store.close()
        await other_store.close()

    async def test_a_damaged_row_is_told_and_left_alone(
        self,
        store: PostgresStore,
        url: str,
        file: Path,
        world: Outside,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        await store.save_registry("alpha", "{", 0)
        registry = await opened(store, file, world)
        assert "of swarm 'alpha' in the database is damaged" in caplog.text
        with pytest.raises(StoreError, match="correct or delete its row"):
            await register(registry)
        assert query(url, "SELECT content FROM swarm_registry") == [("{",)]
        query(url, "DELETE FROM swarm_registry")
        await register(await opened(store, file, world))
        assert set(content(url)["endpoints"]) == {"alpha", "beta"}


class TestImport:
    async def test_a_file_is_imported_once(
        self,
        store: PostgresStore,
        url: str,
        file: Path,
        world: Outside,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        broken = {**beta(), "swarm_name": "broken", "base_url": "nowhere", "auth_token": "pl41n"}
        keep(file, beta(), broken, proposed={"p1": {"base_url": "http://p1.example"}})
        before = text_of(file)
        registry = await opened(store, file, world)
        assert set(registry.get_all_endpoints()) == {"alpha", "beta"}
        assert "was imported into the database" in caplog.text
        assert "entry 'broken'" in caplog.text
        assert "it was not imported" in caplog.text
        assert set(content(url)["endpoints"]) == {"alpha", "beta"}
        await asyncio.to_thread(registry.unregister_swarm, "beta")
        caplog.clear()
        again = await opened(store, file, world)
        assert set(again.get_all_endpoints()) == {"alpha"}
        assert "imported" not in caplog.text
        assert text_of(file) == before
        assert "pl41n" not in json.dumps(content(url)) + caplog.text

    async def test_servers_that_start_together_import_one_file(
        self, store: PostgresStore, url: str, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        keep(file, beta())
        every = await asyncio.gather(*(opened(store, file) for _ in range(5)))
        assert all(set(each.get_all_endpoints()) == {"alpha", "beta"} for each in every)
        assert caplog.text.count("was imported into the database") == 1
        assert query(url, "SELECT version FROM swarm_registry") == [(1,)]

    async def test_a_damaged_file_is_told_and_left_alone(
        self, store: PostgresStore, url: str, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        damaged(file)
        registry = await opened(store, file)
        assert set(registry.get_all_endpoints()) == {"alpha"}
        assert "was not imported" in caplog.text
        assert text_of(file) == "{"
        assert [path.name for path in file.parent.iterdir()] == ["alpha.json"]
        assert query(url, "SELECT * FROM swarm_registry") == []


async def test_a_server_on_postgresql_keeps_its_registry_there(
    store: PostgresStore, url: str, file: Path
) -> None:
    def app() -> Any:
        template: Any = Template()
        swarm = SwarmConfig(name=template.name, registry_file=str(file))
        settings = config(shutdown_grace=0.1).model_copy(
            update={"swarm": swarm, "federation": FederationConfig(allow_private=True)}
        )
        return create_app(settings, template=template, store=store)

    await store.put_token(TokenRow(hash_token(TOKENS["admin"]), "admin", "root", "2026-01-01"))
    peer: Any = Template()
    peer.name = "beta"
    beta_app = create_app(config(), template=peer, store=MemoryStore())
    async with running_server(beta_app) as beta_server:
        one, other = app(), app()
        async with serving(one) as client, serving(other) as other_client:
            body = {"name": "beta", "base_url": beta_server.url, "volatile": False}
            answer = await client.post("/swarms", json=body, headers=bearer("admin"))
            assert answer.status_code == 200, answer.text
            await until_known(other.state.mail.registry, "beta")
            answer = await other_client.delete("/swarms/beta", headers=bearer("admin"))
            assert answer.status_code == 200, answer.text
            await until_known(one.state.mail.registry, "beta", known=False)
    assert text_of(file) == ""
    ((name,),) = query(url, "SELECT swarm_name FROM swarm_registry")
    assert name == Template().name
