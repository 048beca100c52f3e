"""What goes to the newest models, as LiteLLM puts it on the wire, and what comes back from them."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from mail.core.call_context import NullSink
from mail.errors import ModelError
from mail.llm.ask import agent_output, history_entries
from mail.llm.ask import ask as ask_whole
from mail.llm.litellm_model import LiteLLMModel, load_library
from mail.llm.profiles import profile_of
from mail.llm.request import CallPiece, Delta, ModelRequest
from mail.llm.settings import LLMSettings
from mail.llm.wires import encoded
from tests.llm.recording import Recorder, recorder
from tests.llm.streams import anthropic_events, responses_events
from tests.llm.support import ask

USER = {"role": "user", "content": "hi"}
SEALED = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "c1",
    "name": "look_up",
    "arguments": '{"word": "sun"}',
    "status": "completed",
}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "SUCCESS"}


@pytest.fixture
async def recorded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Recorder]:
    async with recorder(monkeypatch) as running:
        yield running


# --- what comes back ---


async def test_a_call_that_the_context_window_cut_off_is_not_run(recorded: Recorder) -> None:
    cut = {"type": "tool_use", "id": "t1", "name": "look_up", "input": ""}
    recorded.events = anthropic_events(cut, stop="model_context_window_exceeded")
    reply = await recorded.reply("anthropic/claude-opus-4-8")
    (made,) = reply.calls
    assert (reply.finish, "cut off" in made.arguments) == ("length", True)


@pytest.mark.parametrize("model", ["openai/gpt-6-sol", "litellm_proxy/openai/gpt-6-sol"])
async def test_what_is_written_to_the_cache_has_its_price(recorded: Recorder, model: str) -> None:
    # LiteLLM 1.106.2 prices it by itself, from OpenAI's own usage (`cache_write_tokens`).
    costs = []
    for details in ({"cached_tokens": 4}, {"cached_tokens": 4, "cache_write_tokens": 6}):
        events: list[Any] = list(responses_events(CALL))
        events[-1]["response"]["usage"]["input_tokens_details"] = details
        events[-1]["response"]["model"] = "gpt-6-sol"
        recorded.events = events
        reply = await recorded.reply(model, tool_format="responses")
        assert reply.usage is not None
        assert reply.usage.cost is not None
        costs.append(reply.usage.cost)
    assert costs[1] > costs[0]


# --- reasoning that another provider sealed ---


async def _entries(recorded: Recorder, model: str, **changes: Any) -> list[dict[str, Any]]:
    """Return the history entries of a reply with sealed reasoning and a call."""
    recorded.events = responses_events(SEALED, CALL)
    request = ask(model=model, tool_format="responses", **changes)
    reply = await ask_whole(LiteLLMModel(), request, NullSink(), lambda model, usage: None)
    recorded.events = ()
    entries: list[dict[str, Any]] = history_entries(reply)["responses"]
    return entries


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("openai/gpt-5-mini", "openai/gpt-5", True),
        ("gpt-5-mini", "openai/gpt-5", True),
        ("xai/grok-4.5", "xai/grok-4.5", True),
        ("openai/gpt-5-mini", "xai/grok-4.5", False),
        ("xai/grok-4.5", "openai/gpt-5-mini", False),
        ("litellm_proxy/openai/gpt-5", "litellm_proxy/openai/gpt-5-mini", True),
        ("litellm_proxy/openai/gpt-5", "openai/gpt-5-mini", False),
        ("litellm_proxy/openai/gpt-5", "litellm_proxy/xai/grok-4.5", False),
    ],
)
async def test_only_who_sealed_it_gets_sealed_reasoning_back(
    recorded: Recorder, first: str, second: str, kept: bool
) -> None:
    history = [USER, *await _entries(recorded, first), OUTPUT]
    body = await recorded.sent(second, tool_format="responses", messages=history)
    if kept:
        assert body["input"][1:3] == [SEALED, CALL]
    else:
        no_id = {key: value for key, value in CALL.items() if key != "id"}
        assert body["input"][1] == no_id  # its id belongs to the reasoning
    assert "mail_" not in str(body)


async def test_a_users_proxy_seals_for_itself(recorded: Recorder) -> None:
    history = [USER, *await _entries(recorded, "openai/gpt-5", use_proxy=True), OUTPUT]
    named = await recorded.sent(
        "litellm_proxy/openai/gpt-5", tool_format="responses", messages=history
    )
    direct = await recorded.sent("openai/gpt-5", tool_format="responses", messages=history)
    assert SEALED in named["input"]
    assert SEALED not in direct["input"]


async def test_entries_that_do_not_say_who_sealed_them_go_to_anyone(recorded: Recorder) -> None:
    history = [USER, SEALED, CALL, OUTPUT]
    for model in ("openai/gpt-5-mini", "xai/grok-4.5"):
        body = await recorded.sent(model, tool_format="responses", messages=history)
        assert body["input"][1:3] == [SEALED, CALL]


# --- reasoning over chat completions that another provider made ---

SIGNED = {"type": "thinking", "thinking": "so", "signature": "seal"}
REASONING = {"reasoning_content", "thinking_blocks"}
READS = {"thinks": "default", "send_back": "always"}


class _Thinks:
    """A model that thinks, signs it if it is to, and calls a tool."""

    def __init__(self, *signed: dict[str, Any]) -> None:
        self._signed = signed

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        yield Delta(reasoning="so", thinking=self._signed)
        yield Delta(calls=(CallPiece(0, "c1", "look_up", '{"word": "sun"}'),), finish="tool_calls")


async def _thoughtful(first: str, *signed: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """Return a history with a reply in which a model thought, and its result."""
    request = ask(model=first, **changes)
    reply = await ask_whole(_Thinks(*signed), request, NullSink(), lambda model, usage: None)
    result = {"role": "tool", "name": "look_up", "content": "SUCCESS", "tool_call_id": "c1"}
    return [USER, history_entries(reply)["completion"], result, USER]


def _sent_to(model: str, history: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    fields = changes.pop("fields", {})
    profile = profile_of(load_library(), model, "completions", fields)
    assert profile.wire == "completions"
    return encoded(ask(model=model, messages=history, **changes), profile)


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("deepseek/deepseek-v4-pro", "deepseek/deepseek-v4-flash", True),
        ("moonshot/kimi-k3", "moonshot/kimi-k3", True),
        ("openrouter/deepseek/deepseek-v4", "openrouter/deepseek/deepseek-v4-pro", True),
        ("ollama/qwen3", "ollama_chat/qwen3", True),
        ("openrouter/deepseek/deepseek-v4", "openrouter/anthropic/claude-opus-5.5", False),
        ("deepseek/deepseek-v4-pro", "moonshot/kimi-k3", False),
        ("moonshot/kimi-k3", "zai/glm-5.3", False),
        ("gemini/gemini-3.1-pro-preview", "openrouter/deepseek/deepseek-v4", False),
        ("deepseek/deepseek-v4-pro", "litellm_proxy/deepseek/deepseek-v4-pro", False),
    ],
)
async def test_only_who_made_it_gets_reasoning_back(first: str, second: str, kept: bool) -> None:
    history = await _thoughtful(first)
    wire = _sent_to(second, history, fields=READS)
    assert wire["messages"][2].get("reasoning_content", "").strip() == ("so" if kept else "")
    assert wire["messages"][2]["tool_calls"][0]["id"] == "c1"
    assert "mail_" not in str(wire)
    assert history == await _thoughtful(first)


@pytest.mark.parametrize(
    "second",
    [
        *("gemini/gemini-3.1-pro-preview", "moonshot/kimi-k3", "zai/glm-5.3"),
        *("deepseek/deepseek-v4-pro", "openrouter/deepseek/deepseek-v4"),
    ],
)
async def test_no_other_provider_gets_what_claude_signed(second: str) -> None:
    history = await _thoughtful("bedrock/us.anthropic.claude-opus-5-5", SIGNED)
    for marked in (True, False):
        if not marked:  # an entry of an earlier release
            del history[1]["mail_sealed_by"]
        sent = _sent_to(second, history, settings=LOW)["messages"][2]
        assert ("thinking_blocks" in sent) is not marked
        assert (sent.get("reasoning_content", "").strip() == "") is marked
    assert history[1].keys() > REASONING


async def test_claude_has_not_begun_with_what_another_thought() -> None:
    model = "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    for first, begun in ((model, True), ("bedrock/converse/us.anthropic.claude-x", False)):
        history = (await _thoughtful(first, SIGNED))[:-1]
        wire = _sent_to(model, history, settings=LOW)
        assert ("thinking" in wire, "thinking_blocks" in wire["messages"][2]) == (begun, begun)


async def test_a_reply_without_reasoning_says_nothing_of_its_maker(recorded: Recorder) -> None:
    recorded.events = [{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}]
    request = ask(model="openai/gpt-4.1")
    reply = await ask_whole(LiteLLMModel(), request, NullSink(), lambda model, usage: None)
    assert history_entries(reply)["completion"] == {"role": "assistant", "content": "hi"}


async def test_a_model_is_not_taken_for_openais_because_we_had_it_streamed(
    recorded: Recorder,
) -> None:
    model, library = "openai/our-streamed-model", load_library()
    before = profile_of(library, model, "responses")
    assert before.row == "chat"
    assert "our-streamed-model" in str(
        await recorded.sent(model, tool_format="responses", profile={"wire": "responses"})
    )
    assert model in library.model_cost
    assert profile_of(library, model, "responses") == before


# --- Claude ---

NAMED = {"type": "function", "name": "look_up"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
USE = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"word": "sun"}}
THOUGHTFUL = [
    USER,
    {"role": "assistant", "content": [THOUGHT, USE]},
    {"role": "tool", "name": "look_up", "content": "SUCCESS", "tool_call_id": "t1"},
]
BINDING = "thinking-binding-controls-2026-08-01"
SHOWN = {"type": "adaptive", "display": "summarized"}
BOUND = SHOWN | {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
NEWEST = ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1", "claude-opus-6-20270101"]
LOW = LLMSettings.resolve("low")


def _kinds(body: dict[str, Any]) -> list[str]:
    """Return the kinds of block in the first reply of a history."""
    return [block["type"] for block in body["messages"][1]["content"]]


@pytest.mark.parametrize("model", NEWEST)
@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("effort", [None, "low"])
async def test_claude_that_cannot_be_forced_is_not_and_keeps_thinking(
    recorded: Recorder, model: str, choice: Any, effort: str | None
) -> None:
    settings = LLMSettings.resolve(effort)
    asked = {"messages": THOUGHTFUL, "tool_choice": choice, "settings": settings}
    body = await recorded.sent(f"anthropic/{model}", **asked)
    assert body["tool_choice"] == {"type": "auto"}
    assert body["thinking"] == BOUND
    assert body.get("output_config", {}).get("effort") == effort
    assert BINDING in recorded.headers[-1]["anthropic-beta"]
    assert _kinds(body) == ["thinking", "tool_use"]


@pytest.mark.parametrize("choice", ["required", NAMED])
async def test_a_proxy_is_not_asked_to_force_claude_either(recorded: Recorder, choice: Any) -> None:
    asked = {"messages": THOUGHTFUL, "tool_choice": choice}
    body = await recorded.sent("litellm_proxy/anthropic/claude-opus-5-5", **asked)
    assert body["tool_choice"] == "auto"
    assert body["thinking"] == BOUND
    assert "signature" in str(body["messages"])
    assert BINDING in recorded.headers[-1]["anthropic-beta"]


async def test_headers_of_ones_own_do_not_replace_the_one_that_binding_needs(
    recorded: Recorder,
) -> None:
    own = {"headers": {"x-tenant": "acme", "anthropic-beta": "context-1m-2025-08-07"}}
    body = await recorded.sent("anthropic/claude-opus-5-5", messages=THOUGHTFUL, profile=own)
    assert body["thinking"] == BOUND
    sent = {name.lower(): value for name, value in recorded.headers[-1].items()}
    assert sent["x-tenant"] == "acme"
    assert {"context-1m-2025-08-07", BINDING} <= set(sent["anthropic-beta"].split(","))


@pytest.mark.parametrize(
    ("like", "thinking"),
    [
        ("deepseek/deepseek-v4-pro", {"type": "disabled"}),
        ("anthropic/claude-opus-5", {"type": "disabled"}),
        ("anthropic/claude-opus-5-5", BOUND),
    ],
)
async def test_a_server_like_openais_is_told_what_the_model_behind_it_needs(
    recorded: Recorder, like: str, thinking: dict[str, Any]
) -> None:
    asked = {"tool_choice": NAMED, "profile": {"like": like}}
    body = await recorded.sent("openai/our-own-model", **asked)
    assert body["thinking"] == thinking


async def test_at_azure_thoughts_are_not_said_to_be_bound(recorded: Recorder) -> None:
    body = await recorded.sent("azure_ai/claude-opus-5-5", messages=THOUGHTFUL)
    assert "block_binding" not in str(body)
    assert body["tool_choice"] == {"type": "auto"}
    assert _kinds(body) == ["thinking", "tool_use"]


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-sonnet-5", "claude-haiku-5-5"])
async def test_claude_that_thinks_by_default_ends_without_thinking(
    recorded: Recorder, model: str
) -> None:
    for settings in (LLMSettings(), LOW):
        asked = {"messages": THOUGHTFUL, "tool_choice": NAMED, "settings": settings}
        body = await recorded.sent(f"anthropic/{model}", **asked)
        assert body["tool_choice"]["name"] == "look_up"
        assert body["thinking"] == {"type": "disabled"}
        assert "output_config" not in body
        assert _kinds(body) == ["tool_use"]


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-sonnet-5"])
async def test_claude_that_thinks_by_default_keeps_its_thoughts_without_an_effort(
    recorded: Recorder, model: str
) -> None:
    body = await recorded.sent(f"anthropic/{model}", messages=THOUGHTFUL)
    assert body["tool_choice"] == {"type": "any"}
    assert "thinking" not in body
    assert _kinds(body) == ["thinking", "tool_use"]
    body = await recorded.sent(f"anthropic/{model}", messages=THOUGHTFUL, settings=LOW)
    assert body["tool_choice"] == {"type": "auto"}
    assert body["thinking"] == SHOWN
    assert body["output_config"] == {"effort": "low"}
    assert _kinds(body) == ["thinking", "tool_use"]


async def test_claude_that_always_thinks_is_never_told_not_to(recorded: Recorder) -> None:
    for model in ("claude-fable-5", "claude-mythos-5"):
        for settings in (LLMSettings(), LOW, LLMSettings.resolve("none")):
            asked = {"messages": THOUGHTFUL, "tool_choice": NAMED, "settings": settings}
            body = await recorded.sent(f"anthropic/{model}", **asked)
            assert body.get("thinking", {}).get("type") != "disabled"
            assert _kinds(body) == ["thinking", "tool_use"]


async def test_thoughts_that_were_not_asked_for_stay_away_from_claude_that_asks_first(
    recorded: Recorder,
) -> None:
    body = await recorded.sent("anthropic/claude-opus-4-8", messages=THOUGHTFUL)
    assert (_kinds(body), "thinking" in body) == (["tool_use"], False)
    assert "anthropic-beta" not in recorded.headers[-1]


@pytest.mark.parametrize(
    ("model", "most"), [("claude-zeta-9", 64_000), ("claude-opus-5-5", 128_000)]
)
async def test_claude_that_the_tables_lack_may_write_long_replies(
    recorded: Recorder, model: str, most: int
) -> None:
    assert (await recorded.sent(f"anthropic/{model}"))["max_tokens"] == most
    short = LLMSettings(max_tokens=100)
    assert (await recorded.sent(f"anthropic/{model}", settings=short))["max_tokens"] == 100


# --- OpenAI and xAI, over Responses ---


@pytest.mark.parametrize(
    ("model", "effort", "reasoning"),
    [
        ("openai/gpt-5-mini", None, {"summary": "auto"}),
        ("openai/gpt-5-mini", "minimal", {"summary": "auto", "effort": "minimal"}),
        ("openai/gpt-5.4", "minimal", {"summary": "auto", "effort": "low"}),
        ("openai/gpt-6-astra", "minimal", {"summary": "auto", "effort": "low"}),
        ("openai/gpt-5-pro", None, {"summary": "auto"}),
        ("openai/gpt-5.5-pro", "low", {"summary": "auto", "effort": "medium"}),
        ("xai/grok-4.20-0309-reasoning", None, None),
        ("xai/grok-4.5", None, None),
        ("xai/grok-4.3", "high", {"effort": "high"}),
    ],
)
async def test_an_effort_is_sent_only_if_it_is_asked_for_and_taken(
    recorded: Recorder, model: str, effort: str | None, reasoning: Any
) -> None:
    settings = LLMSettings.resolve(effort)
    body = await recorded.sent(model, tool_format="responses", settings=settings)
    assert body.get("reasoning") == reasoning
    assert body["store"] is False
    assert "max_output_tokens" not in body, "thinking would be cut off"
    assert body["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize(("effort", "told"), [("low", ["so it gets 'medium'"]), ("high", [])])
async def test_an_effort_that_becomes_another_is_in_the_log(
    recorded: Recorder, caplog: pytest.LogCaptureFixture, effort: str, told: list[str]
) -> None:
    caplog.set_level("WARNING", logger="mail.llm.litellm_model")
    await recorded.sent("openai/gpt-5.5-pro", settings=LLMSettings.resolve(effort))
    lines = [record.getMessage() for record in caplog.records]
    assert [line.rpartition(", ")[2] for line in lines] == told


async def test_a_model_that_the_tables_lack_gets_its_effort_over_responses(
    recorded: Recorder,
) -> None:
    own = {"wire": "responses", "thinks": "asked"}
    for _ in range(2):  # the library takes what we registered for a model that does not reason
        body = await recorded.sent("openai/our-thinker", profile=own, settings=LOW)
        assert body["reasoning"] == {"summary": "auto", "effort": "low"}


async def test_a_model_that_cannot_call_tools_is_not_asked(recorded: Recorder) -> None:
    asked = {"tool_format": "responses", "profile": {"tools": False}}
    with pytest.raises(ModelError, match="cannot call tools") as refused:
        await recorded.reply("xai/grok-4.20-multi-agent-0309", **asked)
    assert (refused.value.status, recorded.bodies) == (400, [])
    await recorded.sent("xai/grok-4.20-multi-agent-0309", tools=[], **asked)


async def test_grok_that_the_tables_lack_gets_its_reasoning_back(recorded: Recorder) -> None:
    asked = {"tool_format": "responses", "messages": [USER, SEALED, CALL, OUTPUT]}
    body = await recorded.sent("xai/grok-9-new", **asked)
    assert SEALED in body["input"]


# --- chat completions ---


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("zai/glm-4.7", "low", {}),
        ("zai/glm-5.2", "medium", {"reasoning_effort": "high"}),
        ("zai/glm-5.3", "low", {"reasoning_effort": "low"}),
        ("zai/glm-5.3", None, {}),
    ],
)
async def test_zai_gets_its_effort_past_the_library(
    recorded: Recorder, model: str, effort: str | None, sent: dict[str, str]
) -> None:
    body = await recorded.sent(model, settings=LLMSettings.resolve(effort))
    assert {key: body[key] for key in body if "effort" in key} == sent
    assert body["thinking"] == {"type": "enabled", "clear_thinking": False}
    assert "max_tokens" not in body


@pytest.mark.parametrize(
    ("model", "efforts"),
    [
        ("claude-opus-4.8", {"verbosity": "low"}),
        ("claude-sonnet-4.5", {"reasoning": {"max_tokens": 4000}}),
    ],
)
async def test_claude_at_openrouter_is_not_forced_out_of_its_thinking_and_has_marks(
    recorded: Recorder, model: str, efforts: dict[str, Any]
) -> None:
    for choice in ("required", NAMED):
        asked = {"tool_choice": choice, "settings": LOW}
        body = await recorded.sent(f"openrouter/anthropic/{model}", **asked)
        assert body["tool_choice"] == "auto"
        assert body.items() >= efforts.items()
        marks = [message["content"][-1].get("cache_control") for message in body["messages"]]
        assert marks == [{"type": "ephemeral"}] * 2
    body = await recorded.sent(f"openrouter/anthropic/{model}")
    assert (body["tool_choice"], efforts.keys() & body.keys()) == ("required", set())


@pytest.mark.parametrize("model", ["openai/gpt-5.4", "openai/gpt-6-sol", "openai/gpt-5-pro"])
async def test_chats_that_the_library_takes_to_responses_are_not_stored(
    recorded: Recorder, model: str
) -> None:
    body = await recorded.sent(model, settings=LOW)
    assert recorded.paths[-1] == "/v1/responses"
    assert body["store"] is False


@pytest.mark.parametrize(
    ("model", "wire"),
    [
        ("openai/gpt-5", "completions"),
        ("openai/gpt-5.2", "completions"),
        ("openai/gpt-5.4", "responses"),
        ("openai/gpt-5.6", "responses"),
        ("openai/gpt-6-astra", "responses"),
        ("openai/gpt-7-sol", "responses"),
        ("openai/gpt-5-pro", "responses"),
        ("litellm_proxy/openai/gpt-6-sol", "responses"),
    ],
)
def test_models_that_call_tools_only_over_responses_are_asked_there(
    monkeypatch: pytest.MonkeyPatch, model: str, wire: str
) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    assert profile_of(load_library(), model, "completions").wire == wire
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    if not model.startswith("litellm_proxy/"):  # a server of one's own may lack it
        assert profile_of(load_library(), model, "completions").wire == "completions"


# --- the tools of MCP servers that Anthropic calls ---

MCP_USE = {
    "type": "mcp_tool_use",
    "id": "mcptoolu_1",
    "name": "echo",
    "server_name": "our/server",
    "input": {"word": "sun"},
}
MCP_RESULT = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_1",
    "is_error": False,
    "content": [{"type": "text", "text": "sun sun"}],
}


def _spelled(events: list[Any]) -> list[Any]:
    """Return events in which the arguments of an MCP server's tool stream in."""
    spelled = []
    for event in events:
        block = event.get("content_block", {})
        if block.get("type") != "mcp_tool_use":
            spelled.append(event)
            continue
        spelled.append({**event, "content_block": {**block, "input": {}}})
        piece = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        at = event["index"]
        spelled.append({"type": "content_block_delta", "index": at, "delta": piece})
    return spelled


