"""The file of a registry: what is in it, who may read it, and that nothing in it gets lost."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from datetime import UTC
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import strategies as st

from mail.errors import StoreError
from mail.net import SwarmRegistry
from mail.net.endpoints import public_key
from mail.net.registry_file import RegistryFile
from mail.net.types import SwarmEndpoint
from tests.net.test_registry import HERE, alpha, text_of
from tests.stdlib.outside import PUBLIC, Outside

ABOUT = {
    "local_swarm_name": "alpha",
    "local_base_url": HERE,
    "local_swarm_description": "",
    "local_swarm_keywords": [],
    "local_swarm_public": False,
}
OLD = {
    "swarm_name": "beta",
    "base_url": "http://beta.example",
    "version": "1.3",
    "health_check_url": "http://169.254.169.254/health",
    "auth_token_ref": "${SWARM_AUTH_TOKEN_BETA}",
    "last_seen": "2026-01-01T10:00:00+00:00",
    "is_active": True,
    "latency": None,
    "swarm_description": "",
    "keywords": [],
    "metadata": None,
    "public": False,
    "volatile": False,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "alpha.json"


@pytest.fixture
def world() -> Outside:
    world = Outside({"beta.example": [PUBLIC], "gamma.example": [PUBLIC]})
    world.handler = lambda _: httpx.Response(200, json={"name": "mail", "swarm": {}})
    return world


def keep(file: Path, *entries: dict[str, Any], **more: Any) -> None:
    """Write a file as MAIL 1.3.6 does, with the own swarm among the entries."""
    own = {**OLD, "swarm_name": "alpha", "base_url": HERE, "auth_token_ref": None}
    every = {entry["swarm_name"]: entry for entry in (own, *entries)}
    file.write_text(json.dumps({**ABOUT, "endpoints": every, **more}))


def beta(**fields: Any) -> dict[str, Any]:
    return {**OLD, **fields}


async def register(file: Path, world: Outside, name: str = "beta", **more: Any) -> SwarmRegistry:
    registry = alpha(file, world)
    await registry.register_swarm(name, f"http://{name}.example", volatile=False, **more)
    return registry


def test_a_file_has_the_documented_keys(file: Path, world: Outside) -> None:
    asyncio.run(register(file, world, auth_token="s3cret", metadata={"a": 1}))
    found = json.loads(file.read_text())
    assert {name: found[name] for name in ABOUT} == ABOUT
    assert set(found) == {*ABOUT, "endpoints"}
    assert set(found["endpoints"]) == {"alpha", "beta"}
    for entry in found["endpoints"].values():
        assert set(entry) == set(SwarmEndpoint.__required_keys__)
    kept = found["endpoints"]["beta"]
    assert kept["auth_token_ref"] == "${SWARM_AUTH_TOKEN_BETA}"
    assert kept["metadata"] == {"a": 1}
    assert kept["last_seen"].endswith("+00:00")
    assert "s3cret" not in file.read_text()


def test_keys_come_back_from_the_file(file: Path, world: Outside) -> None:
    key = public_key(b"x" * 32)
    asyncio.run(register(file, world, public_key=key))
    assert json.loads(file.read_text())["endpoints"]["beta"]["public_keys"] == [key]
    assert alpha(file, world).get_all_endpoints()["beta"]["public_keys"] == [key]


def test_only_the_owner_may_read_it(file: Path, world: Outside) -> None:
    file.write_text(json.dumps({**ABOUT, "endpoints": {}}))
    file.chmod(0o644)
    asyncio.run(register(file, world))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in file.parent.iterdir()) == ["alpha.json", "alpha.json.lock"]


def test_a_file_of_an_older_server_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(file, beta())
    monkeypatch.setenv("SWARM_AUTH_TOKEN_BETA", "t")
    registry = alpha(file)
    found = registry.get_all_endpoints()["beta"]
    assert found["health_check_url"] == "http://beta.example/health"
    assert found["last_seen"] is not None
    assert found["last_seen"].tzinfo is UTC
    assert registry.get_resolved_auth_token("beta") == "t"
    assert registry.get_persistent_endpoints().keys() == {"alpha", "beta"}


def test_the_template_says_what_the_own_swarm_is_not_the_file(file: Path) -> None:
    keep(file, local_swarm_public=True, local_swarm_description="stale")
    own = SwarmRegistry("alpha", HERE, str(file), "new").get_all_endpoints()["alpha"]
    assert (own["public"], own["swarm_description"]) == (False, "new")


def test_whose_file_it_is_is_no_peer(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(file, beta())
    assert set(SwarmRegistry("alpha", HERE, str(file)).get_all_endpoints()) == {"alpha", "beta"}
    assert "was written for" not in caplog.text
    assert set(SwarmRegistry("delta", HERE, str(file)).get_all_endpoints()) == {"delta", "beta"}
    assert set(SwarmRegistry("beta", HERE, str(file)).get_all_endpoints()) == {"beta"}
    assert caplog.text.count("was written for the swarm 'alpha'") == 2


def test_a_token_in_a_file_works_is_reported_and_is_not_written_again(
    file: Path, world: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    keep(file, beta(auth_token_ref=None, auth_token="pl41n"))
    registry = alpha(file, world)
    assert registry.get_resolved_auth_token("beta") == "pl41n"
    assert "set SWARM_AUTH_TOKEN_BETA, and call migrate_auth_tokens_to_env_refs" in caplog.text
    assert registry.migrate_auth_tokens_to_env_refs() == ["SWARM_AUTH_TOKEN_BETA"]
    assert "pl41n" not in file.read_text() + caplog.text
    assert registry.get_resolved_auth_token("beta") == "pl41n"
    assert alpha(file).get_resolved_auth_token("beta") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"auth_token_ref": "${OPENAI_API_KEY}"},
        {"auth_token_ref": "${SWARM_AUTH_TOKEN_GAMMA}"},
        {"auth_token_ref": 7},
        {"base_url": "file:///etc/passwd"},
        {"base_url": None},
        {"metadata": {"secret": "x"}},
        {"metadata": 7},
        {"public_keys": "x"},
        {"public_keys": ["x"]},
        {"public_keys": [public_key(b"x" * 32) | {"kid": "mine"}]},
        {"public_keys": [public_key(b"x" * 32)] * 9},
    ],
)
def test_an_entry_that_cannot_be_used_is_reported_and_stays_in_the_file(
    file: Path,
    world: Outside,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    wrong: dict[str, Any],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "do-not-tell")
    keep(file, beta(**wrong))
    registry = alpha(file, world)
    assert set(registry.get_all_endpoints()) == {"alpha"}
    assert registry.get_resolved_auth_token("beta") is None
    assert caplog.text.count("entry 'beta': ") == 1
    asyncio.run(registry.register_swarm("gamma", "http://gamma.example", volatile=False))
    assert caplog.text.count("entry 'beta': ") == 1
    found = json.loads(file.read_text())["endpoints"]
    assert found["beta"] == beta(**wrong)
    assert set(found) == {"alpha", "beta", "gamma"}
    assert "do-not-tell" not in caplog.text


DAMAGED = [b"", b"{", b"[]", b"null", b'{"endpoints": []}', b"\xff\xfe", b"[" * 100_000]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_set_aside_and_reported(
    file: Path, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    file.write_bytes(text)
    registry = alpha(file)
    assert set(registry.get_all_endpoints()) == {"alpha"}
    [aside] = file.parent.glob("alpha.json.corrupt-*")
    assert aside.read_bytes() == text
    assert f"is damaged: {'' if text else 'it is not valid JSON'}" in caplog.text
    assert str(aside) in caplog.text
    assert not file.exists()


def test_a_file_that_gets_damaged_while_it_is_in_use_costs_nothing(
    file: Path, world: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    registry = asyncio.run(register(file, world))
    file.write_text('{"endpoints": {"be')  # an editor is in the middle of it
    for _ in range(3):
        assert set(registry.get_all_endpoints()) == {"alpha", "beta"}
    assert caplog.text.count("what is known stays in use") == 1
    assert list(file.parent.glob("*.corrupt-*")) == []
    asyncio.run(registry.register_swarm("gamma", "http://gamma.example", volatile=False))
    [aside] = file.parent.glob("*.corrupt-*")
    assert aside.read_text() == '{"endpoints": {"be'
    assert set(json.loads(file.read_text())["endpoints"]) == {"alpha", "beta", "gamma"}


def test_what_cannot_be_written_is_an_error_and_changes_nothing(
    file: Path, world: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = asyncio.run(register(file, world))
    before = file.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="cannot be written: No space left on device"):
        asyncio.run(registry.register_swarm("gamma", "http://gamma.example", volatile=False))
    with pytest.raises(StoreError, match="No space"):
        registry.unregister_swarm("beta")
    monkeypatch.undo()
    assert set(registry.get_all_endpoints()) == {"alpha", "beta"}
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.iterdir()) == ["alpha.json", "alpha.json.lock"]


def test_a_folder_that_cannot_be_made_leaves_volatile_swarms(
    tmp_path: Path, world: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    registry = alpha(tmp_path / "file" / "alpha.json", world)
    assert "only volatile swarms can be registered" in caplog.text
    asyncio.run(registry.register_swarm("beta", "http://beta.example"))
    with pytest.raises(StoreError, match="cannot write to"):
        asyncio.run(registry.register_swarm("gamma", "http://gamma.example", volatile=False))
    assert set(registry.get_all_endpoints()) == {"alpha", "beta"}


async def test_volatile_entries_end_with_the_process(file: Path, world: Outside) -> None:
    registry = await register(file, world)
    await registry.register_swarm("gamma", "http://gamma.example", "s3cret")
    await registry.aclose()
    assert set(registry.get_all_endpoints()) == {"alpha", "beta"}
    assert set(alpha(file, world).get_all_endpoints()) == {"alpha", "beta"}


def test_a_registry_without_peers_leaves_no_file(file: Path) -> None:
    alpha(file).cleanup_volatile_endpoints()
    assert list(file.parent.iterdir()) == []


async def test_a_dictionary_carries_everything_but_tokens(file: Path, world: Outside) -> None:
    registry = await register(file, world, auth_token="s3cret")
    await registry.register_swarm("gamma", "http://gamma.example", "0ther")
    data = registry.to_dict()
    assert set(data["endpoints"]) == {"alpha", "beta", "gamma"}
    assert "s3cret" not in str(data)
    assert "0ther" not in str(data)
    data["endpoints"]["beta"]["auth_token"] = data["endpoints"]["beta"].pop("auth_token_ref")
    again = SwarmRegistry.from_dict(data, persistence_file=f"{file}.other")
    for name in ("beta", "gamma"):
        assert again.to_dict()["endpoints"][name] == registry.to_dict()["endpoints"][name]
    assert again.local_swarm_name == "alpha"


# --- several processes --------------------------------------------------------------------------


async def test_each_sees_what_the_others_change(file: Path, world: Outside) -> None:
    one, two = alpha(file, world), alpha(file, world)
    await one.register_swarm("beta", "http://beta.example", "t", volatile=False)
    await two.register_swarm("gamma", "http://gamma.example", volatile=False)
    await two.register_swarm("beta2", "http://beta.example", "mine")
    assert set(one.get_all_endpoints()) == {"alpha", "beta", "gamma"}
    assert set(two.get_all_endpoints()) == {"alpha", "beta", "gamma", "beta2"}
    two.unregister_swarm("beta")
    assert one.get_swarm_endpoint("beta") is None
    assert one.get_resolved_auth_token("beta") is None
    assert two.get_resolved_auth_token("beta2") == "mine"
    one.save_persistent_endpoints()
    assert set(json.loads(text_of(file))["endpoints"]) == {"alpha", "gamma"}


async def test_a_token_does_not_follow_a_swarm_to_another_address(
    file: Path, world: Outside
) -> None:
    one = await register(file, world, auth_token="s3cret")
    two = alpha(file, world)
    await two.register_swarm("beta", "http://gamma.example", volatile=False)
    assert one.get_all_endpoints()["beta"]["base_url"] == "http://gamma.example"
    assert one.get_resolved_auth_token("beta") is None


def test_health_is_what_each_process_sees_itself(file: Path, world: Outside) -> None:
    one = asyncio.run(register(file, world))
    one._observe(one.endpoints["beta"], None)
    alpha(file, world).save_persistent_endpoints()
    assert not one.get_all_endpoints()["beta"]["is_active"]


def text(file: Path) -> str:
    return file.read_text()


WORKER = """
import asyncio, sys
from mail.net import SwarmRegistry
from mail.net.peers import PeerAccess
from tests.net.test_registry import root
from tests.stdlib.outside import PUBLIC, Outside
import httpx

