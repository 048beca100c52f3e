"""Mail that cannot be delivered: how operators see it, and how it gets on its way again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mail.cli.commands import main
from mail.client import MAILClient
from mail.config import ClientConfig
from mail.config.server import FederationConfig
from mail.db.memory import MemoryStore
from mail.db.urls import open_store
from mail.errors import ClientHTTPError
from mail.net.outbox import PeerGateway, SendingSettings
from mail.net.registry import SwarmRegistry
from mail.server.federation import Federation
from tests.federation.harbour import HARBOUR, WEATHER, harbour, weather
from tests.federation.kit import Node, register, started, token_of
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no second attempt come by itself: here, they are asked for."""
    monkeypatch.setattr(SendingSettings, "pause", lambda *_: 3600.0)


@contextlib.asynccontextmanager
async def parted(folder: Path) -> AsyncIterator[Node]:
    """A harbour whose mail waits for the weather's server, which has gone."""
    async with started(weather(), [HARBOUR]) as away:
        store = open_store(f"sqlite:///{folder / 'mail.db'}")
        node = started(harbour(), [WEATHER], store)
        entered = await node.__aenter__()
        await register(entered, away)
    try:
        yield entered
    finally:
        await node.__aexit__(None, None, None)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with parted(tmp_path) as node:
        await ask(node)
        yield node


@pytest.fixture
async def refused(tmp_path: Path) -> AsyncIterator[tuple[Node, int]]:
    """A harbour, and the number of mail that it has given up, for an agent that takes none."""
    async with parted(tmp_path) as node:
        await ask(node, "cellar")
        [(_, row)] = await node.store.list_outbox(HARBOUR)
        waiting = await node.client("root").delete(f"/outbox/{row.id}")
        assert waiting.status_code == 409 and "still to be delivered" in waiting.json()["detail"]
        async with started(weather(), [HARBOUR]) as away:
            await register(node, away)
            await register(away, node)
            await node.client("root").post(f"/outbox/{row.id}/retry")
            await until(lambda: answered(node))
        yield node, row.id


async def ask(node: Node, agent: str = "wind", task_id: str = "lost") -> None:
    """Begin a task whose mail cannot be delivered."""
    answer: Any = await node.client().post(
        "/message",
        json={"body": f"ask {agent}@weather: 14:00?", "task_id": task_id},
        headers={"Prefer": "respond-async"},
    )
    assert answer.status_code == 202, answer.text
    await until(lambda: tried(node))


async def tried(node: Node) -> bool:
    """Tell whether delivery was tried and has failed."""
    return any(row.last_error for _, row in await node.store.list_outbox(HARBOUR))


async def test_waiting_mail_is_listed_without_its_content(node: Node) -> None:
    answer = await node.client("root").get("/outbox")
    assert answer.status_code == 200, answer.text
    [mail] = answer.json()["mail"]
    assert (mail["peer"], mail["task_id"], mail["owner"]) == (
        WEATHER,
        "lost",
        "user:ines@harbour",
    )
    assert (mail["state"], mail["kind"], mail["sender"]) == ("waiting", "request", "dispatcher")
    assert mail["attempts"] >= 1 and mail["last_error"] and mail["created_at"]
    assert answer.json()["next_after"] is None
    assert "14:00" not in answer.text
    assert token_of(HARBOUR, WEATHER) not in answer.text
    none = await node.client("root").get("/outbox", params={"peer": "tide"})
    assert none.json()["mail"] == []
    later = await node.client("root").get("/outbox", params={"after": mail["id"], "limit": 5})
    assert later.json()["mail"] == []


async def test_mail_is_delivered_when_the_peer_is_back(node: Node) -> None:
    before = await node.client("root").get("/outbox")
    number = before.json()["mail"][0]["id"]
    async with started(weather(), [HARBOUR]) as away:
        await register(node, away)
        await register(away, node)
        again = await node.client("root").post(f"/outbox/{number}/retry")
        assert again.json() == {"status": "waiting", "id": number}
        await until(lambda: answered(node))
    assert (await node.client("root").post("/outbox/999/retry")).status_code == 404
    assert (await node.client("root").post("/outbox/x/retry")).status_code == 400


async def states(node: Node) -> dict[int, str]:
    """Return the state of each mail: the end of the task may still be told, too."""
    return {row.id: row.state for _, row in await node.store.list_outbox(HARBOUR)}


