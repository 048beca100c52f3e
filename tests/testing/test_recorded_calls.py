"""What `mail.testing.recorded_calls` records of model calls, and what it never shows."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from aiohttp import web

from mail.core.call_context import NullSink
from mail.core.usage import Usage
from mail.errors import ModelError
from mail.llm import recording
from mail.llm.ask import ask
from mail.llm.litellm_model import LiteLLMModel, close_clients
from mail.llm.recording import MOST_ANSWER_BYTES, MOST_REQUEST_BYTES, asking
from mail.llm.request import ChatModel, ModelRequest
from mail.llm.retry import RetryPolicy
from mail.llm.script import call, otherwise, say
from mail.stdlib.openai.agents import OpenAIModel
from mail.testing import RecordedCall, recorded_calls
from tests.llm.support import TOOL
from tests.support.loopback import served
from tests.support.provider import FakeProvider, Fault

KEYS = {
    "OPENAI_API_KEY": "sk-environment-key-0123456789",
    "ANTHROPIC_API_KEY": "a plain passphrase of anthropic",
    "LITELLM_PROXY_API_KEY": "just-some-words-for-the-proxy",
}
ONCE = RetryPolicy(attempts=1, rate_limit_attempts=1)
WAYS = {
    "completions": ("openai/gpt-5-mini", "completions", False),
    "responses": ("openai/gpt-5-mini", "responses", False),
    "anthropic": ("anthropic/claude-sonnet-4-5", "responses", False),
    "proxy": ("openai/gpt-5-mini", "completions", True),
}


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProvider]:
    async with FakeProvider([otherwise(say("Sunny."), call("look_up", word="tree"))]) as running:
        for name, key in KEYS.items():
            monkeypatch.setenv(name, key)
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("ANTHROPIC_API_BASE", running.root_url)
        monkeypatch.setenv("LITELLM_PROXY_API_BASE", running.base_url)
        yield running
        await close_clients()


def asked(way: str, text: str = "The weather?", **changes: Any) -> ModelRequest:
    model, tool_format, use_proxy = WAYS[way]
    values = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "tools": [TOOL],
        "tool_choice": "required",
        "tool_format": tool_format,
        "use_proxy": use_proxy,
    }
    return ModelRequest(**(values | changes))


async def answer(request: ModelRequest, model: ChatModel | None = None) -> None:
    def unreported(model: str, usage: Usage) -> None: ...

    await ask(model or LiteLLMModel(ONCE), request, NullSink(), unreported)


def everything(calls: Any) -> str:
    """Return all that a recorder can tell anybody."""
    return calls.text() + json.dumps([one.to_dict() for one in calls]) + repr(list(calls))


@pytest.mark.parametrize("way", WAYS)
async def test_the_exact_request_and_its_answer_are_recorded(
    way: str, provider: FakeProvider
) -> None:
    with recorded_calls() as calls:
        await answer(asked(way, user_token="the-token-of-alice-0123"))
    [made], [seen] = calls, provider.requests
    assert (made.method, made.status, made.error) == ("POST", 200, "")
    assert made.url == f"{provider.root_url}{seen.path}"
    assert made.body == seen.body
    assert set(made.headers) >= {"content-type", "user-agent"}
    assert made.answer_headers["content-type"].startswith("text/event-stream")
    assert "tree" in made.answer and made.answer_bytes >= len(made.answer) > 100
    assert made.seconds > 0
    told = everything(calls)
    assert not [key for key in (*KEYS.values(), "the-token-of-alice-0123") if key in told]
    shown = made.headers.get("authorization") or made.headers["x-api-key"]
    assert shown == "[redacted]"


async def test_a_request_that_leaves_with_the_first_piece_is_recorded(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "the words of a key for Gemini")
    monkeypatch.setenv("GEMINI_API_BASE", provider.root_of("gemini"))
    with recorded_calls() as calls:
        await answer(asked("completions", model="gemini/gemini-2.5-pro"))
    assert [one.status for one in calls] == [200]
    assert calls[0].url.startswith(provider.root_of("gemini"))
    assert "words of a key" not in everything(calls)


async def test_calls_of_openais_own_client_are_recorded(provider: FakeProvider) -> None:
    model = OpenAIModel("responses", retry=ONCE)
    with recorded_calls() as calls:
        await answer(asked("responses"), model)
    await model.aclose()
    assert [one.body for one in calls] == [seen.body for seen in provider.requests]
    assert KEYS["OPENAI_API_KEY"] not in everything(calls)


async def test_refusals_and_broken_connections_are_recorded(provider: FakeProvider) -> None:
    provider.faults.append(Fault(status=400, message="no tools here"))
    with recorded_calls() as calls:
        with pytest.raises(ModelError):
            await answer(asked("completions"))
        await provider.__aexit__(None, None, None)
        with pytest.raises(ModelError):
            await answer(asked("completions"))
    refused, broken = calls
    assert refused.status == 400 and "no tools here" in refused.answer
    assert broken.status is None and "Connect" in broken.error
    assert "no answer" not in broken.text() and broken.error in broken.text()


async def test_a_request_can_be_kept_from_leaving(provider: FakeProvider) -> None:
    with recorded_calls(send=False) as calls, pytest.raises(ModelError, match="not sent"):
        await answer(asked("anthropic"))
    assert provider.requests == []
    assert calls[0].body["model"] == "claude-sonnet-4-5" and calls[0].status is None


async def test_recorders_hear_model_calls_only_and_leave_nothing_behind() -> None:
    before = httpx.AsyncClient.send
    ok = httpx.MockTransport(lambda request: httpx.Response(200, text="fine"))
    async with httpx.AsyncClient(transport=ok) as client:
        with recorded_calls() as first:
            await client.get("http://localhost/action")
            with recorded_calls(most=1) as second, asking("a/model"):
                await client.get("http://localhost/one")
                await client.get("http://localhost/two")
    assert [one.url for one in first] == ["http://localhost/one", "http://localhost/two"]
    assert [(one.url, one.answer, one.model) for one in second] == [
        ("http://localhost/two", "fine", "a/model")
    ]
    assert httpx.AsyncClient.send is before


async def test_recorders_that_end_in_any_order_leave_nothing_behind() -> None:
    before = httpx.AsyncClient.send
    first, second = recorded_calls(), recorded_calls()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert httpx.AsyncClient.send is before


def recorded(content: Any, headers: dict[str, str] | None = None, url: str = "") -> RecordedCall:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    place = url or "https://api.example.com/v1/x"
    return RecordedCall.of("m", httpx.Request("POST", place, content=body, headers=headers))


SECRET = "correct horse battery staple"
WHERE: dict[str, RecordedCall] = {
    "a header of an unknown name": recorded({}, {"X-Corp-Gate": SECRET}),
    "a cookie": recorded({}, {"Cookie": f"session={SECRET}"}),
    "a query": recorded({}, url=f"https://h.example/x?key={SECRET}&alt=sse"),
    "a URL's password": recorded({}, url=f"https://me:{SECRET.replace(' ', '-')}@h.example/x"),
    "a field's name": recorded({"tools": [{"type": "mcp", "authorization": SECRET}]}),
    "a list under a field's name": recorded({"api_key": ["abc", SECRET]}),
    "an object under a field's name": recorded({"credentials": {"user": [{"is": SECRET}]}}),
    "a default of a declared field": recorded(
        {"properties": {"a": {"default": {"token": {"a": SECRET}}}}}
    ),
    "a tool's headers": recorded({"tools": [{"type": "mcp", "headers": {"X-Gate": SECRET}}]}),
    "the header's value in the body": recorded({"input": f"it is {SECRET}"}, {"Api-Key": SECRET}),
    "its shape": recorded({"input": "use sk-" + SECRET.replace(" ", "")}),
    "JSON in a text": recorded({"arguments": json.dumps({"password": SECRET})}),
    "a body that is no JSON": recorded(f"password={SECRET.replace(' ', '-')}&a=b".encode()),
}


@pytest.mark.parametrize("where", WHERE)
def test_no_secret_gets_out_of_a_request(where: str) -> None:
    made = WHERE[where]
    told = made.text() + json.dumps(made.to_dict()) + repr(made)
    for shape in (SECRET, SECRET.replace(" ", "-"), SECRET.replace(" ", ""), "correct", "staple"):
        assert shape not in told


def test_what_a_tool_declares_under_a_secrets_name_is_shown() -> None:
    schema = {
        "type": "object",
        "properties": {"token": {"type": "string"}, "key": {"$ref": "#/$defs/key"}},
        "$defs": {"key": {"type": "object", "properties": {"secret": {"const": "x"}}}},
        "required": ["token"],
    }
    body = {"tools": [{"type": "function", "name": "sign_in", "parameters": schema}]}
    assert recorded(body).body == body


async def streamed(*lines: str, headers: dict[str, str] | None = None) -> RecordedCall:
    """Return the record of an answer that came as lines of a stream."""
    body = "".join(f"{line}\n\n" for line in lines).encode()
    reply = httpx.Response(200, content=body, headers=headers)
    transport = httpx.MockTransport(lambda request: reply)
    auth = {"Authorization": "Bearer of-great-secrecy"}
    async with httpx.AsyncClient(transport=transport) as client:
        with recorded_calls() as calls, asking("m"):
            await client.post("http://localhost/x", headers=auth)
    return calls[0]


async def test_a_secret_that_a_model_says_piece_by_piece_is_hidden() -> None:
    events = [
        {"type": "text", "n": number, "delta": piece}
        for number, piece in enumerate(["it is sk", "-abcdef", "ghijklmnop, you know"])
    ]
    made = await streamed(*(f"data: {json.dumps(event)}" for event in events), "data: [DONE]")
    assert "abcdef" not in made.answer and "ghijklmnop" not in made.answer
    assert made.answer.count("[redacted]") == 3
    assert '"n": 2' in made.answer and made.answer.rstrip().endswith("data: [DONE]")


async def test_credentials_in_an_answer_are_hidden() -> None:
    made = await streamed(
        'data: {"delta": "you sent of-great"}',
        'data: {"delta": "-secrecy"}',
        headers={"Set-Cookie": "a=the-cookie", "x-request-id": "req_1", "X-New": "who-knows"},
    )
    told = made.text()
    assert not [one for one in ("-secrecy", "the-cookie", "who-knows") if one in told]
    assert made.answer_headers["x-request-id"] == "req_1"


async def test_ordinary_answers_stay_as_they_are() -> None:
    lines = ['data: {"delta": "The tokens "}', 'data: {"delta": "of a key."}', ": keep-alive"]
    made = await streamed(*lines)
    assert [line for line in made.answer.splitlines() if line] == lines


def test_records_are_bounded_and_quick() -> None:
    hostile = [
        "a" * 3_000_000,
        "eyJabcdefgh-" * 100_000,
        "x\u20ac " * 200_000,
        "password: b'" * 90_000,
    ]
    begun = time.perf_counter()
    made = recorded({"input": hostile, "many": [{"k": 1}] * 50_000, "last": "z"})
    made.status = 200
    for _ in range(10):
        made.hear(b'data: {"delta": "eyJabcdefgh-' + b"eyJabcdefgh-" * 1000 + b'"}\n')
    told = made.text()
    assert len(json.dumps(made.body, ensure_ascii=False).encode()) < 2 * MOST_REQUEST_BYTES
    assert len(told.encode()) < 4 * MOST_REQUEST_BYTES + 2 * MOST_ANSWER_BYTES
    assert "characters in all]" in told and "more]" in told and "more bytes]" in told
    assert time.perf_counter() - begun < 20


def test_what_is_nested_deeply_is_cut() -> None:
    nested: Any = "deep"
    for _ in range(500):
        nested = [nested]
    assert "nested deeper" in recorded({"input": nested}).text()
    assert recorded(b"[" * 200_000).text()


def test_half_a_secret_at_the_end_of_what_is_kept_is_not_shown() -> None:
    made = recorded({})
    made.hear(
        b"word " * ((MOST_ANSWER_BYTES - 20) // 5) + b" sk-abcdefghijklmnopqrstuvwxyz0123456789"
    )
    assert "sk-abcdefgh" not in made.answer


async def test_a_provider_that_answers_plainly_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def plain(request: web.Request) -> web.Response:
        return web.Response(text="<html>no</html>", content_type="text/html", status=502)

    app = web.Application()
    app.router.add_post("/{rest:.*}", plain)
    monkeypatch.setenv("OPENAI_API_KEY", KEYS["OPENAI_API_KEY"])
    async with served(app) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        with recorded_calls() as calls, pytest.raises(ModelError):
            await answer(asked("completions"))
    await close_clients()
    assert (calls[0].status, calls[0].answer) == (502, "<html>no</html>")


def test_long_words_take_no_longer_than_short_ones() -> None:
    def spent(word: int) -> float:
        text = f"{'a' * word} " * (60_000 // word)
        began = time.thread_time()
        recording._clean(text, ())
        return time.thread_time() - began

    for _ in range(5):  # another process may slow down one of the two
        short, long = min(spent(20) for _ in range(3)), min(spent(1_990) for _ in range(3))
        if long < 10 * max(short, 0.0005):
            return
    pytest.fail(f"{short:.4f} s with short words, {long:.4f} s with long ones")
