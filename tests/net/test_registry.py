"""The registry as a library: entries, tokens, addresses that are refused, health, discovery."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail.egress.rules import EgressPolicy
from mail.errors import ConfigError, PeerUnreachable, ProtocolError, UnknownSwarm
from mail.net import SwarmRegistry
from mail.net.endpoints import (
    is_token_reference,
    public_key,
    token_reference,
    token_variable,
)
from mail.net.peers import PeerAccess
from mail.net.registry import HealthChecks
from mail.net.signatures import KEYS_PATH
from mail.net.types import SwarmEndpoint
from mail.testing import LoopbackPeer
from tests.stdlib.outside import OTHER, PUBLIC, Outside

KEYS = set(SwarmEndpoint.__required_keys__)
HERE = "http://localhost:8000"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the registry is kept; the folder is not there yet."""
    return tmp_path / "registries" / "alpha.json"


@pytest.fixture
def world() -> Outside:
    """A world without packets, in which one MAIL server, 'beta', is known."""
    world = Outside({"beta.example": [PUBLIC], "gamma.example": [OTHER]})
    world.handler = lambda request: httpx.Response(200, json=root(request.url, "beta"))
    return world


def root(url: Any, name: str, **more: Any) -> dict[str, Any]:
    swarm = {"name": name, "version": "1", "entrypoint": "a", "description": "d", "keywords": ["k"]}
    return {"name": "mail", "protocol_version": "1.3", "swarm": {**swarm, "public": True, **more}}


def town(name: str) -> Outside:
    """Return a world with one server, at ``http://<name>``, that lists its own public swarm."""
    listed = {"swarms": [{"swarm_name": name, "base_url": f"http://{name}"}]}
    world = Outside({name: [PUBLIC]})
    world.handler = lambda request: httpx.Response(
        200, json=listed if request.url.path == "/swarms" else root("", name)
    )
    return world


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def alpha(file: Path, world: Outside | None = None, **options: Any) -> SwarmRegistry:
    """Return a registry of the swarm alpha; with a world, one that may reach only public places."""
    if world is not None:
        options["access"] = PeerAccess(
            EgressPolicy(), "the setting", world.resolve, world.transport
        )
    return SwarmRegistry("alpha", HERE, str(file), **options)


def test_the_local_swarm_is_an_entry_with_thirteen_keys(file: Path) -> None:
    registry = SwarmRegistry("alpha", f"{HERE}/", str(file), "what for", ["a"], True)
    own = registry.get_swarm_endpoint("alpha")
    assert own is not None
    assert set(own) == KEYS
    assert len(KEYS) == 13
    expected = {
        "swarm_name": "alpha",
        "base_url": HERE,
        "version": "1.3",
        "health_check_url": f"{HERE}/health",
        "auth_token_ref": None,
        "is_active": True,
        "latency": None,
        "swarm_description": "what for",
        "keywords": ["a"],
        "metadata": None,
        "public": True,
        "volatile": False,
    }
    assert {name: own[name] for name in expected} == expected  # type: ignore[literal-required]
    assert own["last_seen"] is not None
    assert file.parent.is_dir()
    assert text_of(file) == ""
    assert (registry.health_check_interval, registry.health_check_task) == (30, None)
    assert registry.session is None


def test_the_file_is_named_after_the_swarm_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert SwarmRegistry("alpha", HERE).persistence_file == "registries/alpha.json"
    assert (tmp_path / "registries").is_dir()


