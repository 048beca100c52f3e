"""The server holds what its OpenAPI document says, whoever calls; ``make fuzz`` tries far more."""

from pathlib import Path

import pytest
import yaml

from tests.fuzz.openapi import FOR_NOBODY, PHASES, WHO, run
from tests.fuzz.target import ROOT, Target

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


@pytest.mark.parametrize("who", WHO)
@pytest.mark.timeout(600)  # seconds of work each, on a quiet machine
def test_schemathesis_finds_nothing(shot: Target, tmp_path: Path, who: str) -> None:
    phases = FOR_NOBODY if who == "nobody" else PHASES
    found = run(shot, who, tmp_path, examples=5, seed=1, phases=phases)
    assert found.code == 0, found.text
    document = yaml.load((ROOT / "spec" / "openapi.yaml").read_text(), yaml.CSafeLoader)
    made = [each for path in document["paths"].values() for each in path.values()]
    operations = sum("operationId" in each for each in made)
    assert f"{operations} selected / {operations} total" in found.text, found.text
    shot.check_alive()
