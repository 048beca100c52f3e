"""Reading the public routes of MAIL servers: ours, an older one, and what is none."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from mail.auth.builtin import BuiltinAuth
from mail.db import open_store
from mail.server.app import create_app
from mail.stdlib.interswarm.actions import get_swarm_health, get_swarm_registry, ping_swarm
from tests.server.kit import Template, config, serving
from tests.stdlib.outside import PUBLIC, Outside

EVERY = (ping_swarm, get_swarm_health, get_swarm_registry)
OLD_ROOT = {
    "name": "mail",
    "protocol_version": "1.3",
    "swarm": {"name": "old", "version": "1.3.6", "entrypoint": "supervisor"},
    "status": "running",
    "uptime": 12.5,
}
OLD_HEALTH = {"status": "healthy", "swarm_name": "old", "timestamp": "2026-01-01T00:00:00Z"}
OLD_SWARM = {
    "swarm_name": "beta",
    "base_url": "https://beta.example",
    "version": "1.3.6",
    "last_seen": None,
    "is_active": True,
    "latency": None,
    "swarm_description": "",
    "keywords": [],
    "metadata": None,
}
NOT_MAIL = "Error: remote URL is not a valid MAIL swarm"
URL = "http://public.example"


async def call(action: Any, url: object = URL) -> str:
    """Call an action as an agent does."""
    result: str = await action.function({"url": url})
    return result


def answer_with(outside: Outside, body: Any, status: int = 200, path: str | None = None) -> None:
    """Let the server outside answer with JSON, and everything but ``path`` with 404."""

    def answer(request: httpx.Request) -> httpx.Response:
        if path not in (None, request.url.path):
            return httpx.Response(404)
        return httpx.Response(status, json=body)

    outside.handler = answer


@pytest.fixture
async def ours(configure: Callable[[str], None]) -> AsyncIterator[tuple[str, Any]]:
    """A real server of ours on loopback; gives its address and its state."""
    configure('[stdlib.http]\nallow = ["127.0.0.1"]\n')
    store = open_store("memory://")
    await store.open()
    app = create_app(config(), template=Template(), store=store, auth=BuiltinAuth(store))
    async with serving(app) as client:
        yield str(client.base_url).rstrip("/"), app.state.mail
    await store.close()


async def test_a_server_of_ours_is_pinged_and_asked_for_its_health(ours: Any) -> None:
    url, state = ours
    assert await call(ping_swarm, url) == "pong"
    assert await call(ping_swarm, f"{url}/") == "pong"
    assert await call(get_swarm_health, url) == "healthy"
    state.health.set("tired")
    assert await call(get_swarm_health, f"{url}/") == "tired"
    await state.begin_drain()
    assert await call(ping_swarm, url) == "Error: the remote swarm is draining, not running"
    assert await call(get_swarm_health, url) == "draining"


async def test_a_server_of_an_older_version_is_read(outside: Outside) -> None:
    answer_with(outside, OLD_ROOT, path="/")
    assert await call(ping_swarm) == "pong"
    answer_with(outside, OLD_HEALTH, path="/health")
    assert await call(get_swarm_health) == "healthy"
    answer_with(outside, {"swarms": [OLD_SWARM, {**OLD_SWARM, "swarm_name": "gamma"}]})
    assert await call(get_swarm_registry) == (
        "beta@https://beta.example\ngamma@https://beta.example"
    )
    assert outside.requests[-1].url.path == "/swarms"


async def test_a_server_below_a_path_is_read(outside: Outside) -> None:
    answer_with(outside, OLD_HEALTH, path="/mail/health")
    assert await call(get_swarm_health, f"{URL}/mail/") == "healthy"


async def test_an_empty_registry_is_an_answer(outside: Outside) -> None:
    answer_with(outside, {"swarms": []})
    assert await call(get_swarm_registry) == "the registry is empty"


@pytest.mark.parametrize(
    ("action", "body"),
    [
        (ping_swarm, {**OLD_ROOT, "name": "male"}),
        (ping_swarm, {**OLD_ROOT, "swarm": "old"}),
        (ping_swarm, {**OLD_ROOT, "swarm": {"name": "old"}}),
        (ping_swarm, {**OLD_ROOT, "swarm": {"name": "old", "entrypoint": None}}),
        (ping_swarm, {**OLD_ROOT, "status": 1}),
        (get_swarm_health, {**OLD_HEALTH, "status": ""}),
        (get_swarm_health, {**OLD_HEALTH, "status": {"a": 1}}),
        (get_swarm_health, {**OLD_HEALTH, "swarm_name": ""}),
        (get_swarm_registry, {}),
        (get_swarm_registry, {"swarms": {}}),
        (get_swarm_registry, {"swarms": ["beta"]}),
        (get_swarm_registry, {"swarms": [{"swarm_name": "beta"}]}),
        *((action, body) for action in EVERY for body in ([], "mail", None, 5)),
    ],
)
async def test_what_is_no_mail_server_is_told(outside: Outside, action: Any, body: object) -> None:
    answer_with(outside, body)
    assert await call(action) == NOT_MAIL


async def test_text_that_is_no_json_is_told(
    outside: Outside, configure: Callable[[str], None]
) -> None:
    outside.handler = lambda _: httpx.Response(200, text="<html>")
    for action in EVERY:
        assert await call(action) == NOT_MAIL
    configure("[stdlib.http]\nmax_bytes = 20\n")
    answer_with(outside, OLD_HEALTH)
    assert await call(get_swarm_health) == NOT_MAIL


@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
async def test_another_status_is_told(outside: Outside, action: Any) -> None:
    for status in (401, 404, 500, 503):
        answer_with(outside, {"detail": "no"}, status)
        assert await call(action) == f"Error: remote URL returned status code {status}"


@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
async def test_private_addresses_are_refused_before_a_connection(
    outside: Outside, wall: list[str], action: Any
) -> None:
    outside.names["inside.example"] = ["10.0.0.1"]
    for url in ("http://169.254.169.254", "http://[::1]:8000/", "http://inside.example"):
        assert "is " in (answer := await call(action, url))
        assert answer.startswith("Error: ")
        assert "not a public address" in answer
    assert (outside.requests, wall) == ([], [])
    outside.handler = lambda _: httpx.Response(302, headers={"Location": "http://127.0.0.1/"})
    assert (await call(action)).startswith("Error: 127.0.0.1 is a loopback address")
    assert outside.connected == [PUBLIC]


@pytest.mark.parametrize("action", EVERY, ids=lambda action: action.name)
async def test_the_address_must_be_text(action: Any) -> None:
    assert await action.function({}) == "Error: `url` is required"
    assert await call(action, 5) == "Error: `url` must be a string"
