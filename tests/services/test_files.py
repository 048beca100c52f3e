"""Files of mailboxes: what expires, what is collected, what a broken upload leaves, and memory."""

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mail.clock import SystemClock
from mail.db.blobs import FolderBlobs
from mail.db.memory import MemoryStore
from mail.errors import DeskConflict, StoreError, StoreFull, UnknownFile
from mail.services.desk import MailDesk
from mail.services.files import DeskFiles, NewFile, Transfer, safe_name

SWARM = "Example/../swarm"
DAY = timedelta(days=1)


class Clock(SystemClock):
    """A clock that can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.moment = datetime.fromisoformat("2026-01-01T10:00:00+00:00")

    def now(self) -> str:
        return self.moment.isoformat(timespec="microseconds")


class Files:
    """The files of editor and reviewer in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "files"
        self.clock, self.store = Clock(), MemoryStore()
        names = {"editor": "", "reviewer": ""}
        desk = MailDesk(self.store, SWARM, names, self.clock, 10_000)
        blobs = FolderBlobs(self.folder, SWARM)
        self.service = DeskFiles(desk, self.store, blobs, 100_000_000, 30.0)

    async def upload(self, content: bytes = b"content", **changes: str) -> Any:
        new = NewFile("a.txt", **changes)
        return await self.service.upload("editor", new, pieces(content))

    async def content(self, row: Any) -> bytes:
        async with self.service.blobs.read(row.sha256, 0, row.size) as found:
            return b"".join([piece async for piece in found])

    def stored(self) -> list[Path]:
        """Return everything that is kept, or was begun."""
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def age(self, seconds: float = 7200) -> None:
        """Make everything that is there older."""
        for path in self.stored():
            known = path.stat().st_mtime - seconds
            os.utime(path, (known, known))

    async def sweep(self) -> int:
        return await self.service.sweep(self.clock.now())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece


async def test_a_file_expires_and_its_content_goes_with_the_last_one(files: Files) -> None:
    first = await files.upload()
    to = Transfer(recipient_id="reviewer")
    await files.service.transfer("editor", first.file_id, to)
    files.clock.moment += 20 * DAY
    second = await files.upload()
    files.clock.moment += 10 * DAY
    for name in ("editor", "reviewer", None):
        with pytest.raises(UnknownFile):
            await files.service.get(name, first.file_id)
    with pytest.raises(UnknownFile):
        await files.service.transfer("editor", first.file_id, to)
    files.clock.moment += timedelta(seconds=1)
    assert await files.sweep() == 1
    assert await files.store.find_file(SWARM, first.file_id) is None
    assert await files.content(second) == b"content"
    files.clock.moment += 20 * DAY
    assert (await files.sweep(), files.stored()) == (1, [])
    assert await files.store.letter_bytes(SWARM, "reviewer") == 0


async def test_more_files_expire_than_go_at_once(files: Files) -> None:
    for _ in range(230):
        await files.upload()
    files.clock.moment += 31 * DAY
    assert (await files.sweep(), files.stored()) == (230, [])


async def test_what_nothing_refers_to_goes_after_a_while(files: Files) -> None:
    kept = await files.upload(b"kept")
    lost = await files.upload(b"lost")
    await files.store.drop_file(SWARM, lost.file_id)  # as if the server was killed in between
    await files.sweep()
    assert len(files.stored()) == 2
    files.age()
    await files.sweep()
    assert [path.name for path in files.stored()] == [kept.sha256]


async def test_a_content_that_comes_again_while_it_is_collected_is_not_lost(files: Files) -> None:
    row = await files.upload()
    await files.store.drop_file(SWARM, row.file_id)
    files.age()
    known, again = files.store.known_contents, []

    async def looked(swarm: str, hashes: Any) -> set[str]:
        found = await known(swarm, hashes)
        if not again:
            again.append(None)
            again[0] = await files.upload()
        return found

    files.store.known_contents = looked  # type: ignore[method-assign]
    await files.sweep()
    assert await files.content(again[0]) == b"content"


