"""``mail register``: the desktop entry, the default handler, and what other systems are told."""

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mail.cli import register
from tests.cli.terminal import environment

ENTRY = "x-scheme-handler/swarm=mail-swarm.desktop"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An XDG home, and a PATH without xdg-mime."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_the_command_registers_in_the_home_of_the_caller(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mail.cli", "register"],
        env=environment(tmp_path, PATH="/nowhere", XDG_DATA_HOME="relative", XDG_CONFIG_HOME=""),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    file = tmp_path / ".local/share/applications/mail-swarm.desktop"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"Created {file}",
        "Registered as default handler for swarm:// URLs",
    ]
    lines = file.read_text().splitlines()
    assert lines[0] == "[Desktop Entry]"
    assert {"Name=MAIL Client", "MimeType=x-scheme-handler/swarm;", "Terminal=true"} <= set(lines)
    assert (tmp_path / ".config/mimeapps.list").read_text() == f"[Default Applications]\n{ENTRY}\n"


def test_the_entry_starts_this_very_program(home: Path) -> None:
    assert register.register("linux") == 0
    text = (home / "data/applications/mail-swarm.desktop").read_text()
    (command,) = [x.removeprefix("Exec=") for x in text.splitlines() if x.startswith("Exec=")]
    words = shlex.split(command)
    assert words[-2:] == ["client", "%u"]
    done = subprocess.run(
        [*words[:-2], "version"],
        env={**os.environ, "PYTHONPATH": str(Path(register.__file__).parents[2])},
        capture_output=True,
        check=True,
        timeout=90,
    )
    assert b"MAIL protocol version" in done.stdout


def test_xdg_mime_is_asked_where_there_is_one(home: Path) -> None:
    program = home / "bin/xdg-mime"
    program.write_text(f'#!/bin/sh\necho "$@" > {home}/asked\n')
    program.chmod(0o755)
    assert register.register("linux") == 0
    assert (home / "asked").read_text() == "default mail-swarm.desktop x-scheme-handler/swarm\n"
    assert not (home / "config").exists()


def test_a_failing_xdg_mime_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = home / "bin/xdg-mime"
    program.write_text("#!/bin/sh\nexit 4\n")
    program.chmod(0o755)
    assert register.register("linux") == 1
    shown = capsys.readouterr().out
    assert "Error registering handler: " in shown
    assert "xdg-mime default mail-swarm.desktop x-scheme-handler/swarm" in shown


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"[Default Applications]\n{ENTRY}\n"),
        (
            "[Added Associations]\nx-scheme-handler/swarm=a.desktop;\n\n"
            "[Default Applications]\ntext/plain=b.desktop\nx-scheme-handler/swarm = old.desktop\n",
            "[Added Associations]\nx-scheme-handler/swarm=a.desktop;\n\n"
            f"[Default Applications]\n{ENTRY}\ntext/plain=b.desktop\n",
        ),
        ("[Other]\na=b\n", f"[Other]\na=b\n\n[Default Applications]\n{ENTRY}\n"),
    ],
)
def test_other_defaults_stay_and_twice_is_once(home: Path, before: str, after: str) -> None:
    file = home / "config/mimeapps.list"
    file.parent.mkdir()
    file.write_text(before)
    assert register.register("linux") == 0
    assert file.read_text() == after
    assert register.register("linux") == 0
    assert file.read_text() == after
    assert [path.name for path in file.parent.iterdir()] == ["mimeapps.list"]


def test_a_home_that_cannot_be_written_is_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "data").write_text("a file in the way")
    assert register.register("linux") == 1
    assert "Error registering handler: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("platform", "code", "part"),
    [
        ("darwin", 0, "<key>CFBundleURLSchemes</key>"),
        ("win32", 0, 'New-Item -Path "HKLM:\\SOFTWARE\\Classes\\swarm" -Force'),
        ("sunos5", 1, "Unsupported platform: sunos5\n"),
    ],
)
def test_other_systems_are_told_what_to_do(
    home: Path, capsys: pytest.CaptureFixture[str], platform: str, code: int, part: str
) -> None:
    assert register.register(platform) == code
    assert part in capsys.readouterr().out
    assert list(home.iterdir()) == [home / "bin"]


def test_an_odd_path_is_quoted(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / 'my "dir" $x 100%'
    folder.mkdir()
    program = folder / "mail"
    program.write_text("")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    assert register.register("linux") == 0
    text = (home / "data/applications/mail-swarm.desktop").read_text()
    assert r'/my \\"dir\\" \\$x 100%%/mail" client %u' in text
