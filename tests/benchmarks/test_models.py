"""The benchmark of model calls runs, and compares like with like. Times are nobody's business."""

import re

import pytest

from benchmarks import models
from benchmarks.__main__ import REPORTS
from benchmarks.provider import MODELS
from mail.llm.litellm_model import close_clients
from tests.support.provider import FakeProvider


def test_ratios_are_medians_over_pairs() -> None:
    samples = models.Samples(
        ours=[(2.0, 1.1), (30.0, 1.2), (4.0, 9.0)], bare=[(1.0, 1.0), (10.0, 1.0), (4.0, 1.0)]
    )
    assert samples.medians(0) == (4000.0, 4000.0)
    assert samples.ratio(0) == 2.0
    assert samples.ratio(1) == 1.2
    assert samples.noise(1) == 1.0


@pytest.mark.parametrize("wire", MODELS)
async def test_both_sides_send_the_same(monkeypatch: pytest.MonkeyPatch, wire: str) -> None:
    async with FakeProvider() as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-key")
        monkeypatch.setenv("ANTHROPIC_API_BASE", provider.root_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-key")
        try:
            samples = await models.overhead(wire, pairs=1)
        finally:
            await close_clients()
    assert (len(samples.ours), len(samples.bare)) == (1, 1)
    recorded, *measured = provider.requests[-5:]
    assert recorded.wire == wire
    assert len(recorded.tool_names) == 10
    assert len(recorded.messages) >= 19  # Anthropic wants a result and the mail behind it as one
    assert [seen.status for seen in measured] == [200] * 4
    assert all(seen.body == recorded.body for seen in measured)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(180)
async def test_every_wire_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert REPORTS["models"] is models.report
    await models.report(pairs=2, requests=2)
    told = capsys.readouterr().out
    for wire in MODELS:
        assert re.findall(rf"{wire} +call, (\w+) +time, +2 pairs", told) == ["wall", "CPU"]
        first = [float(ms) for ms in re.findall(rf"{wire} +first token.* median +(\S+) ms", told)]
        assert len(first) == 2
        assert min(first) > 0.0
        assert re.search(rf"{wire} +SSE over LiteLLM +[\d.]+x", told)
