"""What tasks use, and what happens when it is too much, over HTTP."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mail.config.server import ServerConfig, SettingsConfig
from mail.core.usage import Usage
from mail.db.memory import MemoryStore
from mail.server.app import create_app
from tests.server.kit import Script, Template, bearer, config, frames, serving

USAGE = Usage(prompt_tokens=80, completion_tokens=20, total_tokens=100, cost=0.25)


def with_settings(**settings: Any) -> ServerConfig:
    """Return the usual settings with these."""
    return config().model_copy(
        update={"settings": SettingsConfig(print_llm_streams=False, **settings)}
    )


@pytest.fixture
async def script() -> Script:
    """An agent whose calls cost something."""
    return Script(usage=USAGE)


@pytest.fixture
async def poor(store: MemoryStore, template: Template) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that gives every task 250 tokens."""
    app = create_app(with_settings(task_token_limit=250), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        yield client


async def post(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    """Post a message to the task t-1."""
    return await client.post("/message", json={"task_id": "t-1"} | body, headers=bearer("alice"))


async def record(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return the task's record."""
    answer = await client.get("/tasks/t-1", headers=bearer("alice"))
    return answer.json()  # type: ignore[no-any-return]


async def test_a_task_says_what_it_has_used(client: httpx.AsyncClient) -> None:
    await post(client, body="one")
    await post(client, body="two")
    usage = (await record(client))["usage"]
    both = {
        "calls": 2,
        "prompt_tokens": 160,
        "completion_tokens": 40,
        "total_tokens": 200,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "cost": 0.5,
    }
    assert usage == {"total": both, "agents": {"supervisor": both}}
    listed = (await client.get("/tasks", headers=bearer("alice"))).json()
    assert listed["t-1"]["usage"] == usage
    asked = await client.request("GET", "/task", json={"task_id": "t-1"}, headers=bearer("alice"))
    assert asked.json()["usage"] == usage


async def test_a_task_that_has_used_nothing_says_so_in_zeros(
    client: httpx.AsyncClient, script: Script
) -> None:
    script.usage = None
    await post(client, body="one")
    usage = (await record(client))["usage"]
    assert usage["agents"] == {}
    assert usage["total"]["calls"] == usage["total"]["total_tokens"] == 0
    assert "cost" not in usage["total"]


async def test_a_stream_has_the_usage_of_each_call(client: httpx.AsyncClient) -> None:
    events = frames((await post(client, body="one", stream=True)).text)
    [usage] = [json.loads(event["data"]) for event in events if event["event"] == "model_usage"]
    assert usage["extra_data"].pop("duration_ms") >= 0
    assert usage["extra_data"] == {
        "caller": "supervisor",
        "model": "test/model",
        "usage": USAGE.to_dict(),
        "task_usage": USAGE.to_dict(),
    }


async def test_a_task_over_its_budget_is_402_with_the_numbers(
    poor: httpx.AsyncClient, script: Script
) -> None:
    answer = await post(poor, body="waste")
    assert answer.status_code == 402
    assert answer.json()["task_id"] == "t-1"
    assert "the task has used 200 tokens" in answer.json()["detail"]
    assert "250 (task_token_limit)" in answer.json()["detail"]
    assert script.calls == 2
    task = await record(poor)
    assert (task["status"], task["usage"]["total"]["total_tokens"]) == ("failed", 200)
    events = [event["event"] for event in task["events"]]
    assert events[-1] == "task_error" and events.count("model_usage") == 2


async def test_more_mail_for_an_exhausted_task_is_402_at_once(
    poor: httpx.AsyncClient, script: Script
) -> None:
    await post(poor, body="waste")
    for more in ({}, {"resume_from": "user_response"}):
        answer = await post(poor, body="still there?", **more)
        assert answer.status_code == 402
    assert script.calls == 2
    other = await post(poor, body="another task", task_id="t-2")
    assert other.status_code == 200


async def test_a_stream_over_budget_ends_with_task_error(poor: httpx.AsyncClient) -> None:
    for body in ("waste", "again"):
        answer = await post(poor, body=body, stream=True)
        events = frames(answer.text)
        assert answer.status_code == 200
        assert events[-1]["event"] == "task_error"
        last = json.loads(events[-1]["data"])
        assert (last["status"], last["subject"]) == ("failed", "::task_error::")
        assert "task_token_limit" in last["response"]


async def test_money_is_limited_too(store: MemoryStore, template: Template) -> None:
    app = create_app(with_settings(task_cost_limit=0.3), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        answer = await post(client, body="waste")
        assert answer.status_code == 402
        assert "$0.50" in answer.json()["detail"] and "$0.30" in answer.json()["detail"]


async def test_a_restart_with_a_higher_budget_lets_the_task_go_on(
    poor: httpx.AsyncClient, store: MemoryStore
) -> None:
    assert (await post(poor, body="waste")).status_code == 402
    template = Template(Script(usage=USAGE))
    app = create_app(with_settings(task_token_limit=330), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        assert (await post(client, body="more waste")).status_code == 402
        assert (await record(client))["usage"]["total"]["calls"] == 3