async def test_registering_asks_the_peer_about_itself(file: Path, world: Outside) -> None:
    registry = alpha(file, world)
    await registry.register_swarm("beta", "https://beta.example/", "tok", {"team": "b"})
    found = registry.get_swarm_endpoint("beta")
    assert found is not None
    assert set(found) == KEYS
    assert (found["base_url"], found["version"]) == ("https://beta.example", "1.3")
    assert (found["swarm_description"], found["keywords"]) == ("d", ["k"])
    assert (found["public"], found["volatile"], found["is_active"]) == (True, True, True)
    assert found["metadata"] == {"team": "b"}
    assert found["last_seen"] is not None
    assert [str(request.url.path) for request in world.requests] == ["/", KEYS_PATH]
    assert "authorization" not in world.requests[0].headers
    assert registry.get_resolved_auth_token("beta") == "tok"
    assert set(registry.get_active_endpoints()) == {"alpha", "beta"}
    assert set(registry.get_public_endpoints()) == {"beta"}
    assert set(registry.get_persistent_endpoints()) == {"alpha"}
    assert text_of(file) == ""


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"swarm_name": "alpha"}, "name"),
        ({"swarm_name": ""}, "name"),
        ({"swarm_name": "a@b"}, "name"),
        ({"swarm_name": "a b"}, "name"),
        ({"swarm_name": "x" * 257}, "name"),
        ({"base_url": ""}, "base_url"),
        ({"base_url": "ftp://beta.example"}, "base_url"),
        ({"base_url": "beta.example"}, "base_url"),
        ({"base_url": "http://me:pass@beta.example"}, "base_url"),
        ({"base_url": "http://beta.example/?a=1"}, "base_url"),
        ({"base_url": "http://beta.example/#x"}, "base_url"),
        ({"base_url": "http://beta.example:99999"}, "base_url"),
        ({"base_url": "http://beta.example/" + "x" * 2048}, "base_url"),
        ({"base_url": "http://b\u00e9ta.example"}, "base_url"),
        ({"base_url": "http://[::1"}, "base_url"),
        ({"auth_token": "a\nb"}, "auth_token"),
        ({"auth_token": "x" * 4097}, "auth_token"),
        ({"auth_token": "${OPENAI_API_KEY}"}, "auth_token"),
        ({"auth_token": "${SWARM_AUTH_TOKEN_GAMMA}"}, "auth_token"),
        ({"auth_token": "${SWARM_AUTH_TOKEN_BETA}${HOME}"}, "auth_token"),
        ({"metadata": {"api_key": "x"}}, "metadata"),
        ({"metadata": {"a": {"password": "x"}}}, "metadata"),
        ({"metadata": {"note": "sk-0123456789abcdef"}}, "metadata"),
        ({"metadata": {"big": "x" * 5000}}, "metadata"),
        ({"metadata": {"half": "\ud800"}}, "metadata"),
        ({"metadata": {"nan": float("nan")}}, "metadata"),
        ({"metadata": {"odd": object()}}, "metadata"),
    ],
)
async def test_a_wrong_registration_is_refused_before_anything_is_sent(
    file: Path,
    world: Outside,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    field: str,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "do-not-tell")
    registry = alpha(file, world)
    right = {"swarm_name": "beta", "base_url": "http://beta.example", "volatile": False}
    with pytest.raises(ProtocolError) as caught:
        await registry.register_swarm(**{**right, **arguments})
    assert caught.value.problems[0]["field"] == field
    assert "do-not-tell" not in str(caught.value)
    assert (world.asked, world.requests) == ([], [])
    assert set(registry.get_all_endpoints()) == {"alpha"}
    assert text_of(file) == ""


INWARD = [
    "http://127.0.0.1:8000",
    "http://localhost",
    "http://LOCALHOST.",
    "http://0.0.0.0",
    "http://2130706433",
    "http://0x7f000001",
    "http://0177.0.0.1",
    "http://127.1",
    "http://[::1]",
    "http://[::]",
    "http://[::ffff:127.0.0.1]",
    "http://[64:ff9b::7f00:1]",
    "http://[2002:7f00:1::]",
    "http://169.254.169.254",
    "http://169.254.169.254/latest/meta-data",
    "http://[fd00:ec2::254]",
    "http://100.100.100.200",
    "http://10.0.0.1",
    "http://192.168.1.1",
    "http://172.16.0.1",
    "http://inward.example",
    "http://mixed.example",
]


