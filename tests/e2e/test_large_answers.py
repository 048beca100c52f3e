"""A real server that has much to tell keeps little of it in memory, whoever reads, or does not."""

import asyncio
import json
import re
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mail.client import MAILClient
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.records import EventRow, Owner, TaskRow
from mail.db.urls import open_store
from tests.e2e.processes import TOKENS, Place, bearer
from tests.e2e.swarm import SWARM
from tests.server.kit import frames

pytestmark = pytest.mark.e2e

ALICE = Owner(SWARM, "user", "alice")
NOW = "2026-01-01T00:00:00+00:00"
MB = 1024 * 1024
BODY = 4 * MB
EVENTS = 5


def message(task_id: str, size: int) -> EventRow:
    """Return the event of a message whose body has so many characters."""
    sender = {"address_type": "user", "address": "alice"}
    recipient = {"address_type": "agent", "address": "supervisor"}
    body = {"task_id": task_id, "request_id": "r", "sender": sender, "recipient": recipient}
    body |= {"subject": "s", "body": "x" * size, "sender_swarm": None, "recipient_swarm": None}
    whole = {"id": "m", "timestamp": NOW, "message": body, "msg_type": "request"}
    return EventRow("new_message", NOW, extra=json.dumps({"full_message": whole}))


async def seed(place: Place) -> None:
    """Store 20 tasks with a large event each, and one with many of them."""
    store = open_store(place.store_url)
    await store.open()
    done = TaskRow("", str(ALICE), (str(ALICE),), NOW, "supervisor", TaskState.COMPLETED)
    for number in range(20):
        task = done._replace(task_id=f"t-{number}")
        events = (message(task.task_id, BODY),)
        await store.commit(Commit(owner=ALICE, task=task, new=True, events=events))
    task = done._replace(task_id="long")
    for number in range(EVENTS):
        events = (message("long", BODY),)
        await store.commit(Commit(owner=ALICE, task=task, new=not number, events=events))
    await store.commit(Commit(owner=ALICE, task=task, events=(message("long", 10),) * 2000))
    task, events = done._replace(task_id="short"), (message("short", 10),)
    await store.commit(Commit(owner=ALICE, task=task, new=True, events=events))
    await store.close()


class Memory:
    """The resident memory of a server, and the most it was since it was looked at last."""

    def __init__(self, place: Place) -> None:
        assert place.process is not None
        self._proc = Path(f"/proc/{place.process.pid}")
        self.before = self._read("VmRSS")
        (self._proc / "clear_refs").write_text("5")

    @property
    def peak(self) -> int:
        """Return by how many bytes it grew at most."""
        return self._read("VmHWM") - self.before

    def _read(self, name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", (self._proc / "status").read_text())
        assert found is not None
        return int(found[1]) * 1024


@pytest.fixture
async def full(place: Place) -> Place:
    """A server whose store is full, which has done each kind of thing, and filled its caches."""
    await seed(place)
    await place.start(send_seconds=3.0)  # before, a fifth reader has no place
    async with place.client() as client:
        for path in ("/tasks?limit=1", "/tasks/short", "/tasks/short/events"):
            assert (await client.get(path)).status_code == 200
        for number in range(8):
            assert (await client.get(f"/tasks/t-{number}")).status_code == 200
    return place


async def test_lists_are_small_and_four_readers_that_do_not_read_cost_what_they_read(
    full: Place,
) -> None:
    memory = Memory(full)
    async with full.client() as client:
        answer = await client.get("/tasks?events=false")
        summary = (await client.post("/tasks/long/cancel")).json()
    tasks = answer.json()
    assert len(tasks) == 22
    assert all(task["events"] == [] for task in tasks.values())
    assert {task["event_count"] for task in tasks.values()} == {1, EVENTS + 2000}
    assert len(answer.content) < 30_000
    assert (summary["events"], summary["event_count"]) == ([], EVENTS + 2000)
    assert memory.peak < 8 * MB
    await stall(full)


async def stall(full: Place) -> None:
    """Let four readers ask for large events and read none, and a fifth one read.

    An event has its message twice: 8 MiB here, four times what the server takes by default.
    """
    memory = Memory(full)
    with ExitStack() as stack:
        for path in ("/tasks/long/events", "/tasks/long/events", "/tasks/long", "/tasks/long"):
            stalled = stack.enter_context(socket.create_connection(("127.0.0.1", full.port)))
            token = bearer("alice")["Authorization"]
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n"
            stalled.sendall(request.encode())
            assert await asyncio.to_thread(stalled.recv, 1000)
        async with full.client() as client:  # another answer, though nobody reads those
            assert (await client.get("/tasks/short")).json()["events"]
            replay = frames((await client.get("/tasks/t-1/events")).text)
        assert len(replay) == 1
        assert memory.peak < 80 * MB


async def test_a_task_is_read_in_pages_and_the_client_reads_them_all(full: Place) -> None:
    memory = Memory(full)
    pages: list[dict[str, Any]] = []
    async with full.client() as client:
        after: int | None = 0
        while after is not None:
            pages.append((await client.get("/tasks/long", params={"after": after})).json())
            after = pages[-1]["next_after"]
        few = (
            await client.get("/task", params={"task_id": "long", "limit": 3, "after": 20})
        ).json()
    assert memory.peak < 32 * MB
    assert [len(page["events"]) for page in pages] == [1] * EVENTS + [1000, 1000]
    numbers = [int(event["id"]) for page in pages for event in page["events"]]
    assert numbers == list(range(1, EVENTS + 2001))
    assert [event["id"] for event in few["events"]] == ["21", "22", "23"]
    assert few["next_after"] == 23
    async with MAILClient(full.url, TOKENS["alice"][1]) as whole:
        task = await whole.get_task("long")
    assert task["events"] == [event for page in pages for event in page["events"]]
    assert task["next_after"] is None
    body = json.loads(task["events"][0]["data"])
    assert body["extra_data"]["full_message"]["message"]["body"] == "x" * BODY
    assert body["description"].count("x") == BODY
