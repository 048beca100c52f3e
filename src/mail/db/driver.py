"""The seam between the verbs of a store and the database that runs them.

A verb is a method of a `Verbs` class, marked with `read` or `write`. It is a generator: it yields
statements, gets what each of them returned, and returns its result. A `Driver` runs it, a read on
any connection, a write in one transaction that is committed before the caller has the result.

Statements are written once, in the SQL that SQLite and PostgreSQL share, with parameters ``$1``,
``$2`` and so on. What the databases do not share is in the driver's `Dialect`. The chapter "Another
database" of docs/database.md tells how to add one.
"""

import asyncio
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial, wraps
from time import perf_counter
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
)

from mail import metrics
from mail.errors import StoreError

if TYPE_CHECKING:
    from mail.core.events import TaskEvent
    from mail.db.records import MemoryRow, Owner, TaskClaim, TaskRow

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V", bound="Verbs")

Row: TypeAlias = Any
"""The columns of a row, as the database's library returns them."""


class Query(NamedTuple):
    """A statement whose rows are wanted; the verb gets the list of them."""

    text: str
    values: Sequence[object] = ()


class Change(NamedTuple):
    """A statement without rows; the verb gets the number of rows that it changed."""

    text: str
    values: Sequence[object] = ()


class Insert(NamedTuple):
    """Adds a row for each list of values; the verb gets the list of the numbers they were given.

    ``number`` is the column of that number.
    """

    text: str
    number: str
    values: Sequence[Sequence[object]]


class Batch(NamedTuple):
    """A statement to run once for each list of values; the verb gets nothing."""

    text: str
    values: Sequence[Sequence[object]]


Statement: TypeAlias = Query | Change | Insert | Batch
Verb: TypeAlias = Generator[Statement, Any, T]
"""A verb under way. `Driver` is given a function that makes it, because it may be run again."""


class Driver(Protocol):
    """A database. Its methods raise `mail.errors.StoreError`."""

    @property
    def durable(self) -> bool:
        """Tell whether what is committed survives the process."""

    @property
    def shared(self) -> bool:
        """Tell whether other processes may be at work on the same tasks."""

    @property
    def node(self) -> str:
        """The name under which the process claims tasks, another one for each driver."""

    @property
    def dialect(self) -> "Dialect":
        """The database's way to write what is not shared."""

    async def open(self) -> None:
        """Connect and migrate. May be called again; the first call does the work."""

    async def close(self) -> None:
        """Finish what was handed in, and disconnect."""

    async def read(self, verb: Callable[[], Verb[T]]) -> T:
        """Run a verb that changes nothing. It sees all that was committed before."""

    async def snapshot(self, verb: Callable[[], Verb[T]]) -> T:
        """Run a verb all of whose statements see one moment, however long it takes."""

    async def transaction(self, verb: Callable[[], Verb[T]]) -> T:
        """Run a verb in a transaction; return its result once that is committed.

        Transactions are committed in the order of the calls. When the verb raises, nothing of it is
        there. When the caller is cancelled, the verb is committed all the same.
        """

    @property
    def lapses(self) -> int:
        """The number of silences in which others may have taken this process's tasks up."""

    @property
    def hears(self) -> bool:
        """Tell whether hints of other processes arrive."""

    def tell(self, topic: str) -> None:
        """Hint to other processes at work that there is something new; it may get lost."""

    def on_hint(self, heard: Callable[[list[str]], None]) -> Callable[[], None]:
        """Have something called in this event loop with what others hint at; return how to stop.

        An empty list stands for hints that may have been lost.
        """

    async def claim_swarm(self, swarm: str) -> None:
        """Keep other servers from one more swarm, as from the first one, until `close`.

        Raises:
            StoreLocked: another server has it.
        """


class Verbs:
    """Verbs of one subject over a driver; `mail.db.store.Store` has those of all subjects."""

    def __init__(self, driver: Driver) -> None:
        """Take the driver. It is opened with the store."""
        self.driver = driver
        self.sql = driver.dialect


