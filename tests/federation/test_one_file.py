"""Two real servers in one folder, as the README starts them, killed at random moments.

They share one SQLite file and one set of tokens, and work on each other's tasks. Every question is
answered, and no request or answer between the swarms is seen twice.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail.auth.callers import hash_token
from scripts.ports import free_port
from tests.server.kit import know

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(170)]

ROOT = Path(__file__).parents[2]
SWARMS = ("swarm-alpha", "swarm-beta")
REMOTE = {"swarm-alpha": "math@swarm-beta", "swarm-beta": "weather@swarm-alpha"}
CALLERS = {"root": "admin", "ines": "user", "swarm-alpha": "agent", "swarm-beta": "agent"}
SETTINGS = """
[server]
host = "127.0.0.1"
[server.settings]
print_llm_streams = false
"""
TASKS, KILLS = 12, 4
PATIENCE = 60.0


def token_of(who: str) -> str:
    return f"mail_{who}-{'0' * 32}"


@dataclass
class Folder:
    """The folder, and the servers that run in it."""

    path: Path
    ports: Mapping[str, int] = field(default_factory=lambda: {s: free_port() for s in SWARMS})
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def settle(self) -> None:
        """Write the settings, and make everybody's token."""
        shutil.copy(ROOT / "swarms.json", self.path)
        (self.path / "mail.toml").write_text(SETTINGS, encoding="utf-8")
        people = [(token_of(who), role, who) for who, role in CALLERS.items()]
        await know(f"sqlite:///{self.path / 'mail.db'}", *people)

    async def start(self, swarm: str) -> None:
        """Start a swarm's server, and wait until it answers."""
        other = SWARMS[1 - SWARMS.index(swarm)]
        variable = f"SWARM_AUTH_TOKEN_{other.upper().replace('-', '_')}"
        command = (sys.executable, "-m", "mail.cli", "server", "--port", str(self.ports[swarm]))
        flags = ("--swarm-name", swarm, "--swarm-registry", f"registries/{swarm}.json")
        with (self.path / f"{swarm}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, *flags, cwd=self.path, stdout=log, stderr=log,
                env={**os.environ, variable: token_of(swarm)},
            )  # fmt: skip
        self.running[swarm] = process
        async with asyncio.timeout(PATIENCE), self.client(swarm) as client:
            while True:
                assert process.returncode is None, self.log(swarm)
                try:
                    await client.get("/health")
                except httpx.TransportError:
                    await asyncio.sleep(0.02)
                else:
                    return

    async def kill(self, swarm: str) -> None:
        """Kill a server with SIGKILL."""
        process = self.running.pop(swarm)
        process.kill()
        assert await process.wait() == -signal.SIGKILL, self.log(swarm)

    def client(self, swarm: str, who: str = "ines") -> httpx.AsyncClient:
        """Return somebody's client of a swarm's server."""
        headers = {"Authorization": f"Bearer {token_of(who)}"}
        url = f"http://127.0.0.1:{self.ports[swarm]}"
        return httpx.AsyncClient(base_url=url, headers=headers, timeout=20)

    def log(self, swarm: str) -> str:
        return (self.path / f"{swarm}.log").read_text(encoding="utf-8", errors="replace")


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    """Both servers, which know each other for good."""
    made = Folder(tmp_path)
    await made.settle()
    try:
        await asyncio.gather(*map(made.start, SWARMS))
        for swarm, other in (SWARMS, SWARMS[::-1]):
            about = {"name": other, "base_url": f"http://localhost:{made.ports[other]}"}
            async with made.client(swarm, "root") as client:
                answer = await client.post("/swarms", json={**about, "volatile": False})
                assert answer.status_code == 200, answer.text
        yield made
    finally:
        for process in made.running.values():
            process.kill()
            await process.wait()


def question(number: int) -> tuple[str, str]:
    """Return a question that takes both swarms, and what its answer must have."""
    left, right = 11 + number, 23 + number
    sum_ = f"{left} * {right}"
    return f"What will the weather be in Paris tomorrow, and what is {sum_}?", (
        f"{sum_} = {left * right}."
    )


async def ask(folder: Folder, swarm: str, number: int) -> None:
    """Hand in a question, again until the server has it."""
    body, _ = question(number)
    message = {"body": body, "task_id": f"{swarm}-{number}"}
    headers = {"Prefer": "respond-async", "Idempotency-Key": message["task_id"]}
    async with folder.client(swarm) as client:
        while True:
            try:
                answer = await client.post("/message", json=message, headers=headers)
            except httpx.TransportError:
                await asyncio.sleep(0.05)
                continue
            assert answer.status_code in (200, 202, 503), answer.text
            if answer.status_code != 503:
                return
            await asyncio.sleep(0.05)


