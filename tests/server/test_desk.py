"""Participants at the mail desk, over HTTP, with a database that outlives the server."""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from mail.net.endpoints import SwarmFacts, make_endpoint
from tests.server.kit import bearer
from tests.support.till import served_from

TO_REVIEWER = {"recipient_id": "reviewer", "content": "hello"}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, FastAPI]]:
    """One server for the module with each database; a swarm 'beta' is registered."""
    url = f"sqlite:///{tmp_path_factory.mktemp('desk')}/mail.db"
    if request.param == "postgres":
        url = request.getfixturevalue("cluster").schema()
    with served_from(url) as (client, app):
        facts: SwarmFacts = {
            "name": "beta",
            "version": "1.3",
            "description": "",
            "keywords": [],
            "public": False,
        }
        entry = make_endpoint("beta", "http://127.0.0.1:9", facts, volatile=True)
        app.state.mail.registry.endpoints["beta"] = entry
        yield client, app


@pytest.fixture
def http(server: tuple[httpx.Client, FastAPI]) -> httpx.Client:
    """A client of that server; nobody has unread messages."""
    for who in ("editor", "reviewer"):
        fetch(server[0], who, limit=100)
    return server[0]


def send(http: httpx.Client, who: str, **body: Any) -> httpx.Response:
    """Send a message."""
    return http.post("/messages", headers=bearer(who), json=body)


