"""What fails holds secrets; whoever hears of the failure, over any route, gets none of them."""

import io
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail import MAILAction, MAILAgentTemplate, MAILSwarmTemplate
from mail.api.references import load_object
from mail.core.agents import AgentOutput
from mail.db.urls import open_store
from mail.errors import AgentError, ConfigError, MAILError, ProtocolError, ToolError
from mail.logs.setup import ContextFilter, JSONFormatter
from mail.server.app import create_app
from tests.server.kit import bearer, call, config, frames, put_tokens, serving

SECRETS = ("hunter2-hunter2", "AbCdEf0123456789", "env-held-secret-9")
TEXT = (
    f"cannot connect to postgresql://app:{SECRETS[0]}@db:5432/x with "
    f"api_key=sk-{SECRETS[1]}, Authorization: Bearer {SECRETS[1]} and {SECRETS[2]}"
)


def _boom(error: type[BaseException]) -> Any:
    def act(args: dict[str, Any]) -> str:
        raise error(TEXT)

    return act


ACTIONS = [
    MAILAction("raise_foreign", "Fail.", {}, _boom(ConnectionError)),
    MAILAction("raise_told", "Fail.", {}, _boom(ToolError)),
    MAILAction("raise_exit", "Fail.", {}, _boom(SystemExit)),
]


