"""``kill -9`` while two agents of a task are paused, and around their resumes.

Each result is used once, by the agent that asked for it, whatever the order; the task completes.
"""

import json
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.e2e.evidence import report
from tests.e2e.processes import Place
from tests.e2e.script import WORKERS

pytestmark = pytest.mark.e2e

JOB = "ask the neighbours"
TASK = "neighbours/1"
RESULTS = {"north": "North says yes", "south": {"South": ["says", "no"]}}
HEARD = {"north": "North says yes", "south": '{"South": ["says", "no"]}'}
ANSWER = f"{JOB}: north has {HEARD['north']}; south has {HEARD['south']}"


async def pause(place: Place) -> dict[str, str]:
    """Start the task; return the open call of each worker."""
    async with place.client() as client:
        answer = await client.post("/message", json={"body": JOB, "task_id": TASK})
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "paused"
    return calls_of(answer.json())


def calls_of(answer: dict[str, Any]) -> dict[str, str]:
    """Return who asks under which call id."""
    questions = {
        json.loads(call["arguments"])["question"]: call["call_id"] for call in answer["breakpoints"]
    }
    return {question.split(":")[0]: call_id for question, call_id in questions.items()}


async def resume(place: Place, call_id: str, content: object) -> httpx.Response:
    """Give one call its result."""
    body = {
        "task_id": TASK,
        "resume_from": "breakpoint_tool_call",
        "kwargs": {"breakpoint_tool_call_result": {"call_id": call_id, "content": content}},
    }
    async with place.client() as client:
        return await client.post("/message", json=body)


async def task_of(place: Place) -> dict[str, Any]:
    """Return the task as the server shows it."""
    async with place.client() as client:
        return (await client.get("/task", params={"task_id": TASK})).json()  # type: ignore[no-any-return]


async def restarted(place: Place, kill: str = "") -> None:
    """Kill the server, note how things stand, and start the next one."""
    await place.kill()
    kill_seen = await place.evidence.note_kill()
    assert not kill_seen.lost
    await place.start(kill)


def check_end(place: Place, calls: dict[str, str]) -> None:
    """Check that each result is in one history, once, and that nothing else happened twice."""
    for agent in ("lead", *WORKERS):
        history = place.evidence.history(TASK, agent)
        made = [entry["call_id"] for entry in history if entry.get("type") == "function_call"]
        given = [e["call_id"] for e in history if e.get("type") == "function_call_output"]
        assert sorted(made) == sorted(given) and len(made) == len(set(made))
        for worker, call_id in calls.items():
            outputs = [e["output"] for e in history if e.get("call_id") == call_id if "output" in e]
            assert outputs == ([HEARD[worker]] if worker == agent else [])
    events = place.evidence.events(TASK)
    assert [seq for seq, _, _ in events] == list(range(1, len(events) + 1))
    used = [extra["tool_call_id"] for _, kind, extra in events if "breakpoint_action" in kind]
    assert sorted(used) == sorted(calls.values())
    assert events[-1][1] == "task_complete" and events[-1][2]["response"] == ANSWER
    assert not place.evidence.runs()  # a breakpoint's own code never runs
    assert place.evidence.repeats() == 0
    place.evidence.check_calls()
    assert "Traceback" not in place.log


@pytest.mark.parametrize("order", [("south", "north"), ("north", "south")], ids="-".join)
async def test_two_paused_agents_survive_kills_and_are_resumed_in_either_order(
    place: Place, order: tuple[str, str]
) -> None:
    first, second = order
    await place.start()
    calls = await pause(place)
    assert set(calls) == set(WORKERS)
    await restarted(place)
    assert calls_of(await task_of(place)) == calls
    half = await resume(place, calls[first], RESULTS[first])
    assert (half.status_code, half.json()["status"]) == (200, "paused")
    assert calls_of(half.json()) == {second: calls[second]}
    await restarted(place)
    again = await resume(place, calls[first], "something else")
    assert again.status_code == 409 and calls[second] in again.json()["detail"]
    wrong = await resume(place, "nobody's", "x")
    assert wrong.status_code == 400 and calls[second] in wrong.json()["detail"]
    whole = await resume(place, calls[second], RESULTS[second])
    assert (whole.status_code, whole.json()["response"]) == (200, ANSWER)
    assert (await resume(place, calls[second], "late")).status_code == 409
    check_end(place, calls)
    report(f"kills 2, model calls {len(place.evidence.requests())}, repeats 0")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_kill_around_a_resume_gives_the_result_once(place: Place, when: str) -> None:
    await place.start()
    calls = await pause(place)
    await restarted(place, f"{when} resume south")
    with suppress(httpx.TransportError):
        await resume(place, calls["south"], RESULTS["south"])
    await place.died()
    await place.evidence.note_kill()
    await place.start()
    repeated = await resume(place, calls["south"], RESULTS["south"])
    assert repeated.status_code == (200 if when == "before" else 409)
    whole = await resume(place, calls["north"], RESULTS["north"])
    assert (whole.status_code, whole.json()["response"]) == (200, ANSWER)
    check_end(place, calls)
    report(f"kills 2, model calls {len(place.evidence.requests())}, repeats 0")
