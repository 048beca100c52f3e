"""The engine's benchmarks run, on these sources and on others. Times are nobody's business."""

from pathlib import Path

import pytest

import mail
from benchmarks import engine

SMALL = {
    "_LONG": 40,
    "_EDGE": 5,
    "_READ_LONG": 40,
    "_READ_EDGE": 5,
    "_CROWD": 5,
    "_BROADCASTS": 2,
    "_TASKS": {10: 20, 100: 20, 1000: 20},
    "_SLOW_TASKS": 3,
    "_THINKING": 0.001,
}


@pytest.mark.parametrize("name", engine.MEASURES)
async def test_each_printed_figure_is_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, value in SMALL.items():
        monkeypatch.setattr(engine, constant, value)
    figures = await engine.MEASURES[name]()
    printed = {line.figure for line in engine.LINES if line.measure == name}
    assert printed
    assert printed <= set(figures)
    assert all(figure > 0 for figure in figures.values())


async def test_another_version_is_measured_on_its_own_sources(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail" / "__init__.py").write_text("raise SystemExit('these are other sources')")
    with pytest.raises(SystemExit, match=str(tmp_path)):
        await engine.measured("hand_off", tmp_path)
    found = await engine.measured("hand_off", Path(mail.__file__).parents[1])
    assert found["message"] > 0