async def boss(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
    """Do what the user's mail names; finish with the result of an action."""
    results = [m for m in messages if m.get("role") == "tool"]
    if results:
        return None, [call("task_complete", finish_message=results[-1]["content"])]
    body = str(messages[-1]["content"])
    if "own" in body:
        raise AgentError(f"the stock is closed: {TEXT}")
    if "foreign" in body and "act" not in body:
        raise ConnectionError(TEXT)
    if "exit" in body and "act" not in body:
        raise SystemExit(TEXT)
    kind = next(kind for kind in ("told", "exit", "foreign") if kind in body)
    return None, [call(f"raise_{kind}")]


def template(factory: Callable[..., Any] = lambda **given: boss) -> MAILSwarmTemplate:
    agent = MAILAgentTemplate(
        name="boss",
        factory=factory,
        comm_targets=[],
        actions=ACTIONS,
        agent_params={},
        enable_entrypoint=True,
        can_complete_tasks=True,
    )
    return MAILSwarmTemplate("leaky", agents=[agent], actions=ACTIONS, entrypoint="boss")


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold a secret in the environment before there is a log or a server."""
    monkeypatch.setenv("MY_SERVICE_PASSWORD", SECRETS[2])


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with _serving(tmp_path, template()) as served:
        yield served


@asynccontextmanager
async def _serving(tmp_path: Path, template: MAILSwarmTemplate) -> AsyncIterator[httpx.AsyncClient]:
    store = open_store(f"sqlite:///{tmp_path / 'mail.db'}")
    await store.open()
    await put_tokens(store)
    async with serving(create_app(config(), template=template, store=store)) as served:
        yield served
    assert clean(_stored(tmp_path))


def _stored(folder: Path) -> str:
    files = [file.read_bytes() for file in folder.glob("mail.db*")]
    assert files
    return b"".join(files).decode("latin-1")


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What a server's log would hold."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    handler.addFilter(ContextFilter())
    logger = logging.getLogger("mail")
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def clean(text: str) -> bool:
    return not [secret for secret in SECRETS if secret in text]


async def everything(client: httpx.AsyncClient, task_id: str) -> str:
    """Return what the routes tell of a task."""
    paths = (f"/tasks/{task_id}", f"/tasks/{task_id}/events", "/tasks")
    return "".join([(await client.get(path, headers=bearer("alice"))).text for path in paths])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("foreign", "ConnectionError"),
        ("exit", "it tried to exit the program: SystemExit"),
    ],
)
async def test_a_foreign_exception_of_an_agent_is_its_class_and_a_line_of_the_log(
    client: httpx.AsyncClient, log: io.StringIO, body: str, reason: str
) -> None:
    asked = {"body": body, "task_id": "t1"}
    answer = await client.post("/message", json=asked, headers=bearer("alice"))
    assert answer.status_code == 502
    told = re.fullmatch(
        rf"agent 'boss' failed: {reason} \(see the log, reference ([0-9a-f]{{8}})\)",
        answer.json()["detail"],
    )
    assert told is not None, answer.text
    assert clean(await everything(client, "t1"))
    _check_line(log, told[1])


def _check_line(log: io.StringIO, reference: str) -> None:
    records = [json.loads(line) for line in log.getvalue().splitlines()]
    [line] = [r for r in records if r.get("reference") == reference]
    assert "Traceback" in line["exception"] and "cannot connect to postgresql" in line["exception"]
    assert clean(log.getvalue())


async def test_a_stream_and_v1_tell_no_more(client: httpx.AsyncClient) -> None:
    body = {"body": "foreign", "stream": True}
    stream = await client.post("/message", json=body, headers=bearer("alice"))
    assert frames(stream.text)[-1]["event"] == "task_error"
    assert "ConnectionError (see the log" in stream.text and clean(stream.text)
    for streamed in (False, True):
        asked = {"model": "leaky", "input": "foreign", "stream": streamed}
        answer = await client.post("/v1/responses", json=asked, headers=bearer("alice"))
        assert "ConnectionError (see the log" in answer.text and clean(answer.text)


async def test_an_agents_own_error_keeps_its_words_but_no_secret(client: httpx.AsyncClient) -> None:
    body = {"body": "own", "task_id": "t1"}
    answer = await client.post("/message", json=body, headers=bearer("alice"))
    assert "the stock is closed: cannot connect to postgresql://" in answer.json()["detail"]
    assert clean(answer.text) and clean(await everything(client, "t1"))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("act foreign", "ERROR: failed to execute action tool: cannot connect to postgresql://"),
        ("act told", "ERROR: cannot connect to postgresql://"),
        (
            "act exit",
            "ERROR: failed to execute action tool: it tried to exit the program (SystemExit: "
            "cannot connect to postgresql://",
        ),
    ],
)
async def test_an_actions_failure_helps_the_model_without_the_secrets(
    client: httpx.AsyncClient, asked: str, told: str
) -> None:
    body = {"body": asked, "task_id": "t1", "show_events": True}
    answer = await client.post("/message", json=body, headers=bearer("alice"))
    assert answer.status_code == 200, answer.text
    assert re.sub(
        r"</?untrusted\S*( source=\S+ \S+>)?\n?", "", answer.json()["response"]
    ).startswith(told)
    assert ("see the log, reference" in answer.text) == ("told" not in asked)
    assert clean(answer.text) and clean(await everything(client, "t1"))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit(TEXT), "factory of agent 'boss' tried to exit the program: SystemExit"),
        (TypeError(TEXT), "factory of agent 'boss' failed: TypeError"),
        (ConfigError(TEXT), "agent 'boss': cannot connect to postgresql://"),
        (ProtocolError("wrong", [{"field": "url", "problem": TEXT}]), "wrong"),
    ],
)
async def test_what_a_factory_raises_for_a_new_caller_is_told_without_its_secrets(
    tmp_path: Path, log: io.StringIO, error: BaseException, told: str
) -> None:
    broken = False

    def factory(**given: Any) -> Any:
        if broken:
            raise error
        return boss

    async with _serving(tmp_path, template(factory)) as client:
        broken = True
        for path, asked in (
            ("/message", {"body": "act told"}),
            ("/message", {"body": "act told", "stream": True}),
            ("/v1/responses", {"model": "leaky", "input": "act told"}),
            ("/v1/responses", {"model": "leaky", "input": "act told", "stream": True}),
        ):
            answer = await client.post(path, json=asked, headers=bearer("bob"))
            assert answer.status_code == 400, answer.text
            detail = answer.json()["detail"]
            assert detail.startswith(told) and clean(answer.text)
            found = re.search(r" \(see the log, reference (\w+)\)$", detail)
            assert (found is None) == isinstance(error, MAILError), answer.text
            if found is not None:
                _check_line(log, found[1])
        broken = False
        answer = await client.post("/message", json={"body": "act told"}, headers=bearer("bob"))
        assert answer.status_code == 200, answer.text


def test_what_a_definitions_module_raises_is_told_without_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaky_module.py").write_text(f"raise ValueError({TEXT!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot connect to postgresql") as raised:
        load_object("leaky_module:thing", "the factory")
    assert clean(str(raised.value))
