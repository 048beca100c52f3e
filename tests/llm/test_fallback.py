"""What becomes of refusals: errors in every vendor's shape, and replies that were not accepted."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from mail.core.call_context import NullSink
from mail.core.tools.call import INVALID_JSON_KEY
from mail.errors import ModelError
from mail.llm.ask import agent_output, collect
from mail.llm.litellm_model import LiteLLMModel, close_clients
from mail.llm.retry import RetryPolicy
from mail.llm.settings import LLMSettings
from tests.llm.refusing import Answer, RefusingProvider, point_to
from tests.llm.support import ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mail.llm.request import ModelReply

QUICK = RetryPolicy(base=0.001, cap=0.01)

GROQ = "groq/openai/gpt-oss-120b"
NO_CALL = "Tool choice is required, but model did not call a tool"
BAD_CALL = "Failed to call a function. Please adjust your prompt. See 'failed_generation'."


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RefusingProvider]:
    """A provider that every library is pointed to."""
    async with RefusingProvider() as running:
        point_to(running, monkeypatch)
        yield running
        await close_clients()


async def reply_of(model: str, policy: RetryPolicy = QUICK, **changes: object) -> ModelReply:
    request = ask(model=model, **({"settings": LLMSettings(timeout=90, deadline=90)} | changes))
    return await collect(LiteLLMModel(policy).stream(request), NullSink())


def sse(*frames: Any) -> str:
    """Return an event stream that ends as chat completions do."""
    lines = [": a sign of life", *(f"data: {json.dumps(frame)}" for frame in frames)]
    return "\n\n".join([*lines, "data: [DONE]", ""])


def chunk(**more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"role": "assistant", "content": "so far"}}
    known = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return known | {"choices": [choice]} | more


ROUTER_ERROR = chunk(error={"code": "server_error", "message": "Provider disconnected"})
BEHIND_PROXY = json.dumps(
    {"type": "error", "error": {"type": "invalid_request_error", "message": "No such block."}}
)
FRAME = {
    "error": {
        "message": f"litellm.BadRequestError: AnthropicException - {BEHIND_PROXY}",
        "type": None,
        "param": "None",
        "code": "400",
    }
}
EXTRA = {
    "type": "extra_forbidden",
    "loc": ["body", "messages", 1, "assistant", "reasoning_content"],
    "msg": "Extra inputs are not permitted",
    "input": "the model's thoughts",
}
MISTRAL = {
    "object": "error",
    "message": {"detail": [EXTRA]},
    "type": "invalid_request_error",
    "param": None,
    "code": None,
}
ROUTED = {
    "error": {
        "message": "Provider returned error",
        "code": 400,
        "metadata": {"provider_name": "Z.AI", "raw": '{"error":{"message":"No, and why."}}'},
    }
}
XAI = {"code": "invalid-argument", "error": "Model grok-4.20 does not support that."}


@pytest.mark.parametrize(
    ("model", "answer", "status", "said", "sent"),
    [
        ("openrouter/z-ai/glm-4.6", Answer(200, sse(ROUTER_ERROR)), 500, "disconnected", 2),
        ("openrouter/z-ai/glm-4.6", Answer(200, sse(chunk(), ROUTER_ERROR)), 500, "disconn", 2),
        ("openrouter/z-ai/glm-4.6", Answer(400, ROUTED), 400, "No, and why.", 1),
        ("litellm_proxy/our-model", Answer(200, sse(FRAME)), 400, ": No such block.", 1),
        ("mistral/mistral-large-latest", Answer(422, MISTRAL), 422, "content: Extra inputs", 1),
        ("xai/grok-3", Answer(400, XAI), 400, "does not support that.", 1),
    ],
    ids=["in a stream", "in mid-stream", "behind a router", "a frame", "an object", "a string"],
)
async def test_errors_of_every_shape_have_a_status_and_a_text(
    provider: RefusingProvider,
    model: str,
    answer: Answer,
    status: int,
    said: str,
    sent: int,
) -> None:
    provider.answers = [answer] * 3
    with pytest.raises(ModelError) as caught:
        await reply_of(model, RetryPolicy(attempts=2, base=0.001, cap=0.01))
    assert caught.value.status == status
    assert said in str(caught.value)
    assert "{" not in str(caught.value)
    assert "thoughts" not in str(caught.value)
    assert len(provider.requests) == sent


async def test_an_error_frame_of_a_proxy_over_responses_is_read_too(
    provider: RefusingProvider,
) -> None:
    provider.answers = [Answer(200, sse(FRAME))] * 3
    with pytest.raises(ModelError, match="No such block") as caught:
        await reply_of("litellm_proxy/our-model", tool_format="responses")
    assert (caught.value.status, len(provider.requests)) == (400, 1)


async def test_what_is_not_implemented_is_not_tried_again(provider: RefusingProvider) -> None:
    said = {"message": "not with Harmony", "type": "NotImplementedError", "code": 501}
    provider.answers = [Answer(501, {"error": said})] * 3
    with pytest.raises(ModelError, match="not with Harmony") as caught:
        await reply_of("hosted_vllm/some-model")
    assert (caught.value.status, len(provider.requests)) == (501, 1)


async def test_pauses_are_told_in_milliseconds_or_by_google_in_the_body(
    provider: RefusingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    slow = {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}
    header = {"retry-after-ms": "2250", "retry-after": "9"}
    provider.answers = [Answer(429, slow, header)]
    model = LiteLLMModel(QUICK, sleep=note)
    await collect(model.stream(ask(model="openai/gpt-4.1")), NullSink())
    assert pauses == pytest.approx([2.25], abs=QUICK.cap)


def gemini(*details: dict[str, Any]) -> dict[str, Any]:
    error = {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED"}
    return {"error": error | {"details": list(details)}}


QUOTA = "type.googleapis.com/google.rpc.QuotaFailure"
MINUTE = {"@type": QUOTA, "violations": [{"quotaId": "RequestsPerMinutePerModel"}]}
DAY = {"@type": QUOTA, "violations": [{"quotaId": "GenerateRequestsPerDayPerProject-Free"}]}
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.837906927s"}


@pytest.mark.parametrize(
    ("body", "status", "pause"),
    [
        (gemini(MINUTE, RETRY), 429, 2.837906927),
        (gemini(), 429, None),
        (gemini(DAY, RETRY), 402, None),
    ],
    ids=["in a moment", "unknown", "tomorrow"],
)
async def test_google_tells_in_the_body_when_to_come_back(
    monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], status: int, pause: float | None
) -> None:
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response(body, status=429)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setenv("GEMINI_API_BASE", f"http://127.0.0.1:{runner.addresses[0][1]}")
    monkeypatch.setenv("GEMINI_API_KEY", "a-key-of-the-environment")
    try:
        with pytest.raises(ModelError, match="Slow down") as caught:
            await reply_of("gemini/gemini-2.5-pro", RetryPolicy(rate_limit_attempts=1))
    finally:
        await close_clients()
        await runner.cleanup()
    assert (caught.value.status, caught.value.retry_after, asked) == (status, pause, 1)


def groq(message: str, generation: str, **more: Any) -> dict[str, Any]:
    known = {"message": message, "type": "invalid_request_error", "code": "tool_use_failed"}
    return {"error": known | {"failed_generation": generation} | more}


@pytest.mark.parametrize("streamed", [False, True])
async def test_text_in_place_of_a_forced_call_is_the_answer(
    provider: RefusingProvider, streamed: bool
) -> None:
    if streamed:
        frame = json.dumps(groq(NO_CALL, "It rains.", status_code=400))
        provider.answers = [Answer(200, f"event: error\ndata: {frame}\n\n")]
    else:
        provider.answers = [Answer(400, groq(NO_CALL, "It rains."))]
    text, (call,) = agent_output(await reply_of(GROQ))
    assert (text, call.tool_name) == ("It rains.", "text_output")
    assert len(provider.requests) == 1


async def test_no_text_in_place_of_a_forced_call_is_an_empty_reply(
    provider: RefusingProvider,
) -> None:
    provider.answers = [Answer(400, groq(NO_CALL, ""))]
    assert agent_output(await reply_of(GROQ)) == (None, [])


@pytest.mark.parametrize(
    ("written", "name", "arguments"),
    [
        ('<function=look_up={"word": "x"}</function>', "look_up", {"word": "x"}),
        ('<function=look_up>{"word": "x"}</function>', "look_up", {"word": "x"}),
        ('{"name": "look_up", "arguments": {"word": "x"}}', "look_up", {"word": "x"}),
        ('[{"name": "look_up", "parameters": {"word": "x"}}]', "look_up", {"word": "x"}),
        ('<function=look_up={"word": </function>', "look_up", None),
        ("to=functions.look_up code", "unnamed_tool", None),
    ],
)
async def test_a_call_that_was_not_accepted_goes_to_the_repair_turn(
    provider: RefusingProvider, written: str, name: str, arguments: dict[str, str] | None
) -> None:
    provider.answers = [Answer(400, groq(BAD_CALL, written))]
    text, (call,) = agent_output(await reply_of(GROQ))
    assert (text, call.tool_name) == (None, name)
    if arguments is None:
        assert call.tool_args.keys() == {INVALID_JSON_KEY}
    else:
        assert call.tool_args == arguments
    assert len(provider.requests) == 1  # the same request would fail again


async def test_a_call_that_nobody_wanted_stays_an_error(provider: RefusingProvider) -> None:
    provider.answers = [Answer(400, groq("Tool choice is none, but model called a tool", "{}"))]
    with pytest.raises(ModelError, match="Tool choice is none"):
        await reply_of(GROQ, tools=(), tool_choice="none")


WITHOUT_GOOGLE = """
import asyncio, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "google":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Missing())
from mail.core.call_context import NullSink
from mail.llm import LiteLLMModel, LLMSettings, ModelRequest, RetryPolicy
from mail.llm.ask import collect

