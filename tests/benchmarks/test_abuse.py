"""The attacks run against the server as it is shipped. Times are nobody's business."""

import shutil
from pathlib import Path

import pytest

import mail
from benchmarks import abuse
from benchmarks.abuse import SCENARIOS, Figure, Outcome, Scenario, Waits, figures, run
from benchmarks.abuse_attacks import ATTACKS, Account

BY_NAME = {scenario.attack: scenario for scenario in SCENARIOS}


def test_each_scenario_is_an_attack() -> None:
    assert set(ATTACKS) - set(BY_NAME) == {"neighbourly"}


@pytest.mark.e2e
@pytest.mark.parametrize("attack", ["answers", "pauses"])
async def test_an_attack_and_its_neighbour_are_measured(attack: str) -> None:
    scenario: Scenario = BY_NAME[attack]
    outcome = await run(scenario, seconds=0.3, scale=0.03)
    account = outcome.account
    assert account.ended
    assert account.sent > 0
    assert account.statuses["200"] > 0
    assert outcome.waits.wrong == outcome.honest.wrong == []
    assert set(outcome.waits.waits) == {"GET /whoami", "POST /message"} - (
        set() if scenario.messages else {"POST /message"}
    )
    assert outcome.peak >= outcome.idle * 0.5 > 0
    assert all(figure.value >= 0 for figure in figures(outcome) if figure.unit != "MB")


async def test_another_version_is_attacked_on_its_own_sources(tmp_path: Path) -> None:
    copy = tmp_path / "src"
    shutil.copytree(Path(mail.__file__).parent, copy / "mail")
    (copy / "mail" / "version.py").write_text("raise SystemExit('these are other sources')")
    with pytest.raises(RuntimeError, match="other sources"):
        await run(BY_NAME["health"], source=copy, seconds=0.1)


def outcome_of(account: Account, wait: float, peak: float, disk: float) -> Outcome:
    honest, waits = Waits({"GET /whoami": [1.0, 2.0]}), Waits({"GET /whoami": [1.0, wait]})
    return Outcome(account, honest, waits, 80.0, peak, 80.0, [(0.0, 1.0), (9.0, 1.0 + disk)])


def test_what_is_over_its_bound_is_told() -> None:
    account = Account(sent=10_000_000, statuses={"200": 1}, ended=True)
    within = figures(outcome_of(account, wait=40.0, peak=229.0, disk=39.0))
    assert not any(figure.over for figure in within)
    beyond = figures(outcome_of(account, wait=60.0, peak=231.0, disk=41.0))
    assert [figure.name for figure in beyond if figure.over] == [
        "neighbour's GET /whoami, p99",
        "memory over idle",
        "disk over bytes",
    ]


async def test_a_figure_over_its_bound_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(scenario: Scenario, source: Path | None, proxy: str = "") -> Outcome:
        return outcome_of(
            Account(sent=1, ended=True), wait=5.0 if source else 60.0, peak=90, disk=0
        )

    monkeypatch.setattr(abuse, "run", run)
    with pytest.raises(SystemExit, match="1 figures are over") as ended:
        await abuse.report(Path("before"), ["health"])
    assert ended.value.code not in (0, None)
    assert capsys.readouterr().out.count("health:") == 2
    assert str(Figure("none", 1.0)) == "  none                                      1.0 ms"
