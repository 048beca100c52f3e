"""The Python blocks of AGENTS_MAIL_PRIMER.md, heading by heading, against the fake provider."""

import asyncio
import json
import logging
import sys
import uuid
from functools import partial
from pathlib import Path

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field
from sse_starlette import EventSourceResponse

import mail.api
import mail.factories
from mail import MAILAction, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate, action
from mail.core.render import PRIMER
from mail.errors import ConfigError
from mail.factories import (
    LiteLLMActionAgentFunction,
    LiteLLMAgentFunction,
    LiteLLMSupervisorFunction,
)
from mail.llm import call, otherwise, say, think, when
from tests.documents.conftest import Keep
from tests.documents.primer_swarms import minimal_swarm
from tests.documents.served import Served, serving_process
from tests.documents.support import buffered, fragments, missing_tests, newest_text, tool_results
from tests.server.kit import serving
from tests.support.provider import FakeProvider

BLOCKS = {
    "Core Imports": "test_core_imports",
    "Quick Start — Minimal Swarm": "test_quick_start",
    "1) `@action` decorator (typed payload)": "test_action_decorator",
    "2) `MAILAction.from_pydantic_model` (closure-friendly)": "test_from_pydantic_model",
    "Agents (Templates)": (
        "test_agents test_agents_tool_format_inside_agent_params_is_ignored_with_a_warning"
    ),
    "Swarms (Templates + Instances)": "test_swarms test_swarms_are_validated",
    "One-off run (no continuous loop)": "test_one_off_run",
    "Continuous runtime": "test_continuous_runtime",
    "Streaming": "test_streaming",
    "Manual mode (step-by-step)": "test_manual_mode",
    "Starting a Server (Programmatic)": "test_starting_a_server",
    "Breakpoints + Resume": "test_breakpoints_and_resume",
    "Parsing Breakpoint Tool Call Arguments": "test_parsing_breakpoint_tool_call_arguments",
    "Loading from swarms.json (Optional)": "test_loading_from_swarms_json",
}
"""The document's headings with Python blocks, in its order, and the tests that cover them."""

SCRIPT = [
    when(tool_result="human_review", result="approved").then(
        call("task_complete", finish_message="The reviewer approved.")
    ),
    when(tool_result="select_speaker").then(
        lambda view: call(
            "send_response",
            target="supervisor",
            subject="Re: Speaker",
            body=view.results[-1].content,
        )
    ),
    when(mail_from="worker").then(lambda view: call("task_complete", finish_message=view.body)),
    when(body="Pick one").then(call("select_speaker", player_name="Ann")),
    when(body="Who speaks").then(
        think("The worker knows."),
        say("One moment."),
        call("send_request", target="worker", subject="Speaker", body="Pick one"),
    ),
    when(body="A draft").then(call("human_review", draft="First version")),
    when(body=r"Describe the scene\.").then("The town lies asleep."),
    otherwise(call("task_complete", finish_message="Hello to you, too.")),
]


class Game:
    """What the document's closures are bound to."""

    speaker: str | None = None

    def select_speaker(self, player_name: str) -> str:
        self.speaker = player_name
        return f"{player_name} has the floor"


class SelectSpeakerArgs(BaseModel):
    player_name: str = Field(description="The player to speak next")


async def select_speaker(game: Game, payload: dict) -> str:
    return game.select_speaker(payload["player_name"])


@pytest.fixture
def game() -> Game:
    return Game()


@pytest.fixture
def select_speaker_action(game: Game) -> MAILAction:
    return MAILAction.from_pydantic_model(
        model=SelectSpeakerArgs,
        function=partial(select_speaker, game),
        name="select_speaker",
    )


@pytest.fixture
def supervisor(provider: FakeProvider) -> MAILAgentTemplate:
    provider.script = SCRIPT
    return MAILAgentTemplate(
        name="supervisor",
        factory=LiteLLMSupervisorFunction,
        comm_targets=["worker"],
        actions=[],
        agent_params={
            "llm": "anthropic/claude-opus-4-5-20251101",
            "system": "System prompt here",
            "use_proxy": False,
            "stream_tokens": True,
            "reasoning_effort": "high",
            "default_tool_choice": "auto",
        },
        enable_entrypoint=True,
        can_complete_tasks=True,
        tool_format="completions",
    )


@pytest.fixture
def worker(select_speaker_action: MAILAction) -> MAILAgentTemplate:
    return MAILAgentTemplate(
        name="worker",
        factory=LiteLLMActionAgentFunction,
        comm_targets=["supervisor"],
        actions=[select_speaker_action],
        agent_params={
            "llm": "anthropic/claude-opus-4-5-20251101",
            "system": "Worker prompt",
            "use_proxy": False,
            "stream_tokens": True,
        },
        tool_format="completions",
    )