def inward() -> Outside:
    """Return a world in which public names lead inside."""
    names = {"localhost": ["127.0.0.1", "::1"], "inward.example": ["127.0.0.1"]}
    return Outside({**names, "mixed.example": [PUBLIC, "10.0.0.1"]})


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254",
        "http://[fd00:ec2::254]",
        "http://[fd00:ec2::23]",
        "http://[fd20:ce::254]",
        "http://100.100.100.200",
        "http://[2001:0:7f00:1::]",
        "http://0.1.2.3",
        "http://255.255.255.255",
    ],
)
async def test_metadata_and_special_ranges_are_refused_even_where_private_ones_are_allowed(
    file: Path, url: str
) -> None:
    world = Outside()
    access = PeerAccess(resolve=world.resolve, transport=world.transport)
    with pytest.raises(PeerUnreachable):
        await alpha(file, access=access).register_swarm("beta", url)
    assert world.requests == []


async def test_a_name_that_turns_inward_after_registering_is_not_reached(
    file: Path, world: Outside
) -> None:
    world.names["beta.example"] = [[PUBLIC], ["127.0.0.1"]]
    registry = alpha(file, world)
    await registry.register_swarm("beta", "http://beta.example")
    async with registry.access.client() as client:
        await registry._checks.check_due(client, 30)
    found = registry.get_swarm_endpoint("beta")
    assert found is not None
    assert not found["is_active"]
    assert world.connected == [PUBLIC]


