"""Teams of agents and participants: an agent asks a participant, and the reverse, over HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail.api import MAILSwarmTemplate
from mail.llm.script import Steps, call
from mail.llm.script_view import ScriptView
from tests.server.kit import bearer
from tests.server.test_desk import fetch, send, thread
from tests.server.test_desk_agents import begin, ended, mail
from tests.server.test_teams import ask, tell, tell_all
from tests.support.swarm import scripted_agent
from tests.support.till import served_from


async def _lead(view: ScriptView) -> Steps:
    """Ask the editor for a user, tell the team, and answer teammates."""
    team: dict[str, Any] = {"teamId": "alpha"}
    if view.forced == "task_complete":
        return call("task_complete", finish_message="told to finish")
    if view.new_results:
        return call("task_complete", finish_message=view.new_results[-1].content)
    if view.sender == "alice" and view.body.startswith("all"):
        return [
            call("teammate_broadcast", **team, message="Friday"),
            call("task_complete", finish_message="told"),
        ]
    if view.body.startswith("fyi"):
        return call("acknowledge_broadcast" if "all" in view.body else "ignore_broadcast")
    if view.sender == "alice":
        asked = {"to": "editor", "message": view.body, "waitForReply": True}
        if view.body.startswith("tell"):
            asked |= {"waitForReply": False, "timeoutSeconds": -1, "priority": "whenever"}
        return call("teammate_message", **team, **asked)
    answer = call("teammate_message", **team, to=view.sender, message=f"heard: {view.body}")
    return [answer, call("task_complete", finish_message="done")]


def swarm() -> MAILSwarmTemplate:
    """Return a swarm with no communication targets, whose supervisor leads a team."""
    lead = scripted_agent("supervisor", _lead, system="Lead.")
    return MAILSwarmTemplate(
        name="test-swarm",
        version="1",
        agents=[lead],
        entrypoint="supervisor",
        participants=[{"name": each, "description": ""} for each in ("editor", "reviewer")],
        teams=[{"id": "alpha", "lead": "supervisor", "members": ["editor", "reviewer"]}],
    )


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of one server for the module."""
    url = f"sqlite:///{tmp_path_factory.mktemp('teams')}/mail.db"
    with served_from(url, swarm()) as (client, _):
        yield client


def outcome(http: httpx.Client, task_id: str) -> dict[str, Any]:
    """Wait for a user's task to complete; return its answer, which is JSON."""
    place, params = f"/tasks/{task_id}/events", {"after": "0"}
    with http.stream("GET", place, headers=bearer("alice"), params=params) as events:
        for line in events.iter_lines():
            if line.startswith("data:") and '"task_complete"' in line:
                break
    record = http.get(f"/tasks/{task_id}", headers=bearer("alice")).json()
    ends = [one for one in record["events"] if one["event"] == "task_complete"]
    answer: dict[str, Any] = json.loads(json.loads(ends[-1]["data"])["response"])
    return answer


def test_an_agent_waits_for_a_participant_whose_message_is_the_reply(http: httpx.Client) -> None:
    task_id = begin(http, "Ready?")
    asked = mail(http, "editor")
    assert (asked["sender_id"], asked["content"]) == ("supervisor", "Ready?")
    sent = tell(http, "editor", to="lead", message="Yes.", requestId="yes").json()
    assert tell(http, "editor", to="lead", message="Yes.", requestId="yes").json() == sent
    told = outcome(http, task_id)
    assert told["status"] == "replied" and told["messageId"] == asked["id"]
    assert (told["reply"]["from"], told["reply"]["message"]) == ("editor", "Yes.")
    place = f"/messages/{sent['messageId']}"
    (receipt,) = http.get(place, headers=bearer("editor")).json()["receipts"]
    assert (receipt["state"], receipt["turn"]) == ("shown", 2), "the reply stood in a request"
    fetch(http, "editor")


