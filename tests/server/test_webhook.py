"""The webhook of a server: what a task's life tells, who may look, and what stops a start."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail.cli.commands import main
from mail.client import MAILClient
from mail.config.server import ServerConfig, WebhookConfig
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import Owner, TaskRow
from mail.db.urls import open_store
from mail.db.webhooks import WebhookRow
from mail.errors import ConfigError
from mail.server.app import create_app
from tests.server.kit import TOKENS, bearer, config, serving
from tests.server.test_approvals import begin, reply, swarm
from tests.support.hooks import SECRET, Receiver, receiving


def hooked(url: str | None, **settings: Any) -> ServerConfig:
    """Return settings with a webhook."""
    hook = WebhookConfig(url=url, **{"allow_private": True, "events": EVENTS} | settings)
    return config(shutdown_grace=0.5).model_copy(update={"webhook": hook})


EVENTS = ["paused", "approval", "ended"]


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_WEBHOOK_SECRET", SECRET)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


@asynccontextmanager
async def served(store: MemoryStore, settings: ServerConfig) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(create_app(settings, template=swarm(), store=store)) as client:
        yield client


def seen(receiver: Receiver) -> list[str]:
    return sorted(each["event"] for each in receiver.taken)


async def test_a_life_of_a_task_is_told(store: MemoryStore, receiver: Receiver) -> None:
    async with served(store, hooked(receiver.url)) as api:
        first, second = await begin(api, "send")
        await receiver.until(lambda: len(receiver.taken) == 3)
        assert seen(receiver) == ["approval", "approval", "paused"]
        asked = {each["approval"]["approval_id"]: each for each in receiver.taken[:3]
                 if each["event"] == "approval"}  # fmt: skip
        assert asked.keys() == {first["approval_id"], second["approval_id"]}
        told = asked[first["approval_id"]]
        assert told["approval"] == {
            "approval_id": first["approval_id"],
            "kind": "approval",
            "agent": "supervisor",
            "action": "send",
            "expires_at": None,
        }
        assert (told["task_id"], told["owner"]) == ("t", {"role": "user", "id": "alice"})
        assert "ann" not in str(receiver.taken)  # no arguments
        receiver.taken.clear()
        assert (await reply(api, "alice", first, {"type": "ignore"})).is_success
        await receiver.until(lambda: len(receiver.taken) == 1)
        (end,) = receiver.taken
        assert (end["event"], end["status"], end["task_id"]) == ("ended", "completed", "t")
        listed = (await api.get("/webhook", headers=bearer("admin"))).json()
        assert listed["url"] == receiver.url and listed["events"] == EVENTS


async def test_only_what_is_asked_for_is_told(store: MemoryStore, receiver: Receiver) -> None:
    async with served(store, hooked(receiver.url, events=["ended"])) as api:
        await begin(api, "send")
        cancelled = await api.post("/tasks/t/cancel", headers=bearer("alice"))
        assert cancelled.is_success, cancelled.text
        await receiver.until(lambda: len(receiver.taken) == 1)
    assert [(each["event"], each["status"]) for each in receiver.taken] == [("ended", "cancelled")]


async def test_what_waited_is_told_after_a_restart(store: MemoryStore, receiver: Receiver) -> None:
    receiver.answers = [503] * 1000
    async with served(store, hooked(receiver.url)) as api:
        await begin(api, "send")
        await receiver.until(lambda: receiver.asked > 0)
    waiting = await store.list_webhooks("test-swarm", 0, 10)
    assert sorted(row.event for row in waiting) == ["approval", "approval", "paused"]
    for row in waiting:
        await store.retry_webhook("test-swarm", row.id, row.created_at)
    receiver.answers = []
    async with served(store, hooked(receiver.url)):
        await receiver.until(lambda: len(receiver.taken) == 3)
    assert sorted(receiver.ids) == sorted(row.message_id for row in waiting)


async def test_private_addresses_are_refused_and_operators_see_why(
    store: MemoryStore, receiver: Receiver
) -> None:
    settings = hooked(f"{receiver.url}?key=hidden", allow_private=False, events=["paused"])
    async with (
        served(store, settings) as api,
        MAILClient(str(api.base_url), TOKENS["admin"]) as admin,
    ):
        await begin(api, "send")
        async with asyncio.timeout(10):
            while not (found := await admin.get_webhook())["messages"][0]["last_error"]:
                await asyncio.sleep(0.01)
        (message,) = found["messages"]
        assert "loopback" in message["last_error"] and message["state"] == "waiting"
        assert (message["event"], message["task_id"]) == ("paused", "t")
        assert message["owner"] == "user:alice@test-swarm"
        assert found["url"] == receiver.url and "hidden" not in str(found)
        assert await admin.retry_webhook(message["id"]) == {
            "status": "waiting",
            "id": message["id"],
        }
        await admin.discard_webhook(message["id"])
        assert (await admin.get_webhook())["messages"] == []
        for method, path in (("POST", f"/webhook/{message['id']}/retry"), ("DELETE", "/webhook/9")):
            gone = await api.request(method, path, headers=bearer("admin"))
            assert gone.status_code == 404 and "waits for the webhook" in gone.json()["detail"]
    assert receiver.asked == 0


async def test_the_list_has_pages(store: MemoryStore) -> None:
    owner = Owner("test-swarm", "user", "alice")
    task = TaskRow("t", str(owner), (), "2026-01-01T00:00:00+00:00", "supervisor")
    made = tuple(
        WebhookRow(f"m{number}", "ended", "t", str(owner), "{}", task.start_time)
        for number in range(3)
    )
    await store.commit(Commit(owner=owner, task=task, new=True, webhooks=made))
    async with (
        served(store, config()) as api,
        MAILClient(str(api.base_url), TOKENS["admin"]) as admin,
    ):
        page = await admin.get_webhook(limit=2)
        assert [each["message_id"] for each in page["messages"]] == ["m0", "m1"]
        assert page["url"] is None and page["next_after"] == page["messages"][-1]["id"]
        rest = await admin.get_webhook(after=page["next_after"] or 0, limit=2)
        assert [each["message_id"] for each in rest["messages"]] == ["m2"]
        assert rest["next_after"] is None


async def test_without_a_webhook_nothing_is_kept(store: MemoryStore) -> None:
    async with served(store, config()) as api:
        await begin(api, "send")
    assert await store.list_webhooks("test-swarm", 0, 10) == []


@pytest.mark.parametrize("value", [None, "", "too-short"])
def test_a_webhook_needs_a_secret(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("MAIL_WEBHOOK_SECRET")
    if value is not None:
        monkeypatch.setenv("HOOK", value)
    settings = hooked("https://hooks.example.org/mail", secret_env="HOOK")
    with pytest.raises(ConfigError, match="environment variable HOOK") as refused:
        create_app(settings, template=swarm(), store=store)
    assert not value or value not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org",
        "https://",
        "https://u:p@example.org/",
        "https://example.org/#x",
        "x" * 9,
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="url"):
        WebhookConfig(url=url)


async def test_operators_have_a_command(
    tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'mail.db'}"
    place, owner = ["--store", url, "--swarm", "test-swarm"], Owner("test-swarm", "user", "alice")

    async def mail(*words: str) -> str:
        code = await asyncio.to_thread(main, ["webhook", *words, *place])
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    store = open_store(url)
    await store.open()
    task = TaskRow("t\x1b[31m", str(owner), (), "2026-01-01T00:00:00+00:00", "supervisor")
    row = WebhookRow("m1", "ended", task.task_id, str(owner), "{}", task.start_time, "dead", 3)
    await store.commit(Commit(owner=owner, task=task, new=True, webhooks=(row, row)))
    await store.close()
    listed = (await mail("list")).splitlines()
    assert listed[0].split()[:4] == ["ID", "EVENT", "STATE", "TRIES"] and len(listed) == 3
    assert listed[1].split()[:4] == ["1", "ended", "dead", "3"] and "\x1b" not in listed[1]
    assert await mail("retry", "1") == "message 1 is sent again\n"
    assert await mail("discard", "2") == "message 2 is discarded\n"
    assert "no message 2 waits for the webhook" in await mail("discard", "2")
    assert "no message 7 waits for the webhook" in await mail("retry", "7")
    (left,) = json.loads(await mail("list", "--json"))
    assert (left["id"], left["state"], left["attempts"]) == (1, "waiting", 0)


async def test_the_command_asks_a_server(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = Owner("test-swarm", "user", "alice")
    task = TaskRow("t", str(owner), (), "2026-01-01T00:00:00+00:00", "supervisor")
    row = WebhookRow("m1", "ended", "t", str(owner), "{}", task.start_time)
    await store.commit(Commit(owner=owner, task=task, new=True, webhooks=(row,)))
    async with served(store, config()) as api:
        place = ["--url", str(api.base_url), "--api-key", TOKENS["admin"]]
        for words in (["list"], ["retry", "1"], ["discard", "1"], ["list", "--json"]):
            assert await asyncio.to_thread(main, ["webhook", *words, *place]) == 0
        alice = ["--url", str(api.base_url), "--api-key", TOKENS["alice"]]
        assert await asyncio.to_thread(main, ["webhook", "list", *alice]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[1].split()[:3] == ["1", "ended", "waiting"]
    assert told[2:] == ["message 1 is sent again", "message 1 is discarded", "[]"]
