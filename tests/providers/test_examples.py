"""The example swarms on a model of a provider: LiteLLM, HTTP, and a provider that checks it all."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mail import MAILSwarm, MAILSwarmTemplate
from mail.examples.scripts import consulting, data_analysis, research, support
from mail.llm.litellm_model import close_clients
from mail.llm.script import Step, run_script
from mail.llm.script_view import ScriptView
from tests.support.provider import FakeProvider

SWARMS = Path(__file__).parents[2] / "swarms.json"
SCRIPTS = {
    "You speak for a small consulting team": consulting.LEAD,
    "You are the consultant": consulting.CONSULTANT,
    "You are the analyst": consulting.ANALYST,
    "You lead two readers": research.LEAD,
    "You look things up": research.READER,
    "You are the front desk": support.DESK,
    "You know the orders": support.ORDERS,
    "You handle refunds": support.BILLING,
    "You lead a team that has a table": data_analysis.LEAD,
    "You describe the figures": data_analysis.STATISTICIAN,
    "You compare the figures": data_analysis.COMPARER,
}


async def cast(view: ScriptView) -> list[Step]:
    """Be the agent whose system prompt the request has."""
    [script] = [made for begin, made in SCRIPTS.items() if view.system.startswith(begin)]
    return await run_script(script, view)


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProvider]:
    async with FakeProvider(cast) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-examples-key-0123456789")
        yield running
        await close_clients()


def on_a_model(name: str, tool_format: str) -> MAILSwarm:
    """Return a shipped swarm whose agents ask a model in place of their scripts."""
    [entry] = [e for e in json.loads(SWARMS.read_text(encoding="utf-8")) if e["name"] == name]
    for agent in entry["agents"]:
        agent["agent_params"]["llm"] = "openai/gpt-5-mini"
        agent["tool_format"] = tool_format
    template = MAILSwarmTemplate.from_swarm_json(json.dumps(entry))
    return template.instantiate({"user_token": "dummy"}, print_llm_streams=False)


@pytest.mark.parametrize("tool_format", ["completions", "responses"])
@pytest.mark.parametrize(
    ("name", "question", "expected"),
    [
        ("consulting", "200 orders, growing 8 percent a month. In 12 months?", "Plan for 503.6"),
        ("research", "Why are tides large, and what holds dunes together?", "[dunes:2]"),
        ("data_analysis", "How much cargo came in, and which quay had more?", "north 5611"),
        ("support", "Please refund A-1003, it has a hole.", "About the refund: approved"),
    ],
)
async def test_an_example_works_with_a_model(
    provider: FakeProvider, name: str, question: str, expected: str, tool_format: str
) -> None:
    swarm = on_a_model(name, tool_format)
    response, _ = await swarm.post_message(question, task_id="t")
    if response["message"]["subject"] == "::breakpoint_tool_call::":
        approved: dict[str, Any] = {"content": "approved"}
        response, _ = await swarm.post_message(
            "",
            task_id="t",
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result=approved,
        )
    await swarm.shutdown()
    assert expected in response["message"]["body"]
    assert {seen.status for seen in provider.requests} == {200}
    assert {seen.wire for seen in provider.requests} == {tool_format}
