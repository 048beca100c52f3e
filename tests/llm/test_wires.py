"""Which format a model is spoken to in, by LiteLLM's own tables."""

import pytest

from mail.llm.profiles import UNKNOWN, Profile, profile_of
from mail.llm.request import ToolFormat, Wire
from mail.llm.settings import LLMSettings
from mail.llm.wires import encoded
from tests.llm import support
from tests.llm.streams import library


@pytest.mark.parametrize(
    ("model", "for_responses", "for_completions"),
    [
        ("openai/gpt-5-mini", "responses", "completions"),
        ("gpt-5-mini", "responses", "completions"),
        ("azure/gpt-5", "responses", "completions"),
        ("anthropic/claude-sonnet-4-5", "anthropic", "anthropic"),
        ("claude-sonnet-4-5", "anthropic", "anthropic"),
        ("claude-opus-4-1-20250805", "anthropic", "anthropic"),
        ("vertex_ai/claude-sonnet-4-5", "anthropic", "anthropic"),
        ("litellm_proxy/anthropic/claude-sonnet-4-5", "anthropic", "anthropic"),
        ("litellm_proxy/claude-sonnet-4-5", "anthropic", "anthropic"),
        ("litellm_proxy/openai/gpt-5-mini", "responses", "completions"),
        ("litellm_proxy/alias", "responses", "completions"),
        ("groq/llama-3.3-70b-versatile", "completions", "completions"),
        ("vertex_ai/gemini-2.5-pro", "completions", "completions"),
        ("deepseek/deepseek-chat", "completions", "completions"),
        ("ollama/llama3", "completions", "completions"),
        ("alias", "completions", "completions"),
    ],
)
def test_model_and_format_decide_the_wire(
    model: str, for_responses: Wire, for_completions: Wire
) -> None:
    formats: tuple[ToolFormat, ...] = ("responses", "completions")
    wires = tuple(profile_of(library(), model, tool_format).wire for tool_format in formats)
    assert wires == (for_responses, for_completions)


NO_EFFORT, BUDGET, ADAPTS = "none", "thinking_budget", "adaptive"


@pytest.mark.parametrize(
    ("model", "thinks", "effort_via", "caches"),
    [
        ("anthropic/claude-sonnet-4-5", "asked", BUDGET, True),
        ("litellm_proxy/anthropic/claude-sonnet-4-5", "asked", BUDGET, True),
        ("anthropic/claude-sonnet-9-9", "always", ADAPTS, True),
        ("bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0", "asked", BUDGET, True),
        ("openai/gpt-5-mini", "default", "reasoning", False),
        ("litellm_proxy/openai/gpt-5-mini", "default", "reasoning", False),
        ("openai/gpt-4.1", "no", NO_EFFORT, False),
        ("gemini/gemini-2.5-pro", "always", BUDGET, False),
        ("groq/llama-3.3-70b-versatile", "no", "extra_body:reasoning_effort", False),
        ("litellm_proxy/alias", "no", NO_EFFORT, False),
    ],
)
def test_what_a_model_can_do_comes_from_the_tables(
    model: str, thinks: str, effort_via: str, caches: bool
) -> None:
    found = profile_of(library(), model, "responses")
    assert (found.thinks, found.effort_via, found.cache_marks) == (thinks, effort_via, caches)


@pytest.mark.parametrize(
    ("model", "effort_via", "signed"),
    [
        ("anthropic/claude-sonnet-4-5", BUDGET, True),
        ("anthropic/claude-opus-4-6", BUDGET, True),  # takes a budget still
        ("anthropic/claude-opus-4-7", ADAPTS, True),
        ("litellm_proxy/anthropic/claude-opus-4-8", ADAPTS, True),
        ("vertex_ai/claude-sonnet-5", ADAPTS, True),
        ("bedrock/us.anthropic.claude-opus-4-7", ADAPTS, True),
        ("openai/gpt-5-mini", "reasoning", False),
        ("gemini/gemini-2.5-pro", BUDGET, False),
        ("alias", "reasoning_effort", False),
    ],
)
def test_some_models_decide_themselves_how_long_they_think(
    model: str, effort_via: str, signed: bool
) -> None:
    found = profile_of(library(), model, "responses")
    assert (found.effort_via, found.signed) == (effort_via, signed)


@pytest.mark.parametrize("name", ["", "/", "a/b/c", "litellm_proxy/", "openai/", "é \n", "x" * 999])
@pytest.mark.parametrize("tool_format", ["responses", "completions"])
def test_unknown_names_are_no_error(name: str, tool_format: ToolFormat) -> None:
    found = profile_of(library(), name, tool_format)
    assert found.wire in ("completions", "responses")
    assert found.thinks == "no"


@pytest.mark.parametrize(
    ("profile", "thinking", "marks"),
    [
        (UNKNOWN, False, False),
        (support.BUDGET, True, False),
        (Profile(wire="responses"), False, False),
        (support.REASONS, True, False),
        (support.CLAUDE, True, True),
        (support.CLAUDE_MUTE, False, True),
    ],
)
def test_requests_are_encoded_as_the_model_can_take_them(
    profile: Profile, thinking: bool, marks: bool
) -> None:
    found = encoded(support.ask(settings=LLMSettings.resolve("low")), profile)
    assert ("input" in found) is (profile.wire == "responses")
    assert bool({"thinking", "reasoning"} & found.keys()) is thinking
    assert ("cache_control" in str(found)) is marks
