"""The shell blocks on the pages run, and show what the pages show.

The quickstart has a test of its own. A page that starts a server on port 8000 gets its own folder
and server; the others share one, in which alice has a task named my-task.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.docs.pages import PAGES, ROOT, SHELL, Block, blocks, name_of
from tests.docs.places import checkout, replacements, variables
from tests.docs.shell import Reader, starts_a_server

pytestmark = pytest.mark.e2e

REVOKED = "2365451f"
RUN = [
    page
    for page in PAGES
    if name_of(page) != "docs/quickstart.md"
    and not all(block.skipped for block in blocks(page, *SHELL))
]
MOST_SKIPPED = 12


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

    async def reader(self) -> Reader:
        """Return a reader with a token; the hash on the pages is that of another token."""
        first = Reader(self.folder, self.variables, self.replaced)
        token = (await first.run("mail token create --role user --id alice")).stdout.strip()
        await first.run("mail token create --role user --id bob")
        listed = json.loads((await first.run("mail token list --json")).stdout)
        spare = next(row["hash"] for row in reversed(listed) if row["id"] == "bob")
        return Reader(
            self.folder,
            self.variables | {"TOKEN": token},
            self.replaced | {REVOKED: spare[:12]},
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A place where a server runs."""
    place = Place(tmp_path_factory.mktemp("shared"))
    async with await place.reader() as keeper:
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
    async with await shared.reader() as reader:
        await reader.follow(page)


@pytest.mark.parametrize("page", SERVING, ids=name_of)
async def test_shell_blocks_run_with_their_own_server(page: Path, tmp_path: Path) -> None:
    async with await Place(tmp_path / "mail").reader() as reader:
        await reader.follow(page)


def test_few_shell_blocks_are_skipped() -> None:
    skipped = [b.place for page in PAGES for b in blocks(page, *SHELL) if b.skipped]
    assert len(skipped) <= MOST_SKIPPED, skipped
