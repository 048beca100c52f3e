"""``kill -9`` anywhere in a task: the next server finishes it by itself, with the same answer.

SQLite, LiteLLM and a provider in a process of its own. A journaled reply is never asked for again,
an action that is not idempotent runs at most once, and a stream goes on where it broke.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import httpx
import pytest

from mail.client import MAILClient
from mail.config import ClientConfig
from mail.net.sse import SSEParser
from tests.e2e.evidence import report
from tests.e2e.processes import TOKENS, Place
from tests.e2e.script import WORKERS

pytestmark = pytest.mark.e2e

JOB = "count the birches"
TASK = "birches/1"
ANSWER = f"{JOB}: north has 1 lines; south has 1 lines"
STEPS = 7
"""Messages that an undisturbed run processes; the server's limit, so that none counts twice."""
UNKNOWN = "outcome is unknown"


@dataclass(frozen=True)
class Case:
    """A kill: at a commit, or by hand once ``gate`` holds something up.

    ``lost`` are the model calls that are in flight then (and are repeated), ``unknown`` whether an
    agent is told that an action's outcome is, ``looks`` how often the idempotent action runs.
    """

    name: str
    kill: str = ""
    gate: str = ""
    lost: int = 0
    unknown: bool = False
    looks: int = 2
    limit: int = STEPS


CASES = [
    Case("before the task is accepted", kill="before accept"),
    Case("after the task is accepted", kill="after accept"),
    Case("in the first model call", gate="model-lead", lost=1),
    Case("in a worker's model call", gate="model-north", lost=1),
    Case("before the first turn's commit", kill="before turn lead", lost=1),
    Case("after the first turn's commit", kill="after turn lead"),
    Case("before a reply is journaled", kill="before reply north", lost=1),
    Case("after a reply is journaled", kill="after reply north"),
    Case("in an idempotent action", gate="action-look", looks=4),
    Case("between two calls", kill="before action north", looks=3),
    # The agent is told, looks, sees that nothing was noted, and notes: three turns more.
    Case("before an action begins", kill="after action north", unknown=True, looks=3, limit=9),
    Case("in an action", gate="action-note_north", unknown=True, looks=3, limit=8),
    Case("before a turn's commit", kill="before turn north", unknown=True, looks=3, limit=8),
    Case("after a turn's commit", kill="after turn north"),
    Case("before the last commit", kill="before end", lost=1),
    Case("after the last commit", kill="after end"),
]


@dataclass
class Reader:
    """A client's view of a task's stream."""

    ids: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    async def read(self, answer: httpx.Response) -> None:
        """Read until the stream ends or breaks."""
        assert answer.status_code == 200
        parser = SSEParser()
        async for chunk in answer.aiter_bytes():
            for event in parser.feed(chunk):
                if event.id is not None:
                    self.ids.append(int(event.id))
                    self.kinds.append(event.event or "")

    def check_whole(self) -> None:
        """Check that every event came once, in order, and the last one last."""
        assert self.ids == list(range(1, len(self.ids) + 1))
        assert self.kinds[-1] == "task_complete"


async def post(place: Place, reader: Reader) -> None:
    """Post the task as a stream and read what comes before the connection breaks."""
    body = {"body": JOB, "task_id": TASK, "stream": True}
    with suppress(httpx.TransportError):
        async with place.client() as client, client.stream("POST", "/message", json=body) as answer:
            await reader.read(answer)


async def resume(place: Place, reader: Reader) -> None:
    """Read the rest of a task's events."""
    after = {"Last-Event-ID": str(reader.ids[-1])} if reader.ids else {}
    url = f"/tasks/{TASK}/events"
    async with place.client() as client, client.stream("GET", url, headers=after) as answer:
        await reader.read(answer)


async def held(place: Place, gate: str) -> None:
    """Wait until the closed gate holds all up that come to it, and nobody else has mail."""
    kind, _, name = gate.partition("-")
    who = list(WORKERS) if name == "look" else [name.removeprefix("note_")]
    async with asyncio.timeout(30):
        while not (stands_at(place, kind, name, len(who)) and place.evidence.waiting() == who):
            await asyncio.sleep(0.02)


