"""A conversation through LiteLLM's own proxy, a process from its package, to strict providers.

The proxy's package is large and wants versions of its own, so it has an environment of its own,
with the release of LiteLLM that `constraints.txt` names::

    python -m venv build/litellm-proxy
    build/litellm-proxy/bin/pip install "litellm[proxy]==1.106.2"

``LITELLM_PROXY_COMMAND`` names another one. Without any, this is skipped; what a proxy is known to
refuse is tested in any case, against our own (``proxy`` in `tests.providers.test_personalities`).
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from mail.llm.litellm_model import close_clients
from scripts.ports import free_port
from tests.providers.conversation import ANSWERS, Case, Conversation, kept
from tests.support.provider import PERSONALITIES, FakeProvider

COMMAND = Path(
    os.environ.get("LITELLM_PROXY_COMMAND")
    or Path(__file__).parents[2] / "build/litellm-proxy/bin/litellm"
)
BEHIND = {
    "anthropic": "anthropic-bound",
    "openai": "openai",
    "deepseek": "deepseek",
    "gemini": "gemini",
}
CLAUDE = "anthropic/claude-opus-5-5"
CASES = [
    Case("claude", "anthropic-bound", CLAUDE, use_proxy=True),
    Case("claude-chat", "anthropic-bound", CLAUDE, "completions", use_proxy=True),
    Case("openai", "openai", "openai/gpt-5-mini", use_proxy=True, other=CLAUDE),
    Case("deepseek", "deepseek", "deepseek/deepseek-v4-pro", use_proxy=True, kept=False),
    Case("gemini", "gemini", "gemini/gemini-3.5-flash", "completions", use_proxy=True),
]

pytestmark = [
    pytest.mark.skipif(not COMMAND.exists(), reason=f"there is no proxy at {COMMAND}"),
    pytest.mark.timeout(600),
]


@asynccontextmanager
async def proxied(provider: FakeProvider, folder: Path) -> AsyncIterator[str]:
    """Run a proxy before some providers; return its address."""
    models = []
    for name, personality in BEHIND.items():
        address = provider.root_of(personality) + PERSONALITIES[personality].address[1]
        given = {"model": f"{name}/*", "api_base": address, "api_key": "k"}
        models.append({"model_name": f"{name}/*", "litellm_params": given})
    config = folder / "proxy.json"  # JSON is YAML, too
    config.write_text(json.dumps({"model_list": models}))
    port = free_port()
    # It takes whatever token comes: who calls is not what this is about.
    environment = {
        **os.environ,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "NO_DOCS": "True",
    }
    with (folder / "proxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(COMMAND), "--config", str(config), "--host", "127.0.0.1", "--port", str(port),
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            address = f"http://127.0.0.1:{port}"
            await answering(f"{address}/health/liveliness", process)
            yield address
        finally:
            process.kill()
            await process.wait()


async def answering(url: str, process: asyncio.subprocess.Process) -> None:
    """Wait until a server answers."""
    async with asyncio.timeout(300), httpx.AsyncClient() as client:
        while True:
            assert process.returncode is None, "the proxy has ended; see its log"
            try:
                if (await client.get(url)).is_success:
                    return
            except httpx.HTTPError:
                await asyncio.sleep(0.1)


async def test_conversations_through_the_real_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeProvider() as provider, proxied(provider, tmp_path) as address:
        monkeypatch.setenv("LITELLM_PROXY_API_BASE", address)
        for case in CASES:
            provider.requests.clear()
            conversation = Conversation(case, provider)
            try:
                assert await conversation.hold() == ANSWERS, case.name
            finally:
                await conversation.close()
            refused = [seen.refusal for seen in provider.requests if seen.outcome == "refused"]
            assert refused == [], case.name
            assert kept(provider.requests[1]) or not case.kept, case.name
        await close_clients()