def fetch(http: httpx.Client, who: str, **query: Any) -> dict[str, Any]:
    """Return a page of somebody's messages."""
    answer = http.get("/messages", headers=bearer(who), params=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def thread(http: httpx.Client, *others: str) -> str:
    """Let the editor create a thread; return its id."""
    body = {"title": "Release", "participants": others}
    made: str = http.post("/threads", headers=bearer("editor"), json=body).json()["thread"]["id"]
    return made


def test_a_message_travels_and_its_sender_sees_what_became_of_it(http: httpx.Client) -> None:
    sent = send(http, "editor", **TO_REVIEWER, subject="Hi", urgent=True, wants_ack=True).json()
    place = f"/messages/{sent['message_id']}"
    (got,) = fetch(http, "reviewer", unread="true")["messages"]
    assert got == sent["message"] | {"read": False}
    (receipt,) = http.get(place, headers=bearer("editor")).json()["receipts"]
    assert receipt["state"] == "shown"
    assert http.get(place, headers=bearer("reviewer")).json()["receipts"] is None
    overdue = http.get("/messages/overdue", headers=bearer("editor")).json()["overdue"]
    assert [each["message"]["id"] for each in overdue] == [sent["message_id"]]
    done = http.post(f"{place}/ack", headers=bearer("reviewer"), json={"note": "on it"}).json()
    assert (done["status"], done["receipt"]["note"]) == ("acknowledged", "on it")
    again = http.post(f"{place}/ack", headers=bearer("reviewer")).json()
    assert again == {"status": "already_acknowledged", "receipt": done["receipt"]}
    (receipt,) = http.get(place, headers=bearer("admin")).json()["receipts"]
    assert receipt == done["receipt"]
    assert http.get("/messages/overdue", headers=bearer("editor")).json()["overdue"] == []


def find(http: httpx.Client, who: str, q: str, **query: Any) -> httpx.Response:
    """Search somebody's messages."""
    return http.get("/messages/search", headers=bearer(who), params={"q": q, **query})


def test_a_search_finds_ones_own_messages(http: httpx.Client) -> None:
    text = f"{'before ' * 40}the Überraschung is\nready, {'after ' * 40}"
    first = send(http, "editor", recipient_id="reviewer", content=text, subject="To open").json()
    there = thread(http, "reviewer")
    second = send(http, "reviewer", thread_id=there, content="uberraschung!").json()
    page = find(http, "reviewer", "uberraschung").json()
    assert [each["id"] for each in page["messages"]] == [second["message_id"], first["message_id"]]
    post, letter = page["messages"]
    assert post == {
        "id": second["message_id"],
        "sender_id": "reviewer",
        "recipient_ids": ["editor"],
        "thread_id": there,
        "subject": None,
        "snippet": "uberraschung!",
        "created_at": second["message"]["created_at"],
        "read": True,
    }
    assert letter["snippet"].startswith("…before before")
    assert "the Überraschung is ready, after" in letter["snippet"]
    assert letter["snippet"].endswith("…")
    assert letter["read"] is False
    assert page["next_before"] is None
    (older,) = find(http, "editor", "uber*", thread_id=there).json()["messages"]
    assert older["id"] == second["message_id"]
    pages = find(http, "reviewer", "uberraschung", limit=1).json()
    rest = find(http, "reviewer", "uberraschung", limit=1, before=pages["next_before"]).json()
    assert [each["id"] for each in rest["messages"]] == [first["message_id"]]
    assert find(http, "reviewer", '"to open"').json()["messages"][0]["subject"] == "To open"


def test_a_search_finds_nothing_of_others(http: httpx.Client) -> None:
    there = thread(http)
    send(http, "editor", thread_id=there, content="pomegranate")
    assert find(http, "reviewer", "pomegranate").json()["messages"] == []
    assert find(http, "reviewer", "pomegranate", thread_id=there).status_code == 404
    assert find(http, "editor", "pomegranate").json()["messages"] != []
    assert find(http, "admin", "pomegranate").status_code == 403
    refused = find(http, "reviewer", "x", agent_id="editor")
    assert (refused.status_code, "your own id" in refused.json()["detail"]) == (403, True)


def test_a_search_takes_any_text_but_not_too_much(http: httpx.Client) -> None:
    for q in ("", '"', "a AND (b", "NEAR(a, b)", "'; DROP TABLE desk_letters --", "*"):
        assert find(http, "editor", q).json() == {"messages": [], "next_before": None}, q
    for q in ("x" * 501, " ".join(map(str, range(33)))):
        refused = find(http, "editor", q)
        assert (refused.status_code, "q: " in refused.json()["detail"]) == (400, True), q
    assert http.get("/messages/search", headers=bearer("editor")).status_code == 400


def test_threads_over_http(http: httpx.Client) -> None:
    there = thread(http)
    joined = http.post(f"/threads/{there}/join", headers=bearer("reviewer")).json()
    assert (joined["status"], joined["thread"]["participants"]) == (
        "joined",
        ["editor", "reviewer"],
    )
    again = http.post(f"/threads/{there}/join", headers=bearer("reviewer")).json()
    assert again["status"] == "already_participant"
    assert send(http, "reviewer", thread_id=there, content="which?").status_code == 200
    found = fetch(http, "editor", thread_id=there)["messages"]
    assert [each["kind"] for each in found] == ["thread", "notice"]
    assert [each["sender_id"] for each in found] == ["reviewer", None]
    threads = http.get("/threads", headers=bearer("reviewer")).json()["threads"]
    assert there in [each["id"] for each in threads]
    assert http.get(f"/threads/{there}", headers=bearer("admin")).json() == joined["thread"]
    place = f"/threads/{there}/participants"
    removed = http.delete(f"{place}/reviewer", headers=bearer("editor")).json()
    assert removed == {"status": "removed", "thread_id": there, "removed_id": "reviewer"}
    gone = http.get(f"/threads/{there}", headers=bearer("reviewer"))
    never = http.get("/threads/nowhere", headers=bearer("reviewer"))
    assert (gone.status_code, gone.json()) == (404, never.json())
    added = http.post(place, headers=bearer("editor"), json={"agent_id_to_add": "reviewer"})
    assert added.json()["status"] == "added"


def test_threads_come_in_pages_those_with_the_newest_messages_first(http: httpx.Client) -> None:
    old, middle, new = (thread(http) for _ in range(3))
    send(http, "editor", thread_id=old, content="still here?")

    def listed(**query: Any) -> tuple[list[str], str]:
        page = http.get("/threads", headers=bearer("editor"), params=query).json()
        return [each["id"] for each in page["threads"]], page["next_after"]

    assert listed(limit=3)[0] == [old, new, middle]
    first, place = listed(limit=1)
    assert first == [old]
    send(http, "editor", thread_id=middle, content="between two pages")
    rest, end = listed(after=place, limit=1000)
    assert (rest[0], end) == (new, None)
    assert not {old, middle} & {*rest}
    assert listed(limit=3)[0] == [middle, old, new]
    copied = http.get(f"/threads?after={place}&limit=1", headers=bearer("editor")).json()
    assert [each["id"] for each in copied["threads"]] == [new], "with a bare plus sign"
    wrong = http.get(f"/threads?after={old}", headers=bearer("editor"))
    assert (wrong.status_code, "next_after" in wrong.json()["detail"]) == (400, True)


CLAIMS: list[tuple[str, str, dict[str, Any] | None, str]] = [
    ("POST", "/messages", {**TO_REVIEWER, "sender_id": "reviewer"}, "sender_id"),
    ("GET", "/messages?agent_id=reviewer", None, "agent_id"),
    ("GET", "/messages/unread?agent_id=reviewer", None, "agent_id"),
    ("POST", "/messages/x/ack", {"agent_id": "reviewer"}, "agent_id"),
    ("POST", "/threads", {"title": "x", "participants": [], "creator_id": "x"}, "creator_id"),
    ("POST", "/threads/x/join?agent_id=reviewer", None, "agent_id"),
    (
        "POST",
        "/threads/x/participants",
        {"agent_id_to_add": "editor", "inviting_agent_id": "reviewer"},
        "inviting_agent_id",
    ),
    (
        "DELETE",
        "/threads/x/participants/reviewer?removing_agent_id=reviewer",
        None,
        "removing_agent_id",
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "name"), CLAIMS)
def test_nobody_acts_for_another(
    http: httpx.Client,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    body: dict[str, Any] | None,
    name: str,
) -> None:
    with caplog.at_level(logging.WARNING, "mail.server.audit"):
        answer = http.request(method, path, headers=bearer("editor"), json=body)
    assert answer.status_code == 403
    assert answer.json()["detail"] == f"{name} must be your own id, 'editor'"
    assert f"of agent 'editor': 403 {name} must be" in caplog.messages[-1]


def test_what_is_not_ones_own_looks_like_nothing(http: httpx.Client) -> None:
    letter = send(http, "editor", **TO_REVIEWER).json()["message_id"]
    own = http.post(f"/messages/{letter}/ack", headers=bearer("editor"), json={})
    none = http.post("/messages/none/ack", headers=bearer("editor"), json={})
    assert (own.status_code, own.json()) == (404, none.json())
    there = thread(http)
    for method, path, body in (
        ("POST", "/messages", {"thread_id": "ID", "content": "x"}),
        ("GET", "/messages?thread_id=ID", None),
        ("GET", "/threads/ID", None),
        ("POST", "/threads/ID/participants", {"agent_id_to_add": "reviewer"}),
        ("DELETE", "/threads/ID/participants/editor", None),
    ):
        answers = []
        for name in (there, "nowhere"):
            sent = None if body is None else {k: v.replace("ID", name) for k, v in body.items()}
            path_of = path.replace("ID", name)
            answer = http.request(method, path_of, headers=bearer("reviewer"), json=sent)
            answers.append((answer.status_code, answer.json()))
        assert answers[0] == answers[1] == (404, {"detail": "no such thread", "errors": []})


def test_peers_and_people_are_sent_where_they_belong(
    server: tuple[httpx.Client, FastAPI], caplog: pytest.LogCaptureFixture
) -> None:
    http, app = server
    with caplog.at_level(logging.WARNING, "mail.server.audit"):
        peer = send(http, "swarm", **TO_REVIEWER)
    assert peer.status_code == 403
    assert "'beta' is no participant of the swarm" in peer.json()["detail"]
    assert "refused POST /messages of agent 'beta': 403" in caplog.messages[-1]
    person = send(http, "alice", **TO_REVIEWER)
    assert person.status_code == 403
    assert "mail token create --role agent --id NAME --participant" in person.json()["detail"]
    assert "POST /message" in person.json()["detail"]
    lost = http.post("/message", headers=bearer("editor"), json={"body": "hello"})
    assert lost.status_code == 403
    assert "'editor' is a participant, whose routes are /messages" in lost.json()["detail"]
    registry = app.state.mail.registry.endpoints
    registry["editor"] = registry["beta"] | {"swarm_name": "editor"}
    try:
        both = [
            send(http, "editor", **TO_REVIEWER),
            http.post("/interswarm/forward", headers=bearer("editor"), json={}),
        ]
    finally:
        del registry["editor"]
    assert [answer.status_code for answer in both] == [403, 403]
    assert "both a participant and a registered swarm" in both[0].json()["detail"]


@pytest.mark.parametrize(
    "addresses",
    [
        {},
        {"recipient_id": "reviewer", "thread_id": "x"},
        {"recipient_id": "reviewer", "recipient_ids": ["reviewer"]},
    ],
)
def test_a_message_has_exactly_one_address(http: httpx.Client, addresses: dict[str, Any]) -> None:
    answer = send(http, "editor", content="x", **addresses)
    assert answer.status_code == 400
    assert "exactly one of recipient_id, thread_id and recipient_ids" in answer.json()["detail"]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "since=2026-01-01T00:00:00", "before=-1", "request_id=a%20b"]
)
def test_wrong_parameters_are_400(http: httpx.Client, query: str) -> None:
    answer = http.get(f"/messages?{query}", headers=bearer("editor"))
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == query.partition("=")[0]


