"""``/swarms/load`` and ``/swarms/dump``: another swarm, and nobody's work lost over it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from mail.api import MAILSwarmTemplate
from mail.client import MAILClient
from mail.config import ClientConfig
from mail.config.server import REMOTE_AGENT_PARAMS, SwarmConfig
from mail.db.memory import MemoryStore
from mail.db.records import IdempotencyRow, Owner
from mail.db.store import Store
from mail.errors import ClientHTTPError
from mail.server.app import create_app
from tests.server.kit import TOKENS, bearer, config, serving
from tests.support.loadable import GATES, TOGETHER, definition


@pytest.fixture(autouse=True)
def gates() -> Iterator[None]:
    """What makes agents wait, for this test alone."""
    GATES.update(gate=asyncio.Event(), entered=asyncio.Event())
    TOGETHER.clear()
    yield
    GATES.clear()


def app_of(store: Store, limits: Mapping[str, Any] = MappingProxyType({}), **swarm: Any) -> FastAPI:
    """Return a server of the first swarm that may import the tests' factories."""
    settings = config(shutdown_grace=0.1, **limits)
    names = SwarmConfig(
        name="test-swarm",
        remote_imports=["tests.support.loadable", "mail.factories"],
        remote_agent_params=[*REMOTE_AGENT_PARAMS, "accent"],
    )
    template = MAILSwarmTemplate.from_swarms_json(definition(**swarm))  # type: ignore[arg-type]
    return create_app(settings.model_copy(update={"swarm": names}), template=template, store=store)


@pytest.fixture
async def app(store: MemoryStore) -> FastAPI:
    return app_of(store)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app) as client:
        yield client


async def load(client: httpx.AsyncClient, **swarm: Any) -> httpx.Response:
    body = {"json": json.dumps(definition(**swarm))}
    return await client.post("/swarms/load", json=body, headers=bearer("admin"))


async def say(client: httpx.AsyncClient, who: str, text: str, **more: Any) -> dict[str, Any]:
    answer = await client.post("/message", json={"body": text} | more, headers=bearer(who))
    return answer.json()


async def get(client: httpx.AsyncClient, path: str, who: str = "alice") -> httpx.Response:
    return await client.get(path, headers=bearer(who))


async def test_a_loaded_swarm_serves_and_tells_its_name_everywhere(
    client: httpx.AsyncClient,
) -> None:
    before = (await client.get("/")).json()["swarm"]
    answer = await load(client, name="second", accent="two", agent="clerk", keywords=["new"])
    assert answer.status_code == 200
    assert answer.json() == {"status": "success", "swarm_name": "second"}
    now = (await client.get("/")).json()["swarm"]
    assert (before["name"], before["entrypoint"]) == ("test-swarm", "supervisor")
    assert (now["name"], now["entrypoint"], now["keywords"]) == ("second", "clerk", ["new"])
    assert (await client.get("/health")).json()["swarm_name"] == "second"
    assert (await get(client, "/status")).json()["swarm"]["name"] == "second"
    # 1.3.6 went on sending users to the old swarm's entrypoint.
    assert (await say(client, "alice", "Hello"))["response"] == "two: Hello"


