"""The fake provider in a process of its own, which tells when each of its replies began.

``python -m benchmarks.provider WORDS TOKEN_DELAY`` answers every question with so many words and
one tool call. It prints its port, then for each line that it reads the times of all first tokens
so far; it ends with its input.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mail.llm.script import Step, call, say
from mail.llm.script_view import ScriptView
from tests.support.provider import FakeProvider

__all__ = ["MODELS", "ROOT", "Provider", "running_provider"]

ROOT = Path(__file__).resolve().parents[1]
MODELS: Mapping[str, tuple[str, str]] = {
    "completions": ("openai/gpt-5-mini", "completions"),
    "responses": ("openai/gpt-5-mini", "responses"),
    "anthropic": ("anthropic/claude-sonnet-4-5", "completions"),
}
"""For each wire format, a model that is spoken to in it, and the agent's tool format."""

_KEY = "sk-benchmark-key-0123456789"
_SENTENCE = "This is what I found out about it and what I want to do next."
_SECONDS = 60.0


class Provider:
    """The provider's process as the benchmarks see it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def first_tokens(self) -> list[float]:
        """Return when the first piece of each reply went out, by `time.perf_counter`.

        That clock is the same for all processes of a machine.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        times: list[float] = await self.told()
        return times

    async def told(self) -> Any:
        """Read what the process says next."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), _SECONDS)
        return json.loads(line)


@asynccontextmanager
async def running_provider(words: int, token_delay: float = 0.0) -> AsyncIterator[Provider]:
    """Run the provider, with the environment leading to it.

    Args:
        words: How many pieces of text each reply has.
        token_delay: Seconds before each piece.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.provider", str(words), str(token_delay)),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    try:
        provider = Provider(process)
        with _leading_to(f"http://127.0.0.1:{await provider.told()}"):
            yield provider
    finally:
        process.kill()
        await process.wait()


@contextmanager
def _leading_to(url: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(
        OPENAI_BASE_URL=f"{url}/v1",
        OPENAI_API_KEY=_KEY,
        ANTHROPIC_API_BASE=url,
        ANTHROPIC_API_KEY=_KEY,
    )
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def _serve(words: int, token_delay: float) -> None:
    sentence = _SENTENCE.split()
    text = "".join(f"{sentence[at % len(sentence)]} " for at in range(words))

    def script(view: ScriptView) -> list[Step]:
        if "task_complete" in view.tools:
            return [say(text), call("task_complete", finish_message="It is done.")]
        return [say(text), call("look_up", word="mail", language="English", limit=10)]

    async with FakeProvider(script, token_delay=token_delay) as provider:
        print(provider.port, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps([seen.first_token_at for seen in provider.requests]), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
