"""The served swarm: a lead and two workers over LiteLLM, with actions that leave traces."""

import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from mail.api import MAILAction, MAILAgentTemplate, MAILSwarmTemplate
from tests.e2e.script import WORKERS

SWARM = "e2e"


class Job(BaseModel):
    """What to note."""

    job: str


class Look(BaseModel):
    """Whose notes to count."""

    job: str
    worker: str


class Question(BaseModel):
    """What to ask a person."""

    question: str


class Traces:
    """A file with one line per run of an action.

    An action then takes ``pause`` seconds, and waits while its gate is closed.
    """

    def __init__(self, folder: Path, pause: float) -> None:
        self._file = folder / "actions.jsonl"
        self._gates = folder / "gates"
        self._pause = pause

    async def run(self, action: str, job: str) -> None:
        """Leave a trace, then wait."""
        with self._file.open("a") as file:
            line = {"action": action, "job": job, "at": time.time(), "process": os.getpid()}
            file.write(json.dumps(line) + "\n")
        await asyncio.sleep(self._pause)
        while (self._gates / f"action-{action}").exists():
            await asyncio.sleep(0.01)

    def count(self, action: str, job: str) -> int:
        """Return how often an action ran for a job."""
        return runs(self._file).count((action, job))


def runs(file: Path) -> list[tuple[str, str]]:
    """Return (action, job) of every run so far."""
    if not file.exists():
        return []
    lines = map(json.loads, file.read_text().splitlines())
    return [(line["action"], line["job"]) for line in lines]


def make_template(
    folder: Path,
    *,
    limit: int | None = None,
    pause: float = 0.0,
    use_proxy: bool = False,
    participants: Sequence[str] = (),
) -> MAILSwarmTemplate:
    """Return the swarm; ``limit`` is its task_message_limit, ``pause`` how long actions take."""
    traces = Traces(folder, pause)
    look = make_look(traces)
    agents = [make_agent("lead", WORKERS, [], leads=True, use_proxy=use_proxy)]
    agents += [
        make_agent(
            name, ["lead"], [look, make_note(traces, name), make_ask(traces)], use_proxy=use_proxy
        )
        for name in WORKERS
    ]
    return MAILSwarmTemplate(
        SWARM,
        agents=agents,
        entrypoint="lead",
        task_message_limit=limit,
        breakpoint_tools=["ask_person"],
        participants=[{"name": name, "description": ""} for name in participants],
    )


def make_agent(
    name: str,
    targets: "list[str] | tuple[str, ...]",
    actions: list[MAILAction],
    *,
    leads: bool = False,
    use_proxy: bool,
) -> MAILAgentTemplate:
    kind = "supervisor:LiteLLMSupervisorFunction" if leads else "action:LiteLLMActionAgentFunction"
    return MAILAgentTemplate(
        name,
        factory=f"mail.factories.{kind}",
        comm_targets=list(targets),
        actions=actions,
        agent_params={
            "llm": "openai/gpt-4.1-mini",
            "system": f"Your name is {name}.",
            "use_proxy": use_proxy,
        },
        enable_entrypoint=leads,
        can_complete_tasks=leads,
    )


def make_note(traces: Traces, name: str) -> MAILAction:
    action = f"note_{name}"

    async def note(values: dict[str, str]) -> str:
        await traces.run(action, values["job"])
        return f"{traces.count(action, values['job'])} lines"

    return MAILAction.from_pydantic_model(Job, note, action, "Add a line to the notes.")


def make_ask(traces: Traces) -> MAILAction:
    async def ask(values: dict[str, str]) -> str:
        await traces.run("ask_person", values["question"])
        return "run although it is a breakpoint"

    return MAILAction.from_pydantic_model(Question, ask, "ask_person", "Ask a person.")


def make_look(traces: Traces) -> MAILAction:
    async def look(values: dict[str, str]) -> str:
        await traces.run("look", values["job"])
        return f"{traces.count('note_' + values['worker'], values['job'])} lines"

    return MAILAction.from_pydantic_model(
        Look, look, "look", "Count a worker's notes.", idempotent=True
    )
