"""The Python blocks of factories.md, heading by heading, against the fake provider."""

import sys
from collections.abc import Awaitable
from typing import Any

import pytest

from mail import MAILAgentTemplate, MAILSwarmTemplate
from mail.core.render import PRIMER
from mail.core.tools import AgentToolCall
from mail.factories import LiteLLMAgentFunction, MAILAgentFunction
from mail.llm import call, otherwise, say, when
from tests.documents.conftest import Keep
from tests.documents.primer_swarms import solo_template
from tests.documents.support import missing_tests, newest_text
from tests.support.provider import FakeProvider

BLOCKS = {
    "Quick Start": "test_quick_start test_quick_start_the_agent_is_run_directly",
    "Agent Function Class Hierarchy": "test_agent_function_class_hierarchy",
}
"""The document's headings with Python blocks, in its order, and the tests that cover them."""

QUARTER = {"type": "object", "properties": {"quarter": {"type": "string"}}}


@pytest.fixture
def analytics_agent(provider: FakeProvider) -> LiteLLMAgentFunction:
    provider.script = [otherwise(say("Let me look."), call("fetch_report", quarter="Q1"))]
    return LiteLLMAgentFunction(
        name="analyst",
        comm_targets=["consultant", "supervisor"],
        tools=[
            {
                "type": "function",
                "function": {"name": "fetch_report", "description": "...", "parameters": QUARTER},
            }
        ],
        llm="openai/gpt-5-mini",
        system="system prompt string",
        tool_format="responses",
        enable_entrypoint=False,
        enable_interswarm=False,
        can_complete_tasks=False,
        user_token="",
        reasoning_effort="low",
        thinking_budget=4000,
        max_tokens=6000,
        memory=True,
        use_proxy=True,
        stream_tokens=True,
        print_llm_streams=True,
    )


def test_table_names_every_test() -> None:
    assert missing_tests(BLOCKS, sys.modules[__name__]) == set()


def test_quick_start(analytics_agent: LiteLLMAgentFunction) -> None:
    assert isinstance(analytics_agent, MAILAgentFunction)
    assert callable(analytics_agent)
    assert analytics_agent.comm_targets == ["consultant", "supervisor"]
    assert (analytics_agent.llm, analytics_agent.use_proxy) == ("openai/gpt-5-mini", True)


async def test_quick_start_the_agent_is_run_directly(
    provider: FakeProvider, analytics_agent: LiteLLMAgentFunction
) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Test message"}]

    tool_choice: str | dict[str, str] = "auto"

    agent_output = await analytics_agent(
        messages=messages,
        tool_choice=tool_choice,
    )
    text, calls = agent_output
    assert text == "Let me look."
    assert [type(made) for made in calls] == [AgentToolCall]
    assert (calls[0].tool_name, calls[0].tool_args) == ("fetch_report", {"quarter": "Q1"})
    assert messages == [{"role": "user", "content": "Test message"}]

    await analytics_agent(messages)
    first, second = provider.requests
    assert (first.wire, first.status, second.status) == ("responses", 200, 200)
    assert (first.conversation.choice, second.conversation.choice) == ("auto", "required")
    assert newest_text(first) == "Test message"
    assert first.system == "system prompt string\n\n" + PRIMER
    assert first.body["reasoning"]["effort"] == "low"
    assert first.body["max_output_tokens"] == 6000
    assert {"send_request", "send_response", "fetch_report"} <= set(first.tool_names)
    assert "task_complete" not in first.tool_names
    assert first.headers["authorization"] == "Bearer sk-proxy-key-0123456789"  # use_proxy


class LiteLLMAnalystFunction(LiteLLMAgentFunction):
    def __call__(
        self,
        messages: list[dict[str, Any]],
        tool_choice: str | dict[str, str] = "required",
    ) -> Awaitable[tuple[str | None, list[AgentToolCall]]]:
        return super().__call__(messages, tool_choice)


async def test_agent_function_class_hierarchy(provider: FakeProvider, keep: Keep) -> None:
    analyst = MAILAgentTemplate(
        name="analyst",
        factory=LiteLLMAnalystFunction,
        comm_targets=["supervisor"],
        actions=[],
        agent_params={"llm": "openai/gpt-5-mini", "system": "You analyse.", "use_proxy": False},
    )
    [supervisor] = solo_template().agents
    supervisor.comm_targets = ["analyst"]
    provider.script = [
        when(system="You analyse").then(
            call("send_response", target="supervisor", subject="Re", body="Sales are up.")
        ),
        when(mail_from="analyst").then(
            lambda view: call("task_complete", finish_message=view.body)
        ),
        otherwise(call("send_request", target="analyst", subject="Sales", body="How are they?")),
    ]
    template = MAILSwarmTemplate("firm", "1.0.0", [supervisor, analyst], [], "supervisor")
    swarm = keep(template.instantiate({"user_token": "dummy"}))
    response, _ = await swarm.post_message_and_run(body="How are sales?")
    assert response["message"]["body"] == "Sales are up."
    assert [seen.wire for seen in provider.requests] == ["anthropic", "responses", "anthropic"]
    assert provider.requests[1].conversation.choice == "required"