def last_line(text: str) -> str:
    """Return a message without what a post of a thread brings along before it."""
    return text.rpartition("\n")[2]


def test_a_reply_in_a_thread_is_told_apart_from_what_came_before_it(http: httpx.Client) -> None:
    there = thread(http, "supervisor", "reviewer")
    fetch(http, "reviewer", limit=100)
    send(http, "reviewer", thread_id=there, content="Not yet.")
    assert last_line(mail(http, "reviewer")["content"]) == "Not yet."
    fetch(http, "editor", limit=100)
    task_id = begin(http, "Ready?")
    asked = mail(http, "editor")["id"]
    send(http, "editor", thread_id=there, reply_to=asked, content="Yes.")
    reply = outcome(http, task_id)["reply"]
    assert reply["message"] == "Yes."
    told = [json.loads(line) for line in reply["earlier"].split("\n") if line.startswith("{")]
    assert [last_line(each["text"]) for each in told[1:]] == ["Not yet.", "Not yet."]
    for who in ("editor", "reviewer"):
        fetch(http, who, limit=100)


def test_a_participant_waits_for_an_agent(http: httpx.Client) -> None:
    answer = ask(http, "reviewer", to="lead")
    assert answer["status"] == "replied"
    assert (answer["reply"]["from"], answer["reply"]["message"]) == ("lead", "heard: Ready?")


def test_a_broadcast_of_an_agent_reaches_participants(http: httpx.Client) -> None:
    fetch(http, "editor")
    begin(http, "all of you")
    for who in ("editor", "reviewer"):
        got = mail(http, who)
        assert (got["content"], got["kind"]) == ("Friday", "broadcast")


def test_a_broadcast_of_a_participant_reaches_the_agent_that_leads(http: httpx.Client) -> None:
    for who in ("editor", "reviewer"):
        fetch(http, who, limit=100)
    told = tell_all(http, "editor", message="Monday", excludeSelf=True).json()
    assert told["deliveredTo"] == ["reviewer", "lead"]
    assert mail(http, "reviewer")["content"] == "Monday"
    assert mail(http, "editor")["content"] == "heard: Monday"


def test_an_agent_carries_on_after_a_message_to_a_participant(http: httpx.Client) -> None:
    for who in ("editor", "reviewer"):
        fetch(http, who, limit=100)
    body = {"body": "tell them", "show_events": True}
    answer = http.post("/message", headers=bearer("alice"), json=body).json()
    told, got = json.loads(answer["response"]), mail(http, "editor")
    assert told == {"messageId": got["id"], "delivered": True, "state": "stored"}
    assert got["content"] == "tell them" and answer["status"] == "completed"
    record = http.get(f"/tasks/{answer['task_id']}", headers=bearer("alice")).json()
    assert not record.get("waiting_for")
    fetch(http, "editor")


@pytest.mark.parametrize("priority", ["normal", "urgent"])
def test_who_tells_an_agent_something_gets_no_answer_that_nobody_gave(
    http: httpx.Client, priority: str
) -> None:
    before = http.get("/tasks", headers=bearer("editor")).json().keys()
    tell(http, "editor", to="lead", message="fyi: gone", priority=priority)
    tell_all(http, "editor", message="fyi: all", excludeSelf=True, priority=priority)
    begun = http.get("/tasks", headers=bearer("editor")).json().keys() - before
    assert [ended(http, task_id, "editor") for task_id in begun] == ["nothing is left to do"] * 2
    assert fetch(http, "editor", unread="true")["messages"] == []
    fetch(http, "reviewer", limit=100)


def test_an_agent_waits_on_for_a_participant_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    with served_from(url, swarm()) as (http, _):
        task_id = begin(http, "Ready?")
        mail(http, "editor")
    with served_from(url, swarm()) as (http, _):
        tell(http, "editor", to="lead", message="Yes.")
        assert outcome(http, task_id)["reply"]["message"] == "Yes."
