"""``kill -9`` while people answer held calls: each call runs exactly as it was answered, once.

The sample of the suite is small; ``APPROVALS_TASKS=20 APPROVALS_CALLS=5 APPROVALS_KILLS=3`` is the
whole (``APPROVALS_SEED`` chooses another order).
"""

import asyncio
import json
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail import Approval, MAILAction
from mail.api import MAILSwarmTemplate
from mail.llm import call
from mail.llm.script_view import ScriptView
from tests.e2e.evidence import report
from tests.e2e.processes import Place
from tests.support.swarm import scripted_agent

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TASKS = int(os.environ.get("APPROVALS_TASKS", "4"))
CALLS = int(os.environ.get("APPROVALS_CALLS", "4"))
KILLS = int(os.environ.get("APPROVALS_KILLS", "1"))
SEED = int(os.environ.get("APPROVALS_SEED", "15"))
_SECONDS = 60.0
SCHEMA = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "text": {"type": "string"}},
    "required": ["key", "text"],
}


def _agent(view: ScriptView) -> Any:
    if view.new_results:
        told = " | ".join(result.content for result in view.new_results)
        return call("task_complete", finish_message=told)
    keys = [f"{view.body}/{number}" for number in range(CALLS)]
    return [
        *(call("send", key=key, text="as it was") for key in keys),
        call("look", key=f"{view.body}/look", text="needs nobody"),
    ]


