"""Ollama's own server: what is asked of it, and who waits when it does not answer."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from mail.core.call_context import NullSink
from mail.errors import ModelError
from mail.llm.ask import collect
from mail.llm.compress import Compressor, context_length
from mail.llm.litellm_model import LiteLLMModel, close_clients, load_library, load_parts
from mail.llm.ollama import NUM_CTX
from mail.llm.retry import RetryPolicy
from mail.llm.settings import LLMSettings
from tests.llm.streams import library
from tests.llm.support import ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ONCE = RetryPolicy(attempts=1)
ABLE = {"capabilities": ["completion", "tools", "thinking"], "model_info": {}}


class Ollama:
    """A server that speaks as Ollama does, and may keep silent about its models, or for ever."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.shown: dict[str, Any] = ABLE
        self.silent: frozenset[str] = frozenset()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1]
            length = int(head.lower().partition("content-length:")[2].split()[0])
            self.asked.append((path, json.loads(await reader.readexactly(length))))
            if path in self.silent:
                await reader.read()  # until the other side goes
                return
            body = json.dumps(self.shown) if path == "/api/show" else said("Hello.")
            writer.write(
                b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
                b"content-type: application/x-ndjson\r\n\r\n" + body.encode()
            )
            await writer.drain()
        finally:
            writer.close()

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def chats(self) -> list[dict[str, Any]]:
        return [body for path, body in self.asked if path == "/api/chat"]


def said(text: str) -> str:
    top = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    pieces = [
        {**top, "message": {"role": "assistant", "content": text}, "done": False},
        {
            **top,
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 5,
            "eval_count": 2,
        },
    ]
    return "".join(json.dumps(piece) + "\n" for piece in pieces)


@pytest.fixture
async def ollama(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ollama]:
    """An Ollama server that the environment points to."""
    server = Ollama()
    await asyncio.to_thread(load_parts)
    library()  # its filter of warnings
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        address = "http://{}:{}".format(*listening.sockets[0].getsockname())
        monkeypatch.setenv("OLLAMA_API_BASE", address)
        yield server
        await close_clients()


async def answer(llm: str, **changes: Any) -> str:
    request = ask(model=llm, **changes)
    return (await collect(LiteLLMModel(ONCE).stream(request), NullSink())).text


@pytest.mark.parametrize("prefix", ["ollama", "ollama_chat"])
async def test_a_server_is_asked_about_a_model_once(ollama: Ollama, prefix: str) -> None:
    for _ in range(3):  # by three agents
        assert await answer(f"{prefix}/asked-{prefix}:1b") == "Hello."
    assert ollama.paths() == ["/api/show", *["/api/chat"] * 3]
    assert [tool["function"]["name"] for tool in ollama.chats()[0]["tools"]] == ["look_up"]


@pytest.mark.parametrize(
    ("shown", "sent", "length"),
    [
        ({}, NUM_CTX, NUM_CTX),
        ({"model_info": {"llama.context_length": 131_072}}, NUM_CTX, NUM_CTX),
        ({"model_info": {"llama.context_length": 8192}}, 8192, 8192),
        ({"parameters": 'stop "<|end|>"\nnum_ctx    65536\n'}, None, 65_536),
    ],
)
async def test_the_context_is_set_and_known(
    ollama: Ollama, shown: dict[str, Any], sent: int | None, length: int
) -> None:
    ollama.shown = ABLE | shown
    llm = f"ollama_chat/context-{length}-{sent}-{len(shown)}:1b"
    compressor = Compressor()
    assert (
        await compressor._length(ask(model=llm)) is None
    )  # nothing is asked before the first call
    assert ollama.asked == []
    await answer(llm)
    assert ollama.chats()[0].get("options", {}).get("num_ctx") == sent
    assert await compressor._length(ask(model=llm)) == length
    assert context_length(llm.replace("ollama_chat/", "ollama/")) == length


