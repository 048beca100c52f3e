"""A project written against 1.3.6 as first released keeps working."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent / "earlier_project"


@pytest.mark.e2e
def test_a_project_written_against_the_earlier_names_runs_unchanged(tmp_path: Path) -> None:
    """Its swarm answers in a program, over HTTP, through OpenAI's shape, and after a restart."""
    run = subprocess.run(
        [sys.executable, str(PROJECT / "main.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == {
        "library": "The stock of apples is 12.",
        "events": True,
        "responses": "The stock of apples is 12.",
        "http": "The stock of apples is 12.",
        "kinds": [
            "new_message",
            "tool_call",
            "action_call",
            "action_complete",
            "new_message",
            "tool_call",
            "task_complete_call",
            "new_message",
            "task_complete",
        ],
        "after restart": "completed",
        "caller": "user",
    }
