"""``schemathesis run`` against a running server, as one of the known callers or as nobody."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.fuzz.target import ROOT, Target
from tests.server.kit import CALLERS, TOKENS
from tests.support.till import definition

__all__ = ["FOR_NOBODY", "PHASES", "WHO", "Findings", "run"]

WHO = ("admin", "alice", "swarm", "nobody")
_REFUSALS = """[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 409, 414, 415, 429]
"""
"""How a request that does not fit the document may be refused: it may also be too long."""
_ENDLESS = """[[operations]]
include-path = "/approvals/events"
max-stream-events = 1
"""
"""A stream that does not end is read up to its first event, which comes at once: see `server`."""
_METHODS = """[phases.coverage]
unexpected-methods = []
"""
"""One run tries methods that a path has not: they are refused before anybody asks who calls."""
PHASES = "examples,coverage,fuzzing,stateful"
FOR_NOBODY = "examples,coverage"
"""Who may do nothing is refused each kind of wrong request, and learns nothing to go on with."""


@dataclass(frozen=True)
class Findings:
    """What a run printed; ``code`` is 0 when nothing was found."""

    code: int
    text: str


def run(
    shot: Target, who: str, folder: Path, *, examples: int, seed: int, phases: str = PHASES
) -> Findings:
    """Run every check in every phase over the document that the server serves.

    Args:
        shot: The server.
        who: A known caller, or ``nobody``.
        folder: Where the settings of the run are written.
        examples: How many requests each phase makes up for one operation.
        seed: What they are made up from.
        phases: What is tried.
    """
    known = who in TOKENS
    settings = folder / f"{who}.toml"
    own = _settings(folder) if who == "alice" else _METHODS
    settings.write_text(_REFUSALS + own + _ENDLESS)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run"),
        # From its URL the same document would do, but its own route would be left out.
        *(str(ROOT / "spec" / "openapi.yaml"), "--url", shot.url),
        *("--checks", "all", "--phases", phases),
        *("--max-examples", str(examples), "--seed", str(seed), "--no-shrink", "--no-color"),
        *("--request-timeout", "20", "--generation-database", "none", "--warnings", "off"),
    ]
    if known and who != "alice":
        command += ["-H", f"Authorization: Bearer {TOKENS[who]}"]
    environment = dict(
        os.environ,
        PYTHONPATH=os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        SCHEMATHESIS_HOOKS="tests.fuzz.hooks",
        FUZZ_ROLE=CALLERS[who][0] if known else "",
        FUZZ_AUTHORIZATION=f"Bearer {TOKENS[who]}" if known else "",
        FUZZ_DEFINITION=definition(),
    )
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return Findings(done.returncode, done.stdout + done.stderr)


def _settings(folder: Path) -> str:
    """Return settings that let Bob look for what is Alice's."""
    peers = ("alice", "bob")
    headers = {who: [{"name": "Authorization", "value": f"Bearer {TOKENS[who]}"}] for who in peers}
    known = folder / "callers.yaml"
    auth = [{"name": who, "fixedHeaders": headers[who]} for who in peers]
    known.write_text(yaml.safe_dump({"auth": auth}))
    return f'[auth.wfc]\npath = "{known}"\nuser = "alice"\npeers = ["alice", "bob"]\n'
