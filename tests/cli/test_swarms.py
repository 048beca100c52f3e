"""``mail swarms validate``: one line of truth about a swarms file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mail.cli import main
from mail.cli.swarms import find_code
from tests.cli.terminal import run
from tests.cli.test_code_here import GREET, SWARM

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def unchanged_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def _write(folder: Path, *swarms: dict[str, Any]) -> Path:
    path = folder / "swarms.json"
    path.write_text(json.dumps(swarms), encoding="utf-8")
    return path


def _own(module: str) -> dict[str, Any]:
    """Return a swarm whose own code is in a module of that name."""
    text = json.dumps(SWARM).replace("greet:", f"{module}:")
    return json.loads(text)  # type: ignore[no-any-return]


def test_the_shipped_file_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["swarms", "validate", str(ROOT / "swarms.json")]) == 0
    out, err = capsys.readouterr()
    assert "no errors found" in out.splitlines()[0]
    assert "example-no-proxy (version 1.3.6)" in out
    assert "  entrypoint: supervisor" in out
    assert "  agents (3): supervisor, weather, math" in out
    assert "  actions (2): get_weather_forecast, calculate_expression" in out
    assert err == ""


async def test_code_beside_the_file_is_found_as_a_process_finds_it(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "greet_here.py").write_text(GREET + "\nprint('imported')\n")
    path = _write(place, _own("greet_here"))
    done = await run(tmp_path, "swarms", "validate", str(path), "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {
        "file": str(path),
        "valid": True,
        "swarms": [
            {
                "name": "tiny",
                "version": "1.0.0",
                "entrypoint": "host",
                "agents": ["host"],
                "actions": ["greet"],
            }
        ],
        "warnings": [],
    }
    assert done.err == "imported\n"


def test_a_mistake_is_one_line_and_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "greet_wrong.py").write_text(GREET)
    swarm = _own("greet_wrong")
    swarm["agents"][0]["actions"] = ["great"]
    path = str(_write(tmp_path, swarm))
    problem = (
        "agent 'host' references action 'great' which is not defined in the swarm's actions. Did "
        "you mean 'greet'? (field 'actions' of agent 'host', swarm 'tiny')"
    )
    assert main(["swarms", "validate", path]) == 1
    assert capsys.readouterr() == ("", f"mail: {problem}\n")
    assert main(["swarms", "validate", path, "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {"file": path, "valid": False, "error": problem, "warnings": []}
    assert err == ""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"factory": "python::greet_parts:Nobody"}, "factory of agent 'host'"),
        ({"factory": "python::greet_parts:HOST"}, "factory of agent 'host' must be callable"),
        ({"agent_params": {"llm": "scripted/greet_parts:NOBODY"}}, "agent_params of agent 'host'"),
        ({"agent_params": {"system": "python::nowhere:X"}}, "agent_params of agent 'host'"),
        (
            {"factory": "python::greet_parts:Nam"},
            "no attribute 'Nam' in swarm 'tiny'. Did you mean 'Name'?",
        ),
        ({"agent_params": {}}, "missing a required argument: 'llm'"),
        (
            {"agent_params": {"llm": "openai/gpt-5-mini", "sytem": "Be kind."}},
            "LiteLLMSupervisorFunction has no parameter 'sytem' in swarm 'tiny'. "
            "Did you mean 'system'?",
        ),
        ({"agent_params": {"llm": "openai/gpt-5-mini", "max_tokens": "5"}}, "max_tokens must be"),
        ({"agent_params": {"llm": "scripted"}}, "does not name a script: pass `model`"),
        (
            {"factory": "python::mail.factories:LiteLLMActionAgentFunction"}
            | {"agent_params": {"llm": "openai/gpt-5-mini", "sistem": "Be kind."}},
            "has no parameter 'sistem' in swarm 'tiny'. Did you mean 'system'?",
        ),
    ],
)
def test_everything_that_is_named_is_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], problem: str
) -> None:
    (tmp_path / "greet_parts.py").write_text(GREET)
    swarm = _own("greet_parts")
    swarm["agents"][0] |= change
    assert main(["swarms", "validate", str(_write(tmp_path, swarm))]) == 1
    err = capsys.readouterr().err
    assert problem in err
    assert "in swarm 'tiny'" in err
    assert err.count("\n") == 1


OWN_FACTORY = """
BUILT = []