async def test_calls_of_mcp_servers_are_told_kept_and_sent_back(recorded: Recorder) -> None:
    blocks = [THOUGHT, MCP_USE, MCP_RESULT, {"type": "text", "text": "Sun."}, USE]
    recorded.events = _spelled(anthropic_events(*blocks))
    reply = await recorded.reply("anthropic/claude-opus-5-5")
    _, (told, called) = agent_output(reply)
    assert (told.tool_name, called.tool_name) == ("mcp_call", "look_up")
    assert told.tool_args == {
        "name": "echo",
        "server_label": "our/server",
        "arguments": {"word": "sun"},
        "status": "completed",
        "output": "sun sun",
    }
    entry = history_entries(reply)["completion"]
    assert entry["content"] == blocks
    recorded.events = ()
    history = [USER, entry, THOUGHTFUL[2]]
    body = await recorded.sent("anthropic/claude-opus-5-5", messages=history)
    assert body["messages"][1]["content"] == blocks
    orphan = {"role": "assistant", "content": [MCP_RESULT, USE]}  # as earlier releases kept it
    history = [USER, orphan, THOUGHTFUL[2]]
    body = await recorded.sent("anthropic/claude-opus-5-5", messages=history)
    assert _kinds(body) == ["tool_use"]


# --- texts whose sources Anthropic names ---