async def test_uploads_and_deletions_of_one_content_at_once_lose_nothing(files: Files) -> None:
    async def churn() -> None:
        for _ in range(15):
            row = await files.upload()
            assert await files.content(row) == b"content"
            await files.service.delete("editor", row.file_id)

    await asyncio.gather(*(churn() for _ in range(6)))
    assert files.stored() == []
    assert await files.store.letter_bytes(SWARM, "editor") == 0


async def test_what_an_earlier_process_began_goes_after_a_while(files: Files) -> None:
    async with files.service.blobs.spool() as spool:
        await spool.write(bytes(300_000))
        await files.sweep()
        assert len(files.stored()) == 1
        files.age()
        await files.sweep()
        assert files.stored() == []


async def stop_with(error: BaseException) -> AsyncIterator[bytes]:
    yield bytes(600_000)
    raise error


@pytest.mark.parametrize("error", [ConnectionError(), asyncio.CancelledError(), StoreFull("")])
async def test_an_upload_that_is_cut_leaves_nothing(files: Files, error: BaseException) -> None:
    with pytest.raises(type(error)):
        await files.service.upload("editor", NewFile("a"), stop_with(error))
    assert files.stored() == []
    assert await files.service.list_own("editor", "", 10) == []


async def test_an_upload_that_is_cancelled_in_a_thread_leaves_nothing(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()
    loop, fsync = asyncio.get_running_loop(), os.fsync

    def slow(opened: int) -> None:
        loop.call_soon_threadsafe(reached.set)
        fsync(opened)

    monkeypatch.setattr(os, "fsync", slow)
    working = asyncio.create_task(files.upload(bytes(3_000_000)))
    await reached.wait()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    monkeypatch.undo()
    files.age()
    await files.sweep()
    assert files.stored() == []


async def test_a_file_whose_content_is_gone_is_a_failure_of_the_store(files: Files) -> None:
    row = await files.upload()
    for path in files.stored():
        path.unlink()
    with pytest.raises(StoreError):
        await files.content(row)


async def test_a_repeat_at_the_same_time_is_one_file(files: Files) -> None:
    add = files.store.add_file

    async def late(swarm: str, row: Any) -> None:
        await add(swarm, row._replace(created_at="2025"))
        raise DeskConflict("faster")

    files.store.add_file = late  # type: ignore[method-assign]
    assert (await files.upload(request_id="r")).created_at == "2025"


async def test_a_large_file_takes_little_memory(files: Files) -> None:
    async def large() -> AsyncIterator[bytes]:
        for _ in range(640):
            yield bytes(64 * 1024)

    async def through() -> None:
        row = await files.service.upload("editor", NewFile("a"), large())
        async with files.service.blobs.read(row.sha256, 0, row.size) as found:
            assert sum([len(piece) async for piece in found]) == 40 * 1024 * 1024

    assert await peak(through) < 3 * 1024 * 1024


async def peak(work: Callable[[], Awaitable[None]]) -> int:
    """Return how many bytes were in use at once while something was done."""
    tracemalloc.start()
    try:
        await work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_swarms_have_folders_of_their_own(files: Files, tmp_path: Path) -> None:
    names = ["a", "A", "a/b", "a_b", "..", "x" * 256, "x" * 255, "é"]
    folders = {FolderBlobs(tmp_path, name)._folder for name in names}
    assert len({folder.name.lower() for folder in folders}) == len(names)
    assert {folder.parent for folder in folders} == {tmp_path}
    assert all(len(folder.name) < 100 and folder.name.isascii() for folder in folders)


@pytest.mark.parametrize(
    "name", ["", ".", "/", "\\", " . ", "\0", "\u200b", "\ud800", "con", "a\nb", "x" * 5000, ". .a"]
)
def test_a_safe_name_is_a_name_and_stays_one(name: str) -> None:
    safe = safe_name(name)
    assert safe and safe.isprintable() and not {*safe} & {*'/\\<>:"|?*'}
    assert safe not in (".", "..") and len(safe.encode()) <= 255
    assert safe_name(safe) == safe
