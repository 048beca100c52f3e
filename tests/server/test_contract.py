"""Every documented route: with the right role, each wrong one, no token, and malformed requests.

One table holds the facts. The page and the application are held against it, and it against a real
server, to the key of every answer.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
import yaml
from fastapi import FastAPI

from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import OutboxRow, Owner, TaskRow
from mail.db.webhooks import WebhookRow
from mail.net.endpoints import SwarmFacts, make_endpoint
from mail.net.peers import PeerAccess
from mail.net.types import (
    GetHealthResponse,
    GetWhoamiResponse,
    PostMessageResponse,
    TaskRecord,
)
from mail.server.app import create_app
from mail.server.routing import MAILRoute
from tests.net.test_registry import town
from tests.server.contract import (
    ALL,
    ASKED,
    BODIES,
    BY_ROLE,
    DEBUG,
    DOCUMENT,
    ENDLESS,
    EVENTS,
    LIMIT,
    MCP,
    MCP_SESSIONS,
    MESSAGE_WRONG,
    NEIGHBOUR,
    NOTHING,
    NOWHERE,
    OPTIONS_WRONG,
    PAGE,
    PEER,
    PEOPLE,
    REGISTRATION,
    RESPONSE,
    THREAD,
    UNFIT,
    USUAL,
    Error,
    Page,
    Row,
    mail,
)
from tests.server.kit import CALLERS, bearer, frames, put_aside
from tests.support.background import served
from tests.support.shapes import misfits
from tests.support.till import known_callers, settings, till

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    """What that server stores."""
    return asyncio.run(known_callers())


@pytest.fixture(scope="module")
def url(store: MemoryStore) -> Iterator[str]:
    """A server in debug mode for all tests of this module."""

    async def make() -> FastAPI:
        limits = settings(debug=True, max_body_bytes=LIMIT)
        made.append(create_app(limits, template=till(), store=store))
        return made[0]

    made: list[FastAPI] = []
    with served(make) as url:
        facts: SwarmFacts = {
            "name": NEIGHBOUR,
            "version": "1.3",
            "description": "",
            "keywords": [],
            "public": False,
        }
        entry = make_endpoint(NEIGHBOUR, "http://127.0.0.1:9", facts, volatile=True)
        registry, world = made[0].state.mail.registry, town(REGISTRATION["name"])
        registry.endpoints[NEIGHBOUR] = entry
        access = PeerAccess(registry.access.policy, None, world.resolve, world.transport)
        registry.access = access
        yield url


class Caller(httpx.Client):
    """A client that knows what the server stores."""

    store: MemoryStore


@pytest.fixture(scope="module")
def http(url: str, store: MemoryStore) -> Iterator[httpx.Client]:
    """A client of that server."""
    with Caller(base_url=url, timeout=20) as client:
        client.store = store
        yield client


def some(row: Row) -> str:
    """Return the row's path with ids that nobody needs to have."""
    path = re.sub(r"\{(task|response)_id\}", "seen", _asset(row.path))
    path = path.replace("{number}", "1").replace("{prefix}", "0000")
    return path.replace("{model}", till().name)


def _asset(path: str) -> str:
    return path.replace("{name}", "app.js" if path.startswith("/console") else "docs.js")


def caller_of(row: Row, person: str = "alice") -> str:
    """Return who may use a row: a person, or else an administrator, or else another swarm."""
    return person if "user" in row.who else by_role(row, min(row.who, default="admin"))


def by_role(row: Row, role: str) -> str:
    """Return a caller of a role: of an agent's the peer, or for the mail desk the participant."""
    for_participants = row.of_desk or row.path.startswith(("/task", "/approvals"))
    return "editor" if for_participants and role == "agent" else BY_ROLE[role]


