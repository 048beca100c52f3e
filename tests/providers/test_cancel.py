"""A call that nobody waits for any more ends at the provider too, on every wire."""

import asyncio

import pytest

from mail.core.call_context import NullSink
from mail.llm.ask import collect
from mail.llm.litellm_model import LiteLLMModel
from mail.llm.request import ModelRequest
from mail.llm.script import otherwise, say
from tests.providers.swarms import MODELS, Path
from tests.support.provider import FakeProvider, Fault

PATHS = [pytest.param(path, id=path.wire) for path in MODELS]


def question(path: Path) -> ModelRequest:
    return ModelRequest(
        model=path.llm,
        messages=[{"role": "user", "content": "Tell me a long story."}],
        tool_format=path.tool_format,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("path", PATHS)
async def test_closing_the_stream_ends_the_call(provider: FakeProvider, path: Path) -> None:
    provider.script = [otherwise(say("word " * 10_000))]
    provider.faults.append(Fault(token_delay=0.01))
    stream = LiteLLMModel().stream(question(path))
    async for delta in stream:
        if delta.text:
            break
    await stream.aclose()
    await asyncio.wait_for(provider.ended(), 20)
    assert provider.requests[0].outcome == "client_gone"


@pytest.mark.parametrize("silence", [0.0, 30.0], ids=["writing", "silent"])
@pytest.mark.parametrize("path", PATHS)
async def test_cancelling_the_task_ends_the_call(
    provider: FakeProvider, path: Path, silence: float
) -> None:
    provider.script = [otherwise(say("word " * 10_000))]
    provider.faults.append(Fault(token_delay=0.01, silence=silence))
    asking = asyncio.create_task(collect(LiteLLMModel().stream(question(path)), NullSink()))
    async with asyncio.timeout(10.0):
        while not provider.requests:
            await asyncio.sleep(0.01)
        if not silence:
            await provider.first_token()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(provider.ended(), 20)
    assert provider.requests[0].outcome == "client_gone"
    assert len(provider.requests) == 1
