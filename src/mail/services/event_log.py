"""Live streams of committed events, and the newest events of each task for quick looks.

The store is the truth. A subscription is a cursor with a bounded buffer: a reader that falls
behind loses its buffer, not its events, and catches up from the store.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from weakref import WeakSet

from mail.core.events import TaskEvent
from mail.db.base import EventRecords, EventRow, Owner

__all__ = ["EventLog", "Subscription"]

_PAGE = 256
_FIRST_PAGE = 16
_PAGE_CHARS = 256 * 1024
"""What a page read from the store should come to; it stays in memory until it is sent."""
_BUFFER_CHARS = 1024 * 1024
"""What the data of one stream's buffered events may come to, besides their number."""


class Subscription:
    """One reader's place in one task's log."""

    def __init__(self, task_id: str, limit: int, *, deltas: bool) -> None:
        self.task_id = task_id
        self.deltas = deltas
        self.closed = False
        self.cursor = 0
        self.last = 0  # the number of the event that ends the stream, once it is known
        self._limit = limit
        self._buffer: deque[TaskEvent] = deque()
        self._size = 0
        self._page = _FIRST_PAGE
        self._lagging = True  # until the first look at the store
        self._wake = asyncio.Event()

    def push(self, events: Sequence[TaskEvent], size: int) -> None:
        """Take committed events, whose data are ``size`` characters; give up on a slow reader."""
        few = len(self._buffer) + len(events) <= self._limit
        if not self._lagging and few and self._size + size <= _BUFFER_CHARS:
            self._buffer.extend(events)
            self._size += size
        else:
            self._clear()
            self._lagging = True
        self._wake.set()

    def push_delta(self, event: TaskEvent) -> None:
        """Take a piece of a running model call; dropped when the reader is too slow."""
        if not self._lagging and len(self._buffer) < self._limit:
            self._buffer.append(event)
            self._wake.set()

    @property
    def pending(self) -> bool:
        """Tell whether something came in since the last look."""
        return self._lagging or bool(self._buffer)

    def lag(self) -> None:
        """Read from the store next, whatever is buffered."""
        self._clear()
        self._lagging = True

    def close(self) -> None:
        """End the stream after what is buffered."""
        self.closed = True
        self._wake.set()

    async def wait(self, timeout: float) -> bool:
        """Wait until there may be something to read; False when the time ran out."""
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    async def take(self, store: EventRecords, owner: Owner) -> list[TaskEvent]:
        """Return what can be read now, in order, without gaps or repeats."""
        self._wake.clear()
        if self._lagging:
            return await self.catch_up(store, owner)
        fresh = [event for event in self._buffer if not event.seq or event.seq > self.cursor]
        self._clear()
        stored = [event.seq for event in fresh if event.seq]
        if stored and stored[-1] != self.cursor + len(stored):
            return await self.catch_up(store, owner)
        self.cursor = stored[-1] if stored else self.cursor
        return fresh

    async def catch_up(self, store: EventRecords, owner: Owner) -> list[TaskEvent]:
        """Return what the store has beyond the cursor: a page at most."""
        self._lagging = False  # before the read: what is committed during it goes to the buffer
        page = await store.events(owner, self.task_id, self.cursor, self._page)
        if len(page) == self._page:
            self._lagging = True
            self._clear()
            usual = sum(_weight(event.extra) for event in page) // len(page)
            self._page = max(1, min(_PAGE_CHARS // (usual + 1), self._page * 4, _PAGE))
        self._wake.set()
        self.cursor = page[-1].seq if page else self.cursor
        return page

    def _clear(self) -> None:
        self._buffer.clear()
        self._size = 0


def _weight(value: object) -> int:
    """Return about how many characters a JSON value has."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_weight, value.values()))
    return sum(map(_weight, value)) if isinstance(value, list) else 1


class EventLog:
    """The live side of the event log of one owner."""

    def __init__(self, store: EventRecords, owner: Owner, *, recent: int, buffer: int) -> None:
        self._store = store
        self._owner = owner
        self._recent_limit = recent
        self._buffer = buffer
        self._recent: dict[str, deque[tuple[int, Sequence[EventRow]]]] = {}
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
        self, task_id: str, *, after: int | None = None, deltas: bool = False
    ) -> Subscription:
        """Open a stream of a task's events after number ``after`` (None: set by the caller)."""
        subscription = Subscription(task_id, self._buffer, deltas=deltas)
        subscription.cursor = after or 0
        self._readers.setdefault(task_id, WeakSet()).add(subscription)
        if self._closed:
            subscription.close()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Close a stream; closing it twice is fine."""
        subscription.close()
        readers = self._readers.get(subscription.task_id)
        if readers is not None:
            readers.discard(subscription)
            if not readers:
                del self._readers[subscription.task_id]

    def publish(self, task_id: str, first: int, rows: Sequence[EventRow]) -> None:
        """Hand committed events to the readers."""
        if not rows:
            return
        self._keep(task_id, first, rows)
        readers = self._readers.get(task_id)
        if readers:
            events = [_event(task_id, seq, row) for seq, row in enumerate(rows, first)]
            size = sum(len(row.description) + len(row.extra) for row in rows)
            for reader in readers:
                reader.push(events, size)

    def _keep(self, task_id: str, first: int, rows: Sequence[EventRow]) -> None:
        recent = self._recent.get(task_id)
        if recent is None:
            recent = self._recent[task_id] = deque()
        recent.append((first, rows))
        if first > self._recent_limit:
            oldest = first + len(rows) - self._recent_limit
            while recent and recent[0][0] + len(recent[0][1]) <= oldest:
                recent.popleft()

    def delta(self, event: TaskEvent) -> None:
        """Hand a piece of a running model call to the readers that asked for deltas."""
        for reader in self._readers.get(event.task_id, ()):
            if reader.deltas:
                reader.push_delta(event)

    def wants_deltas(self, task_id: str) -> bool:
        """Tell whether any reader of the task asked for deltas."""
        return any(reader.deltas for reader in self._readers.get(task_id, ()))

    def recent(self, task_id: str) -> list[TaskEvent]:
        """Return the newest events of a live or recent task."""
        return [
            _event(task_id, seq, row)
            for first, rows in self._recent.get(task_id, ())
            for seq, row in enumerate(rows, first)
        ]

    def forget(self, task_id: str) -> None:
        """Let go of a task's newest events."""
        self._recent.pop(task_id, None)
        if not self._readers.get(task_id, True):
            del self._readers[task_id]

    async def read(
        self, subscription: Subscription, ping_interval: float
    ) -> AsyncGenerator[TaskEvent | None, None]:
        """Yield events as they come, and None after each quiet ``ping_interval`` (seconds).

        Ends when the subscription's last event was read, or when it is closed and everything up to
        there was read.
        """
        try:
            while True:
                closing = subscription.closed
                events = await subscription.take(self._store, self._owner)
                for event in events:
                    yield event
                if 0 < subscription.last <= subscription.cursor or (closing and not events):
                    return
                if not (events or await subscription.wait(ping_interval)):
                    yield None
        finally:
            self.unsubscribe(subscription)

    def close(self) -> None:
        """End every stream, and those that are still to come."""
        self._closed = True
        for readers in list(self._readers.values()):
            for reader in list(readers):
                reader.close()


def _event(task_id: str, seq: int, row: EventRow) -> TaskEvent:
    return TaskEvent(
        task_id=task_id,
        kind=row.kind,
        timestamp=row.timestamp,
        seq=seq,
        description=row.description,
        extra=json.loads(row.extra),
    )