def concrete(row: Row, http: httpx.Client, who: str = "alice") -> str:
    """Return the row's path with the id of a task, or a response, that the caller has."""
    if "/set-aside/" in row.path:
        return asyncio.run(_set_aside(http, row.path, who))
    if row.path == "/outbox/{number}" or row.path.startswith("/webhook/") or "{prefix}" in row.path:
        return _named(http, row.path, who)
    if row.path.endswith("/back") or "{number}" in row.path:
        taken = http.post("/interswarm/forward", headers=bearer("swarm"), json=mail("first"))
        assert taken.status_code == 200, taken.text
    path = row.path.replace("{number}", _waiting_mail(http) if "{number}" in row.path else "")
    path = path.replace("{model}", till().name)
    if row.path.startswith(("/memories", "/approvals")):
        return _named(http, path, who)
    if row.of_desk:
        return _at_desk(http, path)
    if path.startswith("/swarms") and "load" not in path and row.method != "GET":
        _forget_peer(http, row)
    path = path.replace("{name}", "peer") if "swarms" in path else _asset(path)
    if who == "editor":
        return _with_task(http, path)
    if "{task_id}" in path or row.path == "/task":
        made = http.post("/message", headers=bearer(who), json={"body": "hi", "task_id": "seen"})
        assert made.status_code == 200, made.text
        path = path.replace("{task_id}", "seen")
    if "{response_id}" in path:
        hang = {"input": "hang on", "background": True} if "cancel" in path else {"input": "hi"}
        made = http.post("/responses", headers=bearer(who), json=hang)
        path = path.replace("{response_id}", made.json()["id"])
    return path


def _named(http: httpx.Client, path: str, who: str) -> str:
    """Return a path with the name of a memory, or the id of an approval, a token or mail."""
    if path.startswith("/webhook/"):
        return path.replace("{number}", str(asyncio.run(_hook_message(http))))
    if path == "/outbox/{number}":
        return f"/outbox/{asyncio.run(_given_up(http))}"
    if "{prefix}" in path:
        made = {"role": "user", "id": "carol"}
        return f"/tokens/{http.post('/tokens', headers=bearer('admin'), json=made).json()['hash']}"
    if "{approval_id}" in path:
        return path.replace("{approval_id}", _approval(http, who))
    if path == "/memories/{name}":
        http.put("/memories/style", headers=bearer(who), json={"value": "Be brief."})
    return path.replace("{name}", "style")


def _approval(http: httpx.Client, who: str) -> str:
    """Return an approval of a caller's, or for the editor one that names it."""
    owner = bearer("alice" if who == "editor" else who)
    made = http.post("/message", headers=owner, json={"body": "buy"})
    assert made.json()["status"] == "paused", made.text
    found: str = http.get("/approvals", headers=bearer(who)).json()["approvals"][0]["approval_id"]
    return found


def _at_desk(http: httpx.Client, path: str) -> str:
    """Return a path with the id of a message to the editor, or of a thread of the editor's."""
    if path.endswith("/search"):
        return f"{path}?q=hello"
    if "{message_id}" in path:
        letter = {"content": "hi", "recipient_id": "editor"}
        sent = http.post("/messages", headers=bearer("reviewer"), json=letter)
        path = path.replace("{message_id}", sent.json()["message_id"])
    if "{thread_id}" in path:
        made = http.post("/threads", headers=bearer("editor"), json=THREAD)
        path = path.replace("{thread_id}", made.json()["thread"]["id"])
    if "{file_id}" in path:
        file = http.post("/files", headers=bearer("editor"), content=b"A file.")
        path = path.replace("{file_id}", file.json()["id"])
    return path.replace("{team_id}", "alpha").replace("{name}", "reviewer")


def _with_task(http: httpx.Client, path: str) -> str:
    """Return a path with the id of a task of the editor's that has ended."""
    editor = bearer("editor")
    place = http.get("/messages/unread?after=0", headers=editor).json()["latest"]
    letter = {"content": "hi", "recipient_id": "supervisor"}
    http.post("/messages", headers=editor, json=letter)
    http.get(f"/messages/unread?after={place}&wait=10", headers=editor)
    (task_id,) = http.get("/tasks?limit=1", headers=editor).json()["tasks"]
    return f"/task?task_id={task_id}" if path == "/task" else path.replace("{task_id}", task_id)


