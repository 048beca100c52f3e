"""Named memories over HTTP: whose they are, how they change, and what they learn."""

import asyncio
import importlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from mail import Approval, MAILAction
from mail.api import MAILSwarmTemplate
from mail.auth.callers import Caller
from mail.config.server import MemoryConfig
from mail.core.large import LARGE_AT_ONCE
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.preferences import KEPT_VERSIONS, FeedbackRow
from mail.db.records import Owner
from mail.db.store import Store
from mail.llm.litellm_model import close_clients, load_parts
from mail.llm.script import Step, call, say
from mail.server.app import create_app
from tests.server.kit import Template, bearer, config, frames, serving
from tests.services.test_learning import BEFORE, answer
from tests.support.provider import FakeProvider
from tests.support.swarm import scripted_agent
from tests.support.waiting import until

OWNER = Owner("test-swarm", "user", "alice")
SCRIPT = f"scripted/{__name__}:writes"


@pytest.fixture
async def template() -> Template:
    made = Template()
    made.memories = {"style": BEFORE}
    return made


def writes(view: Any) -> Step:
    """Send what is to be sent, then say so."""
    if view.new_results:
        return call("task_complete", finish_message="Sent.")
    return call("send", text="Hello")


class Api:
    """The routes, as one caller uses them."""

    def __init__(self, client: httpx.AsyncClient, who: str = "alice") -> None:
        self.client, self.headers = client, bearer(who)

    async def get(self, name: str = "") -> Any:
        path = f"/memories/{name}" if name else "/memories"
        return self._read(await self.client.get(path, headers=self.headers))

    async def put(self, name: str, **body: Any) -> Any:
        return self._read(
            await self.client.put(
                f"/memories/{name}", content=json.dumps(body), headers=self.headers
            )
        )

    async def delete(self, name: str) -> int:
        return (await self.client.delete(f"/memories/{name}", headers=self.headers)).status_code

    def _read(self, answer: httpx.Response) -> Any:
        return answer.json() if answer.status_code == 200 else answer.status_code


async def test_a_default_is_changed_undone_and_deleted(client: httpx.AsyncClient) -> None:
    alice = Api(client)
    listed = await alice.get()
    assert listed["learning"] == {
        "enabled": False,
        "reason": "no model is configured ([server.memory] model), and the entrypoint asks none; "
        "feedback waits",
    }
    (style,) = listed["memories"]
    assert (style["name"], style["value"], style["is_default"]) == ("style", BEFORE, True)
    changed = await alice.put("style", value="Be brief.", expected_version=0)
    assert (changed["version"], changed["updated_by"]) == (1, "person")
    assert await alice.put("style", value="Late.", expected_version=0) == 409
    await alice.put("style", value="Be long.")
    undone = await alice.put("style", restore=1, expected_version=2)
    assert (undone["value"], undone["version"]) == ("Be brief.", 3)
    assert [row["source"] for row in undone["versions"]] == ["restored", "person", "person"]
    assert (await alice.put("style", restore=0))["value"] == BEFORE
    assert await alice.delete("style") == 204
    details = await alice.get("style")
    assert (details["is_default"], details["versions"], details["value"]) == (True, [], BEFORE)


