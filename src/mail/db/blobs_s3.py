"""Contents of files in a bucket of an S3-compatible service, by `obstore` (the extra ``s3``).

A content is written to an unnamed file of this machine first, which goes with the process: then
its hash is known, and nothing that is refused or cut gets to the bucket. From there it is sent in
parts, and is there when the last one is. It is read in ranges: slow readers hold no connection.
"""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast
from urllib.parse import urlsplit

from mail.db.blobs import (
    HASH,
    MARK,
    NOT_OURS,
    PIECE,
    HashLocks,
    SpoolFile,
    close,
    folder_name,
    in_thread,
    opened,
    to_the_end,
)
from mail.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from obstore.store import S3Store

PART: Final = 5 * 1024 * 1024
"""Bytes of a part: the least that S3 takes."""
_MOST_PARTS: Final = 9000
_RANGE: Final = 1024 * 1024
_AT_ONCE: Final = 4
"""Contents that a process sends at the same time; of each two parts are in memory."""
_LISTED: Final = 1000
_CONNECT_SECONDS: Final = 5
_REQUEST_SECONDS: Final = 60
_RETRIES: Final = 3
_RETRY_SECONDS: Final = 60

_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_STATUS: Final = re.compile(r"status code: ([0-9]{3})")
_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_LENT: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Where the platform says how credentials are got."""


class S3Place(NamedTuple):
    """A bucket, and what the keys in it begin with."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, url: str) -> "S3Place":
        """Read ``s3://bucket/prefix``, which the settings have checked."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        return cls(bucket, prefix.strip("/"))


@dataclass(slots=True, eq=False)
class _Bucket:
    """The requests to a bucket, below a prefix."""

    store: "S3Store"
    name: str
    sending: asyncio.Semaphore

    async def get(self, key: str) -> bytes | None:
        """Return a small object, or None."""
        import obstore

        with _as_store_errors(self.name):
            try:
                found = await obstore.get_async(self.store, key)
                return bytes(await found.bytes_async())
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    async def put(self, key: str, content: bytes) -> None:
        """Write a small object."""
        import obstore

        with _as_store_errors(self.name):
            await obstore.put_async(self.store, key, content)

    async def send(self, key: str, file: BinaryIO, size: int) -> None:
        """Write an object from a file, in parts if it is large."""
        import obstore

        part = max(PART, size // _MOST_PARTS + 1)
        await in_thread(file.seek, 0)
        async with self.sending:
            if size <= part:
                await self.put(key, await in_thread(file.read, size))
                return
            with _as_store_errors(self.name):
                await obstore.put_async(
                    self.store, key, _pieces(file), chunk_size=part, max_concurrency=2
                )

    async def size(self, key: str) -> int | None:
        """Return how large an object is, or None if there is none."""
        import obstore

        with _as_store_errors(self.name):
            try:
                return (await obstore.head_async(self.store, key))["size"]
            except FileNotFoundError:
                return None

    async def range(self, key: str, start: int, end: int) -> bytes:
        """Return some bytes of an object."""
        import obstore

        with _as_store_errors(self.name):
            return bytes(await obstore.get_range_async(self.store, key, start=start, end=end))

    async def drop(self, key: str) -> None:
        """Remove an object, if it is there."""
        import obstore

        with _as_store_errors(self.name):
            await obstore.delete_async(self.store, key)

    async def listed(self, prefix: str) -> AsyncIterator[list[tuple[str, datetime]]]:
        """Yield the names of all objects below a prefix, and when each was written."""
        import obstore

        listing = obstore.list(self.store, prefix, chunk_size=_LISTED)
        while True:
            with _as_store_errors(self.name):
                try:
                    batch = await anext(listing)
                except StopAsyncIteration:
                    return
            yield [(one["path"].rpartition("/")[2], one["last_modified"]) for one in batch]


class _S3Spool(SpoolFile):
    """See `mail.db.blobs.Spool`."""

    def __init__(self, file: BinaryIO, bucket: _Bucket, folder: str) -> None:
        super().__init__(file)
        self._bucket = bucket
        self._folder = folder

    async def keep(self) -> None:
        """See `mail.db.blobs.Spool.keep`."""
        key = _key(self._folder, self._hash.hexdigest())
        if await self._bucket.size(key) != self.size:
            # A transfer that is dropped, and not told to end, leaves its parts in the bucket.
            await to_the_end(self._bucket.send(key, self._file, self.size))


class S3Blobs(HashLocks):
    """`mail.db.blobs.Blobs` in a bucket, with the same names as in a folder.

    Args:
        place: Where they are.
        swarm: The swarm.
        database: The id of the database that knows of them.
        environ: The environment, which has the keys, the region and the address.

    Raises:
        ConfigError: `obstore` is not installed, or the environment has no keys.
    """

    def __init__(
        self, place: S3Place, swarm: str, database: str, environ: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._folder = folder_name(swarm)
        self._database = database
        self._claimed = False
        self._bucket = _Bucket(_open(place, environ), place.bucket, asyncio.Semaphore(_AT_ONCE))

    async def check(self) -> None:
        """See `mail.db.blobs.Blobs.check`."""
        try:
            await self._claim()
            await self._bucket.put(f"{self._folder}/{MARK}", self._database.encode())
        except StoreError as error:
            raise ConfigError(f"[server.files] url: {error}") from error

    async def reach(self) -> None:
        """See whether the bucket is there; nothing is changed.

        Raises:
            StoreError: it is not, or refuses the keys.
        """
        await self._bucket.get(f"{self._folder}/{MARK}")

    async def _claim(self) -> None:
        """Note whose the contents are, if nobody has done so.

        Raises:
            StoreError: they are another database's.
        """
        key = f"{self._folder}/{MARK}"
        known = await self._bucket.get(key)
        if not known:
            await self._bucket.put(key, self._database.encode())
        elif known != self._database.encode():
            place = f"'{self._folder}' in the bucket '{self._bucket.name}'"
            raise StoreError(NOT_OURS.format(place=place))
        self._claimed = True

    @asynccontextmanager
    async def spool(self) -> AsyncIterator[_S3Spool]:
        """See `mail.db.blobs.Blobs.spool`."""
        if not self._claimed:
            await self._claim()
        async with opened(_unnamed, close) as file:
            yield _S3Spool(file, self._bucket, self._folder)

    @asynccontextmanager
    async def read(self, sha256: str, start: int, size: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `mail.db.blobs.Blobs.read`."""
        key = _key(self._folder, sha256)
        known = await self._bucket.size(key)
        if known is None or known < start + size:
            raise StoreError("a stored file is gone from the bucket, or shorter than it was")
        yield self._ranges(key, start, start + size)

    async def _ranges(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        for at in range(start, end, _RANGE):
            content = await self._bucket.range(key, at, min(at + _RANGE, end))
            for begin in range(0, len(content), PIECE):
                yield content[begin : begin + PIECE]

    async def drop(self, sha256: str) -> None:
        """See `mail.db.blobs.Blobs.drop`."""
        await self._bucket.drop(_key(self._folder, sha256))

    async def unused_for(self, seconds: float) -> AsyncIterator[list[str]]:
        """See `mail.db.blobs.Blobs.unused_for`."""
        before = datetime.now(UTC) - timedelta(seconds=seconds)
        await self._claim()
        async for found in self._bucket.listed(f"{self._folder}/"):
            yield [name for name, at in found if HASH.fullmatch(name) and at < before]


def _key(folder: str, sha256: str) -> str:
    if not HASH.fullmatch(sha256):
        raise StoreError("a stored file has no valid hash")
    return f"{folder}/{sha256[:2]}/{sha256}"


def _unnamed() -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile())


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await in_thread(file.read, PIECE):
        yield piece


