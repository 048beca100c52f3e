"""docs/cli.md tells of every command, flag and exit code that there is, and of no others."""

import re
from pathlib import Path

from mail.cli import common
from mail.cli.commands import COMMANDS as PROGRAMS
from mail.cli.repl.commands import COMMANDS
from mail.cli.repl.parsing import build_parser

PAGE = (Path(__file__).parents[2] / "docs/cli.md").read_text("utf-8")


def test_every_command_of_the_prompt_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(\S+?)[ `].*? \| (.*?) \| ", PAGE.partition("### Commands")[2], re.M)
    told = {name: set(re.findall(r"`(\S+)`", short)) for name, short in rows}
    there = {command.name: set(command.aliases) for command in COMMANDS}
    assert told == there


def test_every_flag_of_the_prompt_is_told() -> None:
    common = {"--verbose", "--help", "--no-parallel-tool-calls", "--parallel-tool-calls"}
    flags = {f for sub in build_parser("", typed=True).subcommands.values() for f in sub.flags}
    long = {flag for flag in flags - common if flag.startswith("--")}
    assert {flag for flag in long if flag not in PAGE} == set()


def test_every_program_is_told() -> None:
    listed = re.findall(r"^mail (\S+) {2,}", PAGE, re.M)
    assert sorted(listed) == sorted(name for part in PROGRAMS.values() for name in part)
    for name in listed:
        assert f"## `mail {name}" in PAGE


def test_every_exit_code_is_told_and_used_by_its_name() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \| ", PAGE, re.M)}
    assert codes == {
        value
        for name, value in vars(common).items()
        if name.isupper() and isinstance(value, int) and name[0] != "_"
    }