@pytest.fixture
def swarm_template(
    supervisor: MAILAgentTemplate, worker: MAILAgentTemplate, select_speaker_action: MAILAction
) -> MAILSwarmTemplate:
    return MAILSwarmTemplate(
        name="example_swarm",
        version="1.0.0",
        agents=[supervisor, worker],
        actions=[select_speaker_action],
        entrypoint="supervisor",
    )


@pytest.fixture
def swarm(swarm_template: MAILSwarmTemplate, keep: Keep) -> MAILSwarm:
    return keep(
        swarm_template.instantiate(
            instance_params={"user_token": "dummy"},
            user_id="local_user",
        )
    )


def test_table_names_every_test() -> None:
    assert missing_tests(BLOCKS, sys.modules[__name__]) == set()


def test_core_imports() -> None:
    api = (MAILAction, MAILAgentTemplate, MAILSwarmTemplate, action)
    assert api == (
        mail.api.MAILAction,
        mail.api.MAILAgentTemplate,
        mail.api.MAILSwarmTemplate,
        mail.api.action,
    )
    for factory in (LiteLLMActionAgentFunction, LiteLLMSupervisorFunction):
        assert issubclass(factory, mail.factories.MAILAgentFunction)
    assert issubclass(LiteLLMAgentFunction, mail.factories.MAILAgentFunction)


async def test_quick_start(provider: FakeProvider, keep: Keep) -> None:
    provider.script = SCRIPT
    template = minimal_swarm()
    swarm = template.instantiate(
        instance_params={"user_token": "dummy"},
        user_id="local_user",
    )
    keep(swarm)
    response, _events = await swarm.post_message_and_run(
        body="Hello!",
        subject="Greeting",
    )
    assert response["message"]["body"] == "Hello to you, too."
    assert response["message"]["subject"] == "::task_complete::"
    assert _events == []

    [asked] = provider.requests
    assert (asked.wire, asked.status) == ("anthropic", 200)
    assert asked.model == "claude-sonnet-4-20250514"
    assert asked.system == "You are a helpful assistant.\n\n" + PRIMER
    assert "task_complete" in asked.tool_names
    assert "<subject>Greeting</subject>" in newest_text(asked)
    assert "<body>Hello!</body>" in newest_text(asked)


async def test_action_decorator() -> None:
    class AddArgs(BaseModel):
        a: int = Field(description="First number")
        b: int = Field(description="Second number")

    @action(name="add", description="Add two numbers")
    async def add(args: AddArgs) -> str:
        return str(args.a + args.b)

    assert isinstance(add, MAILAction)
    assert (add.name, add.description) == ("add", "Add two numbers")
    assert add.parameters["properties"]["a"]["description"] == "First number"
    assert await add.function({"a": 2, "b": 40}) == "42"
    assert await add.callback(AddArgs(a=1, b=1)) == "2"


async def test_from_pydantic_model(game: Game, select_speaker_action: MAILAction) -> None:
    assert select_speaker_action.name == "select_speaker"
    tool = select_speaker_action.to_tool_dict(style="completions")["function"]
    assert tool["parameters"]["properties"]["player_name"]["type"] == "string"
    assert tool["parameters"]["required"] == ["player_name"]
    assert await select_speaker_action.function({"player_name": "Bob"}) == "Bob has the floor"
    assert game.speaker == "Bob"


async def test_agents(
    provider: FakeProvider, swarm: MAILSwarm, game: Game, capsys: pytest.CaptureFixture[str]
) -> None:
    response, _ = await swarm.post_message_and_run(body="Who speaks?")
    assert response["message"]["body"].endswith("Ann has the floor")
    assert game.speaker == "Ann"
    assert "One moment." in capsys.readouterr().out  # stream_tokens

    lead, aide = provider.requests[0], provider.requests[1]
    assert {seen.status for seen in provider.requests} == {200}
    assert lead.system.startswith("System prompt here\n")  # who can be reached comes after it
    assert aide.system.startswith("Worker prompt\n")
    assert lead.model == aide.model == "claude-opus-4-5-20251101"
    assert lead.conversation.choice == "auto"  # default_tool_choice
    assert aide.conversation.choice == "required"
    assert lead.body["thinking"]["type"] == "enabled"  # reasoning_effort
    assert "thinking" not in aide.body
    assert "select_speaker" in aide.tool_names
    assert "task_complete" not in aide.tool_names
    assert "select_speaker" not in lead.tool_names


