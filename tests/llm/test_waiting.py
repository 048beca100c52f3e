"""How long a provider is waited for: whatever it sends counts, and nothing else does."""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from mail.core.call_context import NullSink
from mail.errors import ModelError
from mail.llm import litellm_model
from mail.llm.ask import collect
from mail.llm.litellm_model import LiteLLMModel, close_clients, load_parts
from mail.llm.retry import RetryPolicy
from mail.llm.settings import LLMSettings
from tests.llm.streams import anthropic_events, chat_events, responses_events
from tests.llm.support import ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from mail.llm.request import ModelReply

ONCE = RetryPolicy(attempts=1)
LIMIT = 1.0
"""The longest silence in these tests; what is still alive shows it five times as often."""

FOREVER = 60.0
LATE = "model call failed: the provider did not answer in time"
HEAD = (
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
    "transfer-encoding: chunked\r\n\r\n"
)


def sse(events: Iterable[Any]) -> bytes:
    """Return a stream of server-sent events."""
    return b"".join(
        f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n".encode()
        for event in events
    )


def chat(text: str) -> bytes:
    return sse(chat_events({"role": "assistant", "content": text})) + b"data: [DONE]\n\n"


def message(text: str) -> bytes:
    return sse(anthropic_events({"type": "text", "text": text}, stop="end_turn"))


def response(text: str) -> bytes:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
    return sse(responses_events(item))


Pieces = Sequence[tuple[float, bytes]]


class Thinker:
    """A server that sends replies in pieces, each after its own time.

    ``replies`` are found by a word in the request. What is to be sent after an endless time keeps
    the connection open.
    """

    def __init__(self) -> None:
        self.replies: dict[str, Pieces] = {}
        self.asked: list[str] = []
        self.left = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = head.partition("content-length:")[2].split()[0]
            body = (await reader.readexactly(int(length))).decode()
            word = next(word for word in self.replies if word in body)
            self.asked.append(word)
            answering = asyncio.create_task(self._answer(writer, self.replies[word]))
            await asyncio.wait(
                [answering, asyncio.create_task(reader.read())], return_when="FIRST_COMPLETED"
            )
            self.left += not answering.done()
            answering.cancel()
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, pieces: Pieces) -> None:
        head = HEAD.encode()
        for pause, piece in pieces:
            await asyncio.sleep(pause)
            writer.write(head + f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            head = b""
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


@pytest.fixture
async def thinker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Thinker]:
    """A thinker that the environment points to, whatever the provider."""
    thinker = Thinker()
    async with await asyncio.start_server(thinker.serve, "127.0.0.1", 0) as server:
        address = "http://{}:{}".format(*server.sockets[0].getsockname())
        for name in ("OPENAI_BASE_URL", "LITELLM_PROXY_API_BASE"):
            monkeypatch.setenv(name, f"{address}/v1")
        for name in ("ANTHROPIC_API_BASE", "DEEPSEEK_API_BASE", "OPENROUTER_API_BASE"):
            monkeypatch.setenv(name, address)
        for name in ("OPENAI", "ANTHROPIC", "DEEPSEEK", "OPENROUTER", "LITELLM_PROXY"):
            monkeypatch.setenv(f"{name}_API_KEY", "sk-environment-key-0123456789")
        await get_ready(thinker)
        yield thinker
        await close_clients()


async def get_ready(thinker: Thinker) -> None:
    """Let the library do what it does once, for seconds, on the event loop too."""
    thinker.replies = {word: [(0.0, way.reply("At once."))] for word, way in WAYS.items()}
    await asyncio.gather(*(answer(word, way, timeout=60.0) for word, way in WAYS.items()))
    thinker.replies.clear()
    thinker.asked.clear()


async def answer(
    word: str,
    way: Way,
    policy: RetryPolicy = ONCE,
    *,
    timeout: float = LIMIT,
    deadline: float = 60.0,
) -> ModelReply:
    """Ask a model."""
    settings = LLMSettings(timeout=timeout, deadline=deadline)
    request = ask(word, model=way.llm, tool_format=way.tool_format, settings=settings)
    return await collect(LiteLLMModel(policy).stream(request), NullSink())


