"""Live streams of committed events, and the newest events of each task for quick looks.

The store is the truth. A subscription is a cursor with a bounded buffer: a reader that falls
behind loses its buffer, not its events, and catches up from the store.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from sys import getsizeof
from typing import Final
from weakref import WeakSet

from mail.core.events import TaskEvent
from mail.core.large import LARGE_AT_ONCE, large_turn
from mail.db.records import EventRow, Owner
from mail.db.tasks import EventVerbs, as_event

PAGE_EVENTS: Final = 256
PAGE_BYTES: Final = 64 * 1024
"""Bytes after which a page of events ends; a single larger event is a page."""
_BUFFER_BYTES: Final = 64 * 1024
"""The most bytes of one stream's buffered events."""
_EVENT_BYTES: Final = 400
"""Bytes that an event takes in memory besides its texts."""
_RECENT_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of the newest events of all of an owner's tasks."""


class Subscription:
    """One reader's place in one task's log.

    A page that is large, which is a single event, is in memory for as long as it holds one of
    ``places``: until the next page is taken, or the reader leaves.
    """

    def __init__(
        self,
        task_id: str,
        limit: int,
        places: asyncio.Semaphore,
        *,
        after: int | None,
        deltas: bool,
    ) -> None:
        self.task_id = task_id
        self.deltas = deltas
        self.closed = False
        self.cursor = after or 0
        self.last = 0  # the number of the event that ends the stream, once it is known
        self._limit = limit
        self._places = places
        self._holds = False
        self._buffer: deque[TaskEvent] = deque()
        self._size = 0
        # Of what is already there, only the store knows; events that are yet to come are pushed.
        self._lagging = after is not None
        self._wake = asyncio.Event()

    def push(self, events: Sequence[TaskEvent], size: int, *, stored: bool = True) -> None:
        """Take events of ``size`` bytes.

        Of a reader that is too slow those that are ``stored`` are read later; others are dropped.
        """
        few = len(self._buffer) + len(events) <= self._limit
        if not self._lagging and few and self._size + size <= _BUFFER_BYTES:
            self._buffer.extend(events)
            self._size += size
            self._wake.set()
        elif stored:
            self.lag()

    def lag(self) -> None:
        """Read from the store next, whatever is buffered."""
        self._clear()
        self._lagging = True
        self._wake.set()

    def close(self) -> None:
        """End the stream after what is buffered."""
        self.closed = True
        self._wake.set()

    def leave(self) -> None:
        """Read no more; doing so twice is fine."""
        self.close()
        self._let_go()

    async def wait(self, timeout: float) -> bool:
        """Wait until there may be something to read; False when the time ran out."""
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    async def take(self, store: EventVerbs, owner: Owner) -> deque[TaskEvent]:
        """Return what can be read now, in order, without gaps or repeats.

        To take the events out of it as they are sent lets go of them.
        """
        self._wake.clear()
        if self._lagging:
            return await self.catch_up(store, owner)
        fresh = deque(event for event in self._buffer if not event.seq or event.seq > self.cursor)
        self._clear()
        stored = [event.seq for event in fresh if event.seq]
        if stored != list(range(self.cursor + 1, self.cursor + 1 + len(stored))):
            return await self.catch_up(store, owner)
        self.cursor = stored[-1] if stored else self.cursor
        return fresh

    async def catch_up(self, store: EventVerbs, owner: Owner) -> deque[TaskEvent]:
        """Return the next page of what the store has."""
        self._let_go()
        self._lagging = False  # before the read: what is committed during it goes to the buffer
        place = (owner, self.task_id, self.cursor, PAGE_EVENTS, PAGE_BYTES)
        await self._places.acquire()
        self._holds = True
        async with large_turn():
            page = deque(await store.events(*place))
        if sum(event.size for event in page) <= PAGE_BYTES:
            self._let_go()
        if page:
            self.cursor = page[-1].seq
            self.lag()  # there may be more, which only an empty page denies
        self._wake.set()
        return page

    def _let_go(self) -> None:
        if self._holds:
            self._holds = False
            self._places.release()

    def _clear(self) -> None:
        self._buffer.clear()
        self._size = 0