async def test_everybody_has_their_own(client: httpx.AsyncClient) -> None:
    alice, bob, admin = Api(client), Api(client, "bob"), Api(client, "admin")
    await alice.put("secret", value="Mine.")
    await alice.put("style", value="Mine, too.")
    for other in (bob, admin):
        assert "Mine" not in json.dumps(await other.get())
        assert await other.get("secret") == 404
        assert await other.delete("secret") == 404
        assert await other.put("secret", restore=1) == 404
        assert (await other.get("style"))["value"] == BEFORE
    assert (await alice.get("secret"))["value"] == "Mine."
    assert await Api(client, "swarm").get() == 403


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"value": "x", "restore": 1},
        {"restore": 7},
        {"restore": -1},
        {"value": 7},
        {"value": "x" * 16_385},
        {"value": "\u0000"},
        {"value": "\ud800"},
        {"value": "x", "expected_version": "1"},
        {"value": "x", "expected": 1},
    ],
)
async def test_bad_bodies(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    assert await Api(client).put("style", **body) == 400


async def test_a_text_that_is_too_long_is_told_in_bytes(client: httpx.AsyncClient) -> None:
    for text, size in (("x" * 16_385, "16,385"), ("ä" * 8_193, "16,386")):
        answer = await client.put("/memories/style", json={"value": text}, headers=bearer("alice"))
        assert (answer.status_code, f"{size} bytes" in answer.text) == (400, True), answer.text


async def test_large_answers_wait_for_a_place(app: FastAPI, client: httpx.AsyncClient) -> None:
    alice = Api(client)
    text = "ä" * 8_000
    for _ in range(KEPT_VERSIONS + 1):
        put = await client.put("/memories/m", json={"value": text}, headers=alice.headers)
    one = await client.get("/memories/m", headers=alice.headers)
    for given in (put, one):
        assert given.status_code == 200
        assert [row["value"] for row in given.json()["versions"]] == [text] * KEPT_VERSIONS
        assert "content-length" not in given.headers
    assert one.json() == put.json()
    for number in range(5):
        await alice.put(f"m{number}", value=text)
    listed = await client.get("/memories", headers=alice.headers)
    assert len(listed.json()["memories"]) == 7

    places = app.state.mail.quotas.places(Caller("user", "alice"))
    for _ in range(LARGE_AT_ONCE):  # for other answers, which nobody reads
        await places.acquire()
    waiting = asyncio.create_task(client.get("/memories/m", headers=alice.headers))
    while not places._waiters:
        await asyncio.sleep(0)
    places.release()
    assert (await waiting).json() == one.json()


@pytest.mark.parametrize("name", ["a%20b", "%2e%2e", "x" * 65, "%C3%A4", "a%00", "-a"])
async def test_bad_names(client: httpx.AsyncClient, name: str) -> None:
    alice = Api(client)
    assert await alice.put(name, value="x") == 400
    assert await alice.get(name) == 404


# --- learning -------------------------------------------------------------------------------------


def add_line(text: str) -> Step:
    """Return the call by which LangMem is told to add a line."""
    patches = [{"op": "add", "path": "/lines/-", "value": text}]
    return call("PatchDoc", json_doc_id="preferences", planned_edits="", patches=patches)


class Steps:
    """A script that takes one step after the other, once it may."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.texts: list[str] = []

    def __call__(self, view: Any) -> Step:
        return self.steps.pop(0) if self.steps else say("Nothing more.")


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProvider]:
    async with FakeProvider(Steps(add_line("Say 'Hi'."), add_line("Offer two dates."))) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        await asyncio.to_thread(load_parts)  # takes long where much goes on
        await asyncio.to_thread(importlib.import_module, "langmem")
        yield running
        await close_clients()


async def teach(store: Store, *rows: FeedbackRow) -> None:
    """Store feedback with a commit of the task, as an answer does."""
    row = await store.load_task(OWNER, "t-1")
    assert row is not None
    await store.commit(Commit(owner=OWNER, task=row, feedback=rows))


async def test_a_server_with_a_model_learns_and_tells(
    provider: FakeProvider, template: Template, store: MemoryStore
) -> None:
    settings = config().model_copy(update={"memory": MemoryConfig(model="openai/fake")})
    app = create_app(settings, template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        alice = Api(client)
        assert (await alice.get())["learning"] == {"enabled": True, "reason": None}
        body = {"body": "hello", "task_id": "t-1"}
        assert (await client.post("/message", json=body, headers=bearer("alice"))).is_success
        rows = answer("a1", task_id="t-1"), answer("a2", task_id="t-1", type="response")
        await teach(store, *rows)
        app.state.mail.learning.wake()

        async def learned() -> bool:
            return (await alice.get("style"))["version"] == 2

        await until(learned)
        details = await alice.get("style")
        assert details["value"] == f"{BEFORE}\nSay 'Hi'.\nOffer two dates."
        assert [row["approval_id"] for row in details["versions"]] == ["a2", "a1"]
        assert [row["status"] for row in details["feedback"]] == ["learned", "learned"]
        events = await client.get("/tasks/t-1/events", headers=bearer("alice"))
        kinds = [frame["event"] for frame in frames(events.text)]
        assert kinds[-2:] == ["memory_updated", "memory_updated"]
        assert len(provider.requests) == 2


def writing_swarm(llm: str = "openai/fake") -> MAILSwarmTemplate:
    """Return a swarm whose entrypoint may send mail after a person has seen it."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    held = Approval(feedback={"edit": "style"})
    send = MAILAction("send", "Send.", schema, lambda args: "sent", approval=held)
    agent = scripted_agent("writer", None, actions=[send], llm=llm, use_proxy=False)
    return MAILSwarmTemplate(
        "test-swarm", agents=[agent], entrypoint="writer", memories={"style": BEFORE}
    )


async def answer_by_edit(client: httpx.AsyncClient) -> None:
    """Have the swarm write, and edit what it wants to send."""
    headers = bearer("alice")
    posted = await client.post("/message", json={"body": "Write to Ben."}, headers=headers)
    assert posted.json()["status"] == "paused", posted.text
    [held] = (await client.get("/approvals", headers=headers)).json()["approvals"]
    edit = {"type": "edit", "args": {"action": "send", "args": {"text": "Hi"}}}
    path = f"/approvals/{held['approval_id']}"
    assert (await client.post(path, json=edit, headers=headers)).is_success


async def test_memories_learn_by_the_entrypoints_model_out_of_the_box(
    provider: FakeProvider, store: MemoryStore
) -> None:
    steps: Any = provider.script
    steps.steps = [
        call("send", text="Hello"),
        call("task_complete", finish_message="Sent."),
        add_line("Say 'Hi'."),
    ]
    app = create_app(config(), template=writing_swarm(), store=store)
    async with serving(app) as client:
        alice = Api(client)
        assert (await alice.get())["learning"] == {"enabled": True, "reason": None}
        await answer_by_edit(client)

        async def learned() -> bool:
            return (await alice.get("style"))["version"] == 1

        await until(learned)
        assert (await alice.get("style"))["value"] == f"{BEFORE}\nSay 'Hi'."


@pytest.mark.parametrize(
    ("llm", "settings"),
    [("openai/fake", MemoryConfig(model="none")), (SCRIPT, MemoryConfig())],
)
async def test_without_a_model_to_ask_feedback_waits(
    provider: FakeProvider, store: MemoryStore, llm: str, settings: MemoryConfig
) -> None:
    steps: Any = provider.script
    steps.steps = [call("send", text="Hello"), call("task_complete", finish_message="Sent.")]
    made = config().model_copy(update={"memory": settings})
    async with serving(create_app(made, template=writing_swarm(llm), store=store)) as client:
        await answer_by_edit(client)
        assert (await Api(client).get())["learning"]["enabled"] is False
        style = await Api(client).get("style")
        assert (style["waiting"], style["value"]) == (1, BEFORE)


async def test_a_commit_of_feedback_is_not_delayed_by_a_slow_model(
    template: Template, store: MemoryStore
) -> None:
    asked, gate = asyncio.Event(), asyncio.Event()
    settings = config().model_copy(update={"memory": MemoryConfig(model="openai/fake")})
    app = create_app(settings, template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        alice = Api(client)
        learner = app.state.mail.learning

        async def slow(current: str, messages: Any) -> str:
            asked.set()
            await gate.wait()
            return f"{current}\nLearned."

        learner.propose = slow
        body = {"body": "hello", "task_id": "t-1"}
        assert (await client.post("/message", json=body, headers=bearer("alice"))).is_success
        await teach(store, answer(task_id="t-1"))
        learner.wake()
        async with asyncio.timeout(10):
            await asked.wait()
        assert (await client.post("/message", json=body, headers=bearer("alice"))).is_success
        assert (await alice.get("style"))["waiting"] == 1
        assert await alice.delete("style") == 204  # what waits for it goes, too
        gate.set()
        await teach(store, answer("a2", "other", task_id="t-1"))

        async def learned() -> bool:
            return (await alice.get("other")) != 404 and (await alice.get("other"))["version"] == 1

        learner.wake()
        await until(learned)
        assert (await alice.get("style"))["value"] == BEFORE