def _waiting_mail(http: httpx.Client) -> str:
    """Return the number of the answer to the other swarm, which does not take it."""
    for _ in range(500):
        found = http.get("/outbox", headers=bearer("admin")).json()["mail"]
        if found:
            return str(found[0]["id"])
        time.sleep(0.02)
    raise AssertionError("the other swarm's request was not answered")


async def _hook_message(http: Any) -> int:
    """Return the number of a message that the webhook has not taken."""
    store, alice = http.store, Owner(till().name, "user", "alice")
    task = TaskRow("told", str(alice), (str(alice),), "2026-01-01T00:00:00+00:00", "supervisor")
    told = WebhookRow("m1", "ended", "told", str(alice), "{}", task.start_time)
    new = await store.load_task(alice, "told") is None
    await store.commit(Commit(owner=alice, task=task, new=new, webhooks=(told,)))
    return int((await store.list_webhooks(alice.swarm, 0, 1000))[-1].id)


async def _given_up(http: Any) -> int:
    """Return the number of mail for the other swarm that was given up."""
    store, alice = http.store, Owner(till().name, "user", "alice")
    task = TaskRow("lost", str(alice), (str(alice),), "2026-01-01T00:00:00+00:00", "supervisor")
    request = ("supervisor", "request", "r1", "{}", task.start_time, "dead")
    lost = OutboxRow("lost", NEIGHBOUR, "m1", *request)  # type: ignore[arg-type]
    await store.commit(Commit(owner=alice, task=task, new=True, outbox=(lost,)))
    return int((await store.task_outbox(alice, "lost"))[-1].id)


async def _set_aside(http: Any, path: str, who: str) -> str:
    """Return a path with the number of mail that was set aside in a task of the caller's."""
    given = concrete(Row("GET", "/tasks/{task_id}", PEOPLE, TaskRecord), http, who)
    store, task_id = http.store, unquote(given.removeprefix("/tasks/"))
    owner = Owner(till().name, *CALLERS[who])
    number = await put_aside(store, owner, task_id)
    return path.replace("{task_id}", given.removeprefix("/tasks/")).replace("{number}", str(number))


def _forget_peer(http: httpx.Client, row: Row) -> None:
    """Let the swarm 'peer' be what a request about it needs: unknown, proposed or registered."""
    admin = bearer("admin")
    while http.delete("/swarms/peer", headers=admin).status_code == 200:
        pass
    if "accept" in row.path:
        body = b'{"discovery_urls": ["%s"]}' % PEER.encode()
        http.post("/swarms/discover", headers=admin, content=body)
    elif row.method == "DELETE":
        http.post("/swarms", headers=admin, content=json.dumps(REGISTRATION).encode())


def send(
    http: httpx.Client, row: Row, path: str, headers: dict[str, str], body: Any = None
) -> httpx.Response:
    """Send a row's own request, or one with another body."""
    content = body if body is not None else row.body
    if content is not None and not isinstance(content, bytes):
        content = json.dumps(content).encode()
    return http.request(row.method, path, headers=headers, content=content)


