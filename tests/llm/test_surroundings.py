"""Addresses and keys in the environment: what is wrong is told before anything leaves."""

import importlib
import os
import socket
from typing import Any

import pytest

from mail.core.call_context import NullSink
from mail.errors import ModelError
from mail.llm.ask import collect
from mail.llm.litellm_model import LiteLLMModel, load_library
from mail.llm.profiles import profile_of
from mail.llm.provider_env import (
    ModelUse,
    configured_address,
    forget_empty_keys,
    model_problem,
)
from mail.llm.request import ModelReply
from mail.llm.retry import RetryPolicy
from mail.redaction import redact_foreign as redact
from mail.testing import recorded_calls
from tests.llm.support import ask
from tests.support.provider import FakeProvider

CLAUDE = "anthropic/claude-sonnet-4-5"
FORMATS = ("completions", "responses")


async def reply_of(**changes: object) -> ModelReply:
    model = LiteLLMModel(RetryPolicy(base=0.001, cap=0.01))
    return await collect(model.stream(ask(**changes)), NullSink())


async def refused(**changes: object) -> ModelError:
    """Return why a call failed that must not be tried again."""

    async def never(seconds: float) -> None:
        pytest.fail("it was tried again")

    with pytest.raises(ModelError) as caught:
        await collect(LiteLLMModel(sleep=never).stream(ask(**changes)), NullSink())
    return caught.value


@pytest.mark.parametrize("tool_format", FORMATS)
@pytest.mark.parametrize("model", ["openai/gpt-5-mini", "gpt-5-mini"])
async def test_without_a_key_nothing_is_sent_to_openai(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, model: str, tool_format: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    error = await refused(model=model, tool_format=tool_format)
    assert str(error).startswith("model call failed: OPENAI_API_KEY is not set")
    assert error.status == 401
    assert provider.requests == []


@pytest.mark.parametrize(
    ("model", "variable"), [("openai/gpt-5-mini", "OPENAI_API_KEY"), (CLAUDE, "ANTHROPIC_API_KEY")]
)
@pytest.mark.parametrize("key", ["sk-…", "sk-two\nlines"])
async def test_a_key_that_no_header_can_carry_is_named_and_not_shown(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, model: str, variable: str, key: str
) -> None:
    monkeypatch.setenv(variable, key)
    error = await refused(model=model)
    assert str(error).startswith(f"model call failed: {variable} is no key")
    assert key not in str(error)
    assert provider.requests == []


def test_a_key_without_any_text_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "")
    monkeypatch.setenv("MISTRAL_API_KEY", "sk-mistral")
    forget_empty_keys()
    use = ModelUse("a", "openrouter/x/y", "completions", use_proxy=False)
    problem = model_problem(load_library(), use, in_name=False)
    assert problem == "OPENROUTER_API_KEY is not set"
    assert os.environ["MISTRAL_API_KEY"] == "sk-mistral"


@pytest.mark.parametrize("tool_format", FORMATS)
@pytest.mark.parametrize("model", ["openai/gpt-5-mini", CLAUDE, "our-alias"])
async def test_the_key_of_openai_never_goes_to_a_proxy(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, model: str, tool_format: str
) -> None:
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", provider.base_url)
    error = await refused(model=model, tool_format=tool_format, use_proxy=True)
    assert str(error).startswith("model call failed: LITELLM_PROXY_API_KEY is not set")
    assert error.status == 401
    assert provider.requests == []


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:9/v1",
        "localhost:9/v1",
        "me:hunter2pass@127.0.0.1:9/v1",
        "ftp://127.0.0.1:9/v1",
        "http://",
        "http://127.0.0.1:99999/v1",
        "http://[::1/v1",
        " http://127.0.0.1:9/v1",
        "not an address",
        "http://me:hunter2pass@127.0.0.1:9/v1",
        "https://hunter2pass@127.0.0.1:9/v1",
    ],
)
@pytest.mark.parametrize(
    ("variable", "model", "use_proxy"),
    [
        ("LITELLM_PROXY_API_BASE", "openai/gpt-5-mini", True),
        ("OPENAI_BASE_URL", "openai/gpt-5-mini", False),
        ("OPENAI_API_BASE", "openai/gpt-5-mini", False),
        ("ANTHROPIC_API_BASE", CLAUDE, False),
        ("ANTHROPIC_BASE_URL", CLAUDE, False),
        ("MISTRAL_AZURE_API_BASE", "mistral/mistral-large-latest", False),
    ],
)
@pytest.mark.usefixtures("provider")
async def test_an_address_that_is_none_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, model: str, use_proxy: bool, address: str
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.setenv(variable, address)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-environment-key-0123456789")
    for tool_format in FORMATS:
        error = await refused(
            model=model, tool_format=tool_format, use_proxy=use_proxy, user_token="the-callers"
        )
        assert str(error).startswith(f"model call failed: {variable} ")
        assert error.status == 400
        assert "127.0.0.1" not in str(error)
        assert "hunter2" not in str(error)


