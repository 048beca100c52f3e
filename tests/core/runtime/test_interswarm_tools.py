"""The tools for other swarms: broadcasts to them, and asking servers for more of them."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json

from mail.core.interswarm import Gateway
from mail.core.runtime import MAILRuntime
from mail.egress.rules import EgressPolicy
from mail.errors import ToolError
from mail.net import SwarmRegistry
from mail.net.peers import PeerAccess
from mail.testing import LoopbackPeer, agent_from
from tests.net.test_registry import town
from tests.spec.kit import Part, done
from tests.support.swarm import SWARM, runtime_of, supervisor, user_message, worker

NEWS = {"subject": "News", "body": "the gate closes at noon"}


class Neighbours(Gateway):
    """A way to the swarms of a real registry; which of them are active is given."""

    def __init__(self, registry: SwarmRegistry, active: Sequence[str] = ()) -> None:
        self.registry = registry
        self.active = active
        self.woken: list[str] = []

    def check(self, swarm: str) -> None:
        if swarm not in self.swarms():
            raise ToolError(f"unknown swarm '{swarm}'")
        if swarm == "silent":
            raise ToolError("authentication token missing for swarm 'silent'")

    def swarms(self) -> list[str]:
        known = [name for name in self.registry.endpoints if name != SWARM]
        return sorted([*known, *self.active])

    def wake(self, peers: Collection[str]) -> None:
        self.woken += peers

    async def discover(self, urls: Sequence[str]) -> tuple[list[str], list[str]]:
        found = await self.registry.discover_swarms(urls)
        return found.found, [f"{where}: {why}" for where, why in found.problems]


@pytest.fixture
def registry(tmp_path: Path) -> SwarmRegistry:
    return SwarmRegistry(SWARM, "http://127.0.0.1:9", str(tmp_path / "registry.json"))


def _led_by(lead: Part, gateway: Gateway | None, **rights: Any) -> MAILRuntime:
    agents = {"supervisor": supervisor(agent_from(lead)), "worker": worker(agent_from(Part()))}
    for name, value in {"enable_interswarm": True, **rights}.items():
        setattr(agents["supervisor"], name, value)
    return runtime_of(agents, enable_interswarm=gateway is not None, gateway=gateway)


async def _result(call: tuple[str, dict[str, Any]], gateway: Gateway | None, **rights: Any) -> str:
    lead = Part([call], [done()])
    runtime = _led_by(lead, gateway, **rights)
    await runtime.submit_and_wait(user_message())
    await runtime.shutdown()
    return lead.results[0]


# --- who may ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rights", "problem"),
    [
        ({"enable_interswarm": False}, "only an agent with enable_interswarm may call"),
        ({"exclude_tools": ["send_interswarm_broadcast", "discover_swarms"]}, "not available to"),
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        ("send_interswarm_broadcast", NEWS),
        ("discover_swarms", {"discovery_urls": ["http://127.0.0.1:9"]}),
    ],
)
async def test_only_agents_with_enable_interswarm_may_call_them(
    registry, call, rights, problem
) -> None:
    result = await _result(call, Neighbours(registry, ["weather"]), **rights)
    assert result.startswith("ERROR") and problem in result


async def test_an_agent_that_is_no_supervisor_may_not_call_them(registry) -> None:
    work = Part([("send_interswarm_broadcast", NEWS), ("discover_swarms", {"discovery_urls": []})])
    lead = Part([("send_request", {"target": "worker", "subject": "s", "body": "b"})], [done()])
    agents = {"supervisor": supervisor(agent_from(lead)), "worker": worker(agent_from(work))}
    agents["worker"].enable_interswarm = True
    gateway = Neighbours(registry, ["weather"])
    runtime = runtime_of(agents, enable_interswarm=True, gateway=gateway)
    await runtime.submit_and_wait(user_message())
    await runtime.shutdown()
    assert [text.split("'")[0] for text in work.results[:2]] == [
        "ERROR: only a supervisor may call "
    ] * 2


@pytest.mark.parametrize(
    "call",
    [
        ("send_interswarm_broadcast", NEWS),
        ("discover_swarms", {"discovery_urls": ["http://127.0.0.1:9"]}),
    ],
)
async def test_a_swarm_without_mail_between_swarms_has_no_use_for_them(call) -> None:
    result = await _result(call, None)
    assert result == "ERROR: interswarm messaging is not enabled for this swarm"


# --- broadcasts ---------------------------------------------------------------------------------


async def _broadcast(gateway: Gateway, **arguments: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return the result, and the wrappers that wait for their swarms."""
    lead = Part([("send_interswarm_broadcast", NEWS | arguments)], [done()])
    runtime = _led_by(lead, gateway)
    await runtime.submit_and_wait(user_message(), timeout=30)
    rows = await runtime._context.store.list_outbox(SWARM)
    await runtime.shutdown()
    wrappers = [from_json(row.wrapper) for _, row in rows if row.kind == "broadcast"]
    assert all(wrapper["payload"]["body"] == NEWS["body"] for wrapper in wrappers)
    [result] = lead.results[:1] or [str(lead.shown)]
    return result, wrappers


