"""The shell blocks on the pages run, and show what the pages show.

The quickstart has a test of its own. A page that starts a server on port 8000 gets its own folder
and server; the others share one, in which alice has a task named my-task.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.docs.pages import PAGES, ROOT, SHELL, Block, blocks, name_of
from tests.docs.places import (
    checkout,
    free_port,
    install,
    read_otherwise,
    replacements,
    settle_in,
    variables,
)
from tests.docs.shell import Output, Reader, json_like, lines_like, starts_a_server, steps
from tests.support.postgres import PASSWORD, Cluster, find_binaries, query

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]  # a page is up to thirty processes

REVOKED = "2365451f"
QUICKSTART = ROOT / "docs" / "quickstart.md"
DATABASE, OPERATIONS = ROOT / "docs" / "database.md", ROOT / "docs" / "operations.md"
LAPTOPS = ROOT / "docs" / "federation.md"
SCALING = ROOT / "docs" / "scaling.md"
DESK = ROOT / "docs" / "mail-desk.md"
OWN_PROJECT = ROOT / "docs" / "your-own-project.md"  # tests/cli/test_init.py follows it
RUN = [
    page
    for page in PAGES
    if page not in (QUICKSTART, DATABASE, OPERATIONS, SCALING, LAPTOPS, DESK, OWN_PROJECT)
    and not all(block.skipped for block in blocks(page, *SHELL))
]
MOST_SKIPPED = 22


def starts_the_server(block: Block) -> bool:
    """Tell whether a block starts the server that the page's other blocks ask."""
    return not block.skipped and starts_a_server(block.code) and "--port" not in block.code


SERVING = [page for page in RUN if any(map(starts_the_server, blocks(page, *SHELL)))]


class Place:
    """A checkout, and somebody with a token who follows pages in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.replaced = replacements()
        checkout(folder, self.replaced)
        path = f"{folder}/.venv/bin:{variables(folder)['PATH']}"
        self.variables = variables(folder, PATH=path)
        swarms = json.loads((ROOT / "swarms.json").read_text(encoding="utf-8"))
        mine = next(swarm for swarm in swarms if swarm["name"] == "example-no-proxy")
        (folder / "my-swarms.json").write_text(json.dumps([mine | {"name": "mine"}]))

    async def reader(self, page: Path) -> Reader:
        """Return a reader with a token; the hash on a page is that of a token made for it."""
        if "TOKEN" not in self.variables:
            self.variables["TOKEN"] = (
                await self._mail("token create --role user --id alice")
            ).strip()
        replaced = dict(self.replaced)
        if any(REVOKED in block.code for block in blocks(page, *SHELL)):
            await self._mail(f"token create --role user --id {page.stem}")
            rows = json.loads(await self._mail("token list --json"))
            replaced[REVOKED] = next(row["hash"] for row in rows if row["id"] == page.stem)
        return Reader(self.folder, self.variables, replaced)

    async def _mail(self, command: str) -> str:
        done = await Reader(self.folder, self.variables, {}).run(f"mail {command}")
        assert done.code == 0, done.text
        return done.stdout


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A place where a server runs."""
    place = Place(tmp_path_factory.mktemp("shared"))
    async with await place.reader(ROOT / "README.md") as keeper:
        await keeper.serve("mail server")
        address = f"http://localhost:{place.replaced['8000']}"
        asked = await keeper.run(
            f'mail client {address} --api-key "$TOKEN" message "What is 6 * 7?" --task-id my-task'
        )
        assert asked.code == 0, asked.text
        yield place


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("page", [page for page in RUN if page not in SERVING], ids=name_of)
async def test_shell_blocks_run(page: Path, shared: Place) -> None:
    async with await shared.reader(page) as reader:
        await reader.follow(page)


@pytest.mark.parametrize("page", SERVING, ids=name_of)
async def test_shell_blocks_run_with_their_own_server(page: Path, tmp_path: Path) -> None:
    async with await Place(tmp_path / "mail").reader(page) as reader:
        await reader.follow(page)


@pytest.mark.parametrize("page", [DATABASE, OPERATIONS, SCALING], ids=name_of)
async def test_pages_about_databases_run_with_one(
    page: Path, tmp_path: Path, cluster: Cluster
) -> None:
    place = Place(tmp_path / "mail")
    url = cluster.dsn()
    place.replaced |= {"postgresql://user:password@localhost:5432/mail": url}
    place.variables |= {
        "PATH": f"{place.variables['PATH']}:{find_binaries()}",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(cluster.port),
        "PGUSER": "mail",
        "PGPASSWORD": PASSWORD,
    }
    async with await place.reader(page) as reader:
        await reader.follow(page)
    expected = [("alice",)] if page == DATABASE else []
    assert query(url, "SELECT caller_id FROM tokens") == expected