def stands_at(place: Place, kind: str, name: str, count: int) -> bool:
    if kind == "model":
        systems = [request["system"] for request in place.evidence.requests()]
        return sum(f"Your name is {name}." in system for system in systems) >= count
    return place.evidence.runs()[(name, JOB)] >= count


async def completed(place: Place) -> None:
    """Wait until no task is running, without asking the server for anything."""
    async with asyncio.timeout(40):
        while place.evidence.open_tasks():
            await asyncio.sleep(0.02)


async def killed(place: Place, case: Case, reader: Reader) -> None:
    """Run the task into the kill; at one of north's commits south has done its work."""
    gate = case.gate or ("model-north" if case.kill.endswith("north") else "")
    if gate:
        place.close_gate(gate)
    await place.start(case.kill, limit=case.limit)
    posting = asyncio.create_task(post(place, reader))
    if gate:
        await held(place, gate)
    if case.gate:
        await place.kill()
    if gate:
        place.open_gate(gate)
    await place.died()
    await posting


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
async def test_a_kill_changes_nothing_but_the_time(
    either_place: Place, database: str, case: Case
) -> None:
    place, reader = either_place, Reader()
    await killed(place, case, reader)
    kill = await place.evidence.note_kill()
    assert len(kill.lost) == case.lost
    await place.start(limit=case.limit)
    async with place.client() as client:
        if case.kill == "before accept":
            assert (await client.get("/tasks")).json() == {}
            assert not kill.asked
            await post(place, reader)
        await completed(place)
        task = (await client.get("/task", params={"task_id": TASK})).json()
    check_task(place, task)
    check_actions(place, case)
    place.evidence.check_calls()
    assert place.evidence.repeats() <= case.lost
    await resume(place, reader)
    reader.check_whole()
    assert [int(event["id"]) for event in task["events"]] == reader.ids
    assert "Traceback" not in place.log
    assert bool(list(place.folder.glob("mail.db*"))) is not bool(database)
    report(f"kills 1, in flight {len(kill.lost)}, repeats {place.evidence.repeats()}")


def check_task(place: Place, task: dict[str, object]) -> None:
    """Check that a task came to the undisturbed run's end."""
    assert task["completed"] and not task["is_running"]
    last = task["events"][-1]  # type: ignore[index]
    assert json.loads(last["data"])["response"] == ANSWER
    place.evidence.check_log(TASK)


def check_actions(place: Place, case: Case) -> None:
    """Check how often actions ran, and that an agent knows when that is not known."""
    runs = place.evidence.runs()
    assert [runs[(f"note_{worker}", JOB)] for worker in WORKERS] == [1, 1]
    assert runs[("look", JOB)] == case.looks
    told = [UNKNOWN in str(place.evidence.history(TASK, worker)) for worker in WORKERS]
    assert told == [case.unknown, False]


async def test_an_undisturbed_run_has_the_same_answer(place: Place) -> None:
    reader = Reader()
    await place.start(limit=STEPS)
    await post(place, reader)
    reader.check_whole()
    async with place.client() as client:
        task = (await client.get("/task", params={"task_id": TASK})).json()
    check_task(place, task)
    check_actions(place, Case("none"))
    assert place.evidence.repeats() == 0
    assert len(place.evidence.requests()) == STEPS


@pytest.mark.parametrize("case", [CASES[3], CASES[13]], ids=lambda case: case.name)
async def test_a_client_that_was_streaming_gets_the_rest(place: Place, case: Case) -> None:
    place.close_gate("model-north")
    await place.start(case.kill)
    config = ClientConfig(timeout=20.0, verbose=False)
    async with MAILClient(place.url, TOKENS["alice"][1], config=config) as client:
        stream = await client.post_message_stream(JOB, task_id=TASK)
        reading = asyncio.create_task(gather(stream))
        await held(place, "model-north")
        if case.gate:
            await place.kill()
        place.open_gate("model-north")
        await place.died()
        await place.evidence.note_kill()
        await place.start()
        events = await reading
    numbers = [int(number) for number, _ in events if number is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    assert json.loads(events[-1][1])["response"] == ANSWER
    place.evidence.check_calls()
    place.evidence.check_log(TASK)


async def gather(stream: AsyncIterator[object]) -> list[tuple[str | None, str]]:
    """Return (id, data) of every event."""
    return [(event.id, str(event.data)) async for event in stream]  # type: ignore[attr-defined]