def strict(*, name, comm_targets, tools, user_token, motto, **wiring):
    BUILT.append(name)
    raise SystemExit("only a start may call me")
"""


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"motto": "Onwards"}, None),
        ({}, "missing a required argument: 'motto'"),
        ({"moto": "Onwards"}, "has no parameter 'moto' in swarm 'tiny'. Did you mean 'motto'?"),
    ],
)
def test_a_factory_of_ones_own_is_asked_what_it_takes_and_not_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], params: dict[str, Any], problem: str | None
) -> None:
    (tmp_path / "greet_strict.py").write_text(GREET + OWN_FACTORY)
    swarm = _own("greet_strict")
    swarm["agents"][0] |= {"factory": "python::greet_strict:strict", "agent_params": params}
    assert main(["swarms", "validate", str(_write(tmp_path, swarm))]) == (1 if problem else 0)
    assert (problem or "") in capsys.readouterr().err
    assert sys.modules["greet_strict"].BUILT == []


def test_what_is_ignored_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "greet_warns.py").write_text(GREET)
    swarm = _own("greet_warns") | {"comment": "mine"}
    swarm["agents"][0]["agent_params"]["tool_format"] = "responses"
    path = str(_write(tmp_path, swarm))
    assert main(["swarms", "validate", path]) == 0
    warnings = capsys.readouterr().err.splitlines()
    assert warnings[0] == "warning: unknown swarm field 'comment' is ignored (swarm 'tiny')"
    assert warnings[1].startswith("warning: 'tool_format' inside agent_params of agent 'host'")
    assert main(["swarms", "validate", path, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["warnings"]) == 2


def test_documents_are_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: object, **more: object) -> bytes:
        raise AssertionError("fetched")

    monkeypatch.setattr("mail.egress.client.fetch", never)
    (tmp_path / "greet_far.py").write_text(GREET)
    swarm = _own("greet_far")
    swarm["agents"][0]["agent_params"]["system"] = "url::https://prompts.example/"
    assert main(["swarms", "validate", str(_write(tmp_path, swarm))]) == 0


def test_a_file_that_is_not_there_or_no_json_is_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["swarms", "validate", "nowhere.json"]) == 1
    assert "cannot read swarms.json file at nowhere.json: No such file" in capsys.readouterr().err
    (tmp_path / "broken.json").write_text('[{"name": "\x1b[31mred",}]')
    assert main(["swarms", "validate", "broken.json"]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_an_action_of_the_command_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["swarms"]) == 2
    assert "missing command" in capsys.readouterr().err


def test_the_current_folder_comes_before_that_of_the_file(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    find_code(here, there)
    find_code(here, there)
    assert sys.path[:2] == [str(here), str(there)]
    assert sys.path.count(str(here)) == 1


async def test_what_imported_code_writes_past_python_is_not_our_answer(tmp_path: Path) -> None:
    writes = (
        "import os, subprocess, sys\n"
        "sys.__stdout__.write('first\\n')\n"
        "os.write(1, b'second\\n')\n"
        "subprocess.run([sys.executable, '-c', 'print(3)'], check=True)\n"
    )
    (tmp_path / "greet_loud.py").write_text(GREET + writes)
    path = _write(tmp_path, _own("greet_loud"))
    done = await run(tmp_path, "swarms", "validate", str(path), "--json")
    assert json.loads(done.out)["valid"] is True
    assert sorted(done.err.split()) == ["3", "first", "second"]


def test_without_standard_output_the_exit_code_tells(tmp_path: Path) -> None:
    (tmp_path / "greet_mute.py").write_text(GREET)
    path = _write(tmp_path, _own("greet_mute"))
    command = f'"{sys.executable}" -m mail.cli swarms validate "{path}" >&-'
    env = {"PYTHONPATH": str(ROOT / "src"), "PATH": ""}
    done = subprocess.run(  # noqa: S602 - closing a descriptor takes a shell
        command, shell=True, executable="/bin/sh", cwd=tmp_path, env=env, timeout=60, check=False
    )
    assert done.returncode == 0