def _recipients(wrappers: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {
        wrapper["target_swarm"]: [to["address"] for to in wrapper["payload"]["recipients"]]
        for wrapper in wrappers
    }


async def test_a_broadcast_goes_to_each_named_swarm_in_a_message_of_its_own(registry) -> None:
    gateway = Neighbours(registry, ["depot", "weather", "yard"])
    result, sent = await _broadcast(gateway, target_swarms=["weather", "depot", "weather"])
    assert _recipients(sent) == {"weather": ["all@weather"], "depot": ["all@depot"]}
    assert len({wrapper["message_id"] for wrapper in sent}) == 2
    assert set(gateway.woken) == {"weather", "depot"}
    assert result == "SUCCESS: message sent to weather, depot"


async def test_a_broadcast_without_names_goes_to_all_active_swarms(registry) -> None:
    gateway = Neighbours(registry, ["depot", "silent", "weather"])
    result, sent = await _broadcast(gateway)
    assert _recipients(sent) == {"depot": ["all@depot"], "weather": ["all@weather"]}
    assert result == (
        "SUCCESS: message sent to depot, weather; not to silent: authentication token missing for "
        "swarm 'silent'"
    )


@pytest.mark.parametrize("target", ["all@weather", "all@depot"])
async def test_one_mail_cannot_be_for_a_whole_swarm(registry, target) -> None:
    gateway = Neighbours(registry, ["weather"])
    lead = Part([("send_request", {"target": target, "subject": "s", "body": "b"})], [done()])
    runtime = _led_by(lead, gateway, comm_targets=["*@*"])
    await runtime.submit_and_wait(user_message())
    await runtime.shutdown()
    assert lead.results[0] == f"ERROR: '{target}' is not one agent; use send_interswarm_broadcast"


@pytest.mark.parametrize(
    ("active", "targets", "problem"),
    [
        (["weather"], ["weather", "wether"], "unknown swarm 'wether'"),
        (["weather", "silent"], ["weather", "silent"], "authentication token missing"),
        (["weather"], [SWARM], "is your own swarm; write to it with send_broadcast"),
        ([], [], "no other swarm can be written to at the moment"),
        (["silent"], [], "not to silent: authentication token missing for swarm 'silent'"),
    ],
)
async def test_a_broadcast_that_not_all_named_swarms_can_get_is_not_sent(
    registry, active, targets, problem
) -> None:
    result, sent = await _broadcast(Neighbours(registry, active), target_swarms=targets)
    assert result.startswith("ERROR: ") and problem in result and sent == []


# --- discovery ----------------------------------------------------------------------------------


async def test_discovered_swarms_are_in_the_registry_and_named_in_the_result(registry) -> None:
    async with LoopbackPeer(name="weather") as weather, LoopbackPeer(name="depot") as depot:
        weather.swarms = [weather.swarm_entry(), depot.swarm_entry()]
        urls = [weather.url, "http://127.0.0.1:9", weather.url]
        result = await _result(("discover_swarms", {"discovery_urls": urls}), Neighbours(registry))
        assert registry.get_swarm_endpoint("depot")["base_url"] == depot.url
    lines = result.splitlines()
    assert lines[0] == "SUCCESS: 2 new swarms (weather, depot) found"
    assert lines[1].startswith("problem: http://127.0.0.1:9: ") and len(lines) == 2


async def test_what_an_administrator_must_accept_is_told(tmp_path) -> None:
    path, world = str(tmp_path / "registry.json"), town("weather")
    access = PeerAccess(EgressPolicy(), None, world.resolve, world.transport)
    proposing = SwarmRegistry(SWARM, "http://127.0.0.1:9", path, access=access, proposes=True)
    call = ("discover_swarms", {"discovery_urls": ["http://weather"]})
    result = await _result(call, Neighbours(proposing))
    assert result.splitlines() == [
        "SUCCESS: 1 new swarm (weather) found",
        "an administrator must accept 1 new swarm (weather) before you can write",
    ]
    assert proposing.get_swarm_endpoint("weather") is None


async def test_a_discovery_that_finds_nothing_but_trouble_is_an_error(registry) -> None:
    urls = [f"http://127.0.0.1:{port}" for port in (7, 9)]
    result = await _result(("discover_swarms", {"discovery_urls": urls}), Neighbours(registry))
    assert result.startswith("ERROR: 0 new swarms found\nproblem: http://127.0.0.1:")
    assert set(registry.endpoints) == {SWARM}


async def test_what_a_hostile_server_says_is_cut(registry) -> None:
    class Talkative(Neighbours):
        async def discover(self, urls: Sequence[str]) -> tuple[list[str], list[str]]:
            return [], ["x" * 10_000] * 1000

    result = await _result(
        ("discover_swarms", {"discovery_urls": ["http://127.0.0.1:9"]}), Talkative(registry)
    )
    assert len(result) < 6000 and result.endswith("984 further problems")
