"""Files of mailboxes: what expires, what is collected, what a broken upload leaves, and memory."""

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mail.clock import SystemClock
from mail.db.blobs import MARK, Blobs, FolderBlobs
from mail.db.blobs_s3 import S3Blobs, S3Place
from mail.db.memory import MemoryStore
from mail.errors import ConfigError, DeskConflict, StoreError, StoreFull, UnknownFile
from mail.services.desk import MailDesk
from mail.services.files import DeskFiles, NewFile, Transfer, safe_name
from tests.support.bucket import Bucket, bucket_server

ROOT = Path(__file__).resolve().parents[2]
SWARM = "Example/../swarm"
DAY = timedelta(days=1)


class Clock(SystemClock):
    """A clock that can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.moment = datetime.fromisoformat("2026-01-01T10:00:00+00:00")

    def now(self) -> str:
        return self.moment.isoformat(timespec="microseconds")


class Folder:
    """Where contents are kept: a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def blobs(self, database: str = "mine", swarm: str = SWARM) -> Blobs:
        return FolderBlobs(self.folder, swarm, database)

    def stored(self) -> list[Path]:
        """Return everything that is kept, or was begun."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return [path for path in found if path.name != MARK]

    def age(self, seconds: float = 7200) -> None:
        """Make everything that is there older."""
        for path in self.stored():
            known = path.stat().st_mtime - seconds
            os.utime(path, (known, known))

    def lose(self) -> None:
        for path in self.stored():
            path.unlink()


class InBucket:
    """Where contents are kept: a bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def blobs(self, database: str = "mine", swarm: str = SWARM) -> Blobs:
        place = S3Place.of(f"s3://{self.bucket.name}/some/prefix")
        return S3Blobs(place, swarm, database, self.bucket.environ)

    def stored(self) -> list[Path]:
        """Return everything that is kept, or was begun."""
        found = [Path(key) for key in (*self.bucket.stored(), *self.bucket.parts())]
        return [path for path in found if path.name != MARK]

    def age(self, seconds: float = 7200) -> None:
        """Make everything that is there older."""
        self.bucket.age(seconds)

    def lose(self) -> None:
        for key in self.bucket.stored():
            self.bucket.remove(key)


class Files:
    """The files of editor and reviewer."""

    def __init__(self, place: Folder | InBucket) -> None:
        self.place = place
        self.stored, self.age = place.stored, place.age
        self.clock, self.store = Clock(), MemoryStore()
        names = {"editor": "", "reviewer": ""}
        desk = MailDesk(self.store, SWARM, names, self.clock, 10_000)
        self.service = DeskFiles(desk, self.store, place.blobs(), 100_000_000, 30.0)

    async def upload(self, content: bytes = b"content", **changes: str) -> Any:
        new = NewFile("a.txt", **changes)
        return await self.service.upload("editor", new, pieces(content))

    async def content(self, row: Any) -> bytes:
        async with self.service.blobs.read(row.sha256, 0, row.size) as found:
            return b"".join([piece async for piece in found])

    async def sweep(self) -> int:
        return await self.service.sweep(self.clock.now())


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with bucket_server() as environ:
        yield environ


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "files")


@pytest.fixture
def bucket(s3: dict[str, str]) -> InBucket:
    return InBucket(Bucket(f"b-{secrets.token_hex(8)}", s3))


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def files(place: Any) -> Files:
    return Files(place)


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
        await files.upload(b"the same")
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


async def test_nobody_else_may_read_what_is_kept(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new" / "mail-files")
    blobs = folder.blobs()
    async with blobs.spool() as spool:
        await spool.write(b"secret")
        await blobs.keep(spool)
    made = [folder.folder, *(path for path in folder.folder.rglob("*") if path.is_dir())]
    assert len(made) > 2
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}


async def test_what_an_earlier_process_began_goes_after_a_while(folder: Folder) -> None:
    files = Files(folder)
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
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(folder)
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
    files.place.lose()
    with pytest.raises(StoreError):
        await files.content(row)


