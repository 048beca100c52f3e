"""Broadcasts over HTTP that agents acknowledge or ignore, with a real server and factories."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail.api import MAILAgentTemplate, MAILSwarmTemplate
from mail.factories import LiteLLMAgentFunction, LiteLLMSupervisorFunction
from mail.llm.script import Steps, call
from mail.llm.script_view import ScriptView
from mail.llm.scripted import ScriptedModel
from tests.server.kit import bearer
from tests.support.till import served_from

TOLD = "- clerk: ignored\n- supervisor: acknowledged\n- watcher: acknowledged"


async def _lead(view: ScriptView) -> Steps:
    """Pass a broadcast of a user on; nothing else is expected."""
    assert view.sender == "alice" and not view.forced, view.body
    news = {"subject": "News", "body": view.body}
    return [call("acknowledge_broadcast", note="private"), call("send_broadcast", **news)]


async def _watcher(view: ScriptView) -> Steps:
    return call("acknowledge_broadcast", note="private")


async def _clerk(view: ScriptView) -> Steps:
    return call("ignore_broadcast", reason="private")


def swarm() -> MAILSwarmTemplate:
    """Return a swarm whose lead passes on what it is told."""

    def agent(name: str, script: Any, factory: Any, *targets: str, **more: Any) -> Any:
        params = {"llm": "scripted", "model": ScriptedModel(script), "system": "Work."}
        return MAILAgentTemplate(name, factory, list(targets), [], params, **more)

    lead = {"enable_entrypoint": True, "can_complete_tasks": True}
    others = "watcher", "clerk"
    agents = [
        agent("supervisor", _lead, LiteLLMSupervisorFunction, *others, **lead),
        agent("watcher", _watcher, LiteLLMAgentFunction, "supervisor", enable_entrypoint=True),
        agent("clerk", _clerk, LiteLLMAgentFunction, "supervisor"),
    ]
    return MAILSwarmTemplate("test-swarm", "1", agents=agents, entrypoint="supervisor")


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of one server for the module."""
    url = f"sqlite:///{tmp_path_factory.mktemp('broadcasts')}/mail.db"
    with served_from(url, swarm()) as (client, _):
        yield client


def test_the_answer_to_a_broadcast_tells_who_did_what(http: httpx.Client) -> None:
    body = {"body": "We close at noon.", "msg_type": "broadcast", "show_events": True}
    answer = http.post("/message", headers=bearer("alice"), json=body)
    told = answer.json()
    assert (answer.status_code, told["status"]) == (200, "completed")
    assert told["subject"] == "::broadcast_settled::"
    assert told["response"].partition("\n")[2] == TOLD
    assert "private" not in answer.text
    record = http.get(f"/tasks/{told['task_id']}", headers=bearer("alice")).json()
    assert record["is_running"] is False


def test_a_stream_ends_with_it(http: httpx.Client) -> None:
    body = {"body": "We close at noon.", "msg_type": "broadcast", "stream": True}
    with http.stream("POST", "/message", headers=bearer("alice"), json=body) as events:
        lines = list(events.iter_lines())
    ends = lines[lines.index("event: task_complete") :]
    [data] = [json.loads(line[len("data:") :]) for line in ends if line.startswith("data:")]
    assert data["response"].endswith(TOLD)


def test_an_agent_that_may_not_finish_answers_for_itself(http: httpx.Client) -> None:
    body = {"body": "We close at noon.", "msg_type": "broadcast", "entrypoint": "watcher"}
    told = http.post("/message", headers=bearer("alice"), json=body).json()
    assert told["response"].endswith("\n- watcher: acknowledged")


async def test_the_same_in_a_library(tmp_path: Path) -> None:
    made = swarm().instantiate(
        {}, user_id="alice", print_llm_streams=False, store=f"sqlite:///{tmp_path}/mail.db"
    )
    answer, _ = await made.post_message("We close at noon.", msg_type="broadcast")
    assert answer["message"]["body"].endswith(TOLD)
    assert answer["message"]["sender"] == {"address_type": "system", "address": "test-swarm"}
    await made.shutdown()
