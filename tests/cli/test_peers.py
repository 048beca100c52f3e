"""``mail swarms list``, ``accept`` and ``remove``: the registry beside a running server."""

import asyncio
import json
from pathlib import Path

import pytest

from mail.db.postgres.driver import PostgresStore
from mail.net import SwarmRegistry
from mail.net.endpoints import public_key
from mail.net.peers import PeerAccess
from mail.net.registry_file import shared_registry
from mail.net.signatures import SigningKeys
from tests.cli.conftest import Mail
from tests.net.test_registry import HERE, town
from tests.stdlib.outside import Outside


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a server in the current folder, which has settings of its own."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "registries" / "alpha.json"
    (tmp_path / "mail.toml").write_text(
        f"[server.swarm]\nname = 'alpha'\nregistry = '{file}'\n"
        "[server.federation]\nallow_private = true\n"
    )
    return file


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Outside:
    """Return a world in which a server of the swarm 'beta' is at a public address."""
    world, made = town("beta"), PeerAccess.of_server

    def of_server(allow_private: bool) -> PeerAccess:
        own = made(allow_private)
        return PeerAccess(own.policy, own.setting, world.resolve, world.transport)

    monkeypatch.setattr(PeerAccess, "of_server", of_server)
    return world


@pytest.fixture
def peer(world: Outside) -> str:
    """Return the address of that server."""
    return "http://beta"


async def proposing(file: Path, peer: str) -> SwarmRegistry:
    """Return the registry of a server that has discovered a peer."""
    about = ("alpha", HERE, str(file), "of the server", ["k"], True)
    registry = SwarmRegistry(*about, access=PeerAccess.of_server(False), proposes=True)
    assert (await registry.discover_swarms([peer])).found == ["beta"]
    return registry


def test_the_key_of_the_server_is_shown_and_made_once(file: Path, mail: Mail) -> None:
    code, out, err = mail("swarms", "key")
    assert (code, out) == (2, "")
    assert "[server.federation] signing_key_file is not set" in err
    settings = file.parent.parent / "mail.toml"
    settings.write_text("[server.federation]\nsigning_key_file = 'registries/key.pem'\n")
    code, out, _ = mail("swarms", "key")
    assert code == 0
    [key] = SigningKeys.read(file.parent / "key.pem").public
    assert out == f"{key['kid']}\n"
    code, out, _ = mail("swarms", "key", "--json")
    assert (code, json.loads(out)) == (0, {"keys": [key]})


def test_the_keys_of_others_are_listed(file: Path, mail: Mail) -> None:
    key = public_key(b"x" * 32)
    endpoint = {"base_url": "https://beta.example", "public_keys": [key]}
    file.parent.mkdir()
    file.write_text(json.dumps({"endpoints": {"beta": endpoint}}))
    assert mail("swarms", "list")[1] == (
        f"beta@https://beta.example  token: SWARM_AUTH_TOKEN_BETA  key: {key['kid']}\n"
    )


def test_an_empty_registry(file: Path, mail: Mail) -> None:
    assert mail("swarms", "list") == (0, "no other swarms are registered\n", "")
    assert mail("swarms", "list", "--json") == (0, '{"swarms": [], "proposed": []}\n', "")
    assert not file.exists()
    for verb, said in (("accept", "is proposed"), ("remove", "is registered or proposed")):
        assert mail("swarms", verb, "beta") == (1, "", f"mail: no swarm 'beta' {said}\n")


def test_accepting_and_removing_reach_the_server(file: Path, peer: str, mail: Mail) -> None:
    registry = asyncio.run(proposing(file, peer))
    assert mail("swarms", "list") == (0, f"beta@{peer}  proposed by {peer}\n", "")
    assert mail("swarms", "accept", "beta") == (0, "swarm beta registered\n", "")
    assert registry.get_all_endpoints()["beta"]["base_url"] == peer
    assert registry.get_proposed_swarms() == {}
    assert mail("swarms", "list") == (0, f"beta@{peer}  token: SWARM_AUTH_TOKEN_BETA\n", "")
    code, out, _ = mail("swarms", "list", "--json")
    [shown] = json.loads(out)["swarms"]
    assert (code, shown["swarm_name"], shown["is_active"]) == (0, "beta", True)
    assert shown["token_variable"] == "SWARM_AUTH_TOKEN_BETA"
    kept = json.loads(file.read_text())
    assert kept["local_swarm_description"] == "of the server"  # the command is not the server
    assert kept["local_base_url"] == HERE
    removed = '{"status": "removed", "swarm_name": "beta"}\n'
    assert mail("swarms", "remove", "beta", "--json") == (0, removed, "")
    assert registry.get_swarm_endpoint("beta") is None


@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.1"])
def test_what_was_proposed_is_reached_at_public_addresses_only(
    file: Path, world: Outside, peer: str, mail: Mail, inside: str
) -> None:
    """Whatever the settings allow to those that an administrator registers."""
    asyncio.run(proposing(file, peer))
    world.names["beta"] = [inside]
    code, out, err = mail("swarms", "accept", "beta")
    assert (code, out) == (1, "")
    assert f"{inside} (from 'beta') is a " in err
    assert "POST /swarms" in err


def test_a_damaged_file_is_told_and_left_alone(file: Path, mail: Mail) -> None:
    file.parent.mkdir()
    file.write_text("{")
    code, out, err = mail("swarms", "list")
    assert (code, out) == (1, "")
    assert err == f"mail: the registry {file} is damaged: it is not valid JSON\n"
    assert file.read_text() == "{"


def test_the_registry_in_the_database_of_the_server(
    file: Path,
    peer: str,
    mail: Mail,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asyncio.run(proposing(file, peer))
    before = file.read_text()
    monkeypatch.setenv("DATABASE_URL", dsn)
    assert mail("swarms", "list")[:2] == (0, f"beta@{peer}  proposed by {peer}\n")  # imported
    server = PostgresStore(dsn)
    asyncio.run(server.open())
    storage = shared_registry(server, "alpha", str(file))
    assert storage is not None
    registry = SwarmRegistry("alpha", HERE, str(file), proposes=True, storage=storage)
    assert set(registry.get_proposed_swarms()) == {"beta"}
    assert mail("swarms", "accept", "beta") == (0, "swarm beta registered\n", "")
    registry.load_persistent_endpoints()
    assert registry.get_all_endpoints()["beta"]["base_url"] == peer
    assert storage.read().about["local_swarm_description"] == "of the server"
    monkeypatch.delenv("DATABASE_URL")
    assert (
        mail("swarms", "list", "--store", dsn)[1] == f"beta@{peer}  token: SWARM_AUTH_TOKEN_BETA\n"
    )
    assert mail("swarms", "remove", "beta", "--store", dsn)[0] == 0
    registry.load_persistent_endpoints()
    assert registry.get_swarm_endpoint("beta") is None
    asyncio.run(server.close())
    assert file.read_text() == before
    assert mail("swarms", "list") == (0, f"beta@{peer}  proposed by {peer}\n", "")
