"""``mail init``: a project in one command, and the commands that it prints lead to an answer."""

import os
import re
import shlex
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from mail.cli import main
from mail.config.toml import read_config
from tests.docs.pages import ROOT
from tests.docs.places import install, replacements, settle_in, variables
from tests.docs.shell import Reader, starts_a_server

PAGE = ROOT / "docs" / "your-own-project.md"
NOTHING: Mapping[str, str] = MappingProxyType({})
FILES = {
    "mail.toml",
    "swarms.json",
    "actions.py",
    "model.py",
    "test_swarm.py",
    "README.md",
    ".env.example",
    ".gitignore",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel installs it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def newcomer(home: Path, wheel: Path, replaced: Mapping[str, str] = NOTHING) -> Reader:
    """Somebody in a new folder, whose environment has the wheel and pytest."""
    settle_in(home)
    install(home, source=wheel)
    path = f"{home}/.venv/bin:{os.environ['PATH']}"
    # What the suite's own run says to pytest is none of the project's.
    outside = variables(home, PATH=path, PYTEST_ADDOPTS="-p no:asyncio -p no:xdist -p no:timeout")
    return Reader(home, outside, replaced)


@pytest.mark.e2e
@pytest.mark.parametrize("command", ["mail init shop", "mail init"])
async def test_the_printed_commands_lead_to_an_answer(
    tmp_path: Path, wheel: Path, command: str
) -> None:
    ports = replacements()
    project = tmp_path / shlex.split(command)[-1] if "shop" in command else tmp_path
    async with newcomer(tmp_path, wheel) as reader:
        done = await reader.run(command)
        assert done.code == 0, done.text
        assert {path.name for path in project.iterdir()} >= FILES
        settings = project / "mail.toml"
        settings.write_text(settings.read_text().replace("8000", ports["8000"]))
        server, question, test = printed(done.stdout.replace("8000", ports["8000"]))
        assert starts_a_server(server)
        await reader.serve(server)
        answered = await reader.run(question)
        assert answered.stdout == "We have 12 apples.\n", answered.text
        tested = await reader.run(test)
        assert tested.code == 0, tested.text
        assert "2 passed" in tested.stdout


@pytest.mark.e2e
async def test_the_page_leads_a_newcomer_through_it(tmp_path: Path, wheel: Path) -> None:
    ports = replacements()
    listen = f"sed -i s/8000/{ports['8000']}/ shop/mail.toml"
    replaced = ports | {
        "mail init shop": f"mail init shop && {listen}",
        "python3 -m venv .venv": "test -d .venv",
        'pip install "mail-protocol @ git+ADDRESS"': "mail version",
        "pip install pytest": "pytest --version",
    }
    text = PAGE.read_text(encoding="utf-8")
    assert all(command in text for command in replaced if command not in ports)
    async with newcomer(tmp_path, wheel, replaced) as reader:
        await reader.follow(PAGE)


def printed(text: str) -> list[str]:
    """Return the blocks of commands, one for each thing to do."""
    return [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n)+", text, re.M)]


async def test_one_line_selects_a_providers_model(tmp_path: Path, wheel: Path) -> None:
    async with newcomer(tmp_path, wheel) as reader:
        assert (await reader.run("mail init")).code == 0
        module = tmp_path / "model.py"
        text = module.read_text()
        module.write_text(
            text.replace('LLM = "scripted/model:OFFLINE"', 'LLM = "openai/gpt-5-mini"')
        )
        assert module.read_text() != text
        checked = await reader.run("mail server --check --port 0")
        assert checked.code == 0, checked.text
        expected = "model 'openai/gpt-5-mini' of supervisor, clerk cannot be used: OPENAI_API_KEY"
        assert expected in checked.stdout
        tested = await reader.run("pytest")
        assert tested.code == 0, tested.text  # offline all the same


async def test_the_wheel_serves_its_example_in_an_empty_folder(tmp_path: Path, wheel: Path) -> None:
    port = replacements()["8000"]
    async with newcomer(tmp_path, wheel) as reader:
        said = await reader.serve(f"mail server --host 127.0.0.1 --port {port}")
        assert "no swarms.json here: serving the packaged example" in said.text
        answered = await reader.run(
            "export MAIL_API_KEY=$(mail token create --role user --id me)\n"
            f'mail client http://localhost:{port} message "What is 6 * 7?"'
        )
        assert answered.stdout == "6 * 7 = 42.\n", answered.text


def test_a_task_of_a_new_project_may_process_a_hundred_messages(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "shop")]) == 0
    settings = read_config(tmp_path / "shop" / "mail.toml")["server"]["settings"]
    assert settings == {"task_message_limit": 100}


def test_what_a_server_writes_is_in_no_commit(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "shop")]) == 0
    ignored = (tmp_path / "shop" / ".gitignore").read_text().splitlines()
    assert {"mail.db*", "mail-files/", "logs/", "workspace/", ".env"} <= set(ignored)


@pytest.mark.parametrize("name", ["actions.py", ".gitignore"])
def test_a_file_that_exists_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"mail: {name} in '{tmp_path}' would be overwritten, so nothing was")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_folder_that_is_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop").write_text("")
    assert main(["init", str(tmp_path / "shop")]) == 2
    assert "shop' is not a folder; name another one" in capsys.readouterr().err


def test_pytest_is_to_be_installed_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["init", str(tmp_path)]) == 0
    assert "    pip install pytest\n    pytest\n" in capsys.readouterr().out


def test_files_beside_the_project_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == FILES | {"notes.txt"}
    assert " cd " not in capsys.readouterr().out


def test_a_project_is_written_as_ruff_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path)]) == 0
    for words in (["check", "--select", "E,F,I,UP"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, "--isolated", "--line-length", "100", "."]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stdout