def _open(place: S3Place, environ: Mapping[str, str]) -> "S3Store":
    try:
        from obstore.store import S3Store
    except ImportError:
        raise ConfigError(
            "[server.files] url: S3 needs the extra 's3': pip install 'mail-protocol[s3]'"
        ) from None
    given: dict[str, Any] = {}
    if all(environ.get(name, "").strip() for name in _KEYS):
        given["access_key_id"], given["secret_access_key"] = (environ[n].strip() for n in _KEYS)
        if token := environ.get("AWS_SESSION_TOKEN", "").strip():
            given["session_token"] = token
    elif not any(environ.get(name) for name in _LENT):
        raise ConfigError(
            f"[server.files] url: there are no keys for S3; set {' and '.join(_KEYS)}"
        )
    endpoint = _endpoint(environ)
    if endpoint:
        given["endpoint"] = endpoint
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
    return S3Store(
        place.bucket,
        prefix=place.prefix or None,
        region=region.strip() or "us-east-1",
        **given,
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
            "timeout": timedelta(seconds=_REQUEST_SECONDS),
        },
        retry_config={
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
        },
    )


def _endpoint(environ: Mapping[str, str]) -> str:
    """Return the address of the service; no text for Amazon's."""
    name = "AWS_ENDPOINT_URL_S3" if environ.get("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL"
    address = environ.get(name, "").strip().rstrip("/")
    if address:
        try:
            parts = urlsplit(address)
            good = parts.scheme in ("http", "https") and parts.hostname and not parts.username
        except ValueError:
            good = False
        if not good:
            raise ConfigError(f"{name}: expected an address such as 'https://s3.example.org'")
    return address


@contextmanager
def _as_store_errors(bucket: str) -> Iterator[None]:
    """Tell what the service refuses in our words: its own repeat the request, with the key's id."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        raise StoreError(_reason(str(error), bucket)) from None


def _reason(text: str, bucket: str) -> str:
    code, status = _CODE.search(text), _STATUS.search(text)
    if code and code[1] == "NoSuchBucket":
        return f"there is no bucket '{bucket}'"
    told = " ".join(found[1] for found in (status, code) if found)
    if status and status[1] in ("401", "403"):
        return f"the S3 service refuses the keys of the environment for '{bucket}' ({told})"
    if told:
        return f"the S3 service could not serve a request for '{bucket}' ({told})"
    return f"the S3 service does not answer (bucket '{bucket}')"