class Way(NamedTuple):
    """A model, how it answers, and how it says that it is still alive."""

    llm: str
    tool_format: str
    reply: Callable[[str], bytes]
    alive: bytes


CLAUDE, REASONER = "anthropic/claude-sonnet-4-5", "openai/gpt-5-mini"
WAYS = {
    "deepseek": Way("deepseek/deepseek-v4-pro", "completions", chat, b": keep-alive\n\n"),
    "openrouter": Way("openrouter/qwen/qwen9", "completions", chat, b": OPENROUTER PROCESSING\n\n"),
    "comments": Way("openai/fake", "completions", chat, b": ping\n\n"),
    "lines": Way("openai/fake", "completions", chat, b"\n"),
    "proxy": Way("litellm_proxy/fake", "completions", chat, b": ping\n\n"),
    "responses": Way(REASONER, "responses", response, b": keep-alive\n\n"),
    "keepalives": Way(
        REASONER, "responses", response, sse([{"type": "keepalive", "sequence_number": 3}])
    ),
    "anthropic": Way(CLAUDE, "responses", message, b": waiting\n\n"),
    "pings": Way(CLAUDE, "responses", message, sse([{"type": "ping"}])),
}


async def test_whatever_arrives_is_a_sign_of_life(thinker: Thinker) -> None:
    async def waited(word: str, way: Way) -> str:
        thinker.replies[word] = [*[(LIMIT / 5, way.alive)] * 14, (0.0, way.reply("At last."))]
        return (await answer(word, way)).text

    texts = await asyncio.gather(*(waited(word, way) for word, way in WAYS.items()))
    assert texts == ["At last."] * len(WAYS)
    assert len(thinker.asked) == len(WAYS)  # nothing was asked, or paid, twice


async def test_silence_after_signs_of_life_ends_the_call(thinker: Thinker) -> None:
    async def waited(word: str, way: Way) -> tuple[str, float]:
        thinker.replies[word] = [*[(LIMIT / 5, way.alive)] * 5, (FOREVER, way.reply("Never."))]
        begun = asyncio.get_running_loop().time()
        with pytest.raises(ModelError) as failed:
            await answer(word, way)
        return str(failed.value), asyncio.get_running_loop().time() - begun

    ends = await asyncio.gather(*(waited(word, way) for word, way in WAYS.items()))
    assert {text for text, _ in ends} == {LATE}
    assert all(1.9 * LIMIT < seconds < 8 * LIMIT for _, seconds in ends)
    async with asyncio.timeout(20):
        while thinker.left < len(WAYS):  # every connection is let go of
            await asyncio.sleep(0.01)


async def test_signs_of_life_do_not_extend_the_deadline(thinker: Thinker) -> None:
    way = WAYS["comments"]
    thinker.replies["comments"] = [(LIMIT / 5, way.alive)] * 1000
    begun = asyncio.get_running_loop().time()
    with pytest.raises(ModelError, match=LATE):
        await answer("comments", way, RetryPolicy(), deadline=3 * LIMIT)
    assert 2.9 * LIMIT < asyncio.get_running_loop().time() - begun < 8 * LIMIT
    assert len(thinker.asked) <= 2


async def test_a_model_that_thought_in_silence_is_asked_once_more(thinker: Thinker) -> None:
    way = WAYS["responses"]
    thinker.replies["responses"] = [(0.0, way.alive), (FOREVER, way.reply("Never."))]
    with pytest.raises(ModelError, match=LATE):
        await answer("responses", way, RetryPolicy(base=0.001), timeout=LIMIT)
    assert len(thinker.asked) == 2


