"""A provider's names of errors decide what is tried again, and its words reach the caller."""

import pytest

from mail.core.call_context import NullSink
from mail.errors import ModelError
from mail.llm.ask import collect
from mail.llm.litellm_model import LiteLLMModel
from mail.llm.request import ModelRequest
from mail.llm.script import otherwise, say
from mail.llm.settings import LLMSettings
from tests.providers.swarms import MODELS, QUICK, Path
from tests.support.provider import FakeProvider, Fault

PATHS = [pytest.param(path, id=path.wire) for path in MODELS]
CHAT, RESPONSES, CLAUDE = MODELS
IN_STREAM = {
    "chat": (CHAT, {}),
    "responses": (RESPONSES, {}),
    "responses-flat": (RESPONSES, {"flat": True}),
    "responses-failed": (RESPONSES, {"failed": True}),
    "claude": (CLAUDE, {}),
}
WORDS = "these are the provider's words"


def question(path: Path, **changes: object) -> ModelRequest:
    values: dict[str, object] = {
        "model": path.llm,
        "messages": [{"role": "user", "content": "Hi."}],
        "tool_format": path.tool_format,
    }
    return ModelRequest(**(values | changes))  # type: ignore[arg-type]


async def failure(request: ModelRequest) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await collect(LiteLLMModel(QUICK).stream(request), NullSink())
    return caught.value


@pytest.mark.parametrize(
    ("code", "status", "requests"),
    [
        ("insufficient_quota", 402, 1),
        ("invalid_request_error", 400, 1),
        ("invalid_prompt", 400, 1),
        ("context_length_exceeded", 400, 1),
        ("authentication_error", 401, 1),
        ("rate_limit_exceeded", 429, QUICK.rate_limit_attempts),
        ("server_error", 500, QUICK.attempts),
        ("overloaded_error", 529, QUICK.attempts),
        ("something_new", None, QUICK.attempts),
    ],
)
@pytest.mark.parametrize("after", [None, 1], ids=["first", "later"])
@pytest.mark.parametrize(("path", "shape"), IN_STREAM.values(), ids=IN_STREAM)
async def test_an_error_within_a_stream(
    provider: FakeProvider,
    path: Path,
    shape: dict[str, bool],
    after: int | None,
    code: str,
    status: int | None,
    requests: int,
) -> None:
    fault = Fault(error_event=WORDS, code=code, cut_after=after, **shape)  # type: ignore[arg-type]
    provider.faults.extend([fault] * 20)
    error = await failure(question(path))
    assert (str(error), error.status) == (f"model call failed: {WORDS}", status)
    assert len(provider.requests) == requests


@pytest.mark.parametrize("path", PATHS)
async def test_a_rate_limit_that_no_pause_heals(provider: FakeProvider, path: Path) -> None:
    provider.faults.extend([Fault(status=429, code="insufficient_quota", message=WORDS)] * 20)
    error = await failure(question(path))
    assert (str(error), error.status) == (f"model call failed (HTTP 429): {WORDS}", 402)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 529])
@pytest.mark.parametrize("path", PATHS)
async def test_the_words_come_without_wrapping(
    provider: FakeProvider, path: Path, status: int
) -> None:
    provider.faults.extend([Fault(status=status, message=WORDS)] * 20)
    error = await failure(question(path))
    assert (str(error), error.status) == (f"model call failed (HTTP {status}): {WORDS}", status)
    assert len(provider.requests) == QUICK.attempts


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ({"type": "web_search"}, "Missing required parameter: name"),
        ({"type": "frobnicate"}, "Unsupported tool type: frobnicate"),
        ({"type": "computer_20250124", "name": "computer"}, "KeyError: 'function'"),
    ],
)
async def test_a_request_that_cannot_be_written_is_not_tried_again(
    provider: FakeProvider, tool: dict[str, str], reason: str
) -> None:
    error = await failure(question(CLAUDE, tools=[tool]))
    assert str(error) == f"model call failed: this request cannot be made: {reason}"
    assert error.status == 400
    assert provider.requests == []


@pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["completions", "responses"])
async def test_half_a_character_is_not_tried_again(provider: FakeProvider, path: Path) -> None:
    error = await failure(question(path, messages=[{"role": "user", "content": "a\ud83d"}]))
    assert "surrogates not allowed" in str(error)
    assert error.status == 400
    assert provider.requests == []


@pytest.mark.parametrize("path", PATHS)
async def test_a_history_that_makes_no_sense_is_a_model_error(
    provider: FakeProvider, path: Path
) -> None:
    error = await failure(question(path, messages=[{"role": "assistant", "tool_calls": 7}]))
    assert "this request cannot be made: TypeError" in str(error)
    assert "Traceback" not in str(error)
    assert ".py" not in str(error)


async def test_signs_of_life_are_no_silence(provider: FakeProvider) -> None:
    provider.script = [otherwise(say("At last."))]
    provider.faults.append(Fault(pings=12))
    settings = LLMSettings(timeout=0.6, deadline=20.0)
    reply = await collect(
        LiteLLMModel(QUICK).stream(question(CLAUDE, settings=settings)), NullSink()
    )
    assert reply.text == "At last."
    assert len(provider.requests) == 1