async def finished(folder: Folder, swarm: str, number: int) -> dict[str, Any]:
    """Return a task when it is complete, with all of its events."""
    async with folder.client(swarm) as client:
        while True:
            answer = await client.get(f"/tasks/{swarm}-{number}")
            assert answer.status_code == 200, answer.text
            task: dict[str, Any] = answer.json()
            # Its events are read first: those of an end meanwhile are on another page.
            if task["status"] not in ("running", "queued") and task["next_after"] is None:
                return task
            await asyncio.sleep(0.1)


def answer_of(task: Mapping[str, Any]) -> str:
    """Return the text that the task's caller got."""
    [end] = [event for event in task["events"] if event["event"] == "task_complete"]
    return str(json.loads(end["data"])["response"])


def mail_between(task: Mapping[str, Any], swarm: str) -> list[tuple[str, str]]:
    """Return from whom to whom the mail with the other swarm's worker went."""
    found = []
    for event in task["events"]:
        if event["event"] != "new_message":
            continue
        message = json.loads(event["data"])["extra_data"]["full_message"]["message"]
        if message["subject"].startswith("::"):
            continue
        people = (message["sender"]["address"], message.get("recipient", {}).get("address", ""))
        if REMOTE[swarm] in people:
            found.append(people)
    return found


async def test_both_are_killed_again_and_again_and_every_question_is_answered_once(
    folder: Folder,
) -> None:
    dice = random.Random(13)
    asking = [ask(folder, swarm, number) for number in range(TASKS) for swarm in SWARMS]
    asked = asyncio.gather(*asking)
    for turn in range(KILLS):
        await asyncio.sleep(dice.uniform(0.05, 0.6))
        swarm = SWARMS[turn % 2]
        await folder.kill(swarm)
        await folder.start(swarm)
    async with asyncio.timeout(PATIENCE):
        await asked
        for swarm in SWARMS:
            for number in range(TASKS):
                task = await finished(folder, swarm, number)
                assert task["status"] == "completed", task
                assert question(number)[1] in answer_of(task)
                there = ("supervisor", REMOTE[swarm])
                assert mail_between(task, swarm) == [there, there[::-1]], task["events"]


async def test_one_server_is_nothing_to_the_other_swarms_own_tasks(folder: Folder) -> None:
    """While beta is away, alpha's own work goes on, and what beta must do waits for it."""
    await folder.kill("swarm-beta")
    async with folder.client("swarm-alpha") as client:
        alone = await client.post("/message", json={"body": "What will the weather be in Oslo?"})
        assert alone.status_code == 200
        assert "Oslo" in alone.json()["response"]
    await ask(folder, "swarm-alpha", 1)
    await asyncio.sleep(1.0)
    await folder.start("swarm-beta")
    async with asyncio.timeout(PATIENCE):
        task = await finished(folder, "swarm-alpha", 1)
    assert task["status"] == "completed"
    assert question(1)[1] in answer_of(task)


async def test_a_second_server_is_refused_and_a_revoked_token_is_revoked_on_both(
    folder: Folder,
) -> None:
    code, output = await mail(
        folder,
        *("server", "--port", str(free_port()), "--swarm-name", "swarm-beta"),
        *("--swarm-registry", "registries/another.json"),
    )
    assert code == 1
    first = folder.running["swarm-beta"].pid
    assert f"in use by the process with pid {first}; stop it" in output
    await ask(folder, "swarm-alpha", 2)
    async with asyncio.timeout(PATIENCE):
        assert (await finished(folder, "swarm-alpha", 2))["status"] == "completed"
    clients = [folder.client(swarm, "root") for swarm in SWARMS]
    assert [(await client.get("/whoami")).status_code for client in clients] == [200, 200]
    assert (await mail(folder, "token", "revoke", hash_token(token_of("root"))))[0] == 0
    assert [(await client.get("/whoami")).status_code for client in clients] == [401, 401]
    for client in clients:
        await client.aclose()


async def mail(folder: Folder, *arguments: str) -> tuple[int, str]:
    """Run a command in the folder; return its exit code and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mail.cli", *arguments),
        cwd=folder.path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
