"""What administrators see of another swarm's tasks, and how they stop them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mail.cli.commands import main
from mail.client import MAILClient
from mail.config import ClientConfig
from tests.federation.harbour import HARBOUR, WEATHER, harbour, weather
from tests.federation.kit import Node, events_of, federation, token_of
from tests.support.browser import opened
from tests.support.waiting import until

Nodes = Mapping[str, Node]
WHOSE = {"owner": "swarm:harbour"}


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    async with federation(harbour(), weather()) as nodes:
        yield nodes


async def asked(nodes: Nodes, task_id: str) -> str:
    """Let ines' task in the harbour ask the weather, which hangs; return its id there."""
    home, there = nodes[HARBOUR], nodes[WEATHER]
    said = {"body": f"ask wind@{WEATHER}: hang", "task_id": task_id}
    answer = await home.client().post("/message", json=said, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202, answer.text

    async def found() -> str | None:
        listed = await there.client("root").get("/tasks", params=WHOSE)
        assert listed.status_code == 200, listed.text
        return next((each for each in listed.json() if each.startswith(task_id)), None)

    return str(await until(found))


def mail(node: Node, *arguments: str) -> Any:
    """Run a command that asks a server as its administrator, in a thread."""
    flags = ("--url", node.url, "-ak", token_of("root", node.name))
    return asyncio.to_thread(main, (*arguments, *flags))


async def test_an_administrator_reads_and_cancels_a_peers_task(nodes: Nodes) -> None:
    task_id, root = await asked(nodes, "storm"), nodes[WEATHER].client("root")
    assert task_id.startswith("storm#")
    listed = (await root.get("/admin/tasks", params=WHOSE)).json()["tasks"]
    assert [(each["task_id"], each["owner"]) for each in listed] == [(task_id, "swarm:harbour")]
    path = f"/tasks/{quote(task_id)}"
    for record in (
        listed[0],
        (await root.get("/tasks", params=WHOSE)).json()[task_id],
        (await root.get("/task", params={"task_id": task_id} | WHOSE)).json(),
        (await root.get(path, params=WHOSE)).json(),
    ):
        assert (record["task_owner"], record["via"]) == ("user:ines@harbour", "harbour")
    assert (await root.get(f"{path}/set-aside", params=WHOSE)).json()["mail"] == []
    cancelled = await root.post(f"{path}/cancel", params=WHOSE)
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    events = await root.get(f"{path}/events", params=WHOSE)
    assert "event: task_error" in events.text

    async def told() -> Any:
        task = await nodes[HARBOUR].task("storm")
        assert task["via"] is None
        return task["completed"] and events_of(task, "new_message")

    assert await until(told)  # the harbour's agent hears of it, and goes on


@pytest.mark.parametrize("who", ["ines", "harbour"])
async def test_nobody_else_names_another_owner(nodes: Nodes, who: str) -> None:
    client = nodes[WEATHER].client(who)
    for whose in ("swarm:harbour", "user:otto"):
        for path in ("/tasks", "/tasks?limit=5", "/tasks/x", "/tasks/x/events"):
            answer = await client.get(path, params={"owner": whose})
            assert answer.status_code == 403, (path, answer.text)
    mine = await nodes[WEATHER].client("ines").get("/tasks", params={"owner": "user:ines"})
    assert (mine.status_code, mine.json()) == (200, {})


async def test_an_owner_that_is_none_is_told_how_it_is_written(nodes: Nodes) -> None:
    for owner in ("harbour", "peer:harbour", "swarm:", "swarm:a\nb"):
        answer = await nodes[WEATHER].client("root").get("/tasks", params={"owner": owner})
        assert answer.status_code == 400, answer.text
    answer = await nodes[WEATHER].client("root").get("/tasks?owner=harbour")
    assert "or swarm:NAME" in answer.json()["detail"]


async def test_the_command_line_shows_and_cancels_it(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id, there = await asked(nodes, "storm"), nodes[WEATHER]
    whose = ("--owner", "swarm:harbour")
    assert await mail(there, "tasks", "list", *whose) == 0
    assert "user:ines@harbour via harbour" in capsys.readouterr().out
    assert await mail(there, "tasks", "show", task_id, *whose) == 0
    assert "by user:ines@harbour via harbour" in capsys.readouterr().out
    assert await mail(there, "tasks", "delete", task_id, *whose) == 2
    assert await mail(there, "tasks", "cancel", task_id) == 1
    assert await mail(there, "tasks", "cancel", task_id, *whose) == 0
    assert capsys.readouterr().out == f"task '{task_id}' cancelled\n"


async def test_removing_a_swarm_tells_of_its_open_tasks_and_cancels_them(nodes: Nodes) -> None:
    task_id, there = await asked(nodes, "storm"), nodes[WEATHER]
    config = ClientConfig(timeout=20)
    async with MAILClient(there.url, token_of("root", WEATHER), config=config) as client:
        told = await client.unregister_swarm(HARBOUR)
        assert told == {"status": "removed", "swarm_name": HARBOUR, "open_tasks": 1}
        assert (await client.get_task(task_id, owner="swarm:harbour"))["status"] == "running"
        told = await client.unregister_swarm(HARBOUR, cancel_tasks=True)
        assert told["open_tasks"] == 0
        assert (await client.get_task(task_id, owner="swarm:harbour"))["status"] == "cancelled"
    again = await there.client("root").delete("/swarms/harbour?cancel_tasks=true")
    assert again.status_code == 404


async def test_the_prompt_says_what_goes_on_and_cancels_it(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id, there = await asked(nodes, "storm"), nodes[WEATHER]

    async def typed(*line: str) -> str:
        flags = (there.url, "-ak", token_of("root", WEATHER))
        assert await asyncio.to_thread(main, ("client", *flags, *line)) == 0
        return capsys.readouterr().out

    assert "  running  " in (shown := await typed("tasks-get", "-o", "swarm:harbour"))
    assert "via harbour" in shown
    assert "via harbour" in await typed("task-get", task_id, "-o", "swarm:harbour")
    goes_on = "1 of its tasks go on: swarm-remove harbour --cancel-tasks"
    assert goes_on in await typed("swarm-remove", "harbour")
    assert "removed\n" in await typed("swarm-remove", "harbour", "--cancel-tasks")
    assert "  cancelled  " in await typed("tasks-get", "-o", "swarm:harbour")


async def test_the_console_shows_and_cancels_it_and_removes_the_swarm(
    nodes: Nodes, tmp_path: Path
) -> None:
    first, second, there = await asked(nodes, "storm"), await asked(nodes, "flood"), nodes[WEATHER]
    root = there.client("root")

    async def state(task_id: str) -> str:
        answer = await root.get(f"/tasks/{quote(task_id)}", params=WHOSE)
        return str(answer.json()["status"])

    def button(name: str, within: str) -> str:
        every = f"[...document.querySelectorAll({json.dumps(within + ' button')})]"
        return f"{every}.find((one) => one.textContent.trim() === {json.dumps(name)})"

    async with opened(tmp_path) as page:

        async def click(name: str, within: str = "#app") -> None:
            await page.until(f"!!{button(name, within)}")
            await page.run(f"{button(name, within)}.click()")

        async def shows(text: str) -> None:
            await page.until(f"document.querySelector('#app').innerText.includes('{text}')")

        await page.look(1280, 800)
        await page.visit(f"{there.url}/console")
        token = token_of("root", WEATHER)
        await page.run(f"sessionStorage.setItem('mail-console-token', '{token}')")
        await page.visit("about:blank")
        await page.visit(f"{there.url}/console")
        await click("all callers")
        await shows("user:ines@harbour via harbour")
        await page.run(f"location.hash = '#/tasks/{quote(first)}/swarm%3Aharbour'")
        await page.until("!!document.querySelector('.side')")
        await shows("user:ines@harbour via harbour")
        await click("Cancel")
        await click("Cancel the task", "dialog")
        await until(lambda: _is(state(first), "cancelled"))
        await page.run("location.hash = '#/registry'")
        await click("Remove")
        await page.until("document.querySelector('dialog').innerText.includes('cancel them')")
        await page.run("document.querySelector('dialog input').click()")
        await click("Remove", "dialog")
        await until(lambda: _is(state(second), "cancelled"))
        await page.until("!document.querySelector('#app').innerText.includes('harbour')")
        assert page.problems == []


async def _is(found: Any, wanted: str) -> bool:
    return bool(await found == wanted)
