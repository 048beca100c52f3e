"""A newcomer follows the quickstart, word for word, and gets the answers that it promises.

Read as something else are: the repository's address (a snapshot of this working copy), port 8000
(a free one) and 0.0.0.0 (loopback). Not done is the installation into a fresh environment: its two
commands get what the tests run with.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mail.llm.script import call, otherwise
from tests.docs.pages import ROOT, blocks
from tests.docs.places import (
    checkout,
    install,
    read_otherwise,
    replacements,
    settle,
    settle_in,
    variables,
)
from tests.docs.shell import Reader
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]

PAGE = ROOT / "docs" / "quickstart.md"


def snapshot(folder: Path, replaced: dict[str, str]) -> None:
    """Make a git repository that holds this working copy."""
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    settle(folder, replaced)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Take a snapshot")


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder; return what it prints."""
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    return subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True
    ).stdout


async def test_a_newcomer_ends_with_an_answer(tmp_path: Path) -> None:
    replaced = replacements()
    repository, prepared, home = (tmp_path / name for name in ("repository", "prepared", "home"))
    settle_in(home)
    snapshot(repository, replaced)
    install(prepared, source=home / "mail" / "src")
    replaced = {old: new for old, new in replaced.items() if old != "8001"} | {
        "git clone ADDRESS": f"git clone --quiet {repository}",
        "python3 -m venv .venv": f"ln -s {prepared / '.venv'} .venv",
        "pip install -c constraints.txt -e .": "test -f constraints.txt",
    }
    text = PAGE.read_text(encoding="utf-8")
    assert all(command in text for command in replaced)
    async with Reader(home, variables(home), replaced) as newcomer:
        await newcomer.follow(PAGE)


async def test_the_last_step_asks_the_provider_with_the_key(tmp_path: Path) -> None:
    [block] = [block for block in blocks(PAGE, "bash") if block.skipped]
    replaced = replacements() | {"OPENAI_API_KEY=…": "OPENAI_API_KEY=sk-newcomer"}
    folder = tmp_path / "mail"
    checkout(folder, replaced)
    answer = [otherwise(call("task_complete", finish_message="I am a model."))]
    async with FakeProvider(answer, key="sk-newcomer") as provider:
        path = f"{folder}/.venv/bin:{os.environ['PATH']}"
        outside = variables(folder, PATH=path, OPENAI_BASE_URL=provider.base_url)
        async with Reader(folder, outside, replaced) as newcomer:
            await newcomer.serve(read_otherwise(block.code, replaced))
            asked = await newcomer.run(
                f"export MAIL_API_KEY=$(mail token create --role user --id alice)\n"
                f"mail client http://localhost:{replaced['8000']} message Hello"
            )
    assert asked.stdout == "I am a model.\n", asked.text
    assert [seen.status for seen in provider.requests] == [200]
