"""Which format a model is spoken to in, by LiteLLM's own tables."""

import pytest

from mail.llm import anthropic, completions, responses
from mail.llm.request import ToolFormat, Wire
from mail.llm.settings import LLMSettings
from mail.llm.wires import Abilities, abilities_of, decoder_of, encoded
from tests.llm.streams import library
from tests.llm.support import ask

WIRES: tuple[Wire, ...] = ("completions", "responses", "anthropic")


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
    wires = tuple(abilities_of(library(), model, tool_format).wire for tool_format in formats)
    assert wires == (for_responses, for_completions)


@pytest.mark.parametrize(
    ("model", "thinks", "reasons", "caches"),
    [
        ("anthropic/claude-sonnet-4-5", True, True, True),
        ("litellm_proxy/anthropic/claude-sonnet-4-5", True, True, True),
        ("anthropic/claude-sonnet-9-9", True, True, True),
        ("bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0", True, True, True),
        ("openai/gpt-5-mini", False, True, False),
        ("litellm_proxy/openai/gpt-5-mini", False, True, False),
        ("openai/gpt-4.1", False, False, False),
        ("gemini/gemini-2.5-pro", True, True, False),
        ("groq/llama-3.3-70b-versatile", False, False, False),
        ("litellm_proxy/alias", False, False, False),
    ],
)
def test_what_a_model_can_do_comes_from_the_tables(
    model: str, thinks: bool, reasons: bool, caches: bool
) -> None:
    found = abilities_of(library(), model, "responses")
    assert (found.thinks, found.reasons, found.caches) == (thinks, reasons, caches)


@pytest.mark.parametrize(
    ("model", "adapts", "signs"),
    [
        ("anthropic/claude-sonnet-4-5", False, True),
        ("anthropic/claude-opus-4-6", False, True),  # takes a budget still
        ("anthropic/claude-opus-4-7", True, True),
        ("litellm_proxy/anthropic/claude-opus-4-8", True, True),
        ("vertex_ai/claude-sonnet-5", True, True),
        ("bedrock/us.anthropic.claude-opus-4-7", True, True),
        ("openai/gpt-5-mini", False, False),
        ("gemini/gemini-2.5-pro", False, False),
        ("alias", False, False),
    ],
)
def test_some_models_decide_themselves_how_long_they_think(
    model: str, adapts: bool, signs: bool
) -> None:
    found = abilities_of(library(), model, "responses")
    assert (found.adapts, found.signs) == (adapts, signs)


@pytest.mark.parametrize("name", ["", "/", "a/b/c", "litellm_proxy/", "openai/", "é \n", "x" * 999])
@pytest.mark.parametrize("tool_format", ["responses", "completions"])
def test_unknown_names_are_no_error(name: str, tool_format: ToolFormat) -> None:
    found = abilities_of(library(), name, tool_format)
    assert found.wire in ("completions", "responses")
    assert not found.thinks


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("able", [True, False])
def test_requests_are_encoded_as_the_model_can_take_them(wire: Wire, able: bool) -> None:
    request = ask(settings=LLMSettings.resolve("low"))
    found = encoded(request, Abilities(wire=wire, thinks=able, reasons=able, caches=able))
    expected = {
        "completions": lambda: completions.encode(request, thinking=able, caching=able),
        "responses": lambda: responses.encode(request, reasoning=able),
        "anthropic": lambda: anthropic.encode(request, thinking=able, caching=able),
    }
    assert found == expected[wire]()
    assert ("thinking" in found) is (able and wire != "responses")
    assert ("reasoning" in found) is (able and wire == "responses")
    assert ("cache_control" in str(found)) is (able and wire != "responses")


def test_each_wire_has_its_decoder() -> None:
    decoders = [decoder_of(wire) for wire in WIRES]
    assert decoders == [completions.decode, responses.decode, anthropic.decode]
