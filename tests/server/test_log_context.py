"""On whose behalf the lines of a served request are written, whoever writes them."""

import asyncio
import io
import json
import logging
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from mail.logcontext import NOBODY, bound, current
from mail.logs.setup import ContextFilter, JSONFormatter
from mail.server.run import DrainingServer
from tests.server.kit import TOKENS, Script, bearer


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What the handlers of a server would have written."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    handler.addFilter(ContextFilter())
    loggers = [logging.getLogger(name) for name in ("", "mail")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    loggers[1].propagate = False
    yield stream
    for logger, (level, propagate) in zip(loggers, before, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class Talkative(Script):
    """An agent whose model's library has something to say."""

    async def __call__(self, messages: list[dict[str, Any]], tool_choice: Any) -> Any:
        logging.getLogger("aiohttp").warning("a word of the library's")
        await asyncio.to_thread(logging.getLogger("asyncpg").warning, "a word from a thread")
        return await super().__call__(messages, tool_choice)


@pytest.fixture
async def script() -> Script:
    return Talkative()


def lines(log: io.StringIO, **wanted: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in log.getvalue().splitlines()]
    return [r for r in records if all(r.get(key) == value for key, value in wanted.items())]


async def test_every_line_of_a_request_and_its_turns_tells_whose_they_are(
    client: httpx.AsyncClient, log: io.StringIO
) -> None:
    for who, task in (("alice", "a1"), ("bob", "b1"), ("alice", "a2"), ("alice", "a1")):
        body = {"body": "hello", "task_id": task}
        answer = await client.post("/message", json=body, headers=bearer(who))
        assert answer.status_code == 200
    access = lines(log, logger="mail.server.access")
    assert [(r["caller_id"], r["task_id"]) for r in access] == [
        ("alice", "a1"),
        ("bob", "b1"),
        ("alice", "a2"),
        ("alice", "a1"),
    ]
    assert len({r["request_id"] for r in access}) == 4
    for library in ("aiohttp", "asyncpg"):
        said = lines(log, logger=library)
        assert [r["request_id"] for r in said] == [r["request_id"] for r in access]
        assert [r["task_id"] for r in said] == [r["task_id"] for r in access]
        assert {(r["agent"], r["caller_role"]) for r in said} == {("supervisor", "user")}
    assert current() == NOBODY


async def test_a_failing_agent_and_a_stranger_are_told_apart(
    client: httpx.AsyncClient, log: io.StringIO
) -> None:
    body = {"body": "fail", "task_id": "f1"}
    assert (await client.post("/message", json=body, headers=bearer("bob"))).status_code == 502
    assert (await client.get("/tasks?token=" + TOKENS["bob"])).status_code == 401
    (failure,) = lines(log, message="agent failed")
    assert (failure["task_id"], failure["agent"], failure["caller_id"]) == (
        "f1",
        "supervisor",
        "bob",
    )
    while len(lines(log, logger="mail.server.access")) < 2:  # written when the answer has gone
        await asyncio.sleep(0.01)
    stranger = lines(log, logger="mail.server.access")[-1]
    assert stranger["request_id"]
    assert not {"caller_id", "task_id", "agent"} & stranger.keys()
    assert TOKENS["bob"] not in log.getvalue()


async def test_a_conversation_is_a_line_per_request_and_run_not_per_event(
    client: httpx.AsyncClient, log: io.StringIO
) -> None:
    body = {"body": "hello", "stream": True}
    answer = await client.post("/message", json=body, headers=bearer("alice"))
    assert answer.text.count("event:") > 2
    while not lines(log, logger="mail.server.access"):  # written when the answer has gone
        await asyncio.sleep(0.01)
    ours = [line for line in lines(log, level="INFO") if line["logger"].startswith("mail.")]
    assert [line["logger"] for line in ours] == [
        "mail.core.runtime.run_figures",
        "mail.server.access",
    ]
    ended, _ = ours
    assert (ended["caller_id"], ended["outcome"], ended["turns"]) == ("alice", "completed", 1)
    assert ended["task_id"] and ended["request_id"] == answer.headers["X-Request-ID"]


async def test_a_drain_is_nobodys_even_when_its_signal_comes_in_a_turn(
    app: FastAPI, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DrainingServer, "_start_watchdog", lambda server: None)
    app.state.mail.host_drains = True
    options = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None)
    server = DrainingServer(options, app.state.mail)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    with bound(task_id="t-1", agent="supervisor"):
        server.handle_exit(signal.SIGTERM, None)
    await serving
    (draining,) = (r for r in lines(log) if r["message"].startswith("draining"))
    assert not {"task_id", "agent"} & draining.keys()
