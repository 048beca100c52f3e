"""Members of teams who are no agents, over HTTP and MCP, with a real database."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from mail.config.server import TeamsConfig
from tests.server.kit import bearer
from tests.server.test_desk import fetch
from tests.support.till import served_from


@asynccontextmanager
async def mcp(http: httpx.Client, who: str) -> AsyncIterator[Client]:
    """Yield an MCP client of a participant with the tools for teams."""
    async with httpx2.AsyncClient(headers=bearer(who), timeout=20) as connection:
        url = f"{http.base_url}/mcp?tools=teams"
        async with Client(streamable_http_client(url, http_client=connection)) as client:
            yield client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of one server for the module: editor (the lead) and reviewer are a team."""
    with served_from(f"sqlite:///{tmp_path_factory.mktemp('teams')}/mail.db") as (client, _):
        yield client


@pytest.fixture
def http(server: httpx.Client) -> httpx.Client:
    """A client of that server; nobody has unread messages."""
    for who in ("editor", "reviewer"):
        fetch(server, who, limit=100)
    return server


def tell(http: httpx.Client, who: str, team: str = "alpha", **body: Any) -> httpx.Response:
    """Send a message to a teammate."""
    return http.post(f"/teams/{team}/messages", headers=bearer(who), json=body)


def tell_all(http: httpx.Client, who: str, team: str = "alpha", **body: Any) -> httpx.Response:
    """Send a message to a team."""
    return http.post(f"/teams/{team}/broadcasts", headers=bearer(who), json=body)


def test_a_message_travels_and_its_result_is_the_documented_one(http: httpx.Client) -> None:
    answer = tell(http, "reviewer", to="lead", message="Ready?", priority="urgent").json()
    (got,) = fetch(http, "editor", unread="true")["messages"]
    assert answer == {"messageId": got["id"], "delivered": True, "state": "stored"}
    assert (got["sender_id"], got["content"], got["urgent"]) == ("reviewer", "Ready?", True)
    assert got["subject"] == "Team alpha: from reviewer"
    place = f"/messages/{answer['messageId']}"
    (receipt,) = http.get(place, headers=bearer("reviewer")).json()["receipts"]
    assert receipt["state"] == "shown"


def test_a_broadcast_reaches_all_with_one_id(http: httpx.Client) -> None:
    answer = tell_all(http, "reviewer", message="Friday").json()
    own, other = (fetch(http, who, unread="true")["messages"] for who in ("reviewer", "editor"))
    assert [one["id"] for one in (*own, *other)] == [answer["messageId"]] * 2
    assert answer["deliveredTo"] == ["reviewer", "lead"] and answer["state"] == "stored"
    answer = tell_all(http, "reviewer", message="Thursday").json()
    place, headers = f"/messages/{answer['messageId']}", bearer("reviewer")
    assert [http.get(place, headers=headers).json()["message"]["read"] for _ in "12"] == [
        False,
        True,
    ], "one's own copy is read when one opens it"
    answer = tell_all(http, "reviewer", message="Monday", excludeSelf=True).json()
    assert answer["deliveredTo"] == ["lead"]
    answer = tell_all(http, "editor", message="Tuesday").json()
    assert answer["deliveredTo"] == ["reviewer"]
    assert [one["content"] for one in fetch(http, "reviewer", unread="true")["messages"]] == [
        "Tuesday"
    ]


def test_a_repeated_request_sends_nothing_twice(http: httpx.Client) -> None:
    first = tell(http, "editor", to="reviewer", message="once", requestId="r-1").json()
    assert tell(http, "editor", to="reviewer", message="once", requestId="r-1").json() == first
    assert tell(http, "editor", to="reviewer", message="other", requestId="r-1").status_code == 409
    assert len(fetch(http, "reviewer", unread="true")["messages"]) == 1


def test_refusals_have_the_documented_texts(http: httpx.Client) -> None:
    for status, text, answer in (
        (404, "Team not found.", tell(http, "editor", "gamma", to="lead", message="x")),
        (404, 'Teammate "nobody" not found.', tell(http, "editor", to="nobody", message="x")),
        (404, 'Teammate "lead" not found.', tell(http, "editor", to="lead", message="x")),
        (404, "Team not found.", tell_all(http, "editor", "gamma", message="x")),
    ):
        assert (answer.status_code, answer.json()["detail"]) == (status, text)


def test_the_caller_is_told_its_teams(http: httpx.Client) -> None:
    told = http.get("/teams", headers=bearer("editor")).json()
    assert told == {"teams": [{"id": "alpha", "lead": "editor", "members": ["reviewer"]}]}
    for who in ("alice", "swarm"):
        assert http.get("/teams", headers=bearer(who)).status_code == 403


def test_teams_that_are_off_say_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    with served_from(url, changes={"teams": TeamsConfig(enabled=False)}) as (http, _):
        assert http.get("/teams", headers=bearer("editor")).json() == {"teams": []}
        for answer in (
            tell(http, "editor", to="reviewer", message="x"),
            tell_all(http, "editor", "gamma", message="x"),
        ):
            assert (answer.status_code, answer.json()["detail"]) == (403, "Teams are not enabled.")


