"""The Python blocks of CLAUDE_MAIL_PRIMER.md, heading by heading, against the fake provider.

Those of its chapter on patterns and gotchas are in test_claude_gotchas.py.
"""

import asyncio
import json
import sys
import uuid
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field
from sse_starlette import EventSourceResponse

import mail.api
from mail import MAILAction, MAILAgentTemplate, MAILSwarmTemplate, action
from mail.core.render import PRIMER
from mail.errors import ConfigError
from mail.factories import (
    LiteLLMActionAgentFunction,
    LiteLLMAgentFunction,
    LiteLLMSupervisorFunction,
)
from mail.llm import call, otherwise, when
from tests.documents.conftest import Keep
from tests.documents.primer_swarms import (
    CLAUDE,
    SCRIPT,
    minimal_swarm,
    solo_template,
    stage_template,
    tool,
)
from tests.documents.served import serving_process
from tests.documents.support import buffered, fragments, missing_tests, newest_text, tool_results
from tests.server.kit import serving
from tests.support.provider import FakeProvider

BLOCKS = {
    "Core Imports": "test_core_imports",
    "Quick Start — Minimal Working Swarm": "test_quick_start",
    "Pattern 1: `@action` Decorator": "test_pattern_1_action_decorator",
    "Pattern 2: `MAILAction.from_pydantic_model` with Closure": (
        "test_pattern_2_from_pydantic_model_with_closure"
    ),
    "Key Template Fields": "test_key_template_fields",
    "Multi-Agent Example": "test_multi_agent_example",
    "Swarm Templates": "test_swarm_templates",
    "One-Shot Execution": "test_one_shot_execution",
    "Continuous Mode": "test_continuous_mode",
    "Streaming": "test_streaming",
    "Starting a Server": "test_starting_a_server test_starting_a_server_without_a_ui",
    "Manual Mode": "test_manual_mode",
    "Breakpoints — Pausing and Resuming": "test_breakpoints",
    "Parsing Breakpoint Tool Call Arguments": "test_parsing_breakpoint_tool_call_arguments",
}
"""The document's headings with Python blocks, in its order, and the tests that cover them."""


@pytest.fixture(autouse=True)
def script(provider: FakeProvider) -> None:
    provider.script = SCRIPT


def test_table_names_every_test() -> None:
    assert missing_tests(BLOCKS, sys.modules[__name__]) == set()


def test_core_imports() -> None:
    names = ("MAILAction", "MAILAgentTemplate", "MAILSwarmTemplate", "action")
    here = (MAILAction, MAILAgentTemplate, MAILSwarmTemplate, action)
    assert here == tuple(getattr(mail.api, name) for name in names)
    assert LiteLLMAgentFunction.__name__ == "LiteLLMAgentFunction"
    assert not issubclass(LiteLLMAgentFunction, LiteLLMActionAgentFunction)
    assert not issubclass(LiteLLMActionAgentFunction, LiteLLMSupervisorFunction)


async def test_quick_start(provider: FakeProvider, keep: Keep) -> None:
    template = minimal_swarm()
    swarm = template.instantiate(
        instance_params={"user_token": "dummy"},
        user_id="local_user",
    )
    keep(swarm)
    response, events = await swarm.post_message_and_run(
        body="Hello!",
        subject="Greeting",
    )
    assert response["message"]["body"] == "Hello to you, too."
    assert events == []
    [asked] = provider.requests
    assert (asked.wire, asked.model) == ("anthropic", "claude-sonnet-4-20250514")
    assert asked.system == "You are a helpful assistant.\n\n" + PRIMER


async def test_pattern_1_action_decorator(provider: FakeProvider, keep: Keep) -> None:
    class AddNumbersArgs(BaseModel):
        a: int = Field(description="First number")
        b: int = Field(description="Second number")

    @action(name="add_numbers", description="Add two numbers together")
    async def add_numbers(args: AddNumbersArgs) -> str:
        return str(args.a + args.b)

    worker = MAILAgentTemplate(
        name="worker",
        factory=LiteLLMActionAgentFunction,
        comm_targets=["supervisor"],
        actions=[add_numbers],
        agent_params=CLAUDE,
    )
    provider.script = [
        when(tool_result="add_numbers").then(
            lambda view: call(
                "send_response", target="supervisor", subject="Sum", body=view.results[-1].content
            )
        ),
        when(body="Add them").then(call("add_numbers", a=2, b=40)),
        when(mail_from="worker").then(lambda view: call("task_complete", finish_message=view.body)),
        otherwise(call("send_request", target="worker", subject="Sum", body="Add them")),
    ]
    supervisor = solo_template().agents[0]
    supervisor.comm_targets = ["worker"]
    template = MAILSwarmTemplate("sums", "1.0.0", [supervisor, worker], [add_numbers], "supervisor")
    swarm = keep(template.instantiate({"user_token": "dummy"}, "user_123"))
    response, _ = await swarm.post_message_and_run(body="What is the sum?")
    assert "42" in response["message"]["body"]
    assert {seen.status for seen in provider.requests} == {200}