async def test_an_unknown_field_is_logged_and_a_misspelt_one_refused(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def post(**more: Any) -> httpx.Response:
        body = {"json": json.dumps(definition(name="second") | more)}
        return await client.post("/swarms/load", json=body, headers=bearer("admin"))

    refused = await post(exclude_tool=[])
    assert refused.status_code == 400
    assert refused.json()["detail"].endswith("Did you mean 'exclude_tools'?")
    assert (await post(colour="blue", breakpoint_tool=[])).status_code == 200
    told = [record.getMessage() for record in caplog.records if "unknown" in record.getMessage()]
    assert told == [
        "unknown swarm field 'colour' is ignored (swarm 'second')",
        "unknown swarm field 'breakpoint_tool' is ignored (swarm 'second'). "
        "Did you mean 'breakpoint_tools'?",
    ]


async def test_a_repeat_under_a_key_loads_nothing(client: httpx.AsyncClient) -> None:
    async def load_as(key: str, name: str) -> httpx.Response:
        body = {"json": json.dumps(definition(name=name))}
        headers = bearer("admin") | {"Idempotency-Key": key}
        return await client.post("/swarms/load", json=body, headers=headers)

    first, second = await load_as("k-1", "second"), await load_as("k-2", "third")
    assert (first.status_code, second.status_code) == (200, 200)
    again = await load_as("k-1", "second")
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
    assert (await client.get("/")).json()["swarm"]["name"] == "third"
    assert (await load_as("k-2", "fourth")).status_code == 409


async def test_an_idle_instance_is_made_anew(client: httpx.AsyncClient) -> None:
    assert (await say(client, "alice", "Hello", task_id="t"))["response"] == "one: Hello"
    await load(client, accent="two")
    assert (await say(client, "alice", "Again", task_id="t"))["response"] == "two: Again"
    record = (await get(client, "/tasks/t")).json()
    assert "one: Hello" in str(record["events"])
    assert "two: Again" in str(record["events"])


@pytest.mark.parametrize("name", ["test-swarm", "second"])
async def test_a_running_task_finishes_on_the_swarm_that_it_began_on(
    client: httpx.AsyncClient, app: FastAPI, name: str
) -> None:
    running = asyncio.create_task(say(client, "alice", "hang", task_id="t"))
    await GATES["entered"].wait()
    await load(client, name=name, accent="two")
    # Its caller still sees and reaches it, and stays with the instance that has it.
    assert (await get(client, "/tasks")).json()["t"]["is_running"]
    assert (await get(client, "/task?task_id=t")).json()["task_owner"] == "user:alice@test-swarm"
    assert (await say(client, "alice", "meanwhile"))["response"] == "one: meanwhile"
    assert (await get(client, "/tasks/t", "bob")).status_code == 404
    assert (await say(client, "bob", "Hello"))["response"] == "two: Hello"
    assert len(app.state.mail.pool._live) == 2
    GATES["gate"].set()
    assert (await running)["response"] == "one: hang"
    assert (await say(client, "alice", "Hello"))["response"] == "two: Hello"
    assert len(app.state.mail.pool._live) == 2
    assert (await get(client, "/tasks/t")).status_code == (200 if name == "test-swarm" else 404)


async def test_a_running_task_can_be_cancelled_after_a_load(client: httpx.AsyncClient) -> None:
    running = asyncio.create_task(say(client, "alice", "hang", task_id="t"))
    await GATES["entered"].wait()
    await load(client, name="second", accent="two")
    answer = await client.post("/tasks/t/cancel", headers=bearer("alice"))
    assert (answer.status_code, (await running)["status"]) == (200, "cancelled")


async def test_a_task_that_nobody_waits_for_can_be_cancelled_after_a_load(
    client: httpx.AsyncClient,
) -> None:
    await say(client, "alice", "hang", task_id="t", kwargs={"timeout": 0.05})
    await load(client, name="second", accent="two")
    # Without the task its caller is served by the second swarm, where there is no such task.
    answer = await client.post("/tasks/t/cancel", headers=bearer("alice"))
    assert (answer.status_code, answer.json().get("status")) == (200, "cancelled")


async def resume(client: httpx.AsyncClient) -> dict[str, Any]:
    more = {
        "task_id": "t",
        "resume_from": "breakpoint_tool_call",
        "kwargs": {"breakpoint_tool_call_result": "yes"},
    }
    return await say(client, "alice", "", **more)


async def test_a_paused_task_goes_on_with_the_new_swarm_of_the_same_name(
    client: httpx.AsyncClient,
) -> None:
    assert (await say(client, "alice", "ask", task_id="t"))["status"] == "paused"
    await load(client, accent="two")
    assert (await get(client, "/tasks/t")).json()["status"] == "paused"
    assert (await resume(client))["response"] == "two was told yes"


async def test_a_paused_task_waits_while_a_swarm_of_another_name_is_served(
    client: httpx.AsyncClient,
) -> None:
    assert (await say(client, "alice", "ask", task_id="t"))["status"] == "paused"
    await load(client, name="second", accent="two")
    assert (await resume(client))["detail"] == "task 't' not found"
    await load(client, accent="three")
    assert (await resume(client))["response"] == "three was told yes"


class SlowKeys(MemoryStore):
    """A store that holds a request which has found its key, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.found, self.go = asyncio.Event(), asyncio.Event()

    async def find_key(self, owner: Owner, key: str) -> IdempotencyRow | None:
        found = await super().find_key(owner, key)
        if found is not None:
            self.found.set()
            await self.go.wait()
        return found


async def test_a_repeat_stays_with_its_swarm_when_another_one_comes(store: MemoryStore) -> None:
    slow = SlowKeys()
    for token in await store.list_tokens():
        await slow.put_token(token)
    async with serving(app_of(slow)) as client:

        async def hang() -> httpx.Response:
            headers = bearer("alice") | {"Idempotency-Key": "k"}
            return await client.post("/message", json={"body": "hang"}, headers=headers)

        first = asyncio.create_task(hang())
        await GATES["entered"].wait()
        repeat = asyncio.create_task(hang())
        await slow.found.wait()
        GATES["gate"].set()
        await first
        await load(client, name="second")
        slow.go.set()
        # It used to look for the run in the log of the second swarm, and waited for ever.
        assert (await repeat).content == (await first).content


def wrong(**changes: Any) -> str:
    return json.dumps(definition(**changes))


def asking(**params: Any) -> str:
    """Return a definition whose agent asks a model."""
    factory = "python::mail.factories:LiteLLMSupervisorFunction"
    agent = definition()["agents"][0] | {"factory": factory}
    return wrong(agents=[agent | {"agent_params": {"use_proxy": False, **params}}])


BAD = {
    "no JSON": ("{", "the swarm definition in 'json' is not valid JSON"),
    "no object": ("[]", "must be a JSON object"),
    "too deep": ("[" * 65 + "]" * 65, "nested deeper than 64 levels"),
    "an empty object": ("{}", "'name'"),
    "half a surrogate": ('{"name": "\\ud800"}', "not valid JSON"),
    "a number beyond all": ('{"name": 1e999}', "too large"),
    "an unknown reference": (wrong(factory="python::tests.support.loadable:nothing"), "nothing"),
    "a forbidden import": (wrong(factory="python::os:system"), "must not be imported"),
    "a forbidden address": (
        wrong(
            agents=[
                definition()["agents"][0] | {"agent_params": {"system": "url::http://10.0.0.1"}}
            ]
        ),
        "url:: reference",
    ),
    "a hidden address": (asking(llm="openai/http://127.0.0.1:9/latest/meta-data"), "an address"),
    "a provider of its own": (asking(llm="ollama/llama3"), "[server.swarm] remote_providers"),
    "a model at OpenAI's that is none": (asking(model="http://127.0.0.1:9/"), "an address"),
    "a parameter too many": (
        asking(llm="openai/x", api_base="http://127.0.0.1:9"),
        "'api_base' is not allowed in an external definition",
    ),
    "a header of its own": (asking(extra_headers={}), "[server.swarm] remote_agent_params"),
    "no factory": (wrong(factory="python::tests.support.loadable:GATES"), "supervisor"),
    "a wrong entrypoint": (wrong(entrypoint="nobody"), "nobody"),
    "a wrong type": (wrong(agents="all"), "agents"),
}


@pytest.mark.parametrize(("text", "reason"), BAD.values(), ids=BAD)
async def test_a_bad_definition_is_refused_with_its_reason_and_changes_nothing(
    client: httpx.AsyncClient, app: FastAPI, text: str, reason: str
) -> None:
    served = app.state.mail.pool.served
    answer = await client.post("/swarms/load", json={"json": text}, headers=bearer("admin"))
    assert answer.status_code == 400, answer.text
    assert reason in answer.json()["detail"]
    assert [item["field"] for item in answer.json()["errors"]] == ["json"]
    assert app.state.mail.pool.served is served
    assert (await client.get("/")).json()["swarm"]["name"] == "test-swarm"
    assert (await say(client, "alice", "Hello"))["response"] == "one: Hello"


@pytest.mark.parametrize("body", [{}, {"json": None}, {"json": ""}, {"json": {"name": "x"}}])
async def test_the_definition_is_a_text(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    answer = await client.post("/swarms/load", json=body, headers=bearer("admin"))
    assert answer.status_code == 400
    assert [item["field"] for item in answer.json()["errors"]] == ["json"]


async def test_loads_at_the_same_time_happen_one_after_the_other(
    client: httpx.AsyncClient,
) -> None:
    factory = "python::tests.support.loadable:slow_parrot"
    names = [f"swarm-{number}" for number in range(6)]
    answers = await asyncio.gather(*(load(client, name=name, factory=factory) for name in names))
    assert [answer.json()["swarm_name"] for answer in answers] == names
    assert (await client.get("/")).json()["swarm"]["name"] in names
    assert TOGETHER["most"] == 1


async def test_tasks_that_another_process_left_in_the_swarm_are_taken_up(
    store: MemoryStore,
) -> None:
    async with serving(app_of(store, name="second")) as client:
        running = asyncio.create_task(say(client, "alice", "hang", task_id="t"))
        await GATES["entered"].wait()
    await asyncio.gather(running, return_exceptions=True)  # the server stopped before the answer
    GATES["gate"].set()
    async with serving(app_of(store)) as client:
        assert await store.open_owners("second")
        await load(client, name="second", accent="two")
        while await store.open_owners("second"):  # without any request of the caller's
            await asyncio.sleep(0.005)
        assert (await get(client, "/tasks/t")).json()["completed"]


async def test_a_loaded_swarm_may_call_its_model_with_the_callers_token(
    client: httpx.AsyncClient,
) -> None:
    agent = definition()["agents"][0]
    agent["agent_params"] = {"accent": "two", "use_proxy": True}
    await load(client, agents=[agent])
    token = TOKENS["alice"][:10]
    assert (await say(client, "alice", "Hello"))["response"] == f"two with {token}: Hello"
    await load(client, accent="three")
    assert (await say(client, "alice", "Hello"))["response"] == "three: Hello"


async def test_a_dump_is_in_the_log(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await load(client, name="second", agent="clerk")
    with caplog.at_level(logging.INFO, "mail.server"):
        answer = await get(client, "/swarms/dump", "admin")
    assert answer.json() == {"status": "dumped", "swarm_name": "second"}
    assert "the swarm is 'second'; its agents are 'clerk'" in caplog.messages


@pytest.mark.parametrize("who", ["alice", "swarm"])
async def test_only_administrators_may(client: httpx.AsyncClient, who: str) -> None:
    body = {"json": json.dumps(definition(name="second"))}
    answers = [
        await get(client, "/swarms/dump", who),
        await client.post("/swarms/load", json=body, headers=bearer(who)),
    ]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert (await client.get("/")).json()["swarm"]["name"] == "test-swarm"


async def test_the_client_does_both(client: httpx.AsyncClient) -> None:
    url = str(client.base_url)
    async with MAILClient(url, TOKENS["admin"], config=ClientConfig(timeout=10)) as admin:
        loaded = await admin.load_swarm_from_json(json.dumps(definition(name="second")))
        assert loaded == {"status": "success", "swarm_name": "second"}
        assert await admin.dump_swarm() == {"status": "dumped", "swarm_name": "second"}
        with pytest.raises(ClientHTTPError, match="must not be imported") as failure:
            await admin.load_swarm_from_json(wrong(factory="python::os:system"))
        assert failure.value.status == 400
