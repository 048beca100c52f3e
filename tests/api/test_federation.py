"""Library swarms that exchange mail: over HTTP, without a server of MAIL's."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mail import MAILSwarm, MAILSwarmTemplate
from mail.core.interswarm import PEER_ROLE
from mail.core.runtime import MAILRuntime
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.errors import ConfigError, Forbidden, ProtocolError, RoutingError, UnknownTask
from mail.net import SwarmRegistry
from mail.testing import LoopbackPeer
from tests.api.federated import Neighbourhood, neighbourhood, template, until
from tests.spec.kit import Part, done, request, response

ASK = request("wind@weather", "How strong at 14:00?")
ANSWER = response("boss@harbour", "Four knots.")


def harbour(*turns: Any) -> MAILSwarmTemplate:
    return template("harbour", {"boss": Part(*turns)}, "*@*")


def weather(*turns: Any) -> MAILSwarmTemplate:
    return template("weather", {"wind": Part(*turns)})


async def _two(hood: Neighbourhood, here: Any, there: Any) -> tuple[MAILSwarm, MAILSwarm]:
    made = await hood.add(here), await hood.add(there)
    await hood.introduce()
    return made


async def test_two_library_swarms_solve_a_task_together(tmp_path: Path) -> None:
    async with neighbourhood(tmp_path) as hood:
        here, there = await _two(hood, harbour([ASK], [done("Four knots.")]), weather([ANSWER]))
        answer, events = await here.post_message("How is the wind?", show_events=True)
        assert answer["message"]["body"] == "Four knots."
        kinds = [event.kind for event in events]
        assert "interswarm_message_sent" in kinds and "interswarm_message_received" in kinds
        task = await here.read_task(answer["message"]["task_id"])
        assert task.remote_swarms == ["weather"]
        assert "swarm:harbour@weather" in task.task_contributors
        doors = hood.doors
        await until(lambda: all(door.requests for door in doors.values()))
        assert doors["weather"].requests[0] == ("/interswarm/forward", 200)
        assert doors["harbour"].requests[0] == ("/interswarm/back", 200)
        assert await here.is_interswarm_running() and await there.is_interswarm_running()


async def test_the_tasks_of_another_swarm_are_not_the_own_users_tasks(tmp_path: Path) -> None:
    store = MemoryStore()
    async with neighbourhood(tmp_path) as hood:
        here = await hood.add(harbour([ASK], [done("Thanks.")]))
        there = await hood.add(weather([ANSWER]), store=store)
        await hood.introduce()
        answer, _ = await here.post_message("How is the wind?")
        assert await there.read_tasks() == [] and there.get_all_tasks() == {}
        guest = Owner("weather", PEER_ROLE, "harbour")
        row = await store.load_task(guest, answer["message"]["task_id"])
        assert row.task_owner == "user:ines@harbour"
        await until(lambda: there.idle)


async def test_mail_that_can_be_delivered_is_delivered_before_the_end(tmp_path: Path) -> None:
    wind = Part([ANSWER])
    async with neighbourhood(tmp_path) as hood:
        here, _ = await _two(
            hood, harbour([ASK], [done("Thanks.")]), template("weather", {"wind": wind})
        )
        await here.post_message("How is the wind?")
        await here.shutdown()
        # The end of the task has been told, although nobody waited for that.
        ends = [path for path, status in hood.doors["weather"].requests if status == 200]
        assert len(ends) == 2


async def test_a_swarm_without_peers_answers_its_agents_with_a_reason(tmp_path: Path) -> None:
    boss = Part([ASK], [("send_interswarm_broadcast", {"subject": "s", "body": "b"})], [done()])
    made = template("harbour", {"boss": boss}, "*@*")
    swarm = made.instantiate({}, registry_file=str(tmp_path / "registries" / "harbour.json"))
    assert isinstance(swarm.swarm_registry, SwarmRegistry)
    assert (tmp_path / "registries").is_dir()
    answer, _ = await swarm.post_message("How is the wind?")
    assert answer["message"]["body"] == "done"
    assert boss.results == [
        "ERROR: unknown swarm 'weather'",
        "ERROR: no other swarm can be written to at the moment",
    ]
    await swarm.shutdown()


async def test_a_peer_that_does_not_answer_is_told_to_the_agent(tmp_path: Path) -> None:
    boss = Part([ASK], [done("Nobody knows.")])
    async with neighbourhood(tmp_path) as hood:
        here, _ = await _two(hood, template("harbour", {"boss": boss}, "*@*"), weather())
        await hood.doors["weather"].close()
        answer, _ = await here.post_message("How is the wind?", timeout=10)
        assert answer["message"]["body"] == "Nobody knows."
        assert "::delivery_delayed::" in str(boss.shown[-1])


async def test_a_repeated_delivery_is_answered_with_the_first_receipt(tmp_path: Path) -> None:
    wind = Part([ANSWER], [ANSWER])
    async with neighbourhood(tmp_path) as hood:
        await _two(hood, harbour(), template("weather", {"wind": wind}))
        there = hood.swarms["weather"]
        message = _wrapper()
        receipts = [await there.receive_interswarm_message(message) for _ in range(2)]
        assert (
            receipts[0]
            == receipts[1]
            == {
                "swarm": "weather",
                "task_id": "high-water",
                "status": "success",
                "local_runner": "swarm:harbour@weather",
            }
        )
        await until(lambda: there.idle)
        assert len(wind.shown) == 1


def _wrapper(**fields: Any) -> Any:
    payload = {
        "task_id": "high-water",
        "request_id": "request-1",
        "sender": {"address_type": "agent", "address": "boss@harbour"},
        "recipient": {"address_type": "agent", "address": "wind@weather"},
        "subject": "Wind",
        "body": "How strong?",
        **fields.pop("payload", {}),
    }
    return {
        "message_id": "message-1",
        "source_swarm": "harbour",
        "target_swarm": "weather",
        "timestamp": "2026-03-02T08:15:05+00:00",
        "payload": payload,
        "msg_type": "request",
        "task_owner": "user:ines@harbour",
        "task_contributors": ["user:ines@harbour"],
        **fields,
    }


@pytest.mark.parametrize(
    ("message", "direction", "error", "text"),
    [
        (_wrapper(), "back", UnknownTask, "high-water"),
        (_wrapper(target_swarm="depot"), "forward", ProtocolError, "target_swarm"),
        (_wrapper(source_swarm="depot"), "forward", Forbidden, "speaks for the swarm 'harbour'"),
        (
            _wrapper(payload={"sender": {"address_type": "system", "address": "harbour"}}),
            "forward",
            ProtocolError,
            "payload.sender",
        ),
        (_wrapper(task_owner="user:ines@weather"), "forward", UnknownTask, "high-water"),
        (_wrapper(msg_type="buffered"), "forward", ProtocolError, "msg_type"),
        ({"message_id": "1"}, "forward", ProtocolError, "source_swarm"),
    ],
)
async def test_mail_that_breaks_the_rules_is_refused(
    tmp_path, message, direction, error, text
) -> None:
    wind = Part()
    async with neighbourhood(tmp_path) as hood:
        there = await hood.add(template("weather", {"wind": wind}))
        with pytest.raises(error, match=text):
            await there.receive_interswarm_message(message, direction, peer="harbour")
        assert wind.shown == []


async def test_the_own_swarms_mail_is_not_received(tmp_path: Path) -> None:
    async with neighbourhood(tmp_path) as hood:
        there = await hood.add(weather())
        with pytest.raises(ProtocolError, match="'weather' is the own swarm"):
            await there.receive_interswarm_message(_wrapper(source_swarm="weather"))


async def test_mail_is_kept_and_delivered_after_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'harbour.db'}"
    wind = Part([ANSWER])
    async with neighbourhood(tmp_path) as hood:
        here = await hood.add(harbour([ASK], [("await_message", {})]), store=store)
        await hood.add(template("weather", {"wind": wind}))
        await hood.introduce()
        await hood.doors["weather"].close()
        asked = asyncio.create_task(here.post_message("How is the wind?", task_id="high-water"))
        await until(lambda: _told(here, "high-water"))
        registry = here.swarm_registry
        await here.shutdown(grace=0)
        await asyncio.gather(asked, return_exceptions=True)
        await hood.doors["harbour"].close()

        await hood.doors["weather"].open()
        again = await hood.add(harbour([done("Four knots.")]), store=store, swarm_registry=registry)
        await again.start()
        await until(lambda: len(wind.shown) == 1)
        async with asyncio.timeout(10):
            while not (await again.read_task("high-water")).completed:
                await asyncio.sleep(0.02)


def _told(swarm: MAILSwarm, task_id: str) -> bool:
    return any(event.kind == "interswarm_message_error" for event in swarm.get_events(task_id))


async def test_instances_that_share_a_store_send_each_their_own_mail(tmp_path: Path) -> None:
    store, wind = MemoryStore(), Part([ANSWER], [ANSWER], [ANSWER], [ANSWER])
    async with neighbourhood(tmp_path) as hood:
        here = await hood.add(harbour([ASK], [done("Thanks.")]), store=store)
        await hood.add(template("weather", {"wind": wind}))
        await hood.introduce()
        registry = here.swarm_registry
        other = harbour([ASK], [done("Thanks, too.")]).instantiate(
            {}, "olga", swarm_registry=registry, store=store
        )
        hood.doors["harbour"].swarms.append(other)
        (mine, _), (hers, _) = await asyncio.gather(
            *(swarm.post_message("How is the wind?", timeout=10) for swarm in (here, other))
        )
        assert mine["message"]["body"] == "Thanks."
        assert hers["message"]["body"] == "Thanks, too."
        forwards = [path for path, _ in hood.doors["weather"].requests if "forward" in path]
        assert len(forwards) == 2
        assert {status for _, status in hood.doors["harbour"].requests} == {200}
        await other.shutdown()


async def test_a_cancelled_task_is_cancelled_where_it_was_helped_with(tmp_path: Path) -> None:
    store, stuck = MemoryStore(), asyncio.Event()

    async def never(messages: Any, choice: Any) -> Any:
        stuck.set()
        await asyncio.Event().wait()

    slow = weather()
    slow.agents[0].factory = lambda **_: never
    async with neighbourhood(tmp_path) as hood:
        here = await hood.add(harbour([ASK]))
        there = await hood.add(slow, store=store)
        await hood.introduce()
        asked = asyncio.create_task(here.post_message("How is the wind?", task_id="high-water"))
        await asyncio.wait_for(stuck.wait(), 10)
        assert not there.idle
        await here.cancel_task("high-water")
        await asyncio.wait_for(asked, 10)
        await until(lambda: there.idle)
        [row] = await store.list_tasks(Owner("weather", PEER_ROLE, "harbour"))
        assert row.state == "cancelled" and row.task_id.startswith("high-water#")


async def test_a_guests_unfinished_work_goes_on_after_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'weather.db'}"
    stuck = asyncio.Event()

    async def never(messages: Any, choice: Any) -> Any:
        stuck.set()
        await asyncio.Event().wait()

    slow = weather()
    slow.agents[0].factory = lambda **_: never
    async with neighbourhood(tmp_path) as hood:
        here = await hood.add(harbour([ASK], [done("Thanks.")]))
        there = await hood.add(slow, store=store)
        await hood.introduce()
        asked = asyncio.create_task(here.post_message("How is the wind?"))
        await asyncio.wait_for(stuck.wait(), 10)
        registry = there.swarm_registry
        await hood.doors["weather"].close()
        await there.shutdown(grace=0)
        again = await hood.add(weather([ANSWER]), store=store, swarm_registry=registry)
        await again.start_interswarm()
        answer, _ = await asyncio.wait_for(asked, 20)
        assert answer["message"]["body"] == "Thanks."


# --- the calls ----------------------------------------------------------------------------------


async def test_a_swarm_can_stop_and_start_the_exchange(tmp_path: Path) -> None:
    async with LoopbackPeer(name="weather") as peer:
        registry = SwarmRegistry("harbour", "http://127.0.0.1:9", str(tmp_path / "r.json"))
        swarm = harbour().instantiate({}, swarm_registry=registry)
        await registry.register_swarm("weather", peer.url, "secret")
        assert not await swarm.is_interswarm_running()
        for _ in range(2):
            await swarm.start_interswarm()
        assert await swarm.is_interswarm_running() and registry.health_check_task is not None
        await until(lambda: any(one.path == "/health" for one in peer.requests))
        await swarm.stop_interswarm()
        assert not await swarm.is_interswarm_running() and registry.health_check_task is None
        await swarm.start_interswarm()
        await swarm.shutdown()
        assert not await swarm.is_interswarm_running() and registry.health_check_task is None


async def test_messages_can_be_routed_and_sent_by_hand(tmp_path: Path) -> None:
    boss = Part()
    async with LoopbackPeer(name="weather") as peer:
        registry = SwarmRegistry("harbour", "http://127.0.0.1:9", str(tmp_path / "r.json"))
        swarm = template("harbour", {"boss": boss}).instantiate({}, swarm_registry=registry)
        await registry.register_swarm("weather", peer.url, "secret")
        message = swarm.build_message("News", "noon", ["boss", "wind@weather"], type="broadcast")
        assert await swarm.route_interswarm_message(message) == message
        await until(lambda: boss.shown)
        [posted] = [one for one in peer.requests if one.method == "POST"]
        sent = posted.body["message"]
        assert posted.path == "/interswarm/forward"
        assert posted.headers["authorization"] == "Bearer secret"
        assert sent["payload"]["recipients"] == [
            {"address_type": "agent", "address": "wind@weather"}
        ]
        assert sent["task_contributors"] == ["user:default_user@harbour"]

        wrapper = _wrapper(source_swarm="harbour")
        await swarm.send_interswarm_message(wrapper, "back")
        assert peer.requests[-1].path == "/interswarm/back"
        lost = await swarm.route_interswarm_message(
            swarm.build_message("News", "noon", ["x@depot"])
        )
        assert lost["message"]["subject"] == "Router Error"
        with pytest.raises(ValueError, match="depot"):
            await swarm.send_interswarm_message(_wrapper(target_swarm="depot"))
        with pytest.raises(RoutingError, match="user token is required"):
            await swarm.post_interswarm_user_message(_wrapper())
        await swarm.shutdown()


async def test_a_response_can_be_handed_over_as_a_message(tmp_path: Path) -> None:
    boss = Part([ASK], [done("Four knots.")])
    async with LoopbackPeer(name="weather") as peer:
        registry = SwarmRegistry("harbour", "http://127.0.0.1:9", str(tmp_path / "r.json"))
        swarm = template("harbour", {"boss": boss}, "*@*").instantiate({}, swarm_registry=registry)
        await registry.register_swarm("weather", peer.url, "secret")
        asked = asyncio.create_task(swarm.post_message("How is the wind?", task_id="high-water"))
        await until(lambda: any(one.method == "POST" for one in peer.requests))
        [posted] = [one.body["message"] for one in peer.requests if one.method == "POST"]
        answer = {
            "id": "answer-1",
            "timestamp": posted["timestamp"],
            "msg_type": "response",
            "message": {
                "task_id": "high-water",
                "request_id": posted["payload"]["request_id"],
                "sender": {"address_type": "agent", "address": "wind@weather"},
                "recipient": {"address_type": "agent", "address": "boss"},
                "subject": "Re: Job",
                "body": "Four knots.",
            },
        }
        with pytest.raises(ProtocolError, match="not a response of an agent of another swarm"):
            await swarm.handle_interswarm_response(
                answer
                | {
                    "message": answer["message"]
                    | {"sender": posted["payload"]["recipient"] | {"address": "wind"}}
                }
            )
        await swarm.handle_interswarm_response(answer)
        final, _ = await asyncio.wait_for(asked, 10)
        assert final["message"]["body"] == "Four knots."
        with pytest.raises(UnknownTask):
            await swarm.handle_interswarm_response(
                answer | {"message": answer["message"] | {"task_id": "other"}}
            )
        await swarm.shutdown()


async def test_a_runtime_has_the_same_calls(tmp_path: Path) -> None:
    swarm = harbour().instantiate({}, registry_file=str(tmp_path / "r.json"))
    runtime = swarm._runtime
    assert isinstance(runtime, MAILRuntime)
    await runtime.start_interswarm()
    assert await runtime.is_interswarm_running() and await swarm.is_interswarm_running()
    await runtime.stop_interswarm()
    assert not await runtime.is_interswarm_running()
    await swarm.shutdown()


def test_a_registry_is_needed(tmp_path: Path) -> None:
    agents = [agent.instantiate({}) for agent in harbour().agents]
    with pytest.raises(ValueError, match="swarm registry must be provided if interswarm messaging"):
        MAILSwarm("harbour", "1", agents, [], "boss", enable_interswarm=True)
    with pytest.raises(ConfigError, match=r"must be a mail\.net\.SwarmRegistry, got dict"):
        MAILSwarm("harbour", "1", agents, [], "boss", swarm_registry={}, enable_interswarm=True)


async def test_where_a_server_carries_the_mail_the_swarm_does_not(tmp_path: Path) -> None:
    class Nowhere:
        def check(self, swarm: str) -> None: ...
        def swarms(self) -> list[str]:
            return []

        def wake(self, peers: Any) -> None: ...
        async def discover(self, urls: Any) -> tuple[list[str], list[str]]:
            return [], []

    swarm = harbour([done()]).instantiate({}, gateway=Nowhere())
    assert swarm.swarm_registry is None
    assert (await swarm.post_message("Hello"))[0]["message"]["body"] == "done"
    assert not await swarm.is_interswarm_running()
    for call in (swarm.start_interswarm(), swarm.receive_interswarm_message(_wrapper())):
        with pytest.raises(ConfigError, match="interswarm router not available"):
            await call
    await swarm.shutdown()


def test_agents_of_a_swarm_without_other_swarms_are_not_offered_their_tools() -> None:
    seen: dict[str, Any] = {}

    def factory(**params: Any) -> Any:
        seen.update(params)
        return lambda messages, choice: None

    made = harbour()
    made.agents[0].factory, made.agents[0].comm_targets = factory, []
    made.instantiate({}, registry_file="", swarm_registry=None, gateway=_Closed())
    assert seen["enable_interswarm"] is True
    alone = MAILSwarmTemplate("harbour", agents=made.agents, entrypoint="boss")
    instance = alone.instantiate({})
    assert seen["enable_interswarm"] is False
    assert instance.agents[0].enable_interswarm is True  # what was declared


class _Closed:
    """No other swarms."""

    def check(self, swarm: str) -> None:
        raise AssertionError

    def swarms(self) -> list[str]:
        return []

    def wake(self, peers: Any) -> None: ...

    async def discover(self, urls: Any) -> tuple[list[str], list[str]]:
        return [], []