async def test_the_deadline_includes_the_preparation(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(litellm_model, "load_parts", lambda wires: go_on.wait(30.0))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-any")
    load_parts()
    begun = asyncio.get_running_loop().time()
    try:
        with pytest.raises(ModelError, match=LATE):
            await answer("comments", WAYS["comments"], deadline=0.5)
    finally:
        go_on.set()
    assert asyncio.get_running_loop().time() - begun < 10.0


async def test_first_calls_are_prepared_in_the_threads_of_their_provider(
    thinker: Thinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, blocked = threading.Event(), threading.Semaphore(0)

    def chat_name(model: str) -> str:
        if threading.current_thread() is not threading.main_thread() and "deepseek" in model:
            blocked.release()
            go_on.wait(30.0)
        return model

    monkeypatch.setattr(litellm_model, "chat_name", chat_name)
    thinker.replies["comments"] = [(0.0, WAYS["comments"].reply("Hello."))]
    stuck = [asyncio.create_task(answer("deepseek", WAYS["deepseek"])) for _ in range(6)]
    try:
        async with asyncio.timeout(10.0):
            for _ in range(4):
                while not blocked.acquire(blocking=False):
                    await asyncio.sleep(0.01)
            assert (await answer("comments", WAYS["comments"], timeout=10.0)).text == "Hello."
        assert not go_on.is_set()
    finally:
        for task in stuck:
            task.cancel()
        go_on.set()
        await asyncio.wait(stuck)


async def test_a_provider_that_blocks_its_threads_blocks_nobody_elses(
    thinker: Thinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, blocked = threading.Event(), threading.Semaphore(0)

    def credentials(*given: Any, **named: Any) -> Any:
        blocked.release()
        go_on.wait(30.0)
        raise OSError("no credentials")

    deepseek = importlib.import_module("litellm.llms.deepseek.chat.transformation")
    monkeypatch.setattr(deepseek.DeepSeekChatConfig, "get_complete_url", credentials)
    thinker.replies["comments"] = [(0.0, WAYS["comments"].reply("Hello."))]
    stuck = [asyncio.create_task(answer("deepseek", WAYS["deepseek"])) for _ in range(40)]
    try:
        while not blocked.acquire(blocking=False):
            await asyncio.sleep(0.01)
        async with asyncio.timeout(10.0):
            await asyncio.gather(*(asyncio.to_thread(len, "") for _ in range(40)))
            assert (await answer("comments", WAYS["comments"], timeout=10.0)).text == "Hello."
        assert not go_on.is_set()
    finally:
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
        go_on.set()


async def test_only_what_waits_for_nobody_is_prepared_on_the_event_loop(
    thinker: Thinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = importlib.import_module("litellm.main")
    prepare = main.completion
    loops: list[bool] = []

    def completion(**given: Any) -> Any:
        loops.append(threading.current_thread() is threading.main_thread())
        return prepare(**given)

    async def is_on_loop(word: str, *messages: dict[str, Any]) -> bool:
        way = WAYS[word]
        thinker.replies[word] = [(0.0, way.reply("Hello."))]
        request = ask(word, model=way.llm, tool_format=way.tool_format)
        request = replace(request, messages=[*messages, *request.messages])
        assert (await collect(LiteLLMModel(ONCE).stream(request), NullSink())).text == "Hello."
        return loops.pop()

    monkeypatch.setattr(main, "completion", completion)
    text, parts = ({"role": "user", "content": c} for c in ("So.", [{"type": "text", "text": "x"}]))
    assert await is_on_loop("comments", text)
    assert await is_on_loop("proxy", text)
    assert await is_on_loop("anthropic", text)
    assert not await is_on_loop("deepseek", text), "others may be asked for credentials"
    assert not await is_on_loop("anthropic", parts), "images may be fetched"
    assert not await is_on_loop("anthropic", *[text] * 100), "many take long"
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token")
    assert not await is_on_loop("anthropic", text), "a token may be fetched"


def test_connections_are_probed_while_they_are_silent() -> None:
    load_parts()
    handler = importlib.import_module("litellm.llms.custom_httpx.http_handler")
    make = handler.build_aiohttp_keepalive_socket_factory()
    with make((socket.AF_INET, socket.SOCK_STREAM, 0)) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
