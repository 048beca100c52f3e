"""What goes to the newest models, as LiteLLM puts it on the wire, and what comes back from them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mail.core.call_context import NullSink
from mail.llm.ask import ask as ask_whole
from mail.llm.ask import history_entries
from mail.llm.litellm_model import LiteLLMModel
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