def swarm(folder: Path) -> MAILSwarmTemplate:
    """Return a swarm whose agent sends ``CALLS`` things, each of which a person must approve."""

    async def note(arguments: dict[str, Any]) -> str:
        line = json.dumps([arguments["key"], arguments["text"]]) + "\n"
        file = os.open(folder / "sink.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, line.encode())
        os.close(file)
        await asyncio.sleep(0.02)
        return f"sent {arguments['key']}"

    actions = [
        MAILAction("send", "Send.", SCHEMA, note, approval=Approval()),
        MAILAction("look", "Look.", SCHEMA, note),
    ]
    agent = scripted_agent("supervisor", _agent, actions=actions)
    return MAILSwarmTemplate(name="approvals", agents=[agent], entrypoint="supervisor")


@dataclass(eq=False)
class House(Place):
    """A server that is killed, what was answered, and what has run; its models are scripts."""

    provider_port: int = 0
    answered: dict[str, str] = field(default_factory=dict)
    lost: int = 0
    template: str = f"{__name__}:swarm"
    unknown: str = "outcome is unknown"

    def body(self, number: int) -> str:
        """Return the message that begins a task."""
        return f"t{number}"

    def key(self, args: dict[str, Any]) -> str:
        """Return what names a held call."""
        return str(args["key"])

    def edited(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return what a person makes of a call."""
        return {**args, "text": "edited"}

    def ran(self) -> Counter[tuple[str, str]]:
        """Return how often which held call has run, as (its key, its text)."""
        ran = Counter(self.sink())
        for number in range(TASKS):
            assert ran.pop((f"t{number}/look", "needs nobody")) == 1
        return ran

    async def start(self, kill: str = "", **options: Any) -> None:
        await super().start(kill, template=self.template, **options)

    async def answer(self, approval: dict[str, Any], kind: str) -> None:
        """Answer a call until the server says that it is answered."""
        request = approval["action_request"]
        key, args = self.key(request["args"]), None
        if kind == "edit":
            args = {**request, "args": self.edited(request["args"])}
        elif kind == "response":
            args = "rather not"
        self.answered[key] = kind
        path = f"/approvals/{approval['approval_id']}"
        async with asyncio.timeout(_SECONDS):
            while True:
                try:
                    async with self.client() as client:
                        done = await client.post(path, json={"type": kind, "args": args})
                except httpx.TransportError:
                    self.lost += 1
                    await asyncio.sleep(0.1)
                    continue
                if done.status_code == 503:
                    await asyncio.sleep(0.1)
                    continue
                # Closed already: the first attempt was stored, and its answer was lost.
                assert done.status_code in (200, 409), done.text
                return

    async def ended(self, task_id: str) -> dict[str, Any]:
        """Return a task when it has ended."""
        async with asyncio.timeout(_SECONDS), self.client() as client:
            while True:
                task = (await client.get(f"/tasks/{task_id}")).json()
                # Its events are read first: those of an end meanwhile are on another page.
                if task["status"] not in ("running", "paused") and task["next_after"] is None:
                    return dict(task)
                await asyncio.sleep(0.05)

    def sink(self) -> list[tuple[str, str]]:
        lines = (self.folder / "sink.jsonl").read_text().splitlines()
        return [tuple(json.loads(line)) for line in lines]


async def answer_all(house: House, dice: random.Random) -> None:
    """Answer the calls of all tasks in a random order; an ignored one is a task's last."""
    async with house.client() as client:
        for number in range(TASKS):
            body = {"body": house.body(number), "task_id": f"t{number}"}
            made = await client.post("/message", json=body)
            assert made.json()["status"] == "paused", made.text
        found: list[dict[str, Any]] = []
        cursor = None
        while True:
            query = {"limit": "200"} | ({"cursor": cursor} if cursor else {})
            page = (await client.get("/approvals", params=query)).json()
            found += page["approvals"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
    assert len(found) == TASKS * CALLS
    dice.shuffle(found)
    left = Counter(each["task_id"] for each in found)
    kills = sorted(dice.sample(range(1, len(found)), KILLS))
    work: set[asyncio.Task[None]] = set()
    for number, approval in enumerate(found):
        last = left[approval["task_id"]] == 1
        left[approval["task_id"]] -= 1
        if last:  # whatever else of its task is under way must be stored before
            await asyncio.gather(*work)
            work.clear()
        kind = dice.choice(("accept", "edit", "response", *(["ignore"] if last else [])))
        work.add(asyncio.create_task(house.answer(approval, kind)))
        await asyncio.sleep(dice.choice((0, 0, 0.01, 0.03)))
        if number in kills:
            await house.kill()
            await house.start()
    await asyncio.gather(*work)


async def whole(house: House, seed: int) -> None:
    """Do it all, and compare."""
    await house.make_tokens()
    await house.start()
    try:
        await answer_all(house, random.Random(seed))
        unknown = 0
        for number in range(TASKS):
            task = await house.ended(f"t{number}")
            assert task["status"] == "completed"
            results = [json.loads(event["data"]) for event in task["events"]]
            cut = [
                each for each in results if house.unknown in str(each["extra_data"].get("result"))
            ]
            unknown += len(cut)
            for each in cut:  # it may have run before the crash, or not
                house.answered.pop(house.key(args_of(results, each)), None)
        check(house, unknown)
    finally:
        house.clean_up()
    report(
        f"seed {seed}: {TASKS * CALLS} approvals in {TASKS} tasks, {KILLS} kills, "
        f"{house.lost} requests lost their answers, {unknown} outcomes unknown"
    )


def args_of(events: list[dict[str, Any]], result: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the call that has a result."""
    call_id = result["extra_data"]["tool_call_id"]
    found = [
        each["extra_data"]["tool_args"]
        for each in events
        if each["extra_data"].get("tool_call_id") == call_id and "tool_args" in each["extra_data"]
    ]
    return dict(found[0])


def check(house: House, unknown: int) -> None:
    """Compare what ran with what was answered."""
    ran = house.ran()
    assert max(ran.values(), default=1) == 1, [key for key, times in ran.items() if times > 1]
    texts = dict(ran.keys())
    told = {"accept": "as it was", "edit": "edited"}
    wrong = {
        key: (kind, texts.get(key))
        for key, kind in house.answered.items()
        if texts.get(key) != told.get(kind)
    }
    assert wrong == {}
    assert len(texts) <= sum(kind in told for kind in house.answered.values()) + unknown


async def test_each_call_runs_exactly_as_answered_once(tmp_path: Path, database: str) -> None:
    await whole(House(tmp_path, dsn=database), SEED)