def test_a_request_id_or_a_key_sends_once(http: httpx.Client) -> None:
    for more in ({"json": TO_REVIEWER | {"request_id": "one"}}, {"json": TO_REVIEWER}):
        headers = bearer("editor") | ({} if "request_id" in more["json"] else KEY)
        first = http.post("/messages", headers=headers, **more)
        again = http.post("/messages", headers=headers, **more)
        assert first.json() == again.json()
        other = more["json"] | {"content": "other"}
        refused = http.post("/messages", headers=headers, json=other)
        assert refused.status_code == 409
    assert http.get("/messages/unread", headers=bearer("reviewer")).json() == {
        "unread": 2,
        "latest": None,
    }


KEY = {"Idempotency-Key": "desk-1"}


def waiting(http: httpx.Client, app: FastAPI, seconds: float) -> tuple[threading.Thread, list[Any]]:
    """Let the reviewer wait for mail in a thread; return it when the server has the request."""
    answers: list[Any] = []

    def ask() -> None:
        with httpx.Client(base_url=http.base_url, timeout=30) as own:
            path = f"/messages/unread?wait={seconds}"
            answer = own.get(path, headers=bearer("reviewer"))
            answers.append((answer.status_code, answer.json()))

    open_before = app.state.mail.quotas.open_streams
    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(1000):
        if app.state.mail.quotas.open_streams > open_before:
            return asking, answers
        time.sleep(0.01)
    raise AssertionError("the request did not arrive")


