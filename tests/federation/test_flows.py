"""Whole servers that work on one task together, over SQLite and over PostgreSQL."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mail.api import MAILSwarmTemplate
from mail.core.interswarm import PEER_ROLE
from mail.db.records import Owner
from mail.db.store import Store
from mail.llm.script import Script, Steps, call
from mail.llm.script_view import ScriptView
from mail.testing import LoopbackPeer
from tests.federation.harbour import HARBOUR, TIDE, WEATHER, harbour, weather
from tests.federation.kit import (
    Agent,
    Node,
    events_of,
    federation,
    started,
    swarm,
    token_of,
    wrapper,
)
from tests.server.kit import frames
from tests.support.databases import DATABASES
from tests.support.waiting import until

Nodes = Mapping[str, Node]


@pytest.fixture(params=list(DATABASES))
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Store]:
    """Return a database for each of the swarms."""
    made = {}
    for name in (HARBOUR, WEATHER, TIDE):
        (tmp_path / name).mkdir()
        made[name] = DATABASES[request.param](request, tmp_path / name).store()
    return made


@pytest.fixture
async def nodes(stores: dict[str, Store]) -> AsyncIterator[Nodes]:
    async with federation(harbour(), weather(), weather(TIDE), stores=stores) as nodes:
        yield nodes


def guest(swarm: str, peer: str = HARBOUR) -> Owner:
    """Return the owner of another swarm's tasks."""
    return Owner(swarm, PEER_ROLE, peer)


async def state(node: Node, task_id: str, wanted: str) -> None:
    """Wait until the harbour's task on another server has come to a state."""

    async def check() -> bool:
        row = await node.store.load_task(guest(node.name), task_id)
        return row is not None and str(row.state) == wanted

    await until(check)


async def nothing_left(*nodes: Node) -> bool:
    """Tell whether no server has mail for others left."""
    return not any([await node.store.list_outbox(node.name) for node in nodes])


async def test_a_request_is_answered_and_the_task_goes_on(nodes: Nodes) -> None:
    home, away = nodes[HARBOUR], nodes[WEATHER]
    first = await home.ask("ask wind@weather: 14:00?", task_id="crossing")
    assert first["response"] == "wind@weather says: 14:00?, heard"
    again = await home.ask("ask wind@weather: 15:00?", task_id="crossing")
    assert again["response"] == "wind@weather says: 15:00?, heard"
    await until(lambda: nothing_left(*nodes.values()))
    task = await home.task("crossing")
    assert task["task_owner"] == "user:ines@harbour"
    assert task["remote_swarms"] == [WEATHER]
    assert set(task["task_contributors"]) == {"user:ines@harbour", "swarm:harbour@weather"}
    assert len(events_of(task, "interswarm_message_received")) == 2
    assert len(events_of(task, "interswarm_message_sent")) >= 2
    [row] = await away.store.list_tasks(guest(WEATHER))
    assert row.task_owner == "user:ines@harbour"
    assert set(row.task_contributors) >= {"user:ines@harbour", "swarm:harbour@weather"}
    await state(away, row.task_id, "completed")


async def senders(node: Node, owner: Owner) -> set[str]:
    """Return who has written in an owner's tasks on a server."""
    found = set()
    for row in await node.store.list_tasks(owner):
        for event in await node.store.events(owner, row.task_id):
            if event.kind == "new_message":
                found.add(event.extra["full_message"]["message"]["sender"]["address"])
    return found


async def test_a_broadcast_reaches_the_open_agents_of_all_swarms(nodes: Nodes) -> None:
    home = nodes[HARBOUR]
    assert (await home.ask("everywhere weather,tide: storm", task_id="storm"))["status"]
    heard = {"chief", "wind", "dispatcher@harbour"}

    async def all_heard() -> bool:
        found = [await senders(nodes[name], guest(name)) for name in (WEATHER, TIDE)]
        return all(heard <= each for each in found)

    await until(all_heard)
    await until(lambda: nothing_left(*nodes.values()))
    for name in (WEATHER, TIDE):
        assert "cellar" not in await senders(nodes[name], guest(name))
        assert len(await nodes[name].store.list_tasks(guest(name))) == 1


async def test_an_interrupt_acts_on_an_agent_at_work_elsewhere(nodes: Nodes) -> None:
    home, away = nodes[HARBOUR], nodes[WEATHER]
    asked = asyncio.create_task(home.ask("ask wind@weather: hang on", task_id="late"))
    [row] = await until(lambda: away.store.list_tasks(guest(WEATHER)))
    await state(away, row.task_id, "running")
    told = await home.ask("interrupt wind@weather: 16:00", task_id="late")
    assert told["response"] == "wind@weather says: 16:00, heard"
    kinds = [event.kind for event in await away.store.events(guest(WEATHER), row.task_id)]
    assert "turn_interrupted" in kinds
    assert (await asked)["status"] == "completed"