async def test_pattern_2_from_pydantic_model_with_closure() -> None:
    class SelectPlayerArgs(BaseModel):
        player_name: str = Field(description="Name of the player to select")

    async def select_player(game_state: SimpleNamespace, args: dict) -> str:
        name = args["player_name"]
        game_state.current_player = name
        return f"Selected {name}"

    def get_game_actions(game: SimpleNamespace) -> list[MAILAction]:
        return [
            MAILAction.from_pydantic_model(
                model=SelectPlayerArgs,
                function=partial(select_player, game),
                name="select_player",
            ),
        ]

    game = SimpleNamespace(current_player=None)
    actions = get_game_actions(game)

    narrator = MAILAgentTemplate(
        name="narrator",
        factory=LiteLLMActionAgentFunction,
        comm_targets=["player1", "player2"],
        actions=actions,
        agent_params=CLAUDE,
    )
    agent = narrator.instantiate({"user_token": "dummy"})
    [select] = agent.actions
    assert select.name == "select_player"
    assert await select.function({"player_name": "Ann"}) == "Selected Ann"
    assert game.current_player == "Ann"


async def test_key_template_fields(provider: FakeProvider, keep: Keep) -> None:
    my_action = tool("my_action")
    template = MAILAgentTemplate(
        name="agent_name",
        factory=LiteLLMSupervisorFunction,
        comm_targets=["other_agent"],
        actions=[my_action],
        agent_params={
            "llm": "anthropic/claude-sonnet-4-20250514",
            "system": "System prompt here",
            "use_proxy": False,
            "stream_tokens": True,
            "reasoning_effort": "high",
            "default_tool_choice": "auto",
        },
        enable_entrypoint=True,
        can_complete_tasks=True,
        tool_format="completions",
        exclude_tools=[],
    )
    other = MAILAgentTemplate("other_agent", LiteLLMAgentFunction, ["agent_name"], [], CLAUDE)
    swarm_template = MAILSwarmTemplate("pair", "1.0.0", [template, other], [], "agent_name")
    swarm = keep(swarm_template.instantiate({"user_token": "dummy"}))
    response, _ = await swarm.post_message_and_run(body="Hello")
    assert response["message"]["body"] == "Hello to you, too."
    [asked] = provider.requests
    assert (asked.status, asked.conversation.choice) == (200, "auto")
    assert asked.body["thinking"]["type"] == "enabled"
    assert {"send_request", "task_complete", "my_action"} <= set(asked.tool_names)


async def test_multi_agent_example() -> None:
    supervisor, researcher, coder = _team(tool("web_search"), tool("run_code"))
    made = [each.instantiate({"user_token": "dummy"}) for each in (supervisor, researcher, coder)]
    assert [agent.comm_targets for agent in made] == [
        ["researcher", "coder"],
        ["supervisor"],
        ["supervisor"],
    ]
    assert [[own.name for own in agent.actions] for agent in made] == [
        [],
        ["web_search"],
        ["run_code"],
    ]
    assert [agent.can_complete_tasks for agent in made] == [True, False, False]
    assert [agent.enable_entrypoint for agent in made] == [True, False, False]


def _team(
    web_search_action: MAILAction, run_code_action: MAILAction
) -> tuple[MAILAgentTemplate, MAILAgentTemplate, MAILAgentTemplate]:
    supervisor = MAILAgentTemplate(
        name="supervisor",
        factory=LiteLLMSupervisorFunction,
        comm_targets=["researcher", "coder"],
        actions=[],
        agent_params={
            "llm": "anthropic/claude-sonnet-4-20250514",
            "system": "You coordinate research and coding tasks.",
            "use_proxy": False,
        },
        enable_entrypoint=True,
        can_complete_tasks=True,
        tool_format="completions",
    )
    researcher = MAILAgentTemplate(
        name="researcher",
        factory=LiteLLMActionAgentFunction,
        comm_targets=["supervisor"],
        actions=[web_search_action],
        agent_params={
            "llm": "anthropic/claude-sonnet-4-20250514",
            "system": "You search the web and report findings.",
            "use_proxy": False,
        },
        tool_format="completions",
    )
    coder = MAILAgentTemplate(
        name="coder",
        factory=LiteLLMActionAgentFunction,
        comm_targets=["supervisor"],
        actions=[run_code_action],
        agent_params={
            "llm": "anthropic/claude-sonnet-4-20250514",
            "system": "You write and execute code.",
            "use_proxy": False,
        },
        tool_format="completions",
    )
    return supervisor, researcher, coder