async def asked(model):
    pauses = []
    async def note(seconds):
        pauses.append(seconds)
    settings = LLMSettings(timeout=90, deadline=90)
    request = ModelRequest(
        model=model, messages=[{"role": "user", "content": "hi"}], settings=settings
    )
    try:
        await collect(LiteLLMModel(RetryPolicy(), note).stream(request), NullSink())
    except Exception as error:
        print(model, error.status, len(pauses), error)

async def main():
    for model in ("vertex_ai/gemini-2.5-pro", "vertex_ai/claude-sonnet-4-5"):
        await asked(model)

asyncio.run(main())
"""


def test_a_missing_package_is_no_server_error_and_nothing_else_is_on_standard_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_GOOGLE],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "VERTEXAI_PROJECT": "p", "VERTEXAI_LOCATION": "us-central1"},
    )
    told = "400 0 model call failed: this request cannot be made: ModuleNotFoundError: No module"
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert told in line
        assert line.endswith("install it with: pip install 'mail-protocol[vertex]'")
    assert done.stderr == ""  # the library logs an error with its traceback


async def test_the_librarys_own_warnings_are_ours_at_debug_and_have_no_secrets(
    provider: RefusingProvider,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "environment-value")
    await reply_of("openai/gpt-4.1")
    capfd.readouterr()
    library = logging.getLogger("LiteLLM")
    with caplog.at_level("DEBUG", logger="mail.llm.litellm_model"):
        library.warning("merged %s with sk-abcdefgh and environment-value", "blocks")
        library.warning("one %s for %s", "too few")
        library.debug("the whole request")
    assert capfd.readouterr() == ("", "")
    told = [record for record in caplog.records if record.name == "mail.llm.litellm_model"]
    assert [record.levelname for record in told] == ["DEBUG", "DEBUG"]
    assert told[0].getMessage() == "LiteLLM: merged blocks with sk-[redacted] and [redacted]"
    assert vars(told[0])["said_as"] == "WARNING"


@pytest.mark.parametrize("tool_format", ["completions", "responses"])
async def test_a_call_given_up_while_it_is_prepared_leaves_nothing_behind(
    provider: RefusingProvider, monkeypatch: pytest.MonkeyPatch, tool_format: str
) -> None:
    llm = LiteLLMModel(QUICK)
    patient = ask(
        model="openai/gpt-5-mini",
        tool_format=tool_format,
        settings=LLMSettings(timeout=90),
        messages=[{"role": "user", "content": "hi"}] * 100,  # a short call needs no thread
    )
    await collect(llm.stream(patient), NullSink())  # else the first call's imports take the time
    from litellm.litellm_core_utils.litellm_logging import Logging

    began, go_on = threading.Event(), threading.Event()
    note = Logging.update_environment_variables

    def slow(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            began.set()
            go_on.wait(30)
        return note(*args, **kwargs)

    monkeypatch.setattr(Logging, "update_environment_variables", slow)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asking = asyncio.create_task(collect(llm.stream(patient), NullSink()))
        while not began.is_set():
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        monkeypatch.setattr(Logging, "update_environment_variables", note)
        go_on.set()
        await collect(llm.stream(patient), NullSink())  # the thread is done by then, or soon
        await asyncio.sleep(0.2)
        gc.collect()
    assert [str(one.message) for one in warned if "never awaited" in str(one.message)] == []
    assert len(provider.requests) == 2