async def test_a_breakpoint_elsewhere_is_the_owners_to_answer(nodes: Nodes) -> None:
    home, away = nodes[HARBOUR], nodes[WEATHER]
    paused = await home.ask("ask wind@weather: consult him", task_id="doubt")
    assert paused["status"] == "paused"
    [call] = paused["breakpoints"]
    assert (call["name"], json.loads(call["arguments"])["question"]) == (
        "ask_captain",
        "consult him",
    )
    [row] = await away.store.list_tasks(guest(WEATHER))
    await state(away, row.task_id, "paused")
    results = [{"call_id": call["call_id"], "content": "stay in port"}]
    answer = await home.ask(
        "",
        task_id="doubt",
        resume_from="breakpoint_tool_call",
        kwargs={"breakpoint_tool_call_result": results},
    )
    assert answer["response"] == "wind@weather says: the captain says: stay in port"


async def test_cancelling_a_task_cancels_it_everywhere(nodes: Nodes) -> None:
    home, away = nodes[HARBOUR], nodes[WEATHER]
    asked = asyncio.create_task(home.post("ask wind@weather: hang on", task_id="called-off"))
    [row] = await until(lambda: away.store.list_tasks(guest(WEATHER)))
    await state(away, row.task_id, "running")
    cancelled = await home.client().post("/tasks/called-off/cancel")
    assert cancelled.json()["status"] == "cancelled"
    assert (await asked).json()["status"] == "cancelled"
    await state(away, row.task_id, "cancelled")
    await until(lambda: nothing_left(*nodes.values()))


def captain(view: ScriptView) -> Steps:
    """Greet buoy, send wind round, and turn back when its wait is refused."""
    if any(result.content.startswith("ERROR") for result in view.new_results):
        return call("send_response", target="buoy@tide", subject="Re", body="turn back")
    if view.mail.sender_type == "user":
        return call("send_request", target="buoy@tide", subject="Greeting", body="hello?")
    if view.subject == "Greeting":
        return call("send_request", target="wind@weather", subject="Order", body="go round")
    if view.subject == "Order":
        return call("await_message")
    return call("task_complete", finish_message=view.body)


def sailor(asks: str) -> Script:
    """Return what asks somebody when it is sent round, and passes the answer on."""

    def script(view: ScriptView) -> Steps:
        if view.subject == "Greeting":
            return call("send_response", target=view.sender, subject="Greeting", body="hello")
        if view.subject == "Order":
            return call("send_request", target=asks, subject="Order", body="go round")
        return call("task_complete", finish_message=view.body)

    return script


def ring() -> list[MAILSwarmTemplate]:
    """Return three swarms: the captain asks wind, who asks buoy, who asks the captain."""
    crew = {
        HARBOUR: ("captain", captain),
        WEATHER: ("wind", sailor("buoy@tide")),
        TIDE: ("buoy", sailor("captain@harbour")),
    }
    return [
        swarm(place, **{name: Agent(script=script, leads=True, open=True, targets=["*@*"])})
        for place, (name, script) in crew.items()
    ]


async def test_three_servers_that_wait_in_a_ring_are_told_so(stores: dict[str, Store]) -> None:
    async with federation(*ring(), stores=stores) as nodes:
        answer = await nodes[HARBOUR].ask("go", task_id="round")
        assert answer["response"] == "turn back"
        task = await nodes[HARBOUR].task("round")
        [refused] = [e for e in task["events"] if e["event"] == "agent_error"]
        path = "captain -> wind@weather -> buoy@tide -> captain"
        assert f"wait for each other: {path}" in json.loads(refused["data"])["description"]
        await until(lambda: nothing_left(*nodes.values()))


async def test_a_persons_message_to_another_swarm_is_answered(nodes: Nodes) -> None:
    home = nodes[HARBOUR]
    message: dict[str, Any] = {
        "body": "14:00?",
        "targets": ["chief@weather"],
        "user_token": token_of("otto", WEATHER),
        "task_id": "direct",
    }
    answer = await home.client().post("/interswarm/message", json=message)
    assert answer.status_code == 200, answer.text
    response = answer.json()["response"]
    assert response["msg_type"] == "broadcast_complete"
    assert response["message"]["body"] == "for otto: 14:00?"
    assert (await nodes[WEATHER].task("direct", "otto"))["task_owner"] == "user:otto@weather"
    assert (await home.client().get("/tasks/direct")).status_code == 404


