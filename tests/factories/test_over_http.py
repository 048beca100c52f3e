"""Agent functions all the way: real tools, LiteLLM, HTTP, a provider that checks what it gets."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mail.core.render import PRIMER
from mail.core.tools.call import AgentToolCall
from mail.factories import LiteLLMSupervisorFunction
from mail.llm.litellm_model import close_clients
from mail.llm.script import call, otherwise, say, when
from tests.support.provider import FakeProvider

SCRIPT = [
    when(forced="task_complete").then(call("task_complete", finish_message="out of time")),
    when(tool_result="send_request").then(say("Waiting.")),
    otherwise(
        call("send_request", target="weather", subject="Oslo", body="Weather?"),
        call("send_request", target="math", subject="Sum", body="2 + 2?"),
    ),
]


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProvider]:
    async with FakeProvider(SCRIPT) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        yield running
        await close_clients()


def entries(call: AgentToolCall) -> list[dict[str, Any]]:
    """Return what a reply adds to the history, in either format."""
    return [call.completion] if call.completion else call.responses


@pytest.mark.parametrize("tool_format", ["completions", "responses"])
async def test_a_supervisors_conversation_is_accepted_step_by_step(
    provider: FakeProvider, tool_format: Any
) -> None:
    agent = LiteLLMSupervisorFunction(
        name="supervisor",
        comm_targets=["weather", "math"],
        tools=[],
        llm="openai/gpt-4.1-mini",
        system="You lead.",
        use_proxy=False,
        tool_format=tool_format,
    )
    history: list[dict[str, Any]] = [{"role": "user", "content": "Weather and sum, please."}]
    _, calls = await agent(history, "required")
    assert [c.tool_args["target"] for c in calls] == ["weather", "math"]
    history += [*entries(calls[0]), *(c.create_response_msg("SUCCESS") for c in calls)]
    text, (spoken,) = await agent(history, "required")
    assert (text, spoken.tool_name) == ("Waiting.", "text_output")
    history += [*entries(spoken), {"role": "user", "content": "Finish."}]
    _, (forced,) = await agent(history, {"type": "function", "name": "task_complete"})
    assert forced.tool_args == {"finish_message": "out of time"}
    assert [seen.status for seen in provider.requests] == [200, 200, 200]
    assert len({str(seen.body["tools"]) for seen in provider.requests}) == 1
    assert {seen.wire for seen in provider.requests} == {tool_format}
    assert {seen.system for seen in provider.requests} == {f"You lead.\n\n{PRIMER}"}
    assert "system" not in [entry.get("role") for entry in history]