async def main(file, who):
    world = Outside({"peer.example": [PUBLIC]})
    world.handler = lambda _: httpx.Response(200, json={"name": "mail", "swarm": {}})
    access = PeerAccess(resolve=world.resolve, transport=world.transport)
    registry = SwarmRegistry("alpha", "http://localhost", file, access=access)
    for n in range(10):
        await registry.register_swarm(f"{who}-{n}", "http://peer.example", volatile=False)
        if n % 2:
            registry.unregister_swarm(f"{who}-{n - 1}")

asyncio.run(main(*sys.argv[1:]))
"""


def test_processes_that_write_at_once_lose_nothing(file: Path) -> None:
    here = Path(__file__).parents[2]
    environment = dict(os.environ, PYTHONPATH=f"{here / 'src'}{os.pathsep}{here}")
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(file), who], env=environment)
        for who in ("a", "b", "c")
    ]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    kept = {f"{who}-{n}" for who in "abc" for n in range(1, 10, 2)}
    assert set(json.loads(file.read_text())["endpoints"]) == {"alpha", *kept}


def test_a_lock_that_is_not_let_go_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mail.net.registry_file._LOCK_SECONDS", 0.0)
    with RegistryFile(file).locked(), pytest.raises(StoreError, match="another process holds"):
        alpha(file).save_persistent_endpoints()


# --- any content --------------------------------------------------------------------------------

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text(max_size=5), PLAIN, max_size=3)


def test_the_example_in_the_repository_is_a_registry() -> None:
    example = Path(__file__).parents[2] / "registries" / "example.json"
    content = RegistryFile(example).read()
    assert content.problems == []
    assert content.to_json() == json.loads(example.read_text())