SETTINGS = """
[server]
host = "127.0.0.1"
port = 8000
"""


async def test_two_people_follow_the_page_for_two_laptops(tmp_path: Path) -> None:
    """Each has a folder of their own; where the page says ``mail_…``, the other's token is."""
    ports = {"Ines": str(free_port()), "Otto": str(free_port())}
    addresses = {
        f"https://{name}.example.org": f"http://localhost:{port}"
        for name, port in zip(("alpha", "beta"), ports.values(), strict=True)
    }
    lines = LAPTOPS.read_text(encoding="utf-8").splitlines()
    tokens: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        readers = {
            who: await stack.enter_async_context(
                somebody(tmp_path / who, {"8000": port, **addresses})
            )
            for who, port in ports.items()
        }
        for step in steps(LAPTOPS):
            [who] = re.findall(r"On (\w+)'s laptop", "\n".join(lines[: step.block.line]))[-1:]
            [others] = [token for name, token in tokens.items() if name != who] or [""]
            typed = replace(step.block, code=step.block.code.replace("mail_…", others))
            seen = await readers[who].carry_out(replace(step, block=typed))
            tokens.setdefault(who, seen.stdout.strip())
    assert [token[:5] for token in tokens.values()] == ["mail_", "mail_"]


async def test_two_agents_hold_the_conversation_of_the_page(tmp_path: Path) -> None:
    """Each has a terminal in the same folder; one waits for mail while the other goes on."""
    port = {"8000": str(free_port())}
    lines = DESK.read_text(encoding="utf-8").splitlines()
    waiting: dict[str, asyncio.Task[Output]] = {}
    woken = []
    async with AsyncExitStack() as stack:
        first = somebody(tmp_path / "desk", port)
        terminals = {
            who: await stack.enter_async_context(reader)
            for who, reader in (("editor", first), ("reviewer", first.beside()))
        }
        for step in steps(DESK):
            before = " ".join(lines[: step.block.line])
            who = re.findall(r"[Ii]n the (\w+)'s terminal", before)[-1]
            if who in waiting:
                woken.append((await waiting.pop(who)).stdout)
            typing = asyncio.create_task(terminals[who].carry_out(step))
            if "wait_for_mail" in step.block.code:
                waiting[who] = typing
            else:
                await typing
    assert not waiting
    assert json.loads(woken[0])["unread"] in (1, 2)


def somebody(folder: Path, replaced: dict[str, str]) -> Reader:
    """Return a reader with an empty folder, in which only the settings are."""
    settle_in(folder)
    install(folder)
    (folder / "mail.toml").write_text(read_otherwise(SETTINGS, replaced), encoding="utf-8")
    path = f"{folder}/.venv/bin:{variables(folder)['PATH']}"
    return Reader(folder, variables(folder, PATH=path), replaced)


@pytest.mark.parametrize(
    ("shown", "seen", "same"),
    [
        ("17 * 23 = 391.\ntask … completed", "17 * 23 = 391.\nmore\ntask 5 completed\n", True),
        ("17 * 23 = 391.", "17 * 23 = 392.\n", False),
        ("first\nsecond", "second\nfirst\n", False),
        ("task … completed", "task 5 failed\n", False),
    ],
)
def test_lines_are_compared(shown: str, seen: str, same: bool) -> None:
    assert lines_like(shown, seen) is same


@pytest.mark.parametrize(
    ("shown", "seen", "same"),
    [
        ('{"id": "…", "n": 1}', '{"n": 1, "id": "x"}', True),
        ('{"n": 1}', '{"n": 1, "id": "x"}', False),
        ('{"n": 1, "…": "…"}', '{"n": 1, "id": "x"}', True),
        ('{"n": [1, "a…"]}', '{"n": [1, "abc"]}', True),
        ('{"n": [1, "a…"]}', '{"n": [1, "cba"]}', False),
        ('{"n": null}', '{"n": 0}', False),
    ],
)
def test_json_is_compared(shown: str, seen: str, same: bool) -> None:
    assert json_like(shown, seen) is same


def test_few_shell_blocks_are_skipped() -> None:
    skipped = [b.place for page in PAGES for b in blocks(page, *SHELL) if b.skipped]
    assert len(skipped) <= MOST_SKIPPED, skipped
