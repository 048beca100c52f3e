"""``mail top``: what a server does, once and live."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from mail.core.usage import Usage
from mail.server.app import create_app
from tests.cli.terminal import run, terminal
from tests.server.kit import TOKENS, Script, Template, bearer, config, serving
from tests.support.till import known_callers

pytestmark = pytest.mark.e2e

FIRST = {"MAIL_API_KEY": TOKENS["admin"]}


@pytest.fixture
async def busy() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that has a task to do all the time."""
    usage = Usage(prompt_tokens=80, completion_tokens=20, cost=0.25)
    app = create_app(config(), template=Template(Script(usage=usage)), store=await known_callers())  # type: ignore[arg-type]

    async def ask(client: httpx.AsyncClient) -> None:
        while True:
            await client.post("/message", json={"body": "hello"}, headers=bearer("alice"))

    async with serving(app) as client:
        asking = asyncio.create_task(ask(client))
        yield client
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_once_prints_a_picture_and_ends(busy: httpx.AsyncClient, tmp_path: Path) -> None:
    done = await run(tmp_path, "top", str(busy.base_url), "--once", "-i", "0.5", **FIRST)
    assert (done.code, done.err) == (0, "")
    lines = {line.partition(" ")[0]: line for line in done.out.splitlines()}
    assert "swarm test-swarm, " in lines["server"] and ", uptime " in lines["server"]
    assert "running" in lines["tasks"] and "paused 0" in lines["tasks"]
    assert "completed " in lines["ends"] and "failed 0," in lines["ends"]
    assert "up 1, commits " in lines["store"]
    assert re.fullmatch(r"nodes +alive 1, takeovers \d+, refused \d+", lines["nodes"].strip())
    assert "calls" in lines["model"] and lines["test/model"].split()[0] == "test/model"


async def test_json_has_the_same_figures(busy: httpx.AsyncClient, tmp_path: Path) -> None:
    done = await run(tmp_path, "top", str(busy.base_url), "-i", "0.5", "--json", **FIRST)
    found = json.loads(done.out)
    assert found["server"]["swarm"] == "test-swarm"
    assert found["requests"]["per_second"] > 0 and found["requests"]["failed"] == 0
    assert found["ends"]["completed"] > 0 and found["turns"]["per_second"] > 0
    (model,) = found["models"]
    assert model["model"] == "test/model" and model["calls"] > 0 and model["p50"] <= model["p95"]
    assert model["prompt"] == pytest.approx(4 * model["completion"], rel=0.05)
    assert model["dollars"] > 0
    assert found["outbox"] == found["webhook"] == []


async def test_on_a_terminal_it_goes_on_until_ctrl_c(
    busy: httpx.AsyncClient, tmp_path: Path
) -> None:
    words = ("top", str(busy.base_url), "-i", "0.2")
    async with terminal(tmp_path, words, size=(120, 40), **FIRST) as screen:
        for _ in range(3):
            await screen.see("completed [0-9]")
        screen.press("\x03")
        assert await screen.end() == 130


async def test_users_and_other_servers_are_told_why_not(
    busy: httpx.AsyncClient, tmp_path: Path
) -> None:
    alice = {"MAIL_API_KEY": TOKENS["alice"]}
    done = await run(tmp_path, "top", str(busy.base_url), "--once", **alice)
    assert done.code == 1 and "invalid role: this requires admin" in done.err
    done = await run(tmp_path, "top", "http://127.0.0.1:9", "--once", **FIRST)
    assert done.code == 1 and done.err.startswith("mail: ")
    done = await run(tmp_path, "top", "--once", MAIL_URL="", **FIRST)
    assert done.code == 2 and "set MAIL_URL" in done.err