async def test_a_repeat_at_the_same_time_is_one_file(files: Files) -> None:
    add = files.store.add_file

    async def late(swarm: str, row: Any) -> None:
        await add(swarm, row._replace(created_at="2025"))
        raise DeskConflict("faster")

    files.store.add_file = late  # type: ignore[method-assign]
    assert (await files.upload(request_id="r")).created_at == "2025"


def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    # In a process of its own: what threads that earlier tests began allocate would count, too.
    command = [sys.executable, "-c", PEAK, str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 3 * 1024 * 1024


PEAK = """
import asyncio, sys, tracemalloc
from pathlib import Path
from tests.services.test_files import Files, Folder, through

files = Files(Folder(Path(sys.argv[1])))
tracemalloc.start()
asyncio.run(through(files))
print(tracemalloc.get_traced_memory()[1])
"""


async def through(files: Files) -> None:
    """Let a file of 40 MiB in and out."""

    async def large() -> AsyncIterator[bytes]:
        for _ in range(640):
            yield bytes(64 * 1024)

    row = await files.service.upload("editor", NewFile("a"), large())
    async with files.service.blobs.read(row.sha256, 0, row.size) as found:
        assert sum([len(piece) async for piece in found]) == 40 * 1024 * 1024


def test_swarms_have_folders_of_their_own(tmp_path: Path) -> None:
    names = ["a", "A", "a/b", "a_b", "..", "x" * 256, "x" * 255, "é"]
    folders = {FolderBlobs(tmp_path, name, "")._folder for name in names}
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


async def test_another_database_neither_writes_nor_collects(place: Any) -> None:
    mine, other = place.blobs(), place.blobs("another")
    await mine.check()
    files = Files(place)
    row = await files.upload()
    files.age()
    for act in (other.check, spooled(other), listed(other)):
        with pytest.raises((ConfigError, StoreError), match="files of another database"):
            await act()
    assert await files.content(row) == b"content"
    await mine.check()
    other_swarm = place.blobs("another", "other swarm")
    await other_swarm.check()


def spooled(blobs: Blobs) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        async with blobs.spool() as spool:
            await spool.write(b"x")
            await spool.end()
            await blobs.keep(spool)

    return act


def listed(blobs: Blobs) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        async for _ in blobs.unused_for(0):
            pass

    return act


THROUGH = """
import asyncio, os, re, sys
from pathlib import Path
from mail.db.blobs_s3 import S3Blobs, S3Place

def peak() -> int:
    known = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", known)[1]) // 1024

async def through(mebibytes: int) -> None:
    blobs = S3Blobs(S3Place.of(sys.argv[1]), "swarm", "mine", os.environ)
    async with blobs.spool() as spool:
        for _ in range(mebibytes * 16):
            await spool.write(os.urandom(64 * 1024))
        sha256 = await spool.end()
        await blobs.keep(spool)
    async with blobs.read(sha256, 0, spool.size) as found:
        assert sum([len(piece) async for piece in found]) == spool.size

asyncio.run(through(1))
before = peak()
asyncio.run(through(int(sys.argv[2])))
print(peak() - before, flush=True)
# A thread of obstore's that still lets go of the last answer aborts an interpreter that ends.
os._exit(0)
"""


def test_a_large_file_goes_to_a_bucket_and_back_in_little_memory(bucket: InBucket) -> None:
    url = f"s3://{bucket.bucket.name}"
    environ = {**os.environ, **bucket.bucket.environ}
    command = [sys.executable, "-c", THROUGH, url, "32"]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 24  # MiB, of a file of 32


def failing(bucket: InBucket, **changes: str) -> S3Blobs:
    environ = {**bucket.bucket.environ, **changes}
    return S3Blobs(S3Place.of("s3://no-such-bucket"), SWARM, "mine", environ)


async def test_a_bucket_that_cannot_be_used_is_said_at_the_start(bucket: InBucket) -> None:
    with pytest.raises(ConfigError, match=r"^\[server.files\] url: there is no bucket 'no-such-"):
        await failing(bucket).check()
    with pytest.raises(ConfigError, match=r"^\[server.files\] url: the S3 service does not answer"):
        await failing(bucket, AWS_ENDPOINT_URL="http://127.0.0.1:1").check()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        with pytest.raises(ConfigError, match="there are no keys for S3; set AWS_ACCESS_KEY_ID"):
            failing(bucket, **{name: " "})
    for wrong in (
        "s3.example.org",
        "ftp://s3.example.org",
        "https://me:pw@s3.example.org",
        "http:",
    ):
        with pytest.raises(ConfigError, match=r"^AWS_ENDPOINT_URL: expected an address such as"):
            failing(bucket, AWS_ENDPOINT_URL=wrong)


async def test_without_the_extra_it_is_said(
    bucket: InBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigError, match=r"pip install 'mail-protocol\[s3\]'"):
        bucket.blobs()


async def test_a_transfer_that_is_cancelled_leaves_no_parts(bucket: InBucket) -> None:
    files = Files(bucket)
    uploading = asyncio.create_task(files.upload(os.urandom(12 * 1024 * 1024)))
    async with asyncio.timeout(30):
        while not (bucket.bucket.parts() or uploading.done()):
            await asyncio.sleep(0.001)
    uploading.cancel()
    await asyncio.gather(uploading, return_exceptions=True)
    assert bucket.bucket.parts() == []
    files.age()
    await files.sweep()
    assert files.stored() == []


async def test_what_a_bucket_refuses_says_nothing_of_the_keys(s3: dict[str, str]) -> None:
    """A service that refuses everything, and repeats the request in what it says."""

    async def refuse(request: web.Request) -> web.Response:
        said = (
            f"<Error><Code>SignatureDoesNotMatch</Code>{request.headers['Authorization']}</Error>"
        )
        return web.Response(status=403, text=said)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(app) as server:
        environ = {**s3, "AWS_ENDPOINT_URL": str(server.make_url("")).rstrip("/")}
        blobs = S3Blobs(S3Place.of("s3://bucket"), SWARM, "mine", environ)
        with pytest.raises(ConfigError) as caught:
            await blobs.check()
    assert str(caught.value) == (
        "[server.files] url: the S3 service refuses the keys of the environment for 'bucket' "
        "(403 SignatureDoesNotMatch)"
    )
    chain = caught.value.__cause__
    assert isinstance(chain, StoreError) and chain.__cause__ is None


async def test_a_service_that_fails_for_a_moment_is_asked_again(s3: dict[str, str]) -> None:
    asked: list[str] = []

    async def sometimes(request: web.Request) -> web.Response:
        asked.append(request.method)
        status = 500 if len(asked) <= 2 else 404 if request.method == "GET" else 200
        return web.Response(status=status, headers={"ETag": '"x"'})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", sometimes)
    async with TestServer(app) as server:
        environ = {**s3, "AWS_ENDPOINT_URL": str(server.make_url("")).rstrip("/")}
        await S3Blobs(S3Place.of("s3://bucket"), SWARM, "mine", environ).check()
        assert asked == ["GET", "GET", "GET", "PUT", "PUT"]
        asked.clear()

        async def never(request: web.Request) -> web.Response:
            asked.append(request.method)
            return web.Response(status=500)

        broken = web.Application()
        broken.router.add_route("*", "/{path:.*}", never)
        async with TestServer(broken) as other:
            environ["AWS_ENDPOINT_URL"] = str(other.make_url("")).rstrip("/")
            with pytest.raises(ConfigError, match=r"could not serve a request .*\(500\)"):
                await S3Blobs(S3Place.of("s3://bucket"), SWARM, "mine", environ).check()
        assert len(asked) == 4