WEB = {
    "type": "web_search_result_location",
    "cited_text": "The sun rises at 6.",
    "url": "https://example.org/sun",
    "title": "The sun",
    "encrypted_index": "sealed",
}
DOCUMENT = {
    "type": "char_location",
    "cited_text": "It sets at 8.",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 13,
}
CITING = [
    {"type": "text", "text": "Listen: "},
    {"type": "text", "text": "it rises at 6", "citations": [WEB]},
    {"type": "text", "text": " and "},
    {"type": "text", "text": "sets at 8", "citations": [WEB, DOCUMENT]},
    {"type": "text", "text": "."},
]
CITED = "Listen: it rises at 6 and sets at 8."


async def test_citations_come_into_the_history_and_go_back(recorded: Recorder) -> None:
    blocks = [THOUGHT, *CITING, THOUGHT, {"type": "text", "text": "Wait."}, USE]
    recorded.events = anthropic_events(*blocks)
    reply = await recorded.reply("anthropic/claude-opus-5-5")
    assert reply.text == f"{CITED}Wait."
    _, (called,) = agent_output(reply)
    assert called.preamble == f"{CITED}\nWait."
    entry = history_entries(reply)["completion"]
    assert entry["content"] == blocks
    recorded.events = ()
    asked = {"messages": [USER, entry, THOUGHTFUL[2]]}
    body = await recorded.sent("anthropic/claude-opus-5-5", **asked)
    assert body["messages"][1]["content"] == blocks
    assert "compact" not in recorded.headers[-1].get("anthropic-beta", "")
    body = await recorded.sent("openai/gpt-5-mini", **asked)
    assert body["messages"][2]["content"] == f"{CITED}Wait."
    body = await recorded.sent("litellm_proxy/anthropic/claude-opus-5-5", **asked)
    replies = [one["content"] or () for one in body["messages"] if one["role"] == "assistant"]
    texts = [block["text"] for content in replies for block in content if "text" in block]
    assert "".join(texts) == f"{CITED}Wait."
    assert "sealed" not in str(recorded.bodies[2:])


async def test_what_only_replies_say_of_a_source_is_not_sent(recorded: Recorder) -> None:
    cited = {"type": "text", "text": "At 8.", "citations": [{**DOCUMENT, "file_id": None}]}
    recorded.events = anthropic_events(cited, USE)
    entry = history_entries(await recorded.reply("anthropic/claude-opus-5-5"))["completion"]
    assert entry["content"][0] == cited
    recorded.events = ()
    body = await recorded.sent("anthropic/claude-opus-5-5", messages=[USER, entry, THOUGHTFUL[2]])
    assert body["messages"][1]["content"][0] == {**cited, "citations": [DOCUMENT]}
    assert entry["content"][0] == cited


async def test_text_without_a_source_stays_one_block(recorded: Recorder) -> None:
    recorded.events = anthropic_events(CITING[0], {"type": "text", "text": " \n"}, CITING[2], USE)
    entry = history_entries(await recorded.reply("anthropic/claude-opus-5-5"))["completion"]
    assert entry["content"] == [{"type": "text", "text": "Listen:  \n and "}, USE]
