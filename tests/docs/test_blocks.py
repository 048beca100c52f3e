"""The code on the pages: python blocks run, JSON blocks parse."""

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mail.auth.builtin import BuiltinAuth
from mail.auth.callers import hash_token, new_token
from mail.config.server import ServerConfig, SettingsConfig, SwarmConfig
from mail.db import open_store
from mail.db.records import TokenRow
from mail.server.app import create_app
from tests.docs.pages import PAGES, ROOT, blocks, name_of
from tests.server.kit import serving

ELSEWHERE = {
    "docs/mail-desk.md",  # tests/docs/test_shell.py saves and runs its program
}
MOST_SKIPPED = 7
PROMISED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)
"""What a comment behind a ``print`` says is what the page must print."""
LANGMEM_WARNS = "ignore:Importing Send from langgraph.constants is deprecated"
RUN = [page for page in PAGES if blocks(page, "python") and name_of(page) not in ELSEWHERE]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The example swarm behind a real server, and the variables that point to it."""
    store = open_store("memory://")
    await store.open()
    token = new_token()
    await store.put_token(
        TokenRow(
            token_hash=hash_token(token),
            role="user",
            id="me",
            created_at="2026-01-01T00:00:00+00:00",
        )
    )
    config = ServerConfig(
        debug=True,
        swarm=SwarmConfig(name="example-no-proxy", source=str(ROOT / "swarms.json")),
        settings=SettingsConfig(print_llm_streams=False),
    )
    async with serving(create_app(config, store=store, auth=BuiltinAuth(store))) as client:
        yield {"TOKEN": token, "MAIL_URL": str(client.base_url).rstrip("/")}
    await store.close()


@pytest.mark.parametrize("page", RUN, ids=name_of)
async def test_python_blocks_run(page: Path, served: dict[str, str], tmp_path: Path) -> None:
    shutil.copy(ROOT / "swarms.json", tmp_path)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", "-W", LANGMEM_WARNS, "-m", "tests.docs.runner", str(page)),
        cwd=tmp_path,
        env={**os.environ, **served, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    shown = output.decode()
    assert process.returncode == 0, shown
    for block in blocks(page, "python"):
        for promised in [] if block.skipped else PROMISED.findall(block.code):
            assert promised in shown, f"{block.place}: nothing printed {promised!r}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_json_blocks_parse(page: Path) -> None:
    for block in blocks(page, "json"):
        text = block.code.strip()
        if text.startswith('"'):  # the members of an object, shown without their braces
            text = "{" + text + "}"
        try:
            json.loads(text)
        except ValueError as error:
            pytest.fail(f"{block.place}: {error}")


def test_few_blocks_are_skipped() -> None:
    skipped = [b.place for page in PAGES for b in blocks(page, "python") if b.skipped]
    assert len(skipped) <= MOST_SKIPPED, skipped