ANSWERS: dict[str, Any] = {
    "redirect": httpx.Response(302, headers={"Location": "http://127.0.0.1/"}),
    "status": httpx.Response(500),
    "no JSON": httpx.Response(200, text="<html>"),
    "a list": httpx.Response(200, json=[]),
    "no swarm": httpx.Response(200, json={"name": "mail"}),
    "too large": httpx.Response(200, text="x" * 70_000),
    "deep": httpx.Response(200, text="[" * 50_000),
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_what_does_not_answer_as_a_mail_server_is_not_registered(
    file: Path, world: Outside, kind: str
) -> None:
    world.handler = lambda _: ANSWERS[kind]
    registry = alpha(file, world)
    with pytest.raises(PeerUnreachable, match="failed to get remote swarm info from http://beta"):
        await registry.register_swarm("beta", "http://beta.example", volatile=False)
    assert world.connected == [PUBLIC]
    assert set(registry.get_all_endpoints()) == {"alpha"}


def refuse_connection(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


SILENCE: dict[str, Any] = {
    "no name": ({}, None),
    "no connection": ({"beta.example": [PUBLIC]}, refuse_connection),
    "a proxy alone": ({"beta.example": [PUBLIC]}, lambda _: httpx.Response(502)),
}


@pytest.mark.parametrize("volatile", [True, False])
@pytest.mark.parametrize("kind", SILENCE)
async def test_a_server_that_does_not_answer_yet_is_met_when_it_does(
    file: Path, world: Outside, kind: str, *, volatile: bool
) -> None:
    there, handler = world.names, world.handler
    world.names, world.handler = SILENCE[kind][0], SILENCE[kind][1] or handler
    registry, back = alpha(file, world), []
    registry.returned = back.append
    await registry.register_swarm("beta", "http://beta.example", "tok", {"a": 1}, volatile=volatile)
    found = registry.get_all_endpoints()["beta"]
    assert (found["is_active"], found["last_seen"], found["public"]) == (False, None, False)
    assert registry.get_resolved_auth_token("beta") == "tok"
    async with registry.access.client() as client:
        await registry._checks.check_due(client, 0)
        assert not registry.get_all_endpoints()["beta"]["is_active"]
        world.names, world.handler = there, handler
        await registry._checks.check_due(client, 0)
        await registry._checks.check_due(client, 0)
    found = registry.get_all_endpoints()["beta"]
    assert (found["is_active"], found["swarm_description"], found["public"]) == (True, "d", True)
    assert found["last_seen"] is not None
    assert (found["metadata"], found["volatile"], back) == ({"a": 1}, volatile, ["beta"])
    asked = [request.url.path for request in world.requests]
    assert (asked.count(KEYS_PATH), asked[-1]) == (1, "/health")
    assert ('"swarm_description": "d"' in text_of(file)) is not volatile


async def test_who_answers_later_as_another_swarm_stays_inactive(
    file: Path, world: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    answer, world.handler = world.handler, refuse_connection
    registry = alpha(file, world)
    await registry.register_swarm("gamma", "http://gamma.example")
    world.handler = answer
    async with registry.access.client() as client:
        await registry._checks.check_due(client, 30)
    assert not registry.get_all_endpoints()["gamma"]["is_active"]
    assert "serves the swarm 'beta', not 'gamma'" in caplog.text


async def test_keys_of_a_server_that_is_away_stay_and_are_not_taken_on_trust(
    file: Path, world: Outside
) -> None:
    key, other = public_key(b"x" * 32), public_key(b"y" * 32)
    registry = alpha(file, world)
    await registry.register_swarm("beta", "http://beta.example", public_key={**key})
    world.handler = refuse_connection
    await registry.register_swarm("beta", "http://beta.example")
    assert registry.get_all_endpoints()["beta"]["public_keys"] == [key]
    with pytest.raises(ProtocolError, match="does not show that key"):
        await registry.register_swarm("beta", "http://beta.example", public_key=other["kid"])
    await registry.register_swarm("beta", "http://beta.example", public_key={**other})
    assert registry.get_all_endpoints()["beta"]["public_keys"] == [other]


async def test_what_a_peer_says_of_itself_is_cut_and_cleaned(file: Path, world: Outside) -> None:
    said = root("", "beta", description="a\x1b[2J\n" + "x" * 5000, keywords=["k" * 99, 7] * 99)
    world.handler = lambda _: httpx.Response(200, json=said)
    registry = alpha(file, world)
    await registry.register_swarm("beta", "http://beta.example")
    found = registry.get_all_endpoints()["beta"]
    assert found["swarm_description"].startswith("a [2J x")
    assert len(found["swarm_description"]) == 1000
    assert found["keywords"] == ["k" * 64] * 32


async def test_servers_that_only_name_their_swarm_are_registered(
    file: Path, world: Outside
) -> None:
    world.handler = lambda _: httpx.Response(200, json={"name": "mail", "swarm": "beta"})
    registry = alpha(file, world)
    await registry.register_swarm("beta", "http://beta.example")
    assert registry.get_all_endpoints()["beta"]["version"] == "1.3"


# --- tokens -------------------------------------------------------------------------------------


def test_the_variable_of_a_swarm() -> None:
    assert token_variable("swarm-beta") == "SWARM_AUTH_TOKEN_SWARM_BETA"
    assert token_variable("a.b/c") == "SWARM_AUTH_TOKEN_A_B_C"
    for wrong in ("${OPENAI_API_KEY}", "${SWARM_AUTH_TOKEN_}", "${SWARM_AUTH_TOKEN_A}${B}", "x"):
        assert not is_token_reference(wrong)
    assert is_token_reference(token_reference("a-b"))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment holds a token for beta."""
    monkeypatch.setenv("SWARM_AUTH_TOKEN_BETA", "from-env")
    return monkeypatch


async def test_an_entry_for_good_keeps_a_reference_and_never_the_token(
    file: Path, world: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    registry = alpha(file, world)
    with caplog.at_level(logging.WARNING):
        await registry.register_swarm("beta", "http://beta.example", "s3cret", volatile=False)
    assert registry.get_all_endpoints()["beta"]["auth_token_ref"] == "${SWARM_AUTH_TOKEN_BETA}"
    assert registry.get_resolved_auth_token("beta") == "s3cret"
    assert "set SWARM_AUTH_TOKEN_BETA before the next start" in caplog.text
    assert "s3cret" not in caplog.text + text_of(file) + json.dumps(registry.to_dict())
    assert registry.validate_environment_variables() == {"SWARM_AUTH_TOKEN_BETA": False}
    assert alpha(file, world).get_resolved_auth_token("beta") is None


async def test_the_environment_holds_the_token(
    file: Path, world: Outside, held: pytest.MonkeyPatch
) -> None:
    registry = alpha(file, world)
    with pytest.raises(ProtocolError, match="set to another token"):
        await registry.register_swarm("beta", "http://beta.example", "other", volatile=False)
    await registry.register_swarm("beta", "http://beta.example", "from-env", volatile=False)
    held.setenv("SWARM_AUTH_TOKEN_BETA", "rotated")
    assert registry.get_resolved_auth_token("beta") == "rotated"
    assert registry.validate_environment_variables() == {"SWARM_AUTH_TOKEN_BETA": True}
    own = "${SWARM_AUTH_TOKEN_BETA}"
    await registry.register_swarm("beta", "http://beta.example", own, volatile=False)
    assert registry.get_resolved_auth_token("beta") == "rotated"


async def test_a_missing_token_is_told_with_the_command_that_makes_one(
    file: Path, world: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    registry = alpha(file, world)
    await registry.register_swarm("beta", "http://beta.example", "tok")
    assert "no token" not in caplog.text
    registry.unregister_swarm("beta")
    await registry.register_swarm("beta", "http://beta.example")
    assert "'mail token create --role agent --id alpha' on its side" in caplog.text
    assert "set SWARM_AUTH_TOKEN_BETA to that token on this side" in caplog.text


async def test_without_a_token_of_its_own_an_entry_uses_the_environment(
    file: Path, world: Outside, held: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry = alpha(file, world)
    await registry.register_swarm("beta", "http://beta.example")
    assert "no token" not in caplog.text
    assert registry.get_resolved_auth_token("beta") == "from-env"
    assert registry.get_resolved_auth_token("alpha") is None
    assert registry.get_resolved_auth_token("nobody") is None


async def test_tokens_migrate_to_references(file: Path, world: Outside) -> None:
    registry = alpha(file, world)
    await registry.register_swarm("beta", "http://beta.example", "s3cret")
    assert registry.get_all_endpoints()["beta"]["auth_token_ref"] == "s3cret"
    with pytest.raises(ConfigError, match="SWARM_AUTH_TOKEN"):
        registry.migrate_auth_tokens_to_env_refs("OPENAI_API")
    assert registry.migrate_auth_tokens_to_env_refs() == ["SWARM_AUTH_TOKEN_BETA"]
    assert registry.get_all_endpoints()["beta"]["auth_token_ref"] == "${SWARM_AUTH_TOKEN_BETA}"
    assert registry.get_resolved_auth_token("beta") == "s3cret"
    assert registry.migrate_auth_tokens_to_env_refs() == []


async def test_two_names_never_share_a_variable(file: Path, world: Outside) -> None:
    world.handler = lambda request: httpx.Response(200, json={"name": "mail", "swarm": {}})
    registry = alpha(file, world)
    await registry.register_swarm("a-b", "http://beta.example")
    with pytest.raises(ProtocolError, match="'a_b' and 'a-b' would both use SWARM_AUTH_TOKEN_A_B"):
        await registry.register_swarm("a_b", "http://gamma.example")


async def test_a_token_is_for_the_address_it_was_given_with(file: Path, world: Outside) -> None:
    registry = alpha(file, world)
    await registry.register_swarm("beta", "http://beta.example", "s3cret", volatile=False)
    # As it is seen from a thread in the middle of registering it anew.
    registry.endpoints["beta"]["base_url"] = "http://gamma.example"
    assert registry.get_resolved_auth_token("beta") is None


async def test_a_name_that_becomes_the_own_while_it_is_registered_is_refused(
    file: Path, world: Outside
) -> None:
    registry = alpha(file, world)

    def answer(request: httpx.Request) -> httpx.Response:
        registry.replace_local_swarm("beta", "", [], public=False)
        return httpx.Response(200, json=root(request.url, "beta"))

    world.handler = answer
    with pytest.raises(ProtocolError, match="own swarm"):
        await registry.register_swarm("beta", "http://beta.example")
    assert registry.get_all_endpoints()["beta"]["base_url"] == HERE


# --- changing and removing ----------------------------------------------------------------------


async def test_the_own_swarm_stays(file: Path) -> None:
    registry = alpha(file)
    with pytest.raises(ConfigError, match="own swarm"):
        registry.unregister_swarm("alpha")
    assert not registry.unregister_swarm("nobody")
    registry.register_local_swarm("https://alpha.example")
    assert registry.get_all_endpoints()["alpha"]["base_url"] == "https://alpha.example"


async def test_removing_forgets_the_token(file: Path, world: Outside) -> None:
    registry = alpha(file, world)
    for volatile in (True, False):
        await registry.register_swarm("beta", "http://beta.example", "t", volatile=volatile)
        assert registry.unregister_swarm("beta")
        await registry.register_swarm("beta", "http://beta.example", volatile=volatile)
        assert registry.get_resolved_auth_token("beta") is None
        assert registry.unregister_swarm("beta")
    assert set(json.loads(text_of(file))["endpoints"]) == {"alpha"}


async def test_an_entry_for_good_does_not_become_volatile_unnoticed(
    file: Path, world: Outside
) -> None:
    registry = alpha(file, world)
    await registry.register_swarm("beta", "http://beta.example", volatile=False)
    with pytest.raises(ProtocolError, match="volatile=false, or remove it"):
        await registry.register_swarm("beta", "http://beta.example", volatile=True)


@pytest.mark.parametrize("volatile", [True, False])
async def test_what_a_second_registration_leaves_out_stays_as_it_is(
    file: Path, world: Outside, *, volatile: bool
) -> None:
    registry = alpha(file, world)
    first = {"auth_token": "tok", "metadata": {"team": "b"}, "volatile": volatile}
    await registry.register_swarm("beta", "http://beta.example", **first)
    before = registry.get_all_endpoints()["beta"]
    for url in ("http://beta.example", "http://gamma.example"):
        await registry.register_swarm("beta", url)
        found = registry.get_all_endpoints()["beta"]
        assert found["base_url"] == url
        for kept in ("auth_token_ref", "metadata", "volatile"):
            assert found[kept] == before[kept]  # type: ignore[literal-required]
        assert registry.get_resolved_auth_token("beta") == "tok"
    await registry.register_swarm("beta", "http://beta.example", "new", {}, volatile=False)
    found = registry.get_all_endpoints()["beta"]
    assert (found["metadata"], found["volatile"]) == ({}, False)
    assert registry.get_resolved_auth_token("beta") == "new"
    assert "tok" not in text_of(file).replace("auth_token", "").replace("SWARM_AUTH_TOKEN", "")


async def test_a_reference_stays_one_when_it_is_left_out(
    file: Path, world: Outside, held: pytest.MonkeyPatch
) -> None:
    registry = alpha(file, world)
    own = "${SWARM_AUTH_TOKEN_BETA}"
    await registry.register_swarm("beta", "http://beta.example", own)
    await registry.register_swarm("beta", "http://beta.example", volatile=False)
    assert registry.get_all_endpoints()["beta"]["auth_token_ref"] == own
    assert registry.get_resolved_auth_token("beta") == "from-env"


async def test_a_full_registry_names_the_setting(file: Path, world: Outside) -> None:
    world.handler = lambda request: httpx.Response(200, json={"name": "mail", "swarm": {}})
    registry = alpha(file, world, max_swarms=1)
    await registry.register_swarm("beta", "http://beta.example")
    await registry.register_swarm("beta", "http://beta.example")
    with pytest.raises(ProtocolError, match=r"\[server.federation\] max_swarms is 1"):
        await registry.register_swarm("gamma", "http://gamma.example")


async def test_another_local_swarm_takes_the_place(file: Path, world: Outside) -> None:
    registry = alpha(file, world)
    await registry.register_swarm("beta", "http://beta.example")
    with pytest.raises(ProtocolError, match="'beta' is registered as another swarm"):
        registry.replace_local_swarm("beta", "", [], public=True)
    registry.replace_local_swarm("delta", "new", ["n"], public=True)
    assert list(registry.get_all_endpoints()) == ["delta", "beta"]
    assert list(registry.get_public_endpoints()) == ["delta", "beta"]


# --- health -------------------------------------------------------------------------------------


async def test_health_checks_follow_a_real_peer(file: Path) -> None:
    registry = alpha(file)
    registry.health_check_interval = 0.01
    async with LoopbackPeer(name="beta") as peer:
        await registry.register_swarm("beta", peer.url)
        before = registry.get_all_endpoints()["beta"]["last_seen"]
        await registry.start_health_checks()
        task = registry.health_check_task
        await registry.start_health_checks()
        assert registry.health_check_task is task
        for failing in (None, 503, None):
            peer.failing = failing
            async with asyncio.timeout(10):
                while registry.get_all_endpoints()["beta"]["is_active"] is (failing is not None):
                    await asyncio.sleep(0.005)
                while registry.get_all_endpoints()["beta"]["latency"] is None:
                    await asyncio.sleep(0.005)
        found = registry.get_all_endpoints()["beta"]
        assert found["latency"] is not None
        assert found["last_seen"] is not None
        assert before is not None
        assert found["last_seen"] > before
        await registry.aclose()
    assert (registry.health_check_task, registry.session) == (None, None)
    assert set(registry.get_all_endpoints()) == {"alpha"}


async def test_a_peer_that_does_not_answer_is_asked_less_often() -> None:
    endpoint: Any = {"swarm_name": "b", "base_url": "http://b", "is_active": True}
    endpoint |= {"health_check_url": "http://beta.example/health"}
    world = Outside({"beta.example": [PUBLIC]}, lambda _: httpx.Response(503))
    access = PeerAccess(EgressPolicy(), None, world.resolve, world.transport)
    seen: list[float | None] = []
    checks = HealthChecks(
        lambda: {"b": endpoint},
        lambda _, latency: seen.append(latency),
        lambda client, entry: access.check_health(client, entry["health_check_url"]),
    )
    pauses = []
    async with access.client() as client:
        for _ in range(7):
            record = checks._records.get("b")
            if record is not None:
                record.due = 0.0
            began = asyncio.get_running_loop().time()
            await checks.check_due(client, 30.0)
            pauses.append(round((checks._records["b"].due - began) / 30))
        assert pauses == [1, 2, 4, 8, 16, 20, 20]
        await checks.check_due(client, 30.0)
        assert seen == [None] * 7
        world.handler = lambda _: httpx.Response(200)
        checks._records["b"].due = 0.0
        await checks.check_due(client, 30.0)
        assert checks._records["b"].failures == 0


# --- discovery ----------------------------------------------------------------------------------


def listing(*entries: Any) -> httpx.Response:
    return httpx.Response(200, json={"swarms": list(entries)})


async def test_a_library_registers_what_it_finds_and_takes_nothing_on_trust(
    file: Path, held: pytest.MonkeyPatch
) -> None:
    held.setenv("OPENAI_API_KEY", "do-not-tell")
    registry = alpha(file)
    async with LoopbackPeer(name="beta") as beta, LoopbackPeer(name="gamma") as gamma:
        beta.swarms = [
            beta.swarm_entry(),
            gamma.swarm_entry(auth_token="${OPENAI_API_KEY}", volatile=False, metadata={"a": 1}),
            {"name": "alpha", "base_url": "http://evil.example"},
            {"swarm_name": "bad name", "base_url": "http://evil.example"},
            {"swarm_name": 7},
        ]
        found = await registry.discover_swarms([beta.url, beta.url, "http://127.0.0.1:1"])
        assert sorted(found.found) == ["beta", "gamma"]
        assert [where for where, _ in found.problems] == [beta.url] * 2 + ["http://127.0.0.1:1"]
        entry = registry.get_all_endpoints()["gamma"]
        assert (entry["volatile"], entry["metadata"], entry["auth_token_ref"]) == (True, None, None)
        assert registry.get_resolved_auth_token("gamma") is None
        # A known name is not taken over.
        gamma.swarms = [beta.swarm_entry(base_url="http://evil.example")]
        assert await registry.discover_swarms([gamma.url]) == ([], [])
        assert registry.get_all_endpoints()["beta"]["base_url"] == beta.url
    assert text_of(file) == ""


async def test_a_registry_that_proposes_registers_only_what_is_accepted(
    file: Path, world: Outside
) -> None:
    entries = [
        {"swarm_name": "gamma", "base_url": "http://gamma.example", "keywords": ["g"]},
        {"swarm_name": "inner", "base_url": "http://10.0.0.1"},
        {"swarm_name": "alpha", "base_url": "http://gamma.example"},
    ]
    world.handler = lambda request: (
        listing(*entries)
        if request.url.path == "/swarms"
        else httpx.Response(200, json=root("", "gamma"))
    )
    registry = alpha(file, world, proposes=True)
    found = await registry.discover_swarms(["http://beta.example"])
    assert found == (["gamma", "inner"], [])
    assert world.connected == [PUBLIC]  # nobody asked gamma
    assert set(registry.get_all_endpoints()) == {"alpha"}
    with pytest.raises(UnknownSwarm):
        await registry.accept_swarm("delta")
    with pytest.raises(PeerUnreachable, match=r"not a public address; .*POST /swarms"):
        await registry.accept_swarm("inner")
    assert registry.unregister_swarm("inner")
    other = alpha(file, world)
    assert other.get_proposed_swarms()["gamma"] == {
        "swarm_name": "gamma",
        "base_url": "http://gamma.example",
        "swarm_description": "",
        "keywords": ["g"],
        "listed_by": "http://beta.example",
    }
    entries.pop(1)
    assert (await registry.discover_swarms(["http://beta.example"])).found == []
    answer, world.handler = world.handler, refuse_connection
    with pytest.raises(PeerUnreachable):  # unlike a registration, it must answer
        await registry.accept_swarm("gamma")
    world.handler = answer
    await registry.accept_swarm("gamma")
    assert other.get_proposed_swarms() == {}
    assert not other.get_all_endpoints()["gamma"]["volatile"]


@pytest.mark.parametrize("inside", ["http://127.0.0.1:8001", "http://localhost", "http://10.0.0.1"])
async def test_what_is_proposed_never_leads_inside_whatever_a_registration_may_name(
    file: Path, world: Outside, inside: str
) -> None:
    world.names |= {"localhost": ["127.0.0.1"], "turned.example": [[PUBLIC], ["10.0.0.1"]]}
    world.handler = lambda _: listing({"swarm_name": "beta", "base_url": "http://turned.example"})
    own = PeerAccess.of_server(allow_private=True)
    access = PeerAccess(own.policy, own.setting, world.resolve, world.transport)
    registry = alpha(file, access=access, proposes=True)
    found = await registry.discover_swarms([inside])  # as a model may write it
    assert (found.found, len(found.problems), world.requests) == ([], 1, [])
    assert (await registry.discover_swarms(["http://turned.example"])).found == ["beta"]
    with pytest.raises(PeerUnreachable, match="not a public address"):
        await registry.accept_swarm("beta")
    assert world.connected == [PUBLIC]
    world.handler = lambda _: httpx.Response(200, json=root("", "inner"))
    await registry.register_swarm("inner", inside)
    assert registry.get_all_endpoints()["inner"]["is_active"]


async def test_a_proposal_can_be_dismissed_and_they_are_limited(file: Path, world: Outside) -> None:
    every = [{"swarm_name": f"s{n}", "base_url": "http://gamma.example"} for n in range(99)]
    world.handler = lambda request: listing(*every)
    registry = alpha(file, world, proposes=True, max_swarms=3)
    assert (await registry.discover_swarms(["http://beta.example"])).found == ["s0", "s1", "s2"]
    assert (await registry.discover_swarms(["http://beta.example"])).found == []
    assert registry.unregister_swarm("s1")
    assert set(registry.get_proposed_swarms()) == {"s0", "s2"}
    assert set(json.loads(text_of(file))["proposed"]) == {"s0", "s2"}
