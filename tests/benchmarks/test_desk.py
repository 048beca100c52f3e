"""The benchmark of the mail desk: everybody who waits is woken, by either server."""

import pytest

from benchmarks import desk
from benchmarks.desk import Figures


async def test_all_who_wait_are_woken(capsys: pytest.CaptureFixture[str]) -> None:
    await desk.report(count=3, rounds=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "MCP clients" in lines[1] and "aim under 50 ms" in lines[2]


def test_the_cuts_are_percentiles() -> None:
    figures = Figures([float(number) for number in range(1, 1001)])
    assert figures.cuts() == pytest.approx([500.5, 950.95, 990.99], abs=0.1)
