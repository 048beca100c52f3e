"""Waits for teammates' replies while the server or a waiter is killed: each reply comes once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail.db.urls import open_store
from tests.e2e.desk_agents import BOSS, REQUESTS
from tests.e2e.desk_simulation import make_tokens, names_of, token_of
from tests.e2e.processes import Place

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

NAMES = names_of(4)
ASKER, MATE, OTHER = "p02", "p00", "p01"  # the latter two are in the team, whose lead is the boss
SECONDS = 60.0
ROOM = 10**9


@pytest.fixture
async def place(tmp_path: Path, database: str) -> AsyncIterator[Place]:
    """Make a place whose participants have tokens; the server is started by the test."""
    place = Place(tmp_path, 0, dsn=database)
    store = open_store(place.store_url, exclusive=False)
    await store.open()
    await make_tokens(store, NAMES)
    await store.close()
    try:
        yield place
    finally:
        place.clean_up()
    assert "Traceback" not in place.log, place.log


async def start(place: Place, kill: str = "") -> None:
    await place.start(kill, participants=NAMES, desk=ROOM)


async def ask(place: Place, who: str, method: str, path: str, **body: Any) -> Any:
    """Make a request; return the answer's body, or None if the connection broke."""
    headers = {"Authorization": f"Bearer {token_of(who)}"}
    options = {"params": body} if method == "GET" else {"json": body}
    try:
        async with httpx.AsyncClient(base_url=place.url, headers=headers, timeout=60) as http:
            answer = await http.request(method, path, **options)  # type: ignore[arg-type]
    except httpx.TransportError:
        return None
    assert answer.status_code == 200, answer.text
    return answer.json()


async def tell(place: Place, who: str, to: str, message: str, **more: Any) -> Any:
    """Write to a teammate; a repeat sends nothing twice."""
    body = {"to": to, "message": message, "requestId": message.replace(" ", "-"), **more}
    return await ask(place, who, "POST", "/teams/alpha/messages", **body)


async def texts(place: Place, who: str, **which: Any) -> list[str]:
    """Return the texts of somebody's messages, oldest first; they stay unread."""
    page = await ask(place, who, "GET", "/messages", limit=100, mark_read="false", **which)
    return [each["content"] for each in page["messages"]][::-1]


async def comes(place: Place, who: str, text: str) -> dict[str, Any]:
    """Wait for a message, and return it; it stays unread."""
    async with asyncio.timeout(SECONDS):
        while True:
            page = await insist(place, who, "GET", "/messages", limit=100, mark_read="false")
            for each in page["messages"]:
                if each["content"] == text:
                    found: dict[str, Any] = each
                    return found
            await asyncio.sleep(0.02)


async def insist(place: Place, who: str, method: str, path: str, **body: Any) -> Any:
    """Make a request that changes nothing when it is repeated; start a server that has died."""
    while (answer := await ask(place, who, method, path, **body)) is None:
        await place.died()
        await start(place)
    return answer


async def past(begun: dict[str, Any], seconds: float) -> None:
    """Wait until a wait is over that began with a message."""
    age = datetime.now(UTC) - datetime.fromisoformat(begun["created_at"])
    await asyncio.sleep(max(0.0, seconds - age.total_seconds()) + 0.05)


# --- an agent waits -------------------------------------------------------------------------------


WAITS = ["before wait boss", "after wait boss", "before resume boss", "after resume boss"]
AT = [("sqlite", kill) for kill in (*WAITS, "before end", "after end")]
AT += [("postgresql", kill) for kill in WAITS[1::2]]