async def test_agents_tool_format_inside_agent_params_is_ignored_with_a_warning(
    supervisor: MAILAgentTemplate, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor.agent_params["tool_format"] = "responses"
    with caplog.at_level(logging.WARNING):
        agent = supervisor.instantiate({"user_token": "dummy"})
    assert agent.tool_format == "completions"
    [warning] = [record.getMessage() for record in caplog.records]
    assert "'tool_format' inside agent_params of agent 'supervisor' is ignored" in warning
    assert agent.function.tool_format == "completions"


async def test_swarms(swarm: MAILSwarm) -> None:
    assert (swarm.name, swarm.version, swarm.user_id) == ("example_swarm", "1.0.0", "local_user")
    assert swarm.agent_names == ["supervisor", "worker"]
    assert [agent.name for agent in swarm.supervisors] == ["supervisor"]
    assert [made.name for made in swarm.actions] == ["select_speaker"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"entrypoint": "nobody"}, "entrypoint"),
        ({"entrypoint": "worker"}, "entrypoint"),
        ({"agents": ["worker"]}, "entrypoint"),
        ({"comm_targets": ["supervisr"]}, "supervisr"),
        ({"can_complete_tasks": False}, "supervisor"),
        ({"breakpoint_tools": ["human_review"]}, "human_review"),
        ({"exclude_tools": ["send_nothing"]}, "send_nothing"),
    ],
)
async def test_swarms_are_validated(
    supervisor: MAILAgentTemplate, worker: MAILAgentTemplate, change: dict, complaint: str
) -> None:
    supervisor.can_complete_tasks = change.pop("can_complete_tasks", True)
    worker.comm_targets = change.pop("comm_targets", ["supervisor"])
    known = {"supervisor": supervisor, "worker": worker}
    agents = [known[name] for name in change.pop("agents", known)]
    wiring = {"entrypoint": "supervisor", **change}
    with pytest.raises(ConfigError, match=complaint):
        MAILSwarmTemplate(
            name="example_swarm", version="1.0.0", agents=agents, actions=[], **wiring
        )


async def test_one_off_run(swarm: MAILSwarm) -> None:
    response, events = await swarm.post_message_and_run(
        body="Hello",
        subject="New Message",
        show_events=True,
    )
    assert response["message"]["body"] == "Hello to you, too."
    kinds = [event.event for event in events]
    assert kinds[0] == "new_message"
    assert {"tool_call", "task_complete_call", "task_complete"} <= set(kinds)


async def test_continuous_runtime(swarm: MAILSwarm) -> None:
    runtime_task = asyncio.create_task(swarm.run_continuous())

    response, events = await swarm.post_message(
        body="Hello",
        subject="New Message",
        show_events=True,
    )
    assert not runtime_task.done()
    assert response["message"]["body"] == "Hello to you, too."
    assert "task_complete" in [event.event for event in events]

    await swarm.shutdown()
    await runtime_task


async def test_streaming(swarm: MAILSwarm) -> None:
    app = FastAPI()

    @app.get("/stream", response_model=None)
    async def answer() -> EventSourceResponse:
        stream = await swarm.post_message_stream(body="Hello")
        assert isinstance(stream, EventSourceResponse)
        return stream

    async with serving(app) as client:
        read = await client.get("/stream")
    assert read.headers["content-type"].startswith("text/event-stream")
    assert "event: new_message" in read.text
    assert "event: task_complete\r\n" in read.text
    assert fragments(read.text)[-1]["response"] == "Hello to you, too."


async def test_manual_mode(
    provider: FakeProvider, supervisor: MAILAgentTemplate, worker: MAILAgentTemplate, keep: Keep
) -> None:
    supervisor.name, worker.comm_targets = "narrator", ["narrator"]
    template = MAILSwarmTemplate("town", agents=[supervisor, worker], entrypoint="narrator")
    swarm = keep(template.instantiate({"user_token": "dummy"}, user_id="host"))

    asyncio.create_task(swarm.run_continuous(mode="manual"))  # noqa: RUF006 - as documented

    task_id = str(uuid.uuid4())
    init_msg = swarm.build_message(
        subject="::init::",
        body="Game starting",
        targets=["all"],
        sender_type="user",
        type="broadcast",
        task_id=task_id,
    )
    await swarm.submit_message_nowait(init_msg)
    await swarm.await_queue_empty()
    assert provider.requests == []  # nobody speaks before the first step
    assert buffered(swarm, task_id, "narrator") == [("host", "Game starting")]

    response = await swarm.manual_step(
        task_id=task_id,
        target="narrator",
        response_targets=["all"],
        response_type="broadcast",
        payload="Describe the scene.",
        dynamic_ctx_ratio=0.75,
    )
    assert response["message"]["body"] == "The town lies asleep."
    assert response["message"]["sender"]["address"] == "narrator"
    assert (response["msg_type"], response["message"]["task_id"]) == ("broadcast", task_id)
    [asked] = provider.requests
    assert newest_text(asked) == (
        "<public_message>\n<from>host</from>\nGame starting\n</public_message>\n\n\n"
        "Describe the scene."
    )
    assert buffered(swarm, task_id, "narrator") == []
    expected = [("host", "Game starting"), ("narrator", "The town lies asleep.")]
    assert buffered(swarm, task_id, "worker") == expected