async def test_an_address_of_another_provider_is_not_shown_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XAI_API_KEY", "xai-environment-key-0123456789")
    monkeypatch.setenv("XAI_API_BASE", "me:hunter2pass@127.0.0.1:9/v1")
    for tool_format in FORMATS:
        error = await refused(model="xai/grok-4", tool_format=tool_format)
        assert "the provider's address" in str(error)
        assert "hunter2" not in str(error)
        assert error.status == 400


@pytest.mark.parametrize(
    ("model", "tool_format"),
    [
        ("openai/gpt-5-mini", "completions"),
        ("openai/gpt-5-mini", "responses"),
        (CLAUDE, "responses"),
    ],
)
async def test_a_connection_that_fails_says_where_to(
    monkeypatch: pytest.MonkeyPatch, model: str, tool_format: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment-key-0123456789")
    monkeypatch.setenv("ANTHROPIC_API_BASE", "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-environment-key-0123456789")
    with pytest.raises(ModelError) as caught:
        await reply_of(model=model, tool_format=tool_format)
    text = str(caught.value)
    assert text.startswith("model call failed: Cannot connect to host 127.0.0.1:9 [")
    assert "object at 0x" not in text
    assert "Handle with" not in text
    assert caught.value.status is None


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach http://me:hunter2@host:80/v1",
        "cannot reach http://hunter2@host/v1",
        "cannot reach me:hunter2@host:80/v1",
        "cannot reach https://me:hunt@hunter2@host",
        "cannot reach https://:hunter2@host",
    ],
)
def test_a_password_in_an_address_is_redacted(text: str) -> None:
    shown = redact(text)
    assert "hunter2" not in shown
    assert "host" in shown


def test_what_only_looks_like_a_password_stays() -> None:
    for text in (
        "write to support@openai.com",
        "POST https://h/v1/models/claude-3-5-sonnet@20240620:rawPredict",
        '{"email":"a@b.org"}',
    ):
        assert redact(text) == text


@pytest.mark.parametrize(
    ("model", "said", "status"),
    [
        ("zai/glm-5.2", "ZAI_API_KEY is not set", 401),
        ("moonshot/kimi-k3", "MOONSHOT_API_KEY is not set", 401),
        ("dashscope/qwen3.7-max", "DASHSCOPE_API_KEY is not set", 401),
        ("nvidia_nim/meta/llama-3.3-70b-instruct", "NVIDIA_NIM_API_KEY is not set", 401),
        ("hosted_vllm/Qwen/Qwen3-8B", "HOSTED_VLLM_API_BASE is not set; without it", 400),
        ("lm_studio/some-model", "LM_STUDIO_API_BASE is not set; without it", 400),
    ],
)
async def test_openais_key_and_address_do_not_stand_in_for_those_of_others(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, model: str, said: str, status: int
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL")
    with recorded_calls(send=False) as calls:
        error = await refused(model=model)
    assert str(error).startswith(f"model call failed: {said}")
    assert error.status == status
    assert not calls


async def test_mistral_is_asked_where_its_configured_address_says(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "sk-mistral-0123456789")
    monkeypatch.setenv("MISTRAL_API_BASE", "http://127.0.0.1:9/v1")  # of other calls than chats
    address = f"{provider.root_of('mistral')}/v1"
    monkeypatch.setenv("MISTRAL_AZURE_API_BASE", address)
    assert configured_address("mistral") == address
    await reply_of(model="mistral/mistral-large-latest")
    assert len(provider.requests) == 1


async def test_a_server_of_ones_own_needs_an_address_alone(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", provider.base_url)
    await reply_of(model="hosted_vllm/Qwen/Qwen3-8B")
    [seen] = provider.requests
    assert "sk-environment" not in str(seen.headers)


def test_hugging_face_is_not_asked_about_models(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def nowhere(name: str, *rest: Any, **more: Any) -> Any:
        asked.append(name)
        raise OSError("nothing may leave this machine")

    litellm = load_library()
    dispatch = importlib.import_module("litellm.utils").tokenizer_dispatch
    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    monkeypatch.setattr(dispatch, "from_pretrained", nowhere)
    model = "huggingface/novita/an-org/a-model-not-asked-for-before"
    assert profile_of(litellm, model, "completions").wire == "completions"
    assert litellm.get_model_info(model)["max_tokens"] is None
    assert litellm.token_counter(model="groq/llama-3.3-70b-versatile", text="so") > 0
    assert asked == []
