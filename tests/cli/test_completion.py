"""``mail completion``: what a shell runs, and what it is told when somebody presses Tab."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mail.cli import main

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_MAIL_COMPLETE={shell}_complete" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=60)


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("mail tok", ["token"]),
        ("mail token re", ["revoke"]),
        ("mail token create --role a", ["admin", "agent"]),
        ("mail client http://h message-s", ["message-stream"]),
        ("mail client http://h message s", []),
        ("mail server --swarm-n", ["--swarm-name"]),
    ],
)
def test_words_are_completed(words: str, found: list[str]) -> None:
    asked = {
        "_MAIL_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "PYTHONPATH": SOURCE,
    }
    done = subprocess.run(
        [sys.executable, "-m", "mail.cli"],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert [line.partition(",")[2] for line in done.stdout.split()] == found
    assert done.stderr == ""
