"""Providers accept compressed histories in every format: over LiteLLM and HTTP."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from mail.core.call_context import CallContext, NullSink, enter_call
from mail.llm.ask import agent_output
from mail.llm.ask import ask as ask_model
from mail.llm.compress import SUMMARY_TITLE, Compressor
from mail.llm.litellm_model import LiteLLMModel
from mail.llm.request import ChatModel, ModelReply, ModelRequest, ToolFormat
from mail.llm.script import call, otherwise, think, when
from mail.llm.settings import LLMSettings
from tests.llm.histories import (
    KEY,
    RATIO,
    Entry,
)
from tests.llm.support import ask
from tests.support.provider import FakeProvider

if TYPE_CHECKING:
    from mail.core.usage import Usage

WIRES = [
    ("openai/gpt-4.1", "completions"),
    ("openai/gpt-5", "responses"),
    ("anthropic/claude-sonnet-4-5", "completions"),
]


async def turn_of(
    fitting: Compressor, request: ModelRequest, model: ChatModel, context: CallContext
) -> ModelReply:
    """Ask a model as an agent does in its turn."""
    enter_call(context)
    fitted = await fitting.fit(request, model, RATIO, KEY)
    return await ask_model(model, fitted, NullSink(), context.report)


@pytest.mark.parametrize(("model", "tool_format"), WIRES)
async def test_providers_accept_what_is_left_in_every_format(
    model: str,
    tool_format: ToolFormat,
    provider: FakeProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The provider refuses torn calls and reasoning; see `tests.support.provider.validate`."""
    monkeypatch.setenv("ANTHROPIC_API_BASE", provider.root_url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-environment-key-0123456789")
    provider.script = [
        when(system="^The conversation of an agent").then("They looked words up."),
        otherwise(
            think("Hm."), call("look_up", word="a"), think("And?"), call("look_up", word="b")
        ),
    ]
    spent: list[Usage] = []
    context = CallContext(report=lambda _, usage: spent.append(usage))
    fitting = Compressor(lambda _: 6000)
    settings = LLMSettings(thinking_budget=2000, max_tokens=6000, timeout=5.0, deadline=20.0)
    llm = LiteLLMModel()
    history: list[Entry] = []
    for number in range(12):
        history.append({"role": "user", "content": f"mail {number} " + "mail " * 60})
        request = ask(
            messages=list(history), model=model, tool_format=tool_format, settings=settings
        )
        reply = await asyncio.create_task(turn_of(fitting, request, llm, context))
        made = agent_output(reply)[1]
        history += made[0].responses or [made[0].completion]
        history += [one.create_response_msg("found " * 30) for one in made]
    sums = [seen for seen in provider.requests if "agent has grown too long" in seen.system]
    assert [seen.status for seen in provider.requests] == [200] * (12 + len(sums))
    assert 1 <= len(sums) <= 6
    assert all(seen.messages[-1]["role"] == "user" for seen in sums)
    assert len(spent) == len(provider.requests)
    assert SUMMARY_TITLE in str(provider.requests[-1].messages[:2])