class EventLog:
    """The live side of the event log of one owner."""

    def __init__(self, *, recent: int, buffer: int) -> None:
        self._recent_limit = recent
        self._buffer = buffer
        self.places = asyncio.Semaphore(LARGE_AT_ONCE)
        # By task, the one that was written to last at the end: number, rows, size.
        self._recent: OrderedDict[str, deque[tuple[int, Sequence[EventRow], int]]] = OrderedDict()
        self._recent_bytes = 0
        # Weak: a stream that nobody ever began to read goes with the caller's handle.
        self._readers: dict[str, WeakSet[Subscription]] = {}
        self._closed = False

    @property
    def has_readers(self) -> bool:
        """Tell whether any stream is open."""
        for task_id in [task_id for task_id, readers in self._readers.items() if not readers]:
            del self._readers[task_id]
        return bool(self._readers)

    def subscribe(
        self,
        task_id: str,
        *,
        after: int | None = None,
        deltas: bool = False,
        places: asyncio.Semaphore | None = None,
    ) -> Subscription:
        """Open a stream of a task's events after number ``after``.

        None stands for events that are not stored yet; the caller sets the cursor when they are.
        Its large pages take ``places``, by default those of the log.
        """
        subscription = Subscription(
            task_id, self._buffer, places or self.places, after=after, deltas=deltas
        )
        self._readers.setdefault(task_id, WeakSet()).add(subscription)
        if self._closed:
            subscription.close()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Close a stream; closing it twice is fine."""
        subscription.leave()
        readers = self._readers.get(subscription.task_id)
        if readers is not None:
            readers.discard(subscription)
            if not readers:
                del self._readers[subscription.task_id]

    def publish(self, task_id: str, first: int, rows: Sequence[EventRow]) -> None:
        """Hand committed events to the readers."""
        if not rows:
            return
        size = _EVENT_BYTES * len(rows)
        for row in rows:
            size += getsizeof(row.description) + getsizeof(row.extra)
        self._keep(task_id, first, rows, size)
        readers = self._readers.get(task_id)
        if not readers:
            return
        if size > _BUFFER_BYTES:  # no reader's buffer takes them, so they are not even decoded
            for reader in readers:
                reader.lag()
            return
        events = [_event(task_id, seq, row) for seq, row in enumerate(rows, first)]
        for reader in readers:
            reader.push(events, size)

    def _keep(self, task_id: str, first: int, rows: Sequence[EventRow], size: int) -> None:
        recent = self._recent.get(task_id)
        if recent is None:
            recent = self._recent[task_id] = deque()
        else:
            self._recent.move_to_end(task_id)
        recent.append((first, rows, size))
        self._recent_bytes += size
        oldest = first + len(rows) - self._recent_limit
        while recent and recent[0][0] + len(recent[0][1]) <= oldest:
            self._recent_bytes -= recent.popleft()[2]
        while self._recent_bytes > _RECENT_BYTES and (len(self._recent) > 1 or len(recent) > 1):
            longest_quiet, chunks = next(iter(self._recent.items()))
            self._recent_bytes -= chunks.popleft()[2]
            if not chunks:
                del self._recent[longest_quiet]

    def delta(self, event: TaskEvent) -> None:
        """Hand a piece of a running model call to the readers that asked for deltas."""
        size = _EVENT_BYTES + sum(getsizeof(str(value)) for value in event.extra.values())
        for reader in self._readers.get(event.task_id, ()):
            if reader.deltas:
                reader.push([event], size, stored=False)

    def wants_deltas(self, task_id: str) -> bool:
        """Tell whether any reader of the task asked for deltas."""
        return any(reader.deltas for reader in self._readers.get(task_id, ()))

    def recent(self, task_id: str) -> list[TaskEvent]:
        """Return the newest events of a live or recent task."""
        return [
            _event(task_id, seq, row)
            for first, rows, _ in self._recent.get(task_id, ())
            for seq, row in enumerate(rows, first)
        ]

    def lose(self, task_id: str) -> None:
        """Let go of a task that others work on; its streams go on with what the store gets."""
        self.look_again(task_id)
        self.forget(task_id)

    def look_again(self, task_id: str | None = None) -> None:
        """Have the streams of a task, or of all, look at what others may have stored."""
        for known in [task_id] if task_id is not None else list(self._readers):
            for reader in self._readers.get(known, ()):
                reader.lag()

    def forget(self, task_id: str) -> None:
        """Let go of a task's newest events."""
        self._recent_bytes -= sum([size for _, _, size in self._recent.pop(task_id, ())])
        if not self._readers.get(task_id, True):
            del self._readers[task_id]

    def end(self, task_id: str) -> None:
        """End the streams of a task that is deleted, and let go of its events."""
        for reader in list(self._readers.get(task_id, ())):
            reader.close()
        self.forget(task_id)

    def close(self) -> None:
        """End every stream, and those that are still to come."""
        self._closed = True
        for readers in list(self._readers.values()):
            for reader in list(readers):
                reader.close()


def _event(task_id: str, seq: int, row: EventRow) -> TaskEvent:
    return as_event(task_id, (row.kind, row.timestamp, seq, row.description, row.extra))
