"""Streams that are cut anywhere, again and again, bring what an uncut reader sees."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from mail.api import MAILAgentTemplate, MAILSwarmTemplate
from mail.client import MAILClient
from mail.client.stream import EventStream, Reconnect
from mail.core.agents import AgentFunction
from mail.db.memory import MemoryStore
from mail.server.app import create_app
from tests.server.kit import TOKENS, Server, bearer, call, config, frames, running_server
from tests.support.cutting import cutting_proxy

CUTS = 25
"""Of each of nine streams: more than two hundred together."""
ROUNDS = 30
TEXTS = (
    "short",
    "grün, 日本語, 🦉🦉, café",
    "id: 7\r\nevent: task_complete\r\ndata: {}\r\n\r\n",
    "one\ntwo\rthree\u2028four\u0085five\x00",
    "ü" * 2000,
    "🦉\r\n" * 600,
)
QUICK = Reconnect(tries=10, first_wait=0.001, longest_wait=0.01)
Event = tuple[str | None, str | None, str | None]


def talk(**_: Any) -> AgentFunction:
    """Make the agent that asks, and asks again."""

    async def talk(messages: list[dict[str, Any]], choice: Any) -> Any:
        await asyncio.sleep(0.001)  # a reader is to be in the middle of it
        asked = sum(message["role"] == "assistant" for message in messages)
        if asked == ROUNDS:
            return None, [call("task_complete", finish_message=TEXTS[3])]
        text = TEXTS[asked % len(TEXTS)]
        return None, [call("send_request", target="b", subject=text[:20], body=text)]

    return talk


def answer(**_: Any) -> AgentFunction:
    """Make the agent that answers."""

    async def answer(messages: list[dict[str, Any]], choice: Any) -> Any:
        text = TEXTS[len(messages) % len(TEXTS)]
        return None, [call("send_response", target="a", subject="Re", body=text)]

    return answer


@pytest.fixture
async def server(store: MemoryStore) -> AsyncIterator[Server]:
    """Return a server of two talkative agents."""
    agents = [
        MAILAgentTemplate(
            "a",
            factory=talk,
            comm_targets=["b"],
            actions=[],
            agent_params={},
            enable_entrypoint=True,
            can_complete_tasks=True,
        ),
        MAILAgentTemplate("b", factory=answer, comm_targets=["a"], actions=[], agent_params={}),
    ]
    template = MAILSwarmTemplate("talk", agents=agents, entrypoint="a", task_message_limit=1000)
    settings = config(max_running_tasks=0, max_streams=0)
    async with running_server(create_app(settings, template=template, store=store)) as server:
        yield server


def cuts_for(seed: int) -> list[int | tuple[int, int]]:
    """Return where to cut: a third at the ends of lines and events, the rest anywhere."""
    chance = random.Random(seed)
    cuts: list[int | tuple[int, int]] = [(2, -1)]  # after the first event, so that it can go on
    while len(cuts) < CUTS:
        if chance.random() < 1 / 3:
            cuts.append((chance.randint(1, 3), chance.randint(-4, 2)))
        else:
            cuts.append(chance.choice((chance.randint(1, 3000), chance.randint(1, 15_000))))
    return cuts


async def uncut(client: httpx.AsyncClient, task_id: str) -> list[Event]:
    """Return a finished task's events as a reader gets them whom nobody cuts."""
    found = await client.get(f"/tasks/{task_id}/events", headers=bearer("alice"))
    return [(e.get("id"), e.get("event"), e.get("data")) for e in frames(found.text)]


async def collected(stream: EventStream) -> list[Event]:
    """Return all events of a client's stream but heartbeats."""
    return [(e.id, e.event, str(e.data)) async for e in stream if e.event != "ping"]


async def posted(url: str, task_id: str) -> list[Event]:
    """Run a task and follow it with our client."""
    async with MAILClient(url, TOKENS["alice"]) as client:
        client.reconnect = QUICK
        return await collected(await client.post_message_stream("Go!", task_id=task_id))


async def watched(url: str, task_id: str) -> list[Event]:
    """Follow a task that somebody else posted with our client."""
    async with MAILClient(url, TOKENS["alice"]) as client:
        client.reconnect = QUICK
        return await collected(await client.get_task_events(task_id))


async def by_hand(url: str, task_id: str) -> list[Event]:
    """Follow a task with nothing but HTTP, the last id, and lines that end with CRLF."""
    events: list[Event] = []
    async with httpx.AsyncClient(base_url=url, headers=bearer("alice")) as client:
        while not events or events[-1][1] != "task_complete":
            last = {"Last-Event-ID": str(events[-1][0])} if events else {}
            text = b""
            try:
                async with client.stream(
                    "GET", f"/tasks/{task_id}/events", headers=last
                ) as response:
                    async for piece in response.aiter_raw():
                        text += piece
            except httpx.TransportError:
                pass
            whole = text[: text.rfind(b"\r\n\r\n") + 4] if b"\r\n\r\n" in text else b""
            for event in frames(whole.decode()):
                if event.get("event") != "ping":
                    events.append((event.get("id"), event.get("event"), event.get("data")))
    return events


@pytest.mark.parametrize("read", [posted, watched, by_hand])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_stream_cut_anywhere_equals_an_uncut_one(
    server: Server, read: Callable[[str, str], Awaitable[list[Event]]], seed: int
) -> None:
    task_id = f"t/{seed}"
    port = server.servers[0].sockets[0].getsockname()[1]
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=30) as direct,
        cutting_proxy(port, cuts_for(seed)) as proxy,
        asyncio.TaskGroup() as group,
    ):
        if read is not posted:
            group.create_task(
                direct.post(
                    "/message", json={"body": "Go!", "task_id": task_id}, headers=bearer("alice")
                )
            )
            while (
                await direct.get(f"/tasks/{task_id}", headers=bearer("alice"))
            ).status_code != 200:
                await asyncio.sleep(0.001)
        events = await read(f"http://127.0.0.1:{proxy.port}", task_id)
        whole = await uncut(direct, task_id)
    assert events == whole
    assert [event[0] for event in whole] == [str(n) for n in range(1, len(whole) + 1)]
    assert proxy.made == CUTS
