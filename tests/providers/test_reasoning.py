"""The sequences of reasoning-trace-findings.md, as events of a task."""

from typing import Any

import pytest

from mail.llm.script import call, otherwise, say, think, when
from tests.providers.conversation import kept
from tests.providers.swarms import MODELS, Path, lead_swarm, run
from tests.support.provider import FakeProvider
from tests.support.provider.steps import Cited, Found, PauseTurn, Redacted, RunCode, Search

CLAUDE = MODELS[2]


async def events_of(
    provider: FakeProvider, path: Path, script: list[Any], *, streamed: bool
) -> list[dict[str, Any]]:
    """Run a script to the end of its task and return the ``tool_call`` events."""
    provider.script = script
    swarm = lead_swarm(path)
    try:
        outcome = await run(swarm, "Compare the trade-offs.", streamed=streamed)
    finally:
        await swarm.shutdown()
    assert outcome.subject == "::task_complete::", outcome.body
    assert {seen.status for seen in provider.requests} == {200}
    calls = outcome.calls()
    builtins = [dict(e.extra) for e in outcome.events if e.kind == "builtin_tool_call"]
    assert [b["tool_call_id"] for b in builtins] == [
        c["tool_call_id"] for c in calls if c["tool_name"].endswith("_call")
    ]
    return calls


def traces(calls: list[dict[str, Any]]) -> list[tuple[str, str | None, str | None]]:
    """Return tool, reasoning and preamble of each call."""
    return [(c["tool_name"], c.get("reasoning"), c.get("preamble")) for c in calls]


async def test_edge_cases_of_attribution(provider: FakeProvider) -> None:
    script = [
        when(tool_result="look_up").then(call("task_complete", finish_message="done")),
        otherwise(
            think("One."),
            Redacted(),
            think("Two."),
            call("look_up", word="a"),
            call("look_up", word="b"),
            RunCode("1 + 1", "2"),
            think("Three."),
            call("look_up", word="c"),
        ),
    ]
    calls = await events_of(provider, CLAUDE, script, streamed=False)
    first, second, code, third, end = calls
    assert first["reasoning"] == "One.\n\n[redacted thinking]\n\nTwo."
    assert [c.get("reasoning_ref") for c in (second, code)] == [first["tool_call_id"]] * 2
    assert (code["tool_name"], code["tool_args"]["code"]) == ("code_interpreter_call", "1 + 1")
    assert code["tool_args"]["outputs"] == [{"type": "logs", "logs": "2"}]
    assert third["reasoning"] == "Three."
    assert "reasoning" not in end
    assert "reasoning_ref" not in end


async def test_claude_gets_what_it_cited_back(provider: FakeProvider) -> None:
    page = Found("Python", "https://example.com/python")
    script = [
        when(tool_result="look_up").then(call("task_complete", finish_message="done")),
        otherwise(
            think("Research."),
            Search("Python 3.13", [page]),
            say("As far as is known, "),
            Cited("it is new", page=page),
            say(", as "),
            Cited("you wrote"),
            say("."),
            call("look_up", word="first"),
        ),
    ]
    calls = await events_of(provider, CLAUDE, script, streamed=True)
    assert traces(calls)[1] == ("look_up", None, "As far as is known, it is new, as you wrote.")


@pytest.mark.parametrize("midway", [False, True])
async def test_a_paused_turn_goes_on_unseen(provider: FakeProvider, midway: bool) -> None:
    script = [
        otherwise(
            think("Search."),
            Search("long"),
            PauseTurn(midway=midway),
            think("There."),
            say("Found it."),
        )
    ]
    calls = await events_of(provider, CLAUDE, script, streamed=True)
    assert traces(calls) == [
        ("web_search_call", "Search.", None),
        ("text_output", "There.", None),
    ]
    assert len(provider.requests) == 2


@pytest.mark.parametrize("model", ["sonnet-4-5-20250929-v1:0", "opus-4-8", "opus-5-5"])
@pytest.mark.parametrize("steps", [[Redacted("no")], [say("Look."), think("Two.")]])
async def test_thoughts_that_cannot_go_back_to_bedrock_are_left_out(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, model: str, steps: list[Any]
) -> None:
    for name, value in provider.environment("bedrock").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "a-key-0123456789")
    monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")
    provider.script = [
        when(tool_result="look_up").then(call("task_complete", finish_message="done")),
        otherwise(think("One."), *steps, call("look_up", word="a")),
    ]
    path = Path("completions", f"bedrock/us.anthropic.claude-{model}", "completions")
    swarm = lead_swarm(path)
    outcome = await run(swarm, "hi", streamed=False)
    assert outcome.body == "done"
    first, *others, last = provider.requests
    assert [seen.status for seen in (first, *others, last)] == [200, 400, 200]
    assert not kept(last)
    await swarm.shutdown()
