"""The LiteLLM adapter, over HTTP to a provider that misbehaves on demand."""

import logging

import pytest

from mail.core.call_context import NullSink
from mail.errors import ModelError
from mail.llm.ask import collect
from mail.llm.litellm_model import LiteLLMModel
from mail.llm.request import ModelReply
from mail.llm.retry import RetryPolicy
from mail.llm.script import otherwise, say
from mail.llm.settings import LLMSettings
from tests.llm.support import ask
from tests.support.provider import FakeProvider, Fault

QUICK = RetryPolicy(base=0.001, cap=0.01)


async def reply_of(**changes: object) -> ModelReply:
    return await collect(LiteLLMModel(QUICK).stream(ask(**changes)), NullSink())


async def test_the_pause_follows_retry_after(provider: FakeProvider) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    provider.faults.extend([Fault(status=429, retry_after=7), Fault(status=503, retry_after=2)])
    await collect(LiteLLMModel(QUICK, sleep=note).stream(ask()), NullSink())
    assert pauses == pytest.approx([7.0, 2.0], abs=QUICK.cap)


async def test_a_long_retry_after_is_left_to_the_engine(provider: FakeProvider) -> None:
    provider.faults.append(Fault(status=429, retry_after=90))
    with pytest.raises(ModelError) as caught:
        await reply_of()
    assert (caught.value.status, caught.value.retry_after) == (429, 90.0)
    assert len(provider.requests) == 1


async def test_a_stream_that_falls_silent_is_tried_again(provider: FakeProvider) -> None:
    provider.script = [otherwise(say("done"))]
    provider.faults.append(Fault(token_delay=30))
    assert (await reply_of(settings=LLMSettings(timeout=1.0, deadline=20))).text == "done"
    await provider.ended(2)
    assert [seen.outcome for seen in provider.requests] == ["client_gone", "complete"]


async def test_a_proxy_gets_the_callers_token(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", provider.base_url)
    monkeypatch.delenv("OPENAI_API_KEY")
    await reply_of(model="openai/gpt-5-mini", use_proxy=True, user_token="user-token-1")
    (seen,) = provider.requests
    assert seen.model == "openai/gpt-5-mini"
    assert seen.headers["authorization"] == "Bearer user-token-1"


@pytest.mark.parametrize("key", ["proxy-key-1", "none"])  # a proxy that needs none takes any text
async def test_a_proxy_without_user_token_gets_its_own_key(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", provider.base_url)
    monkeypatch.setenv("LITELLM_PROXY_API_KEY", key)
    await reply_of(model="litellm_proxy/some-alias", use_proxy=True)
    (seen,) = provider.requests
    assert seen.model == "some-alias"
    assert seen.headers["authorization"] == f"Bearer {key}"


async def test_no_secret_gets_into_an_error_or_a_log_line(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", provider.base_url)
    token, key = "user-token-very-secret", "sk-environment-key-0123456789"
    said = f"key {key} and Bearer {token} and sk-proj-abc*****xyz are wrong"
    provider.faults.extend([Fault(status=500, message=said), Fault(status=401, message=said)])
    with caplog.at_level(logging.DEBUG, logger="mail"), pytest.raises(ModelError) as caught:
        await reply_of(use_proxy=True, user_token=token)
    for text in (str(caught.value), repr(ask(user_token=token)), caplog.text):
        assert not any(secret in text for secret in (token, key, "abc*****xyz"))
    assert str(caught.value).endswith(
        "key [redacted] and Bearer [redacted] and sk-[redacted] are wrong"
    )


async def test_an_unknown_provider_is_told_at_once() -> None:
    with pytest.raises(ModelError, match="nonsense-model"):
        await reply_of(model="nonsense-model")


async def test_calls_do_not_touch_the_librarys_global_settings(provider: FakeProvider) -> None:
    await reply_of()
    import litellm

    assert litellm.drop_params is False
    assert litellm.callbacks == []


@pytest.mark.parametrize("use_proxy", [False, True])
async def test_a_model_that_the_library_does_not_know_streams_too(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, use_proxy: bool
) -> None:
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", provider.base_url)
    monkeypatch.setenv("LITELLM_PROXY_API_KEY", "sk-proxy-0123456789")
    model = "our-model" if use_proxy else "openai/gpt-99"
    reply = await reply_of(model=model, tool_format="responses", use_proxy=use_proxy)
    (seen,) = provider.requests
    assert (seen.wire, seen.body["stream"], reply.wire) == ("responses", True, "responses")
    assert reply.usage is not None
    assert reply.usage.cost is None  # no price is no price of nothing


async def test_agents_that_share_a_model_have_profiles_of_their_own(provider: FakeProvider) -> None:
    model = LiteLLMModel(QUICK)
    for profile in ({"forced_any": "auto"}, {}, {"arguments": {"seed": 7}}):
        request = ask(tool_choice="required", profile=profile)
        await collect(model.stream(request), NullSink())
    bodies = [seen.body for seen in provider.requests]
    assert [body["tool_choice"] for body in bodies] == ["auto", "required", "required"]
    assert [body.get("seed") for body in bodies] == [None, None, 7]
