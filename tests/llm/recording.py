"""A provider that keeps what LiteLLM really sends, and answers with what it is given."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from mail.core.call_context import NullSink
from mail.errors import ModelError
from mail.llm.ask import collect
from mail.llm.litellm_model import LiteLLMModel, close_clients, load_parts
from mail.llm.retry import RetryPolicy
from tests.llm.support import ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    import pytest

    from mail.llm.request import ModelReply

_KEYS = ("ANTHROPIC", "AZURE_AI", "LITELLM_PROXY", "OPENAI", "OPENROUTER", "XAI", "ZAI")
_UNDER_V1 = ("LITELLM_PROXY", "OPENROUTER", "XAI", "ZAI")
_ONCE = RetryPolicy(base=0.001, cap=0.001, attempts=1, rate_limit_attempts=1)


@dataclass
class Recorder:
    """What was sent: the path, headers and bodies; ``events`` are the answer, or else a refusal."""

    paths: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    events: Iterable[Mapping[str, Any]] = ()

    async def serve(self, request: web.Request) -> web.Response:
        """Keep a request and answer it."""
        self.paths.append(request.path)
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.json())
        if not self.events:
            error = {"type": "invalid_request_error", "message": "only recorded"}
            return web.json_response({"type": "error", "error": error}, status=400)
        lines = []
        for event in self.events:
            lines += [f"event: {event['type']}\n"] if "type" in event else []
            lines.append(f"data: {json.dumps(event)}\n\n")
        return web.Response(text="".join(lines), content_type="text/event-stream")

    async def sent(self, model: str, **changes: object) -> dict[str, Any]:
        """Return the body of a call, which is refused."""
        try:
            await self.reply(model, **changes)
        except ModelError as error:
            assert "only recorded" in str(error), error
        return self.bodies[-1]

    async def reply(self, model: str, **changes: object) -> ModelReply:
        """Return the reply of a model that answers with the events."""
        request = ask(model=model, **changes)
        return await collect(LiteLLMModel(_ONCE).stream(request), NullSink())


@asynccontextmanager
async def recorder(patch: pytest.MonkeyPatch) -> AsyncIterator[Recorder]:
    """Serve on a loopback port that the environment names for all providers."""
    await asyncio.to_thread(load_parts)  # seconds that no call has to spare
    recorded = Recorder()
    app = web.Application()
    app.router.add_post("/{path:.*}", recorded.serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    for name in _KEYS:
        patch.setenv(f"{name}_API_KEY", "sk-recorded-0123456789")
    patch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    for name in _UNDER_V1:
        patch.setenv(f"{name}_API_BASE", f"{url}/v1")
    patch.setenv("AZURE_AI_API_BASE", url)
    patch.setenv("ANTHROPIC_API_BASE", url)
    try:
        yield recorded
    finally:
        await close_clients()
        await runner.cleanup()