def check_error(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Check an error's status and shape, also the one of OpenAI's, and return it."""
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    if "error" in found:
        assert set(found) == {"error", "detail"}
        assert set(found["error"]) == {"message", "type", "param", "code"}
        assert found["detail"] == found["error"]["message"]
    else:
        assert misfits(found, Error) == []
        assert all(set(problem) == {"field", "problem"} for problem in found["errors"])
    assert found["detail"]
    return found


def test_the_check_of_shapes_sees_what_is_missing_added_or_of_another_type() -> None:
    health: dict[str, Any] = {"status": "healthy", "swarm_name": "x", "timestamp": "t"}
    assert misfits(health, GetHealthResponse) == []
    for wrong in ({"status": 1}, {"status": None}, {"more": 1}):
        assert len(misfits(health | wrong, GetHealthResponse)) == 1
    del health["timestamp"]
    assert misfits([health], list[GetHealthResponse]) == ["$[0].timestamp: missing"]
    assert misfits({"id": "x", "role": "y"}, GetWhoamiResponse) == ["$.username: missing"]
    assert misfits(True, int | None)


def names(rows: list[Row]) -> list[str]:
    return [row.name for row in rows]


_ROLES = {"anybody": set[str](), "any role": {"admin", "agent", "user"}}


def test_the_page_lists_these_routes_for_these_roles() -> None:
    listed = {}
    for line in API_PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and (found := re.match(r"\[`([A-Z]+ /[^`]*)`\]", cells[0])):
            listed[found[1]] = _ROLES.get(cells[1], set(cells[1].split(", ")))
    on_page = [row for row in (*USUAL, MCP, *MCP_SESSIONS, *ENDLESS) if row.on_page]
    assert listed == {row.name: set(row.who) for row in on_page}


async def test_the_application_has_these_routes_and_no_others() -> None:
    store = await known_callers()
    for debug, rows in ((True, ALL), (False, USUAL)):
        app = create_app(settings(debug=debug), template=till(), store=store)
        declared = {}
        for route in app.routes:
            assert isinstance(route, MAILRoute)
            for method in route.methods:
                declared[f"{method} {route.path.replace(':path', '')}"] = set(route.audience.roles)
        assert declared.pop("GET /console/") == set(), "it only leads to the console"
        assert declared == {row.name: set(row.who) for row in (*rows, MCP, *MCP_SESSIONS, *ENDLESS)}


@pytest.mark.parametrize("row", ALL, ids=names(ALL))
def test_the_right_role_gets_the_documented_answer(http: httpx.Client, row: Row) -> None:
    for role in sorted(row.who or {"admin", "user", "agent"}):
        who = by_role(row, role)
        asked = replace(row, body=None) if who == "editor" and row.path == "/task" else row
        answer = send(http, asked, concrete(row, http, who), bearer(who))
        assert answer.status_code == (204 if row.shape is NOTHING else 200), answer.text
        if row.shape is NOTHING:
            assert answer.content == b""
        elif row.shape is EVENTS:
            check_stream(answer)
        elif row.shape is bytes:
            assert answer.content == b"A file."
        elif row.shape is PAGE:
            assert answer.headers["content-type"].startswith("text/")
        elif row.shape is DOCUMENT:
            assert yaml.load(answer.content, yaml.CSafeLoader)["openapi"] == "3.1.0"
        elif row.shape is RESPONSE:
            check_response(answer)
        else:
            assert misfits(answer.json(), row.shape) == []


def check_response(answer: httpx.Response) -> None:
    """Check that the typed client of OpenAI takes an answer as it is."""
    from openai.types.responses import Response

    made = Response.model_validate(answer.json(), strict=True)
    assert made.object == "response"


def check_stream(answer: httpx.Response) -> None:
    """Check a stream's frames, from the first event to the one that ends the run."""
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = frames(answer.text)
    assert found[0]["retry"] == "2000"
    plain = {"timestamp", "task_id", "description", "extra_data"}
    for frame in found:
        data = json.loads(frame["data"])
        ends = frame["event"] in ("task_complete", "task_error")
        more = {"response", "subject", "status", "breakpoints"} if ends else set()
        assert set(data) == plain | more
    assert found[-1]["event"] == "task_complete"
    numbers = [int(frame["id"]) for frame in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_message_is_answered_as_a_stream_on_request(http: httpx.Client) -> None:
    body = {"body": "hello", "stream": True}
    for who in ("admin", "alice"):
        check_stream(http.post("/message", headers=bearer(who), json=body))


def test_an_answer_carries_its_events_and_its_open_calls_on_request(http: httpx.Client) -> None:
    body = {"body": "ask somebody", "show_events": True}
    found = http.post("/message", headers=bearer("alice"), json=body).json()
    assert misfits(found, PostMessageResponse) == []
    assert [event["id"] for event in found["events"]] == [
        str(number + 1) for number in range(len(found["events"]))
    ]
    assert found["status"] == "paused"
    [call] = found["breakpoints"]
    paused = http.get(f"/tasks/{found['task_id']}", headers=bearer("alice")).json()
    assert misfits(paused, TaskRecord) == []
    assert paused["breakpoints"] == [call]


def test_tasks_come_in_pages_on_request(http: httpx.Client) -> None:
    for _ in range(2):
        http.post("/message", headers=bearer("alice"), json={"body": "hi"})
    page = http.get("/tasks?limit=1", headers=bearer("alice")).json()
    assert misfits(page, Page) == []
    after = http.get("/tasks", headers=bearer("alice"), params={"cursor": page["next_cursor"]})
    assert misfits(after.json(), Page) == []
    assert page["next_cursor"] not in after.json()["tasks"]
    for query in ("limit=0", "limit=1001", "limit=x", "limit=1.5", "cursor=none", "cursor="):
        check_error(http.get(f"/tasks?{query}", headers=bearer("alice")), 400)


def test_a_place_in_a_log_is_a_number_wherever_it_is_said(http: httpx.Client) -> None:
    path = concrete(Row("GET", "/tasks/{task_id}/events", PEOPLE, EVENTS), http)
    for header, query in (
        ("x", ""),
        ("1", "x"),
        ("-1", "1"),
        ("1" * 19, ""),
        ("1", "1.5"),
        ("1", "٣"),
    ):
        headers = bearer("alice") | {"Last-Event-ID": header}
        check_error(http.get(f"{path}?after={query}", headers=headers), 400)
    after = http.get(f"{path}?after=7", headers=bearer("alice") | {"Last-Event-ID": "1"})
    assert frames(after.text)[0]["id"] == "2"  # the header wins


@pytest.mark.parametrize("row", [row for row in (*ALL, MCP) if row.who], ids=lambda row: row.name)
def test_each_wrong_role_is_403_whatever_the_query_and_the_body_are(
    http: httpx.Client, row: Row
) -> None:
    path = some(row)
    claims = f"{path}?role=admin&raise_on_false=false&debug=true"
    for role in {"admin", "user", "agent"} - row.who:
        for url, body in ((path, row.body), (claims, b"{"), (path, b"")):
            answer = send(http, row, url, bearer(by_role(row, role)), body)
            assert "invalid role" in check_error(answer, 403)["detail"]


STRANGERS = {
    "no token": {},
    "an unknown token": {"Authorization": "Bearer mail_unknown"},
    "another scheme": {"Authorization": "Basic YWxpY2U6eA=="},
    "a bare token": {"Authorization": bearer("alice")["Authorization"].split()[1]},
    "two tokens": {"Authorization": f"{bearer('alice')['Authorization']} x"},
    "nothing after Bearer": {"Authorization": "Bearer"},
    "another header": {"X-API-Key": bearer("alice")["Authorization"].split()[1]},
}


@pytest.mark.parametrize("row", ALL, ids=names(ALL))
def test_strangers_get_the_public_routes_only(http: httpx.Client, row: Row) -> None:
    path = some(row)
    token = bearer("alice")["Authorization"].split()[1]
    claims = f"{path}?role=admin&id=alice&token={token}" if row.who else path
    for headers in STRANGERS.values():
        for url, body in ((path, row.body), (claims, b"{")):
            answer = send(http, row, url, headers, body)
            if row.who:
                check_error(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
            else:
                assert answer.status_code == 200


WITH_BODY = [row for row in ALL if row.body is not None]


@pytest.mark.parametrize("row", WITH_BODY, ids=names(WITH_BODY))
def test_malformed_bodies_are_refused_and_start_nothing(http: httpx.Client, row: Row) -> None:
    who = bearer(caller_of(row, "bob"))
    path = "/task" if row.path == "/task" else row.path
    for body in BODIES:
        status = 404 if not body and path.endswith("/ack") else 400  # that needs no body
        assert isinstance(check_error(send(http, row, path, who, body), status)["detail"], str)
    large = json.dumps({**(row.body or {}), "pad": "x" * LIMIT}).encode()
    check_error(send(http, row, path, who, large), 413)
    for name in row.required:
        kept = {key: value for key, value in (row.body or {}).items() if key != name}
        check_error(send(http, row, path, who, {**kept, "pad": 1}), 400)
    assert http.get("/tasks", headers=bearer("bob")).json() == {}


def test_each_wrong_field_is_named(http: httpx.Client) -> None:
    for row in WITH_BODY:
        who = bearer(caller_of(row, "bob"))
        for name, values in row.wrong.items():
            for value in values:
                answer = send(http, row, row.path, who, {**(row.body or {}), name: value})
                found = check_error(answer, 400)
                assert name in {p["field"] for p in found["errors"]}, (row.name, name, value)
    for name, values in OPTIONS_WRONG.items():
        for value in values:
            body = {"body": "hello", "kwargs": {name: value}}
            found = check_error(http.post("/message", headers=bearer("bob"), json=body), 400)
            assert [p["field"] for p in found["errors"]] == [f"kwargs.{name}"], (name, value)
    for body in UNFIT:
        check_error(http.post("/message", headers=bearer("bob"), json=body), 400)
    assert http.get("/tasks", headers=bearer("bob")).json() == {}


@pytest.mark.parametrize("row", WITH_BODY, ids=names(WITH_BODY))
def test_unknown_fields_are_named_in_a_warning(
    http: httpx.Client, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    who = caller_of(row)
    path = concrete(row, http, who)
    with caplog.at_level(logging.WARNING):
        answer = send(http, row, path, bearer(who), {**(row.body or {}), "qwxz": True})
    if row.path == "/approvals/{approval_id}":
        assert (
            "unknown option 'qwxz'; allowed are type, args." in check_error(answer, 400)["detail"]
        )
        return
    assert answer.status_code == 200, answer.text
    warned = [record for record in caplog.records if "qwxz" in record.getMessage()]
    assert [record.levelname for record in warned] == ["WARNING"]


def test_misspelt_fields_are_refused_but_not_those_of_another_protocol(http: httpx.Client) -> None:
    for row in WITH_BODY:
        name = (*(row.body or {}), *row.wrong)[0]
        who = caller_of(row)
        path = concrete(row, http, who)
        answer = send(http, row, path, bearer(who), {**(row.body or {}), f"{name}_": True})
        if row.shape is RESPONSE:
            assert answer.status_code == 200, answer.text
        else:
            found = check_error(answer, 400)
            assert f"Did you mean '{name}'?" in found["detail"], (row.name, found)


def test_misspelt_parameters_are_refused_but_not_those_of_another_protocol(
    http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    for path, who, name in (
        ("/tasks?limt=5", "alice", "limit"),
        ("/messages?thread_ids=x", "editor", "thread_id"),
        ("/messages/unread?waits=1", "editor", "wait"),
        ("/threads?aftr=x", "editor", "after"),
        ("/outbox?peers=b", "admin", "peer"),
        ("/approvals?limt=5", "alice", "limit"),
    ):
        found = check_error(http.get(path, headers=bearer(who)), 400)
        assert found["detail"].endswith(f": unknown parameter. Did you mean '{name}'?")
        assert [each["field"] for each in found["errors"]] == [path.split("?")[1].split("=")[0]]
        check_error(http.get(path), 401)
    with caplog.at_level(logging.WARNING):
        assert http.get("/tasks?qwxz=1", headers=bearer("alice")).status_code == 200
    assert "qwxz" in caplog.text
    assert http.get("/v1/models?limt=5", headers=bearer("alice")).status_code == 200
    answer = http.post("/responses?strem=1", headers=bearer("alice"), json={"input": "hi"})
    assert answer.status_code == 200


def test_nulls_and_the_old_name_of_the_body_are_accepted(http: httpx.Client) -> None:
    body = dict.fromkeys(MESSAGE_WRONG) | {"message": "hello"}
    assert http.post("/message", headers=bearer("alice"), json=body).status_code == 200


UNKNOWN = [
    ("GET", "/approvals/unknown", None),
    ("POST", "/approvals/unknown", {"type": "accept"}),
    ("GET", "/tasks/unknown", None),
    ("GET", "/task?task_id=unknown", None),
    ("GET", "/task", {"task_id": "unknown"}),
    ("GET", "/tasks/unknown/events", None),
    ("POST", "/tasks/unknown/cancel", None),
    ("POST", "/message", {"body": "x", "task_id": "unknown", "resume_from": "user_response"}),
    ("GET", "/responses/unknown", None),
    ("DELETE", "/v1/responses/unknown", None),
    ("POST", "/responses/unknown/cancel", None),
    ("GET", "/v1/models/unknown", None),
]


def test_what_is_not_the_callers_is_404_as_if_it_were_not_there(http: httpx.Client) -> None:
    task = http.post("/message", headers=bearer("alice"), json={"body": "hi"}).json()["task_id"]
    made = http.post("/responses", headers=bearer("alice"), json=ASKED).json()["id"]
    approval = _approval(http, "alice")
    for method, path, body in UNKNOWN:
        known = made if "responses" in path else task
        known = approval if "approvals" in path else known
        texts = set()
        for name in ("unknown", known):
            content = json.dumps(body).replace("unknown", name) if body else None
            url = path.replace("unknown", name)
            answer = http.request(method, url, headers=bearer("bob"), content=content)
            assert answer.status_code == 404, answer.text
            assert (
                {"detail"}
                < answer.json().keys()
                <= {"detail", "errors", "task_id", "error", "code"}
            )
            texts.add(answer.text.replace(name, "unknown"))
        assert len(texts) == 1, texts


def test_a_message_meets_every_documented_status_of_its_task(http: httpx.Client) -> None:
    def post(**body: Any) -> httpx.Response:
        return http.post("/message", headers=bearer("alice"), json=body)

    failed = check_error_with_task(post(body="fail", task_id="c-1"), 502)
    assert "out of tokens" in failed
    slow = check_error_with_task(post(body="hang", task_id="c-2", kwargs={"timeout": 0.05}), 504)
    assert "timed out" in slow
    stopped = http.post("/tasks/c-2/cancel", headers=bearer("alice")).json()
    assert misfits(stopped, TaskRecord) == []
    assert stopped["status"] == "cancelled"
    [call] = post(body="ask somebody", task_id="c-3").json()["breakpoints"]
    assert call["call_id"] in check_error_with_task(post(body="more", task_id="c-3"), 409)
    again = {"task_id": "c-3", "resume_from": "breakpoint_tool_call"}
    result = {"call_id": call["call_id"], "content": "40"}
    strange = {"breakpoint_tool_call_result": {**result, "call_id": "strange"}}
    check_error(post(**again, kwargs=strange), 400)
    done = post(**again, kwargs={"breakpoint_tool_call_result": result})
    assert misfits(done.json(), PostMessageResponse) == []
    assert done.json()["response"] == "The cashier says: 40"
    late = post(**again, kwargs={"breakpoint_tool_call_result": result})
    assert "already" in check_error(late, 409)["detail"]


def check_error_with_task(answer: httpx.Response, status: int) -> str:
    """Check an error about a task and return its detail."""
    assert answer.status_code == status, answer.text
    found = answer.json()
    task_id = found.pop("task_id")
    assert isinstance(task_id, str)
    assert misfits(found, Error) == []
    return str(found["detail"])


def test_without_debug_mode_its_routes_are_nowhere_even_without_a_token() -> None:
    async def make() -> FastAPI:
        return create_app(settings(debug=False), template=till(), store=await known_callers())

    with served(make) as url, httpx.Client(base_url=url) as http:
        for row in DEBUG:
            for headers in ({}, bearer("alice"), bearer("swarm"), STRANGERS["an unknown token"]):
                path = row.path.replace("{response_id}", "x")
                assert check_error(send(http, row, path, headers), 404) == NOWHERE