async def test_the_context_can_be_set(ollama: Ollama) -> None:
    ollama.shown = ABLE | {"parameters": "num_ctx 8192"}
    own = {"arguments": {"num_ctx": 65_536}}
    await answer("ollama/context-of-ones-own:1b", profile=own)
    assert ollama.chats()[0]["options"]["num_ctx"] == 65_536
    request = ask(model="ollama_chat/context-of-ones-own:1b", profile=own)
    assert await Compressor()._length(request) == 65_536


async def test_the_context_that_one_agent_sets_is_not_that_of_others(ollama: Ollama) -> None:
    own = {"arguments": {"num_ctx": 4096}}
    for profile in ({}, own, {}):
        await answer("ollama/context-of-others:1b", profile=profile)
    sizes = [chat["options"]["num_ctx"] for chat in ollama.chats()]
    assert sizes == [NUM_CTX, 4096, NUM_CTX]
    compressor = Compressor()  # summaries go by the same
    requests = [ask(model="ollama/context-of-others:1b", profile=one) for one in ({}, own, {})]
    assert [await compressor._length(one) for one in requests] == sizes


@pytest.mark.parametrize("listed", ["ollama", "ollama_chat"])
async def test_operators_set_the_context_under_either_name(
    ollama: Ollama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    table = f'[models."{listed}/set-by-{listed}:1b"]\narguments = {{ num_ctx = 6000 }}\n'
    (tmp_path / "mail.toml").write_text(table)
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(tmp_path / "mail.toml"))
    for prefix in ("ollama", "ollama_chat"):
        await answer(llm := f"{prefix}/set-by-{listed}:1b")
        assert ollama.chats()[-1]["options"]["num_ctx"] == 6000
        assert await Compressor()._length(ask(model=llm)) == 6000


async def test_what_one_server_says_of_a_model_is_not_what_another_does(
    ollama: Ollama, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, compressor = ask(model="ollama/at-two-places:1b"), Compressor()
    for size in (8192, 4096):
        ollama.shown = ABLE | {"model_info": {"llama.context_length": size}}
        assert await compressor._length(request) is None
        await answer(request.model)
        assert ollama.chats()[-1]["options"]["num_ctx"] == size
        assert await compressor._length(request) == size
        other = os.environ["OLLAMA_API_BASE"].replace("127.0.0.1", "localhost")
        monkeypatch.setenv("OLLAMA_API_BASE", other)


@pytest.mark.parametrize(
    ("able", "thinks"), [(["completion", "tools"], None), (["tools", "thinking"], True)]
)
async def test_only_a_model_that_can_think_is_told_to(
    ollama: Ollama, able: list[str], thinks: bool | None
) -> None:
    ollama.shown = {"capabilities": able}
    settings = LLMSettings.resolve(reasoning_effort="low", timeout=20.0, deadline=20.0)
    await answer(f"ollama_chat/{'-'.join(able)}:1b", settings=settings)
    assert ollama.chats()[0].get("think") is thinks


async def test_a_silent_server_keeps_nobody_else_waiting(ollama: Ollama) -> None:
    ollama.silent = frozenset({"/api/show"})
    settings = LLMSettings(timeout=30.0, deadline=5.0)
    waiting = [
        asyncio.create_task(answer(f"ollama/silent-{n}:1b", settings=settings)) for n in range(40)
    ]
    while len(ollama.asked) < len(waiting):
        assert not any(task.done() for task in waiting)
        await asyncio.sleep(0.01)
    await asyncio.gather(*(asyncio.to_thread(len, "") for _ in range(40)))
    assert not any(task.done() for task in waiting)  # the threads that everybody shares are free
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert {(type(end), str(end)) for end in ends} == {
        (ModelError, "model call failed: the provider did not answer in time")
    }
    assert ollama.paths() == ["/api/show"] * len(waiting)


async def test_the_library_never_asks_a_server_itself(ollama: Ollama) -> None:
    litellm = load_library()
    info = await asyncio.to_thread(litellm.get_model_info, "ollama_chat/never-seen:1b")
    assert info["max_input_tokens"] is None
    assert ollama.asked == []
