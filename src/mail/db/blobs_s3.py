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
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast
from urllib.parse import urlsplit

from mail.db.blobs import (
    HASH,
    MARK,
    NOT_OURS,
    PIECE,
    Blobs,
    Spool,
    close,
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
"""The variables in which a platform gives the source of credentials."""


class S3Place(NamedTuple):
    """A bucket, and what the keys in it begin with."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, url: str) -> "S3Place":
        """Read ``s3://bucket/prefix``, which the settings have checked."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        return cls(bucket, prefix.strip("/"))


class S3Blobs(Blobs):
    """`mail.db.blobs.Blobs` in a bucket, with the same names as in a folder.

    Args:
        place: Their place.
        swarm, database: See `Blobs`.
        environ: The environment, which has the keys, the region and the address.

    Raises:
        ConfigError: `obstore` is not installed, or the environment has no keys.
    """

    def __init__(
        self, place: S3Place, swarm: str, database: str, environ: Mapping[str, str]
    ) -> None:
        super().__init__(swarm, database)
        self._store = _open(place, environ)
        self._bucket = place.bucket
        self._mark = f"{self.name}/{MARK}"
        self._claimed = False
        self._sending = asyncio.Semaphore(_AT_ONCE)

    async def check(self) -> None:
        try:
            await self._claim()
            await self._put(self._mark, self.database.encode())
        except StoreError as error:
            raise ConfigError(f"[server.files] url: {error}") from error

    async def reach(self) -> bytes | None:
        """Check that the bucket is there, and return the owner of the contents; nothing is changed.

        Raises:
            StoreError: it is not, or refuses the keys.
        """
        with self._requests() as obstore:
            try:
                found = await obstore.get_async(self._store, self._mark)
                return bytes(await found.bytes_async())
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    async def _claim(self) -> None:
        """Note whose the contents are, if nobody has done so.

        Raises:
            StoreError: they are another database's.
        """
        known = await self.reach()
        if not known:
            await self._put(self._mark, self.database.encode())
        elif known != self.database.encode():
            place = f"'{self.name}' in the bucket '{self._bucket}'"
            raise StoreError(NOT_OURS.format(place=place))
        self._claimed = True

    @asynccontextmanager
    async def spool(self) -> AsyncIterator[Spool]:
        if not self._claimed:
            await self._claim()
        async with opened(lambda: cast(BinaryIO, tempfile.TemporaryFile()), close) as file:
            yield Spool(file)

    async def keep(self, spool: Spool) -> None:
        key = self.place(spool.sha256)
        if await self._size(key) != spool.size:
            # A transfer that is dropped, and not told to end, leaves its parts in the bucket.
            await to_the_end(self._send(key, spool))

    async def _put(self, key: str, content: object, **how: int) -> None:
        with self._requests() as obstore:
            await obstore.put_async(self._store, key, content, **how)

    async def _send(self, key: str, spool: Spool) -> None:
        """Write an object from a file, in parts if it is large."""
        part = max(PART, spool.size // _MOST_PARTS + 1)
        await in_thread(spool.file.seek, 0)
        async with self._sending:
            if spool.size <= part:
                await self._put(key, await in_thread(spool.file.read, spool.size))
            else:
                await self._put(key, _pieces(spool.file), chunk_size=part, max_concurrency=2)

    async def _size(self, key: str) -> int | None:
        with self._requests() as obstore:
            try:
                return int((await obstore.head_async(self._store, key))["size"])
            except FileNotFoundError:
                return None

    @asynccontextmanager
    async def read(self, sha256: str, start: int, size: int) -> AsyncIterator[AsyncIterator[bytes]]:
        key = self.place(sha256)
        known = await self._size(key)
        if known is None or known < start + size:
            raise StoreError("a stored file is gone from the bucket, or shorter than it was")
        yield self._ranges(key, start, start + size)

    async def _ranges(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        for at in range(start, end, _RANGE):
            with self._requests() as obstore:
                some = await obstore.get_range_async(
                    self._store, key, start=at, end=min(at + _RANGE, end)
                )
            content = bytes(some)
            for begin in range(0, len(content), PIECE):
                yield content[begin : begin + PIECE]

    async def drop(self, sha256: str) -> None:
        with self._requests() as obstore:
            await obstore.delete_async(self._store, self.place(sha256))

    async def unused_for(self, seconds: float) -> AsyncIterator[list[str]]:
        before = datetime.now(UTC) - timedelta(seconds=seconds)
        await self._claim()
        with self._requests() as obstore:
            listing = obstore.list(self._store, f"{self.name}/", chunk_size=_LISTED)
        while True:
            with self._requests():
                batch = await anext(listing, None)
            if batch is None:
                return
            found = [(each["path"].rpartition("/")[2], each["last_modified"]) for each in batch]
            yield [name for name, at in found if HASH.fullmatch(name) and at < before]

    @contextmanager
    def _requests(self) -> Iterator[Any]:
        """Yield `obstore`; what the service refuses is told in our words.

        Its own repeat the request, with the key's id.
        """
        import obstore
        from obstore.exceptions import BaseError

        try:
            yield obstore
        except (BaseError, FileNotFoundError) as error:
            raise StoreError(_reason(str(error), self._bucket)) from None


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
