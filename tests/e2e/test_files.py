"""Files on a server that is killed: what was accepted is there, what was not leaves nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.processes import Place
from tests.server.kit import know

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

NAMES = ("editor", "reviewer")
MIB = 1024 * 1024


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Place]:
    """Run a server for two participants, whose tokens are their names and some more."""
    place = Place(folder, 0)
    await know(place.store_url, *((token(name), "agent", name) for name in NAMES))
    try:
        await place.start(participants=NAMES)
        yield place
    finally:
        place.clean_up()


def token(name: str) -> str:
    return f"mail_{name}-token-{'0' * 24}"


def client(place: Place, name: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token(name)}"}
    return httpx.AsyncClient(base_url=place.url, headers=headers, timeout=20)


def stored(folder: Path) -> set[str]:
    """Return the names of everything that is kept, or was begun."""
    return {path.name for path in (folder / "mail-files").rglob("*") if path.is_file()}


async def test_a_server_that_is_killed_during_an_upload_has_all_files_and_no_part_of_one(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as place:
        async with client(place, "editor") as editor:
            kept = (await editor.post("/files", content=b"k" * MIB)).json()
            to = {"recipient_id": "reviewer"}
            assert (await editor.post(f"/files/{kept['id']}/transfer", json=to)).status_code == 200
        before = stored(tmp_path)
        under_way, killed = asyncio.Event(), asyncio.Event()

        async def content() -> AsyncIterator[bytes]:
            for _ in range(8):
                yield b"n" * MIB
            under_way.set()
            await killed.wait()
            yield b"n" * MIB  # a client that writes nothing sees no end

        async def upload() -> None:
            async with client(place, "editor") as editor:
                await editor.post("/files", content=content())

        uploading = asyncio.create_task(upload())
        await under_way.wait()
        async with asyncio.timeout(20):
            while len(stored(tmp_path)) == len(before):
                await asyncio.sleep(0.005)
        await place.kill()
        killed.set()
        [lost] = await asyncio.gather(uploading, return_exceptions=True)
        assert isinstance(lost, httpx.TransportError)
        await place.start(participants=NAMES)
        async with client(place, "editor") as editor, client(place, "reviewer") as reviewer:
            [file] = (await editor.get("/files")).json()["files"]
            assert file == kept
            assert (await reviewer.get(f"/files/{kept['id']}")).content == b"k" * MIB
            again = await editor.post("/files", content=b"n" * 8 * MIB)
            assert (await editor.get(f"/files/{again.json()['id']}")).content == b"n" * 8 * MIB
        assert "Traceback" not in place.log


async def test_a_file_goes_in_and_out_in_pieces(tmp_path: Path) -> None:
    async with served(tmp_path) as place, client(place, "editor") as editor:
        small = (await editor.post("/files", content=b"x")).json()
        await editor.get(f"/files/{small['id']}")
        before = most_memory(place)

        async def content() -> AsyncIterator[bytes]:
            for number in range(24):
                yield number.to_bytes() * MIB

        file = (await editor.post("/files", content=content())).json()
        size = 0
        async with editor.stream("GET", f"/files/{file['id']}") as answer:
            async for piece in answer.aiter_raw():
                size += len(piece)
        assert size == file["size"] == 24 * MIB
        assert most_memory(place) - before < 8 * MIB


def most_memory(place: Place) -> int:
    """Return the most bytes that a server's process has had in memory so far."""
    process: Any = place.process
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
