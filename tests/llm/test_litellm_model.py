"""The LiteLLM adapter, over HTTP to a provider that misbehaves on demand."""

import asyncio
import logging

import pytest

from mail.core.call_context import NullSink
from mail.core.tools.call import INVALID_JSON_KEY
from mail.errors import ModelError
from mail.llm.ask import agent_output, collect
from mail.llm.litellm_model import LiteLLMModel
from mail.llm.request import ModelReply
from mail.llm.retry import RetryPolicy
from mail.llm.script import call, otherwise, say, think, when
from mail.llm.settings import LLMSettings
from tests.llm.support import Recorder, ask
from tests.support.provider import FakeProvider, Fault

QUICK = RetryPolicy(base=0.001, cap=0.01)


async def reply_of(**changes: object) -> ModelReply:
    return await collect(LiteLLMModel(QUICK).stream(ask(**changes)), NullSink())


async def test_reply_streams_text_and_reasoning_and_ends_with_the_calls(
    provider: FakeProvider,
) -> None:
    provider.script = [
        otherwise(
            think("Which word?"),
            say("Looking it up. "),
            call("look_up", word="mail"),
            call("look_up", word="über"),
        )
    ]
    sink = Recorder()
    reply = await collect(LiteLLMModel().stream(ask()), sink)
    assert "".join(sink.texts) == reply.text == "Looking it up. "
    assert len(sink.texts) == 3
    assert "".join(sink.thoughts) == "Which word?"
    text, calls = agent_output(reply)
    assert text == "Looking it up. "
    assert [(c.tool_name, c.tool_args) for c in calls] == [
        ("look_up", {"word": "mail"}),
        ("look_up", {"word": "über"}),
    ]
    assert calls[0].reasoning == ["Which word?"]
    assert calls[0].preamble == "Looking it up."
    assert calls[1].reasoning is None
    assert calls[0].completion == calls[1].completion
    assert reply.usage is not None
    assert reply.usage.completion_tokens > 0


async def test_the_provider_gets_system_prompt_tools_and_choice_and_always_streams(
    provider: FakeProvider,
) -> None:
    await reply_of()
    (seen,) = provider.requests
    assert seen.messages[0] == {"role": "system", "content": "Be brief."}
    assert seen.tool_names == ["look_up"]
    assert seen.body["tool_choice"] == "required"
    assert seen.body["stream"] is True
    assert seen.headers["authorization"] == "Bearer sk-environment-key-0123456789"