async def test_a_persons_message_to_another_swarm_is_streamed(nodes: Nodes) -> None:
    home = nodes[HARBOUR]
    message: dict[str, Any] = {
        "body": "14:00?",
        "targets": ["chief@weather"],
        "user_token": token_of("otto", WEATHER),
        "task_id": "streamed",
        "stream": True,
    }
    answer = await home.client().post("/interswarm/message", json=message)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = frames(answer.text)
    assert [event["event"] for event in events][-1] == "task_complete"
    numbers = [int(event["id"]) for event in events if "id" in event]
    stored = await nodes[WEATHER].store.events(Owner(WEATHER, "user", "otto"), "streamed")
    assert numbers == [event.seq for event in stored]
    rest = await home.client().post(
        "/interswarm/message", json=message, headers={"Last-Event-ID": str(numbers[1])}
    )
    assert [int(event["id"]) for event in frames(rest.text) if "id" in event] == numbers[2:]
    after = await nodes[WEATHER].store.events(Owner(WEATHER, "user", "otto"), "streamed")
    assert len(after) == len(stored)


# --- a peer that says it is done ----------------------------------------------------------------


def chief(view: ScriptView) -> Steps:
    """Have the clerk ask, and finish with what the clerk says."""
    if view.mail.sender_type == "user":
        return call("send_request", target="clerk", subject="Wind", body=view.body)
    if view.sender != "clerk":
        return call("await_message", reason=f"read: {view.body}")
    return call("task_complete", finish_message=f"{view.sender} says: {view.body}")


def clerk(view: ScriptView) -> Steps:
    """Ask the weather, and pass on what it says."""
    if view.sender == "chief":
        return call("send_request", target="wind@weather", subject="Wind", body=view.body)
    return call("send_response", target="chief", subject="Re", body=f"{view.sender}: {view.body}")


def office() -> MAILSwarmTemplate:
    """Return a swarm in which not the entrypoint asks."""
    return swarm(
        HARBOUR,
        chief=Agent(script=chief, leads=True, targets=["clerk"]),
        clerk=Agent(script=clerk, open=True, targets=["chief", "wind@weather"]),
    )


@pytest.mark.parametrize(
    ("template", "body", "answer", "readers"),
    [
        (harbour, "ask wind@weather: 14:00?", "wind@weather says: Four knots.", {"dispatcher"}),
        (office, "14:00?", "clerk says: wind@weather: Four knots.", {"chief", "clerk"}),
    ],
)
async def test_the_end_of_a_peers_run_answers_and_leaves_the_task_to_its_own_swarm(
    template: Callable[[], MAILSwarmTemplate], body: str, answer: str, readers: set[str]
) -> None:
    async with started(template(), [WEATHER]) as node, LoopbackPeer(name=WEATHER) as peer:
        about = {"name": WEATHER, "base_url": peer.url, "auth_token": "t"}
        assert (await node.client("root").post("/swarms", json=about)).status_code == 200
        asking = asyncio.create_task(node.ask(body, task_id="crossing"))
        asked = await until(lambda: [r.body for r in peer.requests if r.path.endswith("/forward")])
        done = wrapper(
            WEATHER,
            HARBOUR,
            msg_type="broadcast_complete",
            payload={
                "task_id": asked[0]["message"]["payload"]["task_id"],
                "broadcast_id": "b-1",
                "sender": {"address_type": "agent", "address": "wind"},
                "recipients": [{"address_type": "agent", "address": "all"}],
                "subject": "::task_complete::",
                "body": "Four knots.",
            },
            task_owner=f"user:ines@{HARBOUR}",
            task_contributors=[f"user:ines@{HARBOUR}", f"swarm:{HARBOUR}@{WEATHER}"],
        )
        for _ in range(2):  # a repeated delivery gets the first receipt
            taken = await node.client(WEATHER).post("/interswarm/back", json={"message": done})
            assert taken.status_code == 200, taken.text
        assert (await asking)["response"] == answer
        task = await node.task("crossing")
        shown = [event["extra_data"]["full_message"] for event in events_of(task, "new_message")]
        theirs = [m for m in shown if m["message"]["sender"]["address"] == "wind@weather"]
        assert {m["message"]["recipient"]["address"] for m in theirs} == readers
        assert [m["msg_type"] for m in theirs] == ["response"] * len(readers)
        await until(lambda: nothing_left(node))  # nobody waits for an answer
