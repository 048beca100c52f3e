"""Connections to PostgreSQL as the store needs them, and errors in the store's own terms.

No text made here repeats the URL or a value: either may be secret.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import asyncpg

from mail.db.driver import Batch, Change, Query, Statement, Verb
from mail.db.postgres.dialect import Connection, Pool, decode_text, encode_text
from mail.errors import ConfigError, StoreError

T = TypeVar("T")

ANSWER_SECONDS: Final = 10.0
"""The deadline of one step of the store's work, after which the database counts as away."""

_ATTEMPTS: Final = 5
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_BRIEF_PAUSE: Final = 0.02
_RETRY_SECONDS: Final = 5.0
CONNECT_SECONDS: Final = 10.0
_COMMAND_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 5.0
_POOLED: Final = "pgbouncer=true"
_OWNER_POOL: Final = (5, 20)
_GUEST_POOL: Final = (1, 2)
_READ_ONLY: Final = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.FeatureNotSupportedError,  # a standby refuses to begin to write
)
_AWAY: Final = (
    *_READ_ONLY,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    OSError,  # TimeoutError is one
    EOFError,
)
_PASSING: Final = (
    *_AWAY,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
)
# A commit that the disk does not have yet must not be reported, whatever the server's default.
_SYNC: Final = """
SELECT set_config('synchronous_commit', 'on', FALSE)
WHERE current_setting('synchronous_commit') = 'off'
"""


def check_dsn(dsn: str) -> None:
    """Check a ``postgresql://`` URL as far as that is possible without a connection.

    Raises:
        ConfigError: it cannot be right.
    """
    try:
        parts = urlsplit(dsn)
        parts.port  # noqa: B018 - raises when it is no number
        named = parts.path.strip("/") != ""
    except ValueError:
        named, parts = False, None
    if parts is None or not named or parts.fragment:
        raise ConfigError(
            "a PostgreSQL URL has user, password, host, port and database, as docs/database.md "
            "shows; '@', '/', '#' and '?' in a password are written %40, %2F, %23 and %3F"
        )


def behind_pooler(dsn: str) -> tuple[str, bool]:
    """Return a URL for asyncpg, and whether it says ``pgbouncer=true``; see `PooledConnection`."""
    parts = urlsplit(dsn)
    given = parts.query.split("&")
    kept = [each for each in given if each != _POOLED]
    return parts._replace(query="&".join(kept)).geturl(), kept != given


class PooledConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg ships no types
    """A connection to a pooler that may use another server for each transaction.

    A statement with parameters is two messages, so there is always a transaction around it.
    """

    async def execute(self, *args: Any, **kwargs: Any) -> str:
        """Execute as asyncpg's; a statement without parameters is one message."""
        return str(await self._whole(super().execute, len(args) > 1, args, kwargs))

    async def executemany(self, *args: Any, **kwargs: Any) -> None:
        """Execute as asyncpg's."""
        await self._whole(super().executemany, True, args, kwargs)

    async def fetch(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Fetch as asyncpg's."""
        return list(await self._whole(super().fetch, True, args, kwargs))

    async def fetchmany(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Fetch as asyncpg's."""
        return list(await self._whole(super().fetchmany, True, args, kwargs))

    async def fetchval(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch as asyncpg's."""
        return await self._whole(super().fetchval, True, args, kwargs)

    async def _whole(
        self, run: Callable[..., Awaitable[T]], in_parts: bool, args: Any, kwargs: Any
    ) -> T:
        if not in_parts or self.is_in_transaction():
            return await run(*args, **kwargs)
        async with self.transaction():
            return await run(*args, **kwargs)


async def make_pool(dsn: str, *, durability: str, exclusive: bool) -> Pool:
    """Connect.

    Raises:
        StoreError: the database cannot be reached or does not let us in.
    """
    least, most = _OWNER_POOL if exclusive else _GUEST_POOL
    settings = {"application_name": "mail-server" if exclusive else "mail"}
    dsn, pooled = behind_pooler(dsn)
    kind: dict[str, Any] = {}
    if pooled:
        kind = {"connection_class": PooledConnection, "statement_cache_size": 0}
    elif durability == "normal":
        settings["synchronous_commit"] = "off"

    async def init(connection: Connection) -> None:
        async with connection.transaction():
            await connection.set_type_codec(
                *("text",), schema="pg_catalog", format="binary",
                encoder=encode_text, decoder=decode_text,
            )  # fmt: skip
        if durability == "full" and not pooled:
            await connection.execute(_SYNC)

    async def keep(connection: Connection) -> None:
        """Leave a connection that goes back to the pool as it is: nothing changes its session."""

    async def connect() -> Pool:
        try:
            return await asyncpg.create_pool(
                dsn,
                min_size=least,
                max_size=most,
                timeout=CONNECT_SECONDS,
                command_timeout=_COMMAND_SECONDS,
                server_settings=settings,
                init=init,
                reset=keep,
                **kind,
            )
        except ValueError:  # asyncpg's own about the URL quote it
            raise StoreError("the database URL is invalid") from None

    with in_store_terms("cannot connect to the database"):
        return await with_retries(connect)


@asynccontextmanager
async def read_only(url: str) -> AsyncIterator[Connection]:
    """Lend a connection of its own, in a transaction that cannot write.

    Raises:
        StoreError: the database cannot be reached, does not let us in, or refuses.
    """
    with in_store_terms("cannot connect to the database"):
        try:
            dsn, pooled = behind_pooler(f"postgresql:{url.partition(':')[2]}")
            kind = {"statement_cache_size": 0} if pooled else {}
            connection = await asyncpg.connect(
                dsn,
                **kind,
                timeout=_LOOK_SECONDS,
                command_timeout=_LOOK_SECONDS,
                server_settings={"application_name": "mail"},
            )
        except ValueError:  # asyncpg's own about the URL quote it
            raise StoreError("the database URL is invalid") from None
    try:
        with in_store_terms("cannot inspect the database"):
            async with connection.transaction(readonly=True):
                yield connection
    finally:
        connection.terminate()


def is_transient(exc: BaseException) -> bool:
    """Tell whether the same may work in a moment, perhaps on another connection."""
    if isinstance(exc, asyncpg.InterfaceError):
        return not isinstance(exc, ValueError)  # its DataError is the caller's mistake
    return isinstance(exc, _PASSING) and not isinstance(exc, PermissionError)


def pause_before(attempt: int) -> float:
    """Return how long to wait before an attempt (the second is 1): 50 ms to 2 s, with jitter."""
    longest: float = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
    return random.uniform(0.5, 1.0) * longest  # noqa: S311 - jitter


class Retries:
    """Repeats what fails for a passing reason: five times within 5 s.

    After that has been in vain, the next attempts follow one another quickly until one succeeds.
    Otherwise requests that wait for one another, or ask more than once, would be refused late.
    """

    def __init__(self) -> None:
        """Take the database for there."""
        self._away = False

    async def run(
        self, work: Callable[[], Awaitable[T]], wanted: Callable[[], bool] = lambda: True
    ) -> T:
        """Do something that may be repeated. Once it is not ``wanted``, a failure is final."""
        deadline = asyncio.get_running_loop().time() + _RETRY_SECONDS
        attempt = 1
        while True:
            try:
                done = await work()
            except Exception as exc:
                late = asyncio.get_running_loop().time() > deadline
                if not is_transient(exc) or attempt == _ATTEMPTS or late or not wanted():
                    self._away = self._away or isinstance(exc, _AWAY)
                    raise
            else:
                self._away = False
                return done
            await asyncio.sleep(_BRIEF_PAUSE if self._away else pause_before(attempt))
            attempt += 1


async def with_retries(work: Callable[[], Awaitable[T]]) -> T:
    """Do something once that may be repeated; see `Retries`."""
    return await Retries().run(work)


async def expire_if_read_only(pool: Pool, exc: BaseException) -> bool:
    """Tell whether a server takes no writes; then have new connections made: another one may."""
    read_only = isinstance(exc, _READ_ONLY)
    if read_only:
        await pool.expire_connections()
    return read_only


@asynccontextmanager
async def borrowed(pool: Pool, seconds: float) -> AsyncIterator[Connection]:
    """Lend a connection of the pool for at most so many seconds, the wait for it included.

    Raises:
        TimeoutError: they were not enough.
    """
    async with asyncio.timeout(seconds):
        connection = await pool.acquire()
        try:
            yield connection
        except (TimeoutError, asyncio.CancelledError):
            # To give it back would be to wait again for a server that does not answer.
            await drop(pool, connection)
            raise
        except BaseException as exc:  # whatever it is, the connection goes back
            await expire_if_read_only(pool, exc)
            await pool.release(connection)
            raise
        await pool.release(connection)


async def drop(pool: Pool, connection: Connection) -> None:
    """Give up a connection whose state is unknown, without asking the server."""
    with suppress(Exception):
        connection.terminate()
    with suppress(Exception):
        await pool.release(connection)


def as_store_error(exc: Exception, what: str = "the database failed") -> StoreError:
    """Return an exception as the store's callers expect it. Values never get into the text."""
    if isinstance(exc, StoreError):
        return exc
    if isinstance(exc, UnicodeEncodeError) or isinstance(exc.__cause__, UnicodeEncodeError):
        return StoreError("text with unpaired surrogates cannot be stored")
    return StoreError(f"{what}: {_reason(exc)}")


@contextmanager
def in_store_terms(what: str = "the database failed") -> Iterator[None]:
    """Let whatever fails inside come out as a StoreError."""
    try:
        yield
    except Exception as exc:  # noqa: BLE001 - the cause stays out: its text may quote values
        raise as_store_error(exc, what) from None


def _reason(exc: Exception) -> str:
    if isinstance(exc, asyncpg.UndefinedTableError | asyncpg.UndefinedColumnError):
        return f"{exc.message}; run `mail db-init`"
    if isinstance(exc, asyncpg.PostgresError):
        # Its detail would quote values. What asyncpg itself raises has no message.
        return f"{exc.message or type(exc).__name__} ({exc.sqlstate})"
    if isinstance(exc, TimeoutError):
        return "it did not answer in time"
    return str(exc) if isinstance(exc, OSError) else type(exc).__name__


async def run_verb(
    verb: Callable[[], Verb[T]], connection: Connection, *, seconds: float | None = None
) -> T:
    """Run a verb's statements on a connection, each in so many seconds if not in the usual time."""
    statements = verb()
    result: Any = None
    try:
        while True:
            result = await _execute(connection, statements.send(result), seconds)
    except StopIteration as end:
        returned: T = end.value
        return returned


async def _execute(connection: Connection, statement: Statement, seconds: float | None) -> Any:
    text, values = statement.text, statement.values
    if isinstance(statement, Query):
        return await connection.fetch(text, *values, timeout=seconds)
    if isinstance(statement, Change):
        status = await connection.execute(text, *values, timeout=seconds)
        return int(status.rpartition(" ")[2])  # as "UPDATE 3", "INSERT 0 3"
    if isinstance(statement, Batch):
        return await connection.executemany(text, values, timeout=seconds)
    text = f"{text} RETURNING {statement.number}"
    return [number for (number,) in await connection.fetchmany(text, values, timeout=seconds)]