async def test_only_mail_that_was_given_up_is_discarded(refused: tuple[Node, int]) -> None:
    node, number = refused
    root = node.client("root")
    assert (await states(node))[number] == "dead"
    gone = await root.delete(f"/outbox/{number}")
    assert (gone.status_code, gone.content) == (204, b"")
    assert number not in await states(node)
    assert (await root.delete(f"/outbox/{number}")).status_code == 404


async def test_a_request_is_not_retried_for_a_task_that_has_ended(
    refused: tuple[Node, int],
) -> None:
    node, number = refused
    answer = await node.client("root").post(f"/outbox/{number}/retry")
    assert answer.status_code == 409
    assert "is completed" in answer.json()["detail"]


async def answered(node: Node) -> bool:
    """Tell whether the task has ended."""
    task = await node.task("lost")
    return bool(task["completed"])


async def test_the_client_and_its_commands_show_and_retry(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ClientConfig(timeout=20)
    async with MAILClient(node.url, token_of("root", HARBOUR), config=config) as client:
        [mail] = (await client.get_outbox(WEATHER))["mail"]
        assert (await client.retry_outbox(mail["id"]))["id"] == mail["id"]
        with pytest.raises(ClientHTTPError, match="no mail 999"):
            await client.retry_outbox(999)
    key = ["--api-key", token_of("root", HARBOUR)]
    shown = await run(["outbox", "list", "--url", node.url, *key], capsys)
    assert "weather" in shown and "waiting" in shown and "lost" in shown
    told = await run(["outbox", "retry", str(mail["id"]), "--url", node.url, *key], capsys)
    assert told == f"mail {mail['id']} is delivered again\n"
    listed = await run(["client", *key, node.url, "outbox"], capsys)
    assert f"{mail['id']}   weather  waiting  request" in listed
    again = await run(["client", *key, node.url, "outbox-retry", str(mail["id"])], capsys)
    assert again == f"mail {mail['id']} is delivered again\n"
    await ask(node, task_id="more")
    await until(lambda: stored(node, 2))
    assert await asyncio.to_thread(main, ["client", *key, node.url, "outbox", "--limit", "1"]) == 0
    assert "".join(capsys.readouterr()).endswith(f"more: --after {mail['id']}\n")


async def stored(node: Node, count: int) -> bool:
    """Tell whether so much mail waits."""
    return len(await node.store.list_outbox(HARBOUR)) == count


async def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command, and return what it prints."""
    code = await asyncio.to_thread(main, words)
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


async def test_the_operator_sees_it_in_the_store(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--store", f"sqlite:///{tmp_path / 'mail.db'}", "--swarm", HARBOUR]
    shown = await run(["outbox", "list", *place], capsys)
    lines = shown.splitlines()
    assert lines[0].split()[:3] == ["ID", "SWARM", "STATE"]
    assert "weather" in lines[1] and "waiting" in lines[1]
    as_json = await run(["outbox", "list", "--json", *place], capsys)
    assert '"peer": "weather"' in as_json


def test_what_is_retried_in_the_store_of_no_server_waits_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(leave_mail(tmp_path))
    place = ["--store", f"sqlite:///{tmp_path / 'mail.db'}", "--swarm", HARBOUR]
    assert main(["outbox", "retry", "1", *place]) == 0
    assert capsys.readouterr().out == "mail 1 is delivered again\n"
    assert main(["outbox", "retry", "7", *place]) == 1
    assert "no mail 7" in capsys.readouterr().err
    assert main(["outbox", "retry", "x", *place]) == 2


async def test_a_swarm_that_stops_its_mail_has_no_sender(tmp_path: Path) -> None:
    """It may have the name of the one before."""
    template = SimpleNamespace(name=HARBOUR, enable_interswarm=True)
    pool: Any = SimpleNamespace(served=SimpleNamespace(template=template))
    registry = SwarmRegistry(HARBOUR, "http://127.0.0.1:1", str(tmp_path / "registry.json"))
    gateway, none = PeerGateway(), cast("Any", None)
    config = FederationConfig()
    federation = Federation(config, MemoryStore(), registry, pool, none, none, gateway)
    await federation.serve()
    first = gateway._sender
    await federation.serve()
    assert gateway._sender is first is not None
    template.enable_interswarm = False
    await federation.serve()
    assert gateway._sender is None
    template.enable_interswarm = True
    await federation.serve()
    assert gateway._sender is not None
    await federation.stop()
    await registry.aclose()


async def leave_mail(folder: Path) -> None:
    """Leave mail for a peer behind."""
    async with parted(folder) as node:
        await ask(node)