async def test_starting_a_server(tmp_path: Path) -> None:
    async with serving_process("agents_primer", tmp_path) as server:
        await _ask(server)
    assert server.printed == [f"browser {server.client.base_url}/console", "returned"]
    assert server.logged.count("the console is at http://") == 1


async def _ask(server: Served) -> None:
    root = (await server.client.get("/")).json()
    assert root["swarm"]["name"] == "my_swarm"
    answer = await server.client.post("/message", json={"body": "Hello!"})
    assert answer.json()["response"] == "Hello to you, too."


@pytest.fixture
def reviewed(
    supervisor: MAILAgentTemplate,
    worker: MAILAgentTemplate,
    select_speaker_action: MAILAction,
    keep: Keep,
) -> MAILSwarm:
    """The document's swarm; its breakpoint tool must be somebody's, so the supervisor has it."""
    human_review = MAILAction(
        name="human_review",
        description="Have a person look at a draft",
        parameters={"type": "object", "properties": {"draft": {"type": "string"}}},
        function=lambda args: pytest.fail("the caller answers a breakpoint tool"),
    )
    supervisor.actions = [human_review]
    swarm_template = MAILSwarmTemplate(
        name="eval_swarm",
        version="1.0.0",
        agents=[supervisor, worker],
        actions=[select_speaker_action],
        entrypoint="supervisor",
        breakpoint_tools=["human_review"],
    )
    return keep(swarm_template.instantiate({"user_token": "dummy"}, user_id="local_user"))


async def test_breakpoints_and_resume(provider: FakeProvider, reviewed: MAILSwarm) -> None:
    swarm = reviewed
    paused, _ = await swarm.post_message(body="A draft")
    existing_task_id = paused["message"]["task_id"]
    assert paused["message"]["subject"] == "::breakpoint_tool_call::"
    asked = len(provider.requests)

    response, _ = await swarm.post_message(
        body="",
        resume_from="breakpoint_tool_call",
        task_id=existing_task_id,
        breakpoint_tool_call_result={"content": "approved"},
    )
    assert response["message"]["body"] == "The reviewer approved."
    assert response["message"]["task_id"] == existing_task_id
    assert any("approved" in text for text in tool_results(provider.requests[asked]))
    assert {seen.status for seen in provider.requests} == {200}


def parse_breakpoint_args(response: dict, tool_name: str) -> dict | None:
    message = response.get("message", {})
    if message.get("subject") != "::breakpoint_tool_call::":
        return None
    body = message.get("body", "")
    if not body:
        return None
    data = json.loads(body)
    for made in data:
        if made.get("name") == tool_name:
            args = made.get("arguments", "{}")
            return json.loads(args) if isinstance(args, str) else args
    return None


async def test_parsing_breakpoint_tool_call_arguments(reviewed: MAILSwarm) -> None:
    response, _ = await reviewed.post_message(body="A draft")
    assert response["message"]["subject"] == "::breakpoint_tool_call::"
    [made] = json.loads(response["message"]["body"])
    assert made["name"] == "human_review"
    assert json.loads(made["arguments"]) == {"draft": "First version"}
    assert made["id"] == made["call_id"] != ""

    assert parse_breakpoint_args(response, "human_review") == {"draft": "First version"}
    assert parse_breakpoint_args(response, "another_tool") is None
    other, _ = await reviewed.post_message(body="Hello")
    assert parse_breakpoint_args(other, "human_review") is None


async def test_loading_from_swarms_json(
    provider: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: Keep
) -> None:
    provider.script = SCRIPT
    params = {"llm": "anthropic/claude-sonnet-4-20250514", "use_proxy": False}
    solo = {
        "name": "supervisor",
        "factory": "python::mail.factories:LiteLLMSupervisorFunction",
        "comm_targets": [],
        "agent_params": params,
        "enable_entrypoint": True,
        "can_complete_tasks": True,
    }
    entry = {"name": "example", "version": "1.0.0", "entrypoint": "supervisor", "agents": [solo]}
    file = tmp_path / "swarms.json"
    monkeypatch.chdir(tmp_path)

    file.write_text(json.dumps([entry]))
    with pytest.raises(ConfigError, match="actions"):
        MAILSwarmTemplate.from_swarm_json_file("example")

    file.write_text(json.dumps([entry | {"actions": []}]))
    template = MAILSwarmTemplate.from_swarm_json_file(
        swarm_name="example",
        json_filepath="swarms.json",
    )
    swarm = keep(template.instantiate({"user_token": "dummy"}))
    response, _ = await swarm.post_message(body="Hello")
    assert response["message"]["body"] == "Hello to you, too."