async def test_the_same_over_mcp(http: httpx.Client) -> None:
    async with mcp(http, "reviewer") as client:
        teams = (await client.call_tool("list_teams", {})).structured_content
        assert teams == {"teams": [{"id": "alpha", "lead": "editor", "members": ["reviewer"]}]}
        message = {"teamId": "alpha", "to": "lead", "message": "Ready?"}
        sent = (await client.call_tool("teammate_message", message)).structured_content
        (got,) = fetch(http, "editor", unread="true")["messages"]
        assert sent == {"messageId": got["id"], "delivered": True, "state": "stored"}
        everybody = {"teamId": "alpha", "message": "All", "excludeSelf": True}
        told = (await client.call_tool("teammate_broadcast", everybody)).structured_content
        assert told is not None and told["deliveredTo"] == ["lead"]
        for wrong, error in (
            (message | {"teamId": "gamma"}, "Team not found."),
            (message | {"to": "x"}, 'Teammate "x" not found.'),
        ):
            refused = await client.call_tool("teammate_message", wrong)
            assert refused.is_error
            assert json.loads(refused.content[0].text) == {"status": "error", "error": error}  # type: ignore[union-attr]


# --- waiting for a reply --------------------------------------------------------------------------


WAITS = {"message": "Ready?", "waitForReply": True, "timeoutSeconds": 60.0}


def ask(http: httpx.Client, who: str, seconds: float = 20.0, **body: Any) -> Any:
    """Ask a teammate and wait for its reply; return the answer."""
    return tell(http, who, **WAITS | {"timeoutSeconds": seconds} | body).json()


def heard(http: httpx.Client, who: str, count: int = 1) -> None:
    """Wait until somebody has unread messages, and read none."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        query = {"wait": 10.0}  # answered at once if one of several is there
        found = http.get("/messages/unread", headers=bearer(who), params=query).json()
        if found["unread"] >= count:
            return
    raise AssertionError(f"{who} got no mail")


def test_a_wait_ends_with_the_reply_which_counts_as_read(http: httpx.Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, http, "reviewer", to="lead")
        heard(http, "editor")
        tell_all(http, "editor", message="for all: no reply")
        sent = tell(http, "editor", to="reviewer", message="Yes.").json()
        answer = asked.result(20)
    reply = {"messageId": sent["messageId"], "from": "lead", "message": "Yes."}
    assert answer.pop("messageId")
    assert answer == {"delivered": True, "state": "stored", "status": "replied", "reply": reply}
    unread = fetch(http, "reviewer", unread="true")["messages"]
    assert [one["content"] for one in unread] == ["for all: no reply"]


def test_a_message_that_answers_another_one_is_no_reply(http: httpx.Client) -> None:
    first = tell(http, "reviewer", to="lead", message="first").json()["messageId"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, http, "reviewer", to="lead", requestId="asked-1")
        heard(http, "editor", 2)
        (second, _) = fetch(http, "editor", unread="true")["messages"]
        for about, text in ((first, "to the first"), (second["id"], "to the second")):
            body = {"recipient_id": "reviewer", "content": text, "reply_to": about}
            http.post("/messages", headers=bearer("editor"), json=body)
        assert asked.result(20)["reply"]["message"] == "to the second"


def test_a_late_reply_comes_once_as_mail(http: httpx.Client) -> None:
    answer = ask(http, "reviewer", 0.05, to="lead")
    assert answer["status"] == "timeout" and "reply" not in answer
    tell(http, "editor", to="reviewer", message="late")
    assert [one["content"] for one in fetch(http, "reviewer", unread="true")["messages"]] == [
        "late"
    ]
    assert fetch(http, "reviewer", unread="true")["messages"] == []


def test_waits_that_would_close_a_cycle_are_refused(http: httpx.Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, http, "reviewer", to="lead")
        heard(http, "editor")
        refused = tell(http, "editor", to="reviewer", message="You?", waitForReply=True)
        assert refused.status_code == 409
        assert "editor -> reviewer -> editor" in refused.json()["detail"]
        tell(http, "editor", to="reviewer", message="Yes.")
        assert asked.result(20)["reply"]["message"] == "Yes."


def test_a_wait_goes_on_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    once = {"to": "lead", "requestId": "once"}
    with ThreadPoolExecutor(1) as pool, served_from(url) as (http, app):
        cut_off = pool.submit(tell, http, "reviewer", **once | WAITS)
        heard(http, "editor")
        app.state.loop.call_soon_threadsafe(app.state.mail.begin_drain)  # as SIGTERM does
        assert cut_off.result(20).status_code == 503
    with served_from(url) as (http, _):
        (first,) = fetch(http, "editor", unread="true")["messages"]
        tell(http, "editor", to="reviewer", message="Yes.")
        answer = ask(http, "reviewer", 60.0, **once)
        assert answer["messageId"] == first["id"] and answer["reply"]["message"] == "Yes."
        assert ask(http, "reviewer", 60.0, **once) == answer  # the same once more
        assert fetch(http, "editor", unread="true")["messages"] == []  # it was sent once


async def test_waiting_over_mcp(http: httpx.Client) -> None:
    async with mcp(http, "reviewer") as client:
        message = {"teamId": "alpha", "to": "lead", "message": "Ready?", "waitForReply": True}
        late = await client.call_tool("teammate_message", message | {"timeoutSeconds": 0.05})
        assert late.structured_content is not None
        assert late.structured_content["status"] == "timeout"
        asked = asyncio.create_task(client.call_tool("teammate_message", message))
        await asyncio.to_thread(heard, http, "editor", 2)
        await asyncio.to_thread(tell, http, "editor", to="reviewer", message="Yes.")
        told = (await asked).structured_content
        assert told is not None and told["reply"]["message"] == "Yes."
