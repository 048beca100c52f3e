"""Models of definitions from elsewhere: what may be named, and that no request goes past the check.

Nothing here leaves loopback: the connections end in a transport of the test's, or in a server of
its own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import httpx
import pytest

from mail.config.server import REMOTE_PROVIDERS
from mail.core.call_context import CallContext, ModelRules, enter_call
from mail.egress import client as egress
from mail.errors import ConfigError, ModelError
from mail.llm import provider_env, remote
from mail.llm.litellm_model import LiteLLMModel, close_clients, load_library
from mail.llm.remote import check_remote_llm
from mail.llm.request import ModelRequest
from mail.llm.retry import RetryPolicy
from mail.llm.script import otherwise, say
from mail.llm.settings import LLMSettings
from mail.stdlib.openai.agents import OpenAIModel
from tests.llm.support import ask
from tests.support.provider import FakeProvider

RULES = ModelRules(REMOTE_PROVIDERS)
PUBLIC = "93.184.216.34"
ONCE = RetryPolicy(attempts=1)


def provider_of(llm: str) -> str:
    """Return the provider of a bare name."""
    return provider_env.provider_of(load_library(), llm)


HIDDEN = [
    "openai/http://127.0.0.1:9/latest/meta-data",
    "huggingface/https://169.254.169.254/latest/meta-data",
    "oobabooga/http://localhost:9",
    "openai/127.0.0.1:8080/v1",
    "openai/localhost",
    "openai/metadata.internal:8080/x",
    "openai/0x7f000001",
    "openai/127.1:80",
    "openai/127.1",
    "openai/0x7f.1",
    "openai/2130706433:80/v1",
    "openai/127.0.0.1.",
    "openai/localhost.:80",
    "openai//169.254.169.254/x",
    "openai/../x",
    "openai/x?api_base=http://127.0.0.1",
    "openai/x#y",
    "openai/x y",
    "http://127.0.0.1:9",
    "openai/" + "x" * 300,
    "litellm_proxy/http://127.0.0.1:9",
]


@pytest.mark.parametrize("llm", HIDDEN)
@pytest.mark.parametrize("use_proxy", [True, False])
def test_a_name_that_holds_an_address_is_refused(llm: str, use_proxy: bool) -> None:
    with pytest.raises(ConfigError, match="must not name an address"):
        check_remote_llm(llm, RULES, use_proxy=use_proxy, provider_of=provider_of)


@pytest.mark.parametrize(
    "llm", ["ollama/llama3", "sagemaker/endpoint", "vertex_ai/x", "custom/x", "no-such-model"]
)
def test_a_provider_that_is_not_listed_is_refused_with_the_setting(llm: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed: openai, .* \(\[server\.swarm\] remote_prov"):
        check_remote_llm(llm, RULES, use_proxy=False, provider_of=provider_of)


@pytest.mark.parametrize(
    "llm",
    [
        "openai/gpt-5-mini",
        "gpt-4o",
        "anthropic/claude-sonnet-4-5@20250929",
        "openrouter/meta-llama/llama-3.1:70b",
        "openai/ft:gpt-4o-mini:org::id",
        "openai/1234567890",
        "openrouter/qwen/qwen2.5-vl-72b:free",
    ],
)
def test_ordinary_names_are_taken(llm: str) -> None:
    check_remote_llm(llm, RULES, use_proxy=False, provider_of=provider_of)
    check_remote_llm(llm, ModelRules(("litellm_proxy",)), use_proxy=True, provider_of=provider_of)


class Connections(httpx.AsyncBaseTransport):
    """Stands where connections would be made, and makes none."""

    def __init__(self) -> None:
        self.aimed: list[tuple[str, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.aimed.append((request.url.host, request.headers["host"]))
        raise httpx.ConnectError("no connections in this test")


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """What would be connected to; every provider has a key, and nobody has set an address."""
    made = Connections()
    monkeypatch.setattr(remote, "system_transport", lambda: made)
    for provider in REMOTE_PROVIDERS:
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-key-0123456789")
    for name in ("TOGETHERAI_API_KEY", "LITELLM_PROXY_API_KEY"):
        monkeypatch.setenv(name, "sk-key-0123456789")
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return made


def resolving(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    async def found(host: str, port: int) -> list[str]:
        return [address]

    monkeypatch.setattr(egress, "system_addresses", found)


async def asked(model: Any, request: ModelRequest, rules: ModelRules | None = RULES) -> str:
    """Ask a model in the name of an agent that was defined elsewhere."""
    enter_call(CallContext(task_id="t", agent="a", models=rules))
    request = replace(request, settings=LLMSettings(timeout=60.0, deadline=120.0))
    return "".join([delta.text async for delta in model.stream(request)])


MODELS = [
    *((f"{provider}/some-model", "completions") for provider in REMOTE_PROVIDERS),
    ("openai/gpt-5-mini", "responses"),
    ("litellm_proxy/some-model", "responses"),
    ("anthropic/claude-sonnet-4-5", "responses"),
]


@pytest.mark.parametrize(("llm", "tool_format"), MODELS)
async def test_a_name_that_leads_inside_is_refused_for_every_provider(
    connections: Connections, monkeypatch: pytest.MonkeyPatch, llm: str, tool_format: Any
) -> None:
    """DNS rebinding: the provider's host has a private address at the moment of the call."""
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", "https://proxy.example/v1")
    resolving(monkeypatch, "10.1.2.3")
    proxied = llm.startswith("litellm_proxy/")
    request = ask(model=llm, tool_format=tool_format, use_proxy=proxied)
    if proxied:  # an address that the operator has set is the operator's own choice
        with pytest.raises(ModelError, match=r"no connections in this test|Connection error"):
            await asked(LiteLLMModel(ONCE), request)
        assert set(connections.aimed) == {("10.1.2.3", "proxy.example")}
        return
    with pytest.raises(ModelError, match=r"10\.1\.2\.3 .* is a private address") as raised:
        await asked(LiteLLMModel(ONCE), request)
    assert "[server.swarm] remote_api_bases" in str(raised.value)
    assert raised.value.status == 400
    assert connections.aimed == []


