"""``POST /interswarm/message``: what people send to agents of this swarm and of others."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail.auth.callers import Caller
from mail.client import MAILClient
from mail.config import ClientConfig
from mail.errors import ClientDecodeError, ClientHTTPError
from mail.server.app import create_app
from mail.testing.peer import LoopbackPeer
from tests.federation.harbour import HARBOUR, TIDE, WEATHER, harbour, weather
from tests.federation.kit import (
    Node,
    federation,
    settings,
    stores_in,
    token_of,
    wrapper,
)
from tests.server.kit import frames, running_server
from tests.server.token_stub import Service
from tests.support.waiting import until

Nodes = Mapping[str, Node]
OLD = "old"


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    async with federation(harbour(), weather(), weather(TIDE)) as nodes:
        yield nodes


def message(*targets: str, body: str = "14:00?", **more: Any) -> dict[str, Any]:
    """Return a request's body, with otto's token for the one other swarm."""
    swarms = {target.partition("@")[2] for target in targets} - {"", HARBOUR}
    tokens = {swarm: token_of("otto", swarm) for swarm in sorted(swarms)}
    given = {"user_token": next(iter(tokens.values()))} if len(tokens) == 1 else {}
    given = {"user_tokens": tokens} if len(tokens) > 1 else given
    return {"body": body, "targets": list(targets), **given, **more}


async def test_agents_of_this_swarm_get_it_without_http(nodes: Nodes) -> None:
    home = nodes[HARBOUR]
    for target in ("dispatcher", "dispatcher@harbour"):
        answer = await home.client().post("/interswarm/message", json=message(target, body="hello"))
        assert answer.status_code == 200, answer.text
        assert answer.json()["response"]["message"]["body"] == "You said: hello"
        assert answer.json()["response"]["msg_type"] == "broadcast_complete"
        assert answer.json()["events"] is None
    assert len((await home.client().get("/tasks")).json()) == 2


async def test_agents_code_finds_the_servers_registry(nodes: Nodes) -> None:
    state = nodes[HARBOUR].app.state.mail
    async with state.pool.lease(Caller("user", "ines"), "") as swarm:
        assert swarm.swarm_registry is state.registry
        assert swarm.swarm_registry.get_swarm_endpoint(WEATHER)["base_url"] == nodes[WEATHER].url


async def test_a_broadcast_reaches_every_swarm_among_the_targets(nodes: Nodes) -> None:
    home = nodes[HARBOUR]
    said = message(
        "dispatcher", "chief@weather", "chief@tide", msg_type="broadcast", task_id="storm"
    )
    answer = await home.client().post("/interswarm/message", json=said)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    texts = {swarm: each["message"]["body"] for swarm, each in found["responses"].items()}
    assert texts == {
        HARBOUR: "You said: 14:00?",
        WEATHER: "for otto: 14:00?",
        TIDE: "for otto: 14:00?",
    }
    assert found["response"] == found["responses"][HARBOUR]


async def test_one_token_is_not_for_two_swarms(nodes: Nodes) -> None:
    said = message("chief@weather", "chief@tide", msg_type="broadcast")
    said["user_token"] = said.pop("user_tokens")[WEATHER]
    answer = await nodes[HARBOUR].client().post("/interswarm/message", json=said)
    assert answer.status_code == 401
    assert "user_tokens must hold your token" in answer.json()["detail"]
    assert (await nodes[WEATHER].client("otto").get("/tasks")).json() == {}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"targets": []}, "targets"),
        ({"targets": "chief@weather"}, "targets"),
        ({"targets": ["@weather"]}, "targets"),
        ({"targets": ["chief@"]}, "targets"),
        ({"targets": ["0" * 400]}, "targets"),
        ({"targets": ["chief@weather", "wind@weather"]}, None),
        ({"body": " "}, "body"),
        ({"body": 7}, "body"),
        ({"msg_type": "interrupt"}, "msg_type"),
        ({"task_id": "a\nb"}, "task_id"),
        ({"task_id": "a/events"}, "task_id"),
        ({"strem": True}, "strem"),
        ({"stream": "yes"}, "stream"),
        ({"user_tokens": {"weather": 7}}, "user_tokens.weather"),
        (
            {"targets": ["dispatcher", "chief@weather"], "msg_type": "broadcast", "stream": True},
            "stream",
        ),
    ],
)
async def test_a_malformed_message_is_400(
    nodes: Nodes, changes: dict[str, Any], field: str | None
) -> None:
    said = message("chief@weather") | changes
    answer = await nodes[HARBOUR].client().post("/interswarm/message", json=said)
    assert answer.status_code == 400, answer.text
    assert field is None or answer.json()["errors"][0]["field"].startswith(field)


@pytest.mark.parametrize(
    ("target", "body", "status", "text"),
    [
        ("nobody@weather", "x", 502, "not found in swarm"),
        ("cellar@weather", "x", 502, "enable_entrypoint is false"),
        ("nobody", "x", 400, "not found in swarm"),
        ("chief@nowhere", "x", 404, "nowhere"),
    ],
)
async def test_what_goes_wrong_is_told_with_its_reason(
    nodes: Nodes, target: str, body: str, status: int, text: str
) -> None:
    said = message(target, body=body)
    answer = await nodes[HARBOUR].client().post("/interswarm/message", json=said)
    assert answer.status_code == status, answer.text
    assert text in answer.json()["detail"]
    assert token_of("otto", WEATHER) not in answer.text


async def test_a_server_that_is_away_is_502(nodes: Nodes) -> None:
    nodes[WEATHER].server.stop.set()
    await until(lambda: not nodes[WEATHER].server.servers[0].is_serving())
    answer = (
        await nodes[HARBOUR].client().post("/interswarm/message", json=message("chief@weather"))
    )
    assert answer.status_code == 502, answer.text


async def test_heartbeats_can_be_left_out(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    from mail.core.runtime.runs import Run

    whole = Run.events
    monkeypatch.setattr(Run, "events", lambda self, ping_interval=0.05: whole(self, 0.05))
    for ignore in (False, True):
        for target in ("chief@weather", "chief@tide"):
            said = message(
                target,
                body="hang on",
                stream=True,
                ignore_stream_pings=ignore,
                task_id=f"h{ignore}",
            )
            seen = await _until_ping(nodes[HARBOUR], said, 0.5 if ignore else 20)
            assert ("event: ping" in seen) is not ignore
        cancel = await nodes[WEATHER].client("otto").post(f"/tasks/h{ignore}/cancel")
        assert cancel.status_code == 200


async def _until_ping(node: Node, said: dict[str, Any], seconds: float) -> str:
    """Return what a stream holds until its first heartbeat, or for so many seconds."""
    seen = ""
    async with node.client().stream("POST", "/interswarm/message", json=said) as answer:
        assert answer.status_code == 200
        try:
            async with asyncio.timeout(seconds):
                async for text in answer.aiter_text():
                    seen += text
                    if "event: ping" in seen:
                        break
        except TimeoutError:
            pass
    return seen


async def test_a_repeat_with_the_same_key_is_done_once_here(nodes: Nodes) -> None:
    home = nodes[HARBOUR]
    for stream in (False, True):
        key = {"Idempotency-Key": f"once-{stream}"}
        said = message("dispatcher", body="hello", stream=stream)
        first, second = [
            await home.client().post("/interswarm/message", json=said, headers=key)
            for _ in range(2)
        ]
        assert first.status_code == second.status_code == 200
        if stream:
            assert frames(first.text)[-1]["data"] == frames(second.text)[-1]["data"]
            assert second.headers["idempotency-replayed"] == "true"
        else:
            assert first.json() == second.json()
    assert len((await home.client().get("/tasks")).json()) == 2


class TestClient:
    """The Python client."""

    @pytest.fixture
    async def client(self, nodes: Nodes) -> AsyncIterator[MAILClient]:
        home, config = nodes[HARBOUR], ClientConfig(timeout=20)
        async with MAILClient(home.url, token_of("ines", HARBOUR), config=config) as client:
            yield client

    async def test_it_sends_and_streams(self, client: MAILClient) -> None:
        said = ("14:00?", token_of("otto", WEATHER))
        answer = await client.send_interswarm_message(*said, targets=["chief@weather"])
        assert answer["response"]["message"]["body"] == "for otto: 14:00?"
        read = await client.send_interswarm_message(*said, targets=["chief@weather"], stream=True)
        assert read["response"]["message"]["body"] == "for otto: 14:00?"
        assert [event["event"] for event in read["events"] or ()][-1] == "task_complete"
        stream = await client.stream_interswarm_message(*said, targets=["chief@weather"])
        kinds = [event.event async for event in stream]
        assert kinds[-1] == "task_complete"

    async def test_a_streamed_failure_is_an_error(self, client: MAILClient) -> None:
        said = ("fail", token_of("otto", WEATHER))
        with pytest.raises(ClientHTTPError, match="failed"):
            await client.send_interswarm_message(*said, targets=["chief@weather"], stream=True)


class JSONPeer(LoopbackPeer):
    """A server of MAIL 1.3.6: it answers people with JSON, also where it is to stream."""

    def _routes(self, body: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
        sent = body.get("body", "")
        payload = wrapper(OLD, HARBOUR, p_task_id=body.get("task_id", ""), p_body=f"heard: {sent}")
        said = {
            "id": "m1",
            "timestamp": "2026-01-01T00:00:00+00:00",
            "message": payload["payload"],
            "msg_type": "request",
        }
        answer = {"response": {} if "nonsense" in sent else said, "events": None}
        return super()._routes(body) | {("POST", "/interswarm/message"): answer}


class TestJSONWhereAStreamWasAskedFor:
    """A peer that does not stream has taken the message all the same; its answer is read."""

    @pytest.fixture
    async def peer(self, nodes: Nodes) -> AsyncIterator[JSONPeer]:
        async with JSONPeer(name=OLD) as peer:
            told = {"name": OLD, "base_url": peer.url, "auth_token": "t" * 30, "volatile": True}
            answer = await nodes[HARBOUR].client("root").post("/swarms", json=told)
            assert answer.status_code == 200, answer.text
            yield peer

    async def test_the_server_streams_what_it_says(self, nodes: Nodes, peer: JSONPeer) -> None:
        said = message("chief@old", stream=True, task_id="t")
        answer = await nodes[HARBOUR].client().post("/interswarm/message", json=said)
        assert answer.status_code == 200, answer.text
        events = frames(answer.text)
        assert [event["event"] for event in events] == ["new_message", "task_complete"]
        assert "heard: 14:00?" in events[1]["data"]
        assert [one.path for one in peer.requests].count("/interswarm/message") == 1

    async def test_the_client_reads_it_there_and_through_the_server(
        self, nodes: Nodes, peer: JSONPeer
    ) -> None:
        config = ClientConfig(timeout=20)
        for url, token in ((nodes[HARBOUR].url, token_of("ines", HARBOUR)), (peer.url, "ines")):
            async with MAILClient(url, token, config=config) as client:
                said: Any = {"targets": ["chief@old"], "task_id": "t"}
                stream = await client.stream_interswarm_message("14:00?", "there", **said)
                events = [event async for event in stream]
                assert [event.event for event in events] == ["new_message", "task_complete"]
                read = await client.send_interswarm_message("14:00?", "there", stream=True, **said)
                assert read["response"]["message"]["body"] == "heard: 14:00?"

    async def test_json_that_is_no_answer_is_refused(self, nodes: Nodes, peer: JSONPeer) -> None:
        said = message("chief@old", body="nonsense", stream=True)
        answer = await nodes[HARBOUR].client().post("/interswarm/message", json=said)
        assert answer.status_code == 502
        assert "neither a stream of events nor a final message" in answer.json()["detail"]
        async with MAILClient(peer.url, "ines", config=ClientConfig(timeout=20)) as client:
            stream = await client.stream_interswarm_message("nonsense", "x", targets=["chief@old"])
            with pytest.raises(ClientDecodeError, match="neither a stream"):
                [event async for event in stream]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_token_of_an_authority_that_both_servers_ask_is_the_callers_to_give(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, stream: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    stores, authority, secret = stores_in(tmp_path, HARBOUR, WEATHER), Service(), "of-alice-7f3a"
    headers = {"Authorization": f"Bearer {secret}"}
    async with contextlib.AsyncExitStack() as stack:
        urls = {}
        for template in (harbour(), weather()):
            auth = await stack.enter_async_context(authority.serve())
            store = stores[template.name]
            options = {"template": template, "store": store, "auth": auth}
            app = create_app(settings(template.name), **options)
            stack.push_async_callback(store.close)
            urls[template.name] = (await stack.enter_async_context(running_server(app))).url
        peer = await stack.enter_async_context(LoopbackPeer(name=TIDE))
        authority.info = {"role": "admin", "id": "root", "api_key": "key"}
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=urls[HARBOUR]))
        for name, url in ((WEATHER, urls[WEATHER]), (TIDE, peer.url)):
            about = {"name": name, "base_url": url}
            answer = await http.post("/swarms", json=about, headers={"Authorization": "Bearer a"})
            assert answer.status_code == 200, answer.text
        authority.info = {"role": "user", "id": "alice", "api_key": "key"}
        said = message("chief@weather", stream=stream) | {"user_token": secret}
        answer = await http.post("/interswarm/message", json=said, headers=headers, timeout=20)
        assert answer.status_code == 200, answer.text
        assert "for alice: 14:00?" in answer.text
        assert all(secret not in str(request) for request in peer.requests)
    mine = [r.getMessage() for r in caplog.records if r.name.startswith("mail")]
    assert mine
    assert secret not in "".join(mine)
    files = [tmp_path / f"{name}.db" for name in stores]
    kept = b"".join(path.read_bytes() for path in files)
    assert b"14:00?" in kept
    assert secret.encode() not in kept
