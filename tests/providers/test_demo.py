"""`make demo` with a model of a provider, and with one behind a LiteLLM proxy."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mail.examples.scripts import MATH, SUPERVISOR, WEATHER
from mail.llm.script import Step, run_script
from mail.llm.script_view import ScriptView
from tests.support.provider import FakeProvider

ROOT = Path(__file__).resolve().parents[2]


async def team(view: ScriptView) -> list[Step]:
    """Be the agent whose system prompt the request has."""
    for tool, script in (("get_weather_forecast", WEATHER), ("calculate_expression", MATH)):
        if tool in view.tools:
            return await run_script(script, view)
    return await run_script(SUPERVISOR, view)


async def demo(environment: Mapping[str, str]) -> tuple[int, str]:
    """Run the demo with only these settings of providers; return exit code and output."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL", "_LLM"))
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "scripts" / "demo.py"),
        env=kept | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@pytest.mark.parametrize("model", ["openai/gpt-5-mini", "anthropic/claude-sonnet-4-5"])
async def test_with_a_key_and_an_address(model: str) -> None:
    async with FakeProvider(team) as provider:
        code, output = await demo(
            {
                "MAIL_LLM": model,
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "sk-demo-key-0123456789",
                "ANTHROPIC_API_BASE": provider.root_url,
                "ANTHROPIC_API_KEY": "sk-ant-demo-key-0123456789",
            }
        )
    assert code == 0, output
    assert "17 * 23 = 391" in output
    assert {seen.status for seen in provider.requests} == {200}
    assert len(provider.requests) >= 5


async def test_a_key_alone_spends_nothing() -> None:
    async with FakeProvider(team) as provider:
        code, output = await demo(
            {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "sk-demo-key-0123456789"}
        )
    assert code == 0, output
    assert "model: scripted (offline)" in output
    assert provider.requests == []


async def test_through_a_proxy_in_the_name_of_the_user() -> None:
    async with FakeProvider(team, proxy=True) as provider:
        code, output = await demo(
            {
                "MAIL_DEMO_LLM": "litellm_proxy/openai/gpt-5-mini",
                "LITELLM_PROXY_API_BASE": provider.base_url,
            }
        )
    assert code == 0, output
    assert "17 * 23 = 391" in output
    assert {seen.status for seen in provider.requests} == {200}
    tokens = {seen.headers["authorization"] for seen in provider.requests}
    assert len(tokens) == 1
    assert next(iter(tokens)).startswith("Bearer mail_")
