"""A library program and servers that work on tasks together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mail import MAILSwarm
from mail.core.interswarm import PEER_ROLE
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.net import SwarmRegistry
from tests.api.federated import Door, template
from tests.federation.harbour import WEATHER, harbour, weather
from tests.federation.kit import Node, register, started, token_of
from tests.spec.kit import Part, done, request, response
from tests.support.waiting import until

LIBRARY = "boat"


@asynccontextmanager
async def _program(
    node: Node, folder: Path, agent: Part, *targets: str, **options: Any
) -> AsyncIterator[MAILSwarm]:
    """Run a library swarm that knows a server, and is known to it."""
    door = Door(LIBRARY)
    await door.open()
    registry = SwarmRegistry(LIBRARY, door.url, str(folder / "boat.json"))
    made = template(LIBRARY, {"skipper": agent}, *targets)
    swarm = made.instantiate({}, "ines", swarm_registry=registry, **options)
    door.swarms = [swarm]
    door.tokens = {token_of(node.name, LIBRARY): node.name}
    await registry.register_swarm(node.name, node.url, token_of(LIBRARY, node.name))
    await register(node, Node(LIBRARY, node.app, door, node.store))  # type: ignore[arg-type]
    try:
        yield swarm
    finally:
        await swarm.shutdown(grace=1)
        await door.close()


async def test_a_library_program_asks_a_server(tmp_path: Path) -> None:
    skipper = Part([request(f"wind@{WEATHER}", "How strong?")], [done("Well.")])
    async with (
        started(weather(), [LIBRARY]) as node,
        _program(node, tmp_path, skipper, f"wind@{WEATHER}") as swarm,
    ):
        answer, _ = await swarm.post_message("How is the wind?", timeout=20)
        assert answer["message"]["body"] == "Well."
        assert skipper.read[-1] == "How strong?, heard"
        guest = Owner(WEATHER, PEER_ROLE, LIBRARY)
        task_id = answer["message"]["task_id"]

        async def ended() -> bool:
            row = await node.store.load_task(guest, task_id)
            return row is not None and row.state == "completed"

        await until(ended)


async def test_a_server_asks_a_library_program(tmp_path: Path) -> None:
    skipper, store = Part([response("dispatcher@harbour", "Four knots.")]), MemoryStore()
    async with (
        started(harbour(), [LIBRARY]) as node,
        _program(node, tmp_path, skipper, store=store) as swarm,
    ):
        answer = await node.ask(f"ask skipper@{LIBRARY}: How strong?")
        assert answer["response"] == f"skipper@{LIBRARY} says: Four knots."
        [row] = await store.list_tasks(Owner(LIBRARY, PEER_ROLE, "harbour"))
        assert row.task_owner == "user:ines@harbour"
        await until(lambda: swarm.idle)


async def test_a_broadcast_of_a_library_program_reaches_those_who_take_mail(
    tmp_path: Path,
) -> None:
    news = {"subject": "News", "body": "The gate closes at noon."}
    skipper = Part([("send_interswarm_broadcast", news), done("Told.")])
    async with (
        started(weather(), [LIBRARY]) as node,
        _program(node, tmp_path, skipper) as swarm,
    ):
        answer, _ = await swarm.post_message("Tell them.", timeout=20)
        assert answer["message"]["body"] == "Told."
        guest = Owner(WEATHER, PEER_ROLE, LIBRARY)

        async def over() -> Any:
            rows = await node.store.list_tasks(guest)
            return [row.task_id for row in rows if row.state == "completed"]

        [task_id] = await until(over)
        events = await node.store.events(guest, task_id, 0, 200, 1_000_000)
        callers = {event.extra["caller"] for event in events if event.kind == "tool_call"}
        assert callers == {"chief", "wind"}  # and not the cellar