TEAM_SCRIPT = [
    when(system="You search", tool_result="web_search").then(
        call("send_response", target="supervisor", subject="Found", body="Primes are sieved")
    ),
    when(system="You search").then(call("web_search", field="primes")),
    when(system="You write", tool_result="run_code").then(
        call("send_response", target="supervisor", subject="Ran", body="2, 3, 5")
    ),
    when(system="You write").then(call("run_code", field="sieve(5)")),
    when(mail_from="researcher").then(
        call("send_request", target="coder", subject="Code", body="Write a sieve")
    ),
    when(mail_from="coder").then(lambda view: call("task_complete", finish_message=view.body)),
    otherwise(call("send_request", target="researcher", subject="Search", body="How?")),
]


async def test_swarm_templates(provider: FakeProvider, keep: Keep) -> None:
    web_search_action, run_code_action = tool("web_search"), tool("run_code")
    supervisor, researcher, coder = _team(web_search_action, run_code_action)
    template = MAILSwarmTemplate(
        name="my_swarm",
        version="1.0.0",
        agents=[supervisor, researcher, coder],
        actions=[web_search_action, run_code_action],
        entrypoint="supervisor",
        breakpoint_tools=[],
        exclude_tools=[],
    )
    provider.script = TEAM_SCRIPT
    swarm = keep(template.instantiate({"user_token": "dummy"}, "user_123"))
    response, events = await swarm.post_message_and_run(body="Primes, please", show_events=True)
    assert response["message"]["body"] == "2, 3, 5"
    called = [event.extra["tool_name"] for event in events if event.kind == "tool_call"]
    assert [name for name in called if name in ("web_search", "run_code")] == [
        "web_search",
        "run_code",
    ]
    assert {seen.status for seen in provider.requests} == {200}

    def again(**wrong: object) -> None:
        parts = {"agents": [supervisor, researcher, coder], "entrypoint": "supervisor"}
        MAILSwarmTemplate(
            **({"name": "my_swarm", "version": "1.0.0", "actions": []} | parts | wrong)
        )

    again()
    for wrong in (
        {"entrypoint": "researcher"},
        {"agents": [researcher, coder]},
        {"agents": [supervisor, researcher]},
        {"breakpoint_tools": ["human_review"]},
    ):
        with pytest.raises(ConfigError):
            again(**wrong)


async def test_one_shot_execution(keep: Keep) -> None:
    template = solo_template()
    swarm = template.instantiate({"user_token": "dummy"}, "user_123")
    keep(swarm)

    response, events = await swarm.post_message_and_run(
        body="What's 2 + 2?",
        subject="Math Question",
        show_events=True,
    )
    assert response["message"]["body"] == "4"
    assert [event.event for event in events][-1] == "task_complete"
    assert "new_message" in [event.event for event in events]


async def test_continuous_mode() -> None:
    template = solo_template()
    swarm = template.instantiate({"user_token": "dummy"}, "user_123")

    asyncio.create_task(swarm.run_continuous())  # noqa: RUF006 - as documented

    response, events = await swarm.post_message(
        body="First task",
        subject="Task 1",
    )
    response2, events2 = await swarm.post_message(
        body="Second task",
        subject="Task 2",
    )
    assert response["message"]["body"] == "The first is done."
    assert response2["message"]["body"] == "The second is done."
    assert response["message"]["task_id"] != response2["message"]["task_id"]
    assert events == events2 == []

    await swarm.shutdown()


async def test_streaming(keep: Keep) -> None:
    swarm = keep(solo_template().instantiate({"user_token": "dummy"}, "user_123"))
    app = FastAPI()

    @app.get("/", response_model=None)
    async def endpoint() -> EventSourceResponse:
        stream = await swarm.post_message_stream(body="Hello")
        assert isinstance(stream, EventSourceResponse)
        return stream

    async with serving(app) as client, client.stream("GET", "/") as read:
        text = (await read.aread()).decode()
    assert fragments(text)[-1]["response"] == "Hello to you, too."