@pytest.mark.parametrize(("llm", "tool_format"), MODELS)
async def test_every_providers_request_is_checked_and_goes_where_the_check_said(
    connections: Connections, monkeypatch: pytest.MonkeyPatch, llm: str, tool_format: Any
) -> None:
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", "https://proxy.example/v1")
    resolving(monkeypatch, PUBLIC)
    request = ask(model=llm, tool_format=tool_format)
    with pytest.raises(ModelError):
        await asked(LiteLLMModel(ONCE), request)
    assert connections.aimed
    assert {host for host, _ in connections.aimed} == {PUBLIC}


async def test_openais_own_library_goes_the_same_way(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wire in ("completions", "responses"):
        for address, told in (("127.0.0.1", "is a loopback address"), (PUBLIC, "onnection")):
            resolving(monkeypatch, address)
            model = OpenAIModel(wire, retry=ONCE)
            with pytest.raises(ModelError, match=told):
                await asked(model, ask(model="gpt-5-mini"))
            await model.aclose()
    assert {host for host, _ in connections.aimed} == {PUBLIC}


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProvider]:
    async with FakeProvider([otherwise(say("hello"))]) as running:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-key-0123456789")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-key-0123456789")
        monkeypatch.setenv("LITELLM_PROXY_API_KEY", "sk-key-0123456789")
        yield running
        await close_clients()


@pytest.mark.parametrize(
    ("llm", "tool_format", "use_proxy"),
    [
        ("openai/gpt-5-mini", "completions", False),
        ("openai/gpt-5-mini", "responses", False),
        ("anthropic/claude-sonnet-4-5", "responses", False),
        ("gpt-5-mini", "completions", True),
        ("gpt-5-mini", "responses", True),
    ],
)
async def test_an_address_that_the_operator_has_set_answers(
    provider: FakeProvider,
    monkeypatch: pytest.MonkeyPatch,
    llm: str,
    tool_format: Any,
    use_proxy: bool,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
    monkeypatch.setenv("ANTHROPIC_API_BASE", provider.root_url)
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", provider.base_url)
    request = ask(model=llm, tool_format=tool_format, use_proxy=use_proxy, user_token="tok-12345")
    assert await asked(LiteLLMModel(ONCE), request) == "hello"
    [seen] = provider.requests
    assert not use_proxy or seen.headers["authorization"] == "Bearer tok-12345"


def careless(made: Any) -> Any:
    """Return a client of a library that takes no notice of the way that it is given."""

    class Careless(made):  # type: ignore[misc]
        def __init__(
            self, *, transport: Any = None, http_client: Any = None, **options: Any
        ) -> None:
            super().__init__(**options)

    return Careless


@pytest.mark.parametrize(
    ("model", "llm", "client"),
    [
        (LiteLLMModel, "openai/gpt-5-mini", "openai.AsyncOpenAI"),
        (
            LiteLLMModel,
            "anthropic/claude-sonnet-4-5",
            "litellm.llms.custom_httpx.http_handler.AsyncHTTPHandler",
        ),
        (partial(OpenAIModel, "completions"), "gpt-5-mini", "openai.AsyncOpenAI"),
    ],
)
async def test_a_reply_that_came_past_the_check_is_not_used(
    provider: FakeProvider,
    monkeypatch: pytest.MonkeyPatch,
    model: Callable[..., Any],
    llm: str,
    client: str,
) -> None:
    load_library()
    monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
    monkeypatch.setenv("ANTHROPIC_API_BASE", provider.root_url)
    request = ask(model=llm, tool_format="completions")
    assert await asked(model(retry=ONCE), request) == "hello"
    module, _, name = client.rpartition(".")
    monkeypatch.setattr(client, careless(getattr(import_module(module), name)))
    with pytest.raises(ModelError, match="the request was not checked"):
        await asked(model(retry=ONCE), request)
    assert len(provider.requests) == 2


async def test_an_internal_address_answers_once_the_setting_names_it(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider's public name leads inside here; only the setting makes that right."""
    monkeypatch.setattr(remote, "configured_address", lambda name: None)
    monkeypatch.setenv("ANTHROPIC_API_BASE", provider.root_url)
    request = ask(model="anthropic/claude-sonnet-4-5")
    with pytest.raises(ModelError, match="is a loopback address"):
        await asked(LiteLLMModel(ONCE), request)
    assert provider.requests == []
    named = ModelRules(("anthropic",), ("127.0.0.0/8",))
    assert await asked(LiteLLMModel(ONCE), request, named) == "hello"


async def test_a_redirect_of_an_allowed_address_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode()
        reached.append(line.split()[1])
        writer.write(
            b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /latest/meta-data\r\n"
            b"Content-Length: 0\r\nConnection: close\r\n\r\n"
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("ANTHROPIC_API_BASE", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-key-0123456789")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-key-0123456789")
    for llm in ("anthropic/claude-sonnet-4-5", "openai/gpt-5-mini"):
        with pytest.raises(ModelError):
            await asked(LiteLLMModel(ONCE), ask(model=llm))
    server.close()
    await server.wait_closed()
    assert reached and "/latest/meta-data" not in reached
    await close_clients()


async def test_a_provider_that_is_not_listed_is_not_asked(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="provider openai is not allowed"):
        await asked(LiteLLMModel(ONCE), ask(model="gpt-4o"), ModelRules(("anthropic",)))
    assert connections.aimed == []