def test_who_waits_is_woken_by_a_message(
    http: httpx.Client, server: tuple[httpx.Client, FastAPI]
) -> None:
    asking, answers = waiting(http, server[1], 120)
    assert answers == []
    send(http, "editor", **TO_REVIEWER)
    asking.join(20)
    assert answers == [(200, {"unread": 1, "latest": None})]
    assert server[1].state.mail.quotas.open_streams == 0
    at_once = http.get("/messages/unread?wait=300", headers=bearer("reviewer"))
    assert at_once.json() == {"unread": 1, "latest": None}
    none = http.get("/messages/unread?wait=0.01", headers=bearer("editor"))
    assert none.json() == {"unread": 0, "latest": None}


def test_everything_survives_a_restart_and_who_waits_is_let_go(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    with served_from(url, max_streams=1) as (http, app):
        asking, answers = waiting(http, app, 120)
        busy = http.get("/messages/unread?wait=1", headers=bearer("reviewer"))
        assert busy.status_code == 429
        there = thread(http)
        app.state.loop.call_soon_threadsafe(app.state.mail.begin_drain)  # as SIGTERM does
        asking.join(20)
    assert answers == [(200, {"unread": 0, "latest": None})]
    with served_from(url) as (http, _):
        first = send(http, "editor", **TO_REVIEWER, request_id="r").json()
        page = fetch(http, "reviewer", request_id="p")
    with served_from(url) as (http, _):
        assert send(http, "editor", **TO_REVIEWER, request_id="r").json() == first
        assert fetch(http, "reviewer", request_id="p") == page
        assert [each["content"] for each in page["messages"]] == ["hello"]
        assert http.get(f"/threads/{there}", headers=bearer("editor")).status_code == 200
        assert fetch(http, "reviewer")["messages"][0]["read"]


def test_who_stores_too_much_gets_507(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    with served_from(url, max_stored_bytes=2600, max_message_bytes=1500) as (http, _):
        long = {"recipient_id": "reviewer", "content": "x" * 1501}
        too_long = send(http, "editor", **long)
        assert too_long.status_code == 400
        assert "content: must not be longer than 1500 bytes" in too_long.json()["detail"]
        long["content"] = "x" * 1500
        assert [send(http, "editor", **long).status_code for _ in range(3)] == [200, 200, 507]
        full = http.post(
            "/threads", headers=bearer("editor"), json={"title": "x", "participants": []}
        )
        assert full.status_code == 507
        assert "letters_days" in full.json()["detail"]
        reply = {"recipient_id": "editor", "content": "x"}
        assert send(http, "reviewer", **reply).status_code == 200


def test_text_of_any_kind_comes_back_as_it_was(http: httpx.Client) -> None:
    text = "a\0b \u2028 \U0001f600 \r\n \x1b[31m <tag> ' \" \\"
    assert send(http, "editor", recipient_id="reviewer", content=text).status_code == 200
    assert fetch(http, "reviewer", limit=1)["messages"][0]["content"] == text