async def test_starting_a_server(tmp_path: Path) -> None:
    async with serving_process("claude_primer", tmp_path) as server:
        root = (await server.client.get("/")).json()
    assert root["swarm"]["name"] == "my_swarm"
    assert server.printed == [f"browser {server.client.base_url}/console", "returned"]
    assert server.logged.count("the console is at http://") == 1


async def test_starting_a_server_without_a_ui(tmp_path: Path) -> None:
    async with serving_process("without_ui", tmp_path) as server:
        assert (await server.client.get("/")).json()["swarm"]["entrypoint"] == "supervisor"
    assert server.printed == ["returned"]
    assert "console" not in server.logged


async def test_manual_mode(provider: FakeProvider, keep: Keep) -> None:
    template = stage_template()
    swarm = template.instantiate({"user_token": "dummy"}, "game_session")
    keep(swarm)
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

    response = await swarm.manual_step(
        task_id=task_id,
        target="narrator",
        response_targets=["all"],
        response_type="broadcast",
        payload="Describe the scene.",
    )
    assert response["message"]["body"] == "Rain over the harbour."
    assert response["msg_type"] == "broadcast"

    response = await swarm.manual_step(
        task_id=task_id,
        target="player1",
        response_targets=["narrator"],
        response_type="response",
        payload="What do you do?",
    )
    assert response["message"]["body"] == "I open the umbrella."
    assert response["msg_type"] == "response"
    assert response["message"]["recipient"]["address"] == "narrator"
    assert newest_text(provider.requests[1]) == (
        "<public_message>\n<from>game_session</from>\nGame starting\n</public_message>\n\n\n"
        "<public_message>\n<from>narrator</from>\nRain over the harbour.\n</public_message>\n\n\n"
        "What do you do?"
    )
    assert buffered(swarm, task_id, "narrator") == [("player1", "I open the umbrella.")]
    assert buffered(swarm, task_id, "player1") == []


async def test_breakpoints(provider: FakeProvider, keep: Keep) -> None:
    human_review_action = tool("human_review")
    [supervisor] = solo_template(human_review_action).agents
    template = MAILSwarmTemplate(
        name="approval_swarm",
        version="1.0.0",
        agents=[supervisor],
        actions=[human_review_action],
        entrypoint="supervisor",
        breakpoint_tools=["human_review"],
    )
    swarm = template.instantiate({"user_token": "dummy"})
    keep(swarm)

    response, events = await swarm.post_message_and_run(
        body="Please process this document",
        task_id="task_123",
    )
    assert response["message"]["subject"] == "::breakpoint_tool_call::"
    assert response["message"]["task_id"] == "task_123"
    task = swarm.get_task_by_id("task_123")
    assert task is not None
    assert not task.completed

    response, events = await swarm.post_message_and_run(
        body="",
        task_id="task_123",
        resume_from="breakpoint_tool_call",
        breakpoint_tool_call_result={"content": "Approved"},
    )
    assert response["message"]["body"] == "Processed, for it was approved."
    assert events == []
    task = swarm.get_task_by_id("task_123")
    assert task is not None
    assert task.completed
    given = tool_results(provider.requests[-1])
    assert any("Approved" in text for text in given)
    assert not any("done" in text for text in given)  # the action itself did not run


def parse_breakpoint_tool_call(response: dict, tool_name: str) -> dict | None:
    message = response.get("message", {})
    subject = message.get("subject", "")
    body = message.get("body", "")

    if subject != "::breakpoint_tool_call::" or not body:
        return None

    body_data = json.loads(body)
    if isinstance(body_data, list) and len(body_data) > 0:
        for made in body_data:
            if made.get("name") == tool_name:
                args = made.get("arguments", "{}")
                if isinstance(args, str):
                    return json.loads(args)
                return args

    return None


async def test_parsing_breakpoint_tool_call_arguments(keep: Keep) -> None:
    documented = {
        "message": {
            "subject": "::breakpoint_tool_call::",
            "body": '[{"arguments": "{\\"field\\": \\"value\\"}", "name": "tool_name", '
            '"id": "call_..."}]',
        }
    }
    assert parse_breakpoint_tool_call(documented, "tool_name") == {"field": "value"}

    template = solo_template(tool("human_review"), breakpoint_tools=("human_review",))
    swarm = keep(template.instantiate({"user_token": "dummy"}))
    response, _ = await swarm.post_message(body="Please process this document")
    assert parse_breakpoint_tool_call(response, "human_review") == {"field": "value"}
    assert parse_breakpoint_tool_call(response, "tool_name") is None
    [made] = json.loads(response["message"]["body"])
    assert {"arguments", "name", "id"} <= set(made)