@pytest.mark.parametrize(("database", "kill"), AT, indirect=["database"])
async def test_a_reply_that_an_agent_waits_for_comes_once(place: Place, kill: str) -> None:
    await start(place, kill)
    first = place.process
    question = {"recipient_id": BOSS, "content": f"wait 1 {MATE} 3600", "request_id": "wait-1"}
    await insist(place, ASKER, "POST", "/messages", **question)
    await comes(place, MATE, "asked 1")
    answer = {"to": "lead", "message": "text 2", "requestId": "answer-1"}
    sent = await insist(place, MATE, "POST", "/teams/alpha/messages", **answer)
    assert (await comes(place, ASKER, "heard 2"))["sender_id"] == BOSS
    assert place.process is not first, "no server has died"
    await tell(place, OTHER, "lead", "text 3")
    await comes(place, OTHER, "done 3")
    assert await texts(place, ASKER) == ["heard 2"]
    assert await texts(place, MATE) == ["asked 1"]
    shown = await ask(place, MATE, "GET", f"/messages/{sent['messageId']}")
    [receipt] = shown["receipts"]
    assert (receipt["state"], receipt["turn"]) == ("shown", 2)
    assert f'["{MATE}", "text 2"]' in (place.folder / REQUESTS).read_text()


async def test_waits_end_whose_time_passes_without_a_server(place: Place) -> None:
    """And late replies come as mail."""
    await start(place)
    question = {"recipient_id": BOSS, "content": f"wait 1 {MATE} 0.9"}
    await ask(place, ASKER, "POST", "/messages", **question)
    waiting = asyncio.create_task(
        tell(place, OTHER, MATE, "Ready?", waitForReply=True, timeoutSeconds=0.9)
    )
    for text in ("asked 1", "Ready?"):
        begun = await comes(place, MATE, text)
    await place.kill()
    assert await waiting is None
    await past(begun, 0.9)
    await start(place)
    await comes(place, ASKER, "timeout 1")
    late = await tell(place, OTHER, MATE, "Ready?", waitForReply=True, timeoutSeconds=0.9)
    assert late["status"] == "timeout" and "reply" not in late
    await tell(place, MATE, "lead", "text 2")
    await comes(place, MATE, "done 2")
    await tell(place, MATE, OTHER, "Yes.")
    assert await texts(place, OTHER, unread="true") == ["Yes."]
    assert await texts(place, ASKER) == ["timeout 1"]
    assert await texts(place, MATE) == ["asked 1", "Ready?", "done 2"]


# --- a participant waits --------------------------------------------------------------------------


async def test_a_reply_that_a_participant_waits_for_comes_once(place: Place) -> None:
    """Whoever is killed: server, waiter, or who replies."""
    await start(place)
    for number, downtime in enumerate((0.0, 0.002, 0.01)):
        text, yes = f"Ready {number}?", f"Yes {number}."
        waiting = asyncio.create_task(tell(place, MATE, OTHER, text, waitForReply=True))
        await comes(place, OTHER, text)
        replying = asyncio.create_task(tell(place, OTHER, MATE, yes))
        await asyncio.sleep(downtime)
        await place.kill()
        answer, sent = await asyncio.gather(waiting, replying)
        await start(place)
        sent = sent or await tell(place, OTHER, MATE, yes)  # as who was killed and is back
        again = await tell(place, MATE, OTHER, text, waitForReply=True)
        assert again["reply"] == {"messageId": sent["messageId"], "from": OTHER, "message": yes}
        assert answer in (None, again)
        assert await tell(place, MATE, OTHER, text, waitForReply=True) == again
    assert await texts(place, MATE, unread="true") == []
    assert await texts(place, MATE) == ["Yes 0.", "Yes 1.", "Yes 2."]
    assert await texts(place, OTHER) == ["Ready 0?", "Ready 1?", "Ready 2?"]
    gone = asyncio.create_task(tell(place, MATE, OTHER, "Still there?", waitForReply=True))
    await comes(place, OTHER, "Still there?")
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await tell(place, OTHER, MATE, "Yes, still.")
    back = await tell(place, MATE, OTHER, "Still there?", waitForReply=True)
    assert back["reply"]["message"] == "Yes, still."
    assert await texts(place, MATE, unread="true") == []