def read(
    verb: Callable[Concatenate[V, P], Verb[T]],
) -> Callable[Concatenate[V, P], Coroutine[Any, Any, T]]:
    """Make a verb that changes nothing callable."""

    @wraps(verb)
    async def run(self: V, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await timed("read", self.driver.read(partial(verb, self, *args, **kwargs)))

    return run


def write(
    verb: Callable[Concatenate[V, P], Verb[T]],
) -> Callable[Concatenate[V, P], Coroutine[Any, Any, T]]:
    """Make a verb that is one transaction callable."""

    @wraps(verb)
    async def run(self: V, /, *args: P.args, **kwargs: P.kwargs) -> T:
        work = self.driver.transaction(partial(verb, self, *args, **kwargs))
        return await timed("write", work)

    return run


async def timed(operation: str, work: Awaitable[T]) -> T:
    """Await a read or a transaction, and count how long it took."""
    began = perf_counter()
    try:
        return await work
    finally:
        metrics.STORE_SECONDS.observe(perf_counter() - began, operation)


class Matching(NamedTuple):
    """A query of a database's index of words, the table ``desk_words``.

    Attributes:
        condition: Of lines that the query in ``{}`` finds.
        quote: Stands around a word of the query.
        both, either, without: Stand between its parts.
        find: The function that returns the place of a text in another, or 0.
        place: The number of the letter. Where rows can be read in its order, without the index of
            words, it is written so that they are not.
    """

    condition: str
    quote: str
    both: str
    either: str
    without: str
    find: str
    place: str

    def query(self, marks: Sequence[str], wanted: Sequence[str], unwanted: Sequence[str]) -> str:
        """Return a query for lines with one of the marks, all of these words, none of those."""
        text = self.both.join((self._any(marks), *map(self._quoted, wanted)))
        return f"({text}){self.without}{self._any(unwanted)}" if unwanted else text

    def _any(self, words: Sequence[str]) -> str:
        return f"({self.either.join(map(self._quoted, words))})"

    def _quoted(self, word: str) -> str:
        return f"{self.quote}{word}{self.quote}"


class RowChange(NamedTuple):
    """The changes of a commit in the row of a task beside the `mail.db.records.TaskRow`.

    Attributes:
        new: Whether the commit begins the task.
        events: So many events are added.
        size: So many bytes are added.
        node: Who has the task afterwards.
        claim: The claim that it must have; None for any, which then stays as it is.
    """

    new: bool
    events: int
    size: int
    node: str = ""
    claim: "TaskClaim | None" = None


class TaskPlace(NamedTuple):
    """The task's key, the number of the commit's first event, and the task's bytes."""

    key: int
    first_event: int
    bytes: int


class Dialect(ABC):
    """The parts of SQL that databases write differently.

    Attributes:
        task_columns: The columns from which `as_task` makes a task.
        event_columns: The columns from which `as_event` makes an event.
        event_time_columns: The same without the texts that do not tell the time.
        event_size: The size of an event's texts in bytes.
        response: The JSON of a final message.
        add_event: Adds an event: task id, owner, kind, data, number as text, `times`, task, number,
            description, size, texts.
        put_response: Stores the final message of a run: task id, owner, `json` of the message, the
            message, task, texts.
        put_snapshot: Adds to the documented row of an agent's history: owner, shape or None, task
            id, agent, entries, task, number of the newest entry.
        put_memory: Stores a memory, see `memory_values`.
        this_memory: The condition of one memory; from ``$4`` on its parameters are `memory_id`.
        matching: The condition that looks up words of letters.
        row: The expression that identifies a row of a table.
        lock: Ends a query whose rows nobody else may change before the transaction ends.
        size: The bytes of the text in the column in ``{}``.
        hashed: The indexed form of the column in ``{}``, which has texts of any length.
        some: The condition that a row is among those whose `row` the query in ``{}`` selects.
        alive: The condition that the process whose name is in the column in ``{}`` is at work.
        time: The time in the parameter in ``{}``, to compare with ``updated_at`` of tasks.
        catalogue: Selects table, name and type of the columns of tables in a `list`, whether each
            is in the primary key, and the last number that it gave, if it gives none twice.
        numbered: Stands before ``VALUES`` where rows are added that have their numbers.
    """

    task_columns: str
    event_columns: str
    event_time_columns: str
    event_size: str
    response: str
    add_event: str
    put_response: str
    put_snapshot: str
    put_memory: str
    this_memory: str
    matching: Matching
    row: str
    lock: str
    size: str
    hashed: str
    some: str
    alive: str
    time: str
    catalogue: str
    numbered: str

    @abstractmethod
    def as_task(self, row: Row) -> "TaskRow":
        """Make a task of `task_columns`."""

    @abstractmethod
    def as_event(self, task_id: str, row: Row) -> "TaskEvent":
        """Make an event of `event_columns`."""

    @abstractmethod
    def times(self, text: str) -> tuple[object, ...]:
        """Return the values of the columns with the time of an event."""

    @abstractmethod
    def json(self, text: str) -> str:
        """Return JSON as a documented column takes it."""

    @abstractmethod
    def memory_id(self, namespace: tuple[str, ...], key: str) -> tuple[str, ...]:
        """Return what tells a memory from the owner's others."""

    @abstractmethod
    def memory_values(self, owner: "Owner", row: "MemoryRow") -> tuple[object, ...]:
        """Return the values for `put_memory`."""

    @abstractmethod
    def among(self, parameter: str, kind: str = "text") -> str:
        """Return the condition that what stands before is in the list in a parameter."""

    @abstractmethod
    def list(self, values: Sequence[object]) -> object:
        """Return a list as a parameter for `among`."""

    @abstractmethod
    def put_task(
        self, owner: "Owner", task: "TaskRow", change: RowChange
    ) -> Verb[TaskPlace | None]:
        """Write the row of a task.

        Returns:
            None when there is one already and it should be new, or the other way round.

        Raises:
            ClaimLost: the task has another claim than the change says.
        """

    def portable(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row as `mail.db.move` writes it for each kind of database."""
        return row

    def stored(self, table: str, types: Mapping[str, str], row: dict[str, Any]) -> dict[str, Any]:
        """Undo `portable`."""
        return row

    @abstractmethod
    def continue_numbers(self, table: str, column: str, last: int) -> Verb[None]:
        """Have a table give numbers above this one, and above those of its rows."""

    @abstractmethod
    def consume(self, task: int, seqs: Sequence[int], state: str, reason: str | None) -> Verb[int]:
        """Let waiting deliveries wait no more, and drop their journals; return how many."""


# --- what the writers of databases share: units of work that are committed together ---------------

BATCH_LIMIT: Final = 64
"""At most so many units share a commit: those that queued up during the one before."""


def hand_back(futures: Sequence[asyncio.Future[Any]], results: Sequence[object]) -> None:
    """Give every caller its result, or the StoreError in its place: one wake-up for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], object]]] = {}
    for future, result in zip(futures, results, strict=True):
        by_loop.setdefault(future.get_loop(), []).append((future, result))
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, settled)
        except RuntimeError:
            # The caller's loop is closed: the commit stands, nobody waits for it.
            continue


def _settle(settled: Sequence[tuple[asyncio.Future[Any], object]]) -> None:
    for future, result in settled:
        if future.done():
            continue
        if isinstance(result, StoreError):
            _let_go(result)
            future.set_exception(result)
        else:
            future.set_result(result)


def _let_go(error: BaseException | None) -> None:
    """Let go of what the frames of a failure hold: the unit, and by its future the failure itself.

    Such a circle, with all that was to be written, would stay in memory until the collector comes.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
