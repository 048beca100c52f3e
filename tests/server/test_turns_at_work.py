"""The limit of turns at work counts the turns of all callers together."""

import asyncio

import httpx

from mail.db.memory import MemoryStore
from mail.server.app import create_app
from tests.server.kit import Script, Template, bearer, config, serving

PLACES = 3


def ask(client: httpx.AsyncClient, who: str, number: int) -> "asyncio.Task[httpx.Response]":
    body = {"body": "hang", "task_id": f"{who}-{number}"}
    return asyncio.create_task(client.post("/message", json=body, headers=bearer(who)))


async def test_callers_share_the_places_for_turns(store: MemoryStore) -> None:
    script = Script()
    app = create_app(
        config(max_concurrent_turns=PLACES),
        template=Template(script),  # type: ignore[arg-type]
        store=store,
    )
    async with serving(app) as client:
        waiting = [ask(client, "alice", number) for number in range(4)]
        waiting += [ask(client, "bob", number) for number in range(4)]
        async with asyncio.timeout(10):
            while script.calls < PLACES:
                await asyncio.sleep(0.01)
            accepted = 0
            while accepted < len(waiting):  # all are accepted, and wait in their mailboxes
                listed = [
                    (await client.get("/tasks", headers=bearer(who))).json()
                    for who in ("alice", "bob")
                ]
                accepted = sum(map(len, listed))
        assert script.calls == PLACES
        script.gate.set()
        answers = await asyncio.gather(*waiting)
    assert {answer.status_code for answer in answers} == {200}
    assert script.calls == len(waiting)