async def test_the_next_request_with_reply_and_results_is_accepted(
    provider: FakeProvider,
) -> None:
    provider.script = [
        when(tool_result="look_up").then(say("It means post.")),
        otherwise(think("hm"), call("look_up", word="mail"), call("look_up", word="post")),
    ]
    _, calls = agent_output(await reply_of())
    history = [
        {"role": "user", "content": "hi"},
        calls[0].completion,
        *(c.create_response_msg("SUCCESS: post") for c in reversed(calls)),
    ]
    assert (await reply_of(messages=history)).text == "It means post."
    assert [seen.status for seen in provider.requests] == [200, 200]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=408),
        Fault(status=500),
        Fault(status=503),
        Fault(status=529),
        Fault(status=429),
        Fault(status=429, retry_after=0.01),
        Fault(cut_after=2),
        Fault(cut_after=2, politely=True),
        Fault(error_event="overloaded"),
        Fault(html=True),
    ],
    ids=str,
)
async def test_failures_that_may_heal_are_tried_again(provider: FakeProvider, fault: Fault) -> None:
    provider.script = [otherwise(say("one two three four"))]
    provider.faults.extend([fault, fault])
    reply = await reply_of()
    assert reply.text == "one two three four"
    assert len(provider.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_other_client_errors_are_not_tried_again(provider: FakeProvider, status: int) -> None:
    provider.faults.append(Fault(status=status, message="no such thing"))
    with pytest.raises(ModelError, match="no such thing") as caught:
        await reply_of()
    assert caught.value.status == status
    assert len(provider.requests) == 1


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


async def test_attempts_end_and_the_last_reason_is_told(provider: FakeProvider) -> None:
    provider.faults.extend([Fault(status=500, message="on fire")] * 10)
    with pytest.raises(ModelError, match=r"^model call failed \(HTTP 500\): on fire$"):
        await reply_of()
    assert len(provider.requests) == QUICK.attempts


async def test_a_silent_provider_is_given_up_on(provider: FakeProvider) -> None:
    provider.faults.extend([Fault(silence=30)] * 2)
    with pytest.raises(ModelError, match="did not answer in time"):
        await reply_of(settings=LLMSettings(timeout=0.2, deadline=0.3))
    assert len(provider.requests) <= 2


async def test_a_stream_that_falls_silent_is_tried_again(provider: FakeProvider) -> None:
    provider.script = [otherwise(say("done"))]
    provider.faults.append(Fault(token_delay=30))
    assert (await reply_of(settings=LLMSettings(timeout=1.0, deadline=20))).text == "done"
    await provider.ended(2)
    assert [seen.outcome for seen in provider.requests] == ["client_gone", "complete"]


async def test_a_broken_attempt_leaves_nothing_in_the_reply(provider: FakeProvider) -> None:
    provider.script = [otherwise(say("one two three"), call("look_up", word="x"))]
    provider.faults.append(Fault(cut_after=3, politely=True))
    sink = Recorder()
    reply = await collect(LiteLLMModel(QUICK).stream(ask()), sink)
    assert reply.text == "one two three"
    assert "".join(sink.texts) == "one two three"


async def test_unfinished_arguments_become_a_marked_call(provider: FakeProvider) -> None:
    provider.script = [otherwise(call("look_up", word="antidisestablishmentarianism"))]
    provider.faults.append(Fault(truncate_arguments=True))
    _, (marked,) = agent_output(await reply_of())
    assert marked.tool_args.keys() == {INVALID_JSON_KEY}
    assert marked.tool_args[INVALID_JSON_KEY].startswith('{"word": "anti')
    history = [
        {"role": "user", "content": "hi"},
        marked.completion,
        marked.create_response_msg("ERROR: no JSON"),
    ]
    await reply_of(messages=history)
    assert provider.requests[-1].status == 200


async def test_cancelling_closes_the_connection_and_silences_the_sink(
    provider: FakeProvider,
) -> None:
    provider.script = [otherwise(say("word " * 2000, delay=0))]
    provider.faults.append(Fault(token_delay=0.01))
    sink = Recorder()
    heard = asyncio.Event()
    sink.on_text = heard.set
    call_task = asyncio.create_task(collect(LiteLLMModel().stream(ask()), sink))
    await heard.wait()
    call_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call_task
    known = len(sink.texts)
    await asyncio.wait_for(provider.ended(1), 20)
    assert provider.requests[0].outcome == "client_gone"
    assert len(sink.texts) == known


async def test_a_proxy_gets_the_callers_token(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", provider.base_url)
    monkeypatch.delenv("OPENAI_API_KEY")
    await reply_of(model="openai/gpt-5-mini", use_proxy=True, user_token="user-token-1")
    (seen,) = provider.requests
    assert seen.model == "openai/gpt-5-mini"
    assert seen.headers["authorization"] == "Bearer user-token-1"


async def test_a_proxy_without_user_token_gets_its_own_key(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", provider.base_url)
    monkeypatch.setenv("LITELLM_PROXY_API_KEY", "proxy-key-1")
    await reply_of(model="litellm_proxy/some-alias", use_proxy=True)
    (seen,) = provider.requests
    assert seen.model == "some-alias"
    assert seen.headers["authorization"] == "Bearer proxy-key-1"


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


async def test_a_missing_key_is_told_at_once(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModelError, match="OPENAI_API_KEY") as caught:
        await reply_of()
    assert caught.value.status == 401
    assert provider.requests == []


async def test_an_unknown_provider_is_told_at_once() -> None:
    with pytest.raises(ModelError, match="nonsense-model"):
        await reply_of(model="nonsense-model")


async def test_effort_goes_to_providers_without_a_thinking_budget(
    provider: FakeProvider,
) -> None:
    await reply_of(settings=LLMSettings.resolve("low"))
    body = provider.requests[0].body
    assert body["reasoning_effort"] == "low"
    assert not {"thinking", "max_tokens"} & body.keys()


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
