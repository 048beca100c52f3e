"""Dictionaries behind the store's seam: for tests, libraries and servers that may forget.

Rows are frozen and their payloads are text, so what was not committed is not here: a forgotten
save fails as it would in a database. Each owner keeps at most ``keep_finished`` finished tasks.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate, chain, islice, takewhile
from typing import ClassVar, Final

from mail.core.approvals import DECIDED
from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.approvals import MemoryApprovals
from mail.db.base import (
    NEWEST_EVENTS,
    AgedKind,
    AsideRow,
    CallRow,
    Delivery,
    EventRow,
    IdempotencyRow,
    InboxRow,
    JournalRow,
    MemoryRow,
    OutboxChange,
    OutboxRow,
    Owner,
    Post,
    QueueLength,
    Receipt,
    StoredUse,
    TaskCounts,
    TaskRow,
    TokenRow,
    TurnCommit,
)
from mail.db.desk_memory import MemoryDesk
from mail.db.preferences import MemoryPreferences
from mail.db.rows import as_event, best_matches, distinct_words, key_size
from mail.db.texts import commit_size, text_size
from mail.db.webhooks import MemoryWebhooks
from mail.errors import KeyTaken, MailTaken, StoreConflict

_OPEN = (TaskState.RUNNING, TaskState.PAUSED)

_MOST_TAKEN: Final = 100_000
"""How much mail of peers is remembered; each is some hundred bytes."""


@dataclass(slots=True)
class _Task:
    """Everything about one task."""

    row: TaskRow
    events: list[EventRow] = field(default_factory=list)
    ready: dict[int, Delivery] = field(default_factory=dict)
    settled: dict[int, Delivery] = field(default_factory=dict)
    aside: dict[int, str] = field(default_factory=dict)
    histories: dict[str, list[str]] = field(default_factory=dict)
    journals: dict[int, dict[str, JournalRow]] = field(default_factory=dict)
    calls: dict[tuple[str, str], CallRow] = field(default_factory=dict)
    outbox: dict[int, OutboxRow] = field(default_factory=dict)
    response: str | None = None
    keys: set[str] = field(default_factory=set)
    bytes: int = 0
    ended_at: str = ""
    number: int = 0

    def settle(self, seq: int) -> None:
        """Consume a waiting delivery."""
        self.settled[seq] = self.ready.pop(seq)
        self.journals.pop(seq, None)

    def settle_for(self, post: Post) -> None:
        """Consume what a commit settles or cancels."""
        for seq in post.settled:
            if seq in self.ready:
                self.settle(seq)
        for seq in post.unset:
            del self.aside[seq]
        if post.cancel_mail:
            self.settled.update(self.ready)
            self.ready.clear()
            self.journals.clear()


@dataclass(slots=True)
class _Shelf:
    """Everything of one owner."""

    tasks: dict[str, _Task] = field(default_factory=dict)
    finished: OrderedDict[str, None] = field(default_factory=OrderedDict)
    running: set[str] = field(default_factory=set)
    memories: dict[tuple[tuple[str, ...], str], MemoryRow] = field(default_factory=dict)
    keys: dict[str, IdempotencyRow] = field(default_factory=dict)
    loose_keys: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def drop_key(self, key: str) -> None:
        """Forget an idempotency key."""
        row = self.keys.pop(key)
        self.loose_keys.pop(key, None)
        if row.task_id in self.tasks:
            self.tasks[row.task_id].keys.discard(key)


class MemoryStore(MemoryApprovals, MemoryDesk, MemoryPreferences, MemoryWebhooks):
    """A `mail.db.base.Store` that lives and dies with the process."""

    durable: ClassVar = False
    """Nothing here survives the process."""

    def __init__(self, *, keep_finished: int = 1000) -> None:
        super().__init__()
        self._keep_finished = keep_finished
        self._shelves: dict[Owner, _Shelf] = {}
        self._tokens: dict[str, TokenRow] = {}
        self._sweeps: dict[str, str] = {}
        self._outbox: dict[int, tuple[Owner, str]] = {}  # whose mail for peers, of which task
        self._inbox: OrderedDict[tuple[str, str, str], InboxRow] = OrderedDict()
        self._next_seq = 1
        self._next_outbox = 1
        self._last_task = 0

    async def open(self) -> None:
        """Do nothing: there is nothing to connect to."""

    async def close(self) -> None:
        """Do nothing: the content stays readable."""

    async def claim_swarm(self, swarm: str) -> None:
        """Do nothing: no other process can see this."""

    async def post(self, post: Post) -> Receipt:
        """See `mail.db.base.Store.post`."""
        if post.inbox is not None:
            self._check_not_taken(post.owner.swarm, post.inbox)
        shelf = self._shelf(post.owner)
        if post.once is not None and post.once.key in shelf.keys:
            raise KeyTaken
        task_id = post.task.task_id
        known = shelf.tasks.get(task_id)
        if post.desk is not None and not (post.new and known):
            self._check_desk(post.desk)
        if post.unset and not set(post.unset) <= (known.aside.keys() if known else set()):
            raise StoreConflict(f"deliveries {post.unset} are not all set aside")
        receipt = self._write(shelf, known, post)
        if post.once is not None and task_id in shelf.tasks:
            shelf.keys[post.once.key] = post.once._replace(first_event=receipt.first_event)
            shelf.tasks[task_id].keys.add(post.once.key)
        return receipt

    async def commit_turn(self, turn: TurnCommit) -> Receipt:
        """See `mail.db.base.Store.commit_turn`."""
        if turn.inbox is not None:
            self._check_not_taken(turn.owner.swarm, turn.inbox)
        shelf = self._shelf(turn.owner)
        task = shelf.tasks.get(turn.task.task_id)
        if task is None or turn.seq not in task.ready:
            raise StoreConflict(f"delivery {turn.seq} is not waiting")
        if turn.desk is not None:
            self._check_desk(turn.desk)
        if turn.shown:
            self._note_shown(turn.owner.swarm, turn.shown)
        if turn.done:
            task.settle(turn.seq)
            if turn.dead is not None:
                task.aside[turn.seq] = turn.dead
        elif turn.journal:
            journal = task.journals.setdefault(turn.seq, {})
            journal.update((row.key, row) for row in turn.journal)
        return self._write(shelf, task, turn)

    def _check_not_taken(self, swarm: str, row: InboxRow) -> None:
        if _taken_as(swarm, row) in self._inbox:
            raise MailTaken

    def _shelf(self, owner: Owner) -> _Shelf:
        shelf = self._shelves.get(owner)
        if shelf is None:
            shelf = self._shelves[owner] = _Shelf()
        return shelf

    def _write(self, shelf: _Shelf, task: _Task | None, post: Post) -> Receipt:
        if task is None:
            self._last_task += 1
            task = shelf.tasks[post.task.task_id] = _Task(post.task, number=self._last_task)
        elif post.new:
            raise StoreConflict(f"task '{post.task.task_id}' already exists")
        task.row = post.task
        if post.settled or post.unset or post.cancel_mail:
            task.settle_for(post)
        first_event = len(task.events) + 1
        task.events.extend(post.events)
        for row in post.histories:
            task.histories.setdefault(row.agent, []).append(row.entries)
        for call in post.calls:
            task.calls[(call.agent, call.call_id)] = call
        for memory in post.memories:
            shelf.memories[(memory.namespace, memory.key)] = memory
        if post.response is not None:
            task.response = post.response
        task.bytes += commit_size(post)
        seqs = self._deliver(task, post.deliveries) if post.deliveries else ()
        self._write_mail(task, post)
        if post.task.state not in _OPEN:
            self._file(post.owner, shelf, task)
        elif shelf.finished:
            shelf.finished.pop(post.task.task_id, None)
        note = shelf.running.add if post.task.state is TaskState.RUNNING else shelf.running.discard
        note(post.task.task_id)
        return Receipt(first_event, seqs, task.bytes)

    def _write_mail(self, task: _Task, post: Post) -> None:
        """Write what leaves the task: mail for peers, letters, what people are asked and told."""
        if post.approvals:
            self._put_approvals(post.owner, post.task.task_id, post.approvals)
        if post.outbox or task.outbox:
            self._write_outbox(task, post)
        if post.inbox is not None:
            self._take_mail(post.owner.swarm, post.inbox)
        if post.desk is not None:
            self._post_letters(post.desk)
        if post.feedback:
            self._take_feedback(post.owner, post.feedback)
        if post.webhooks:
            self._put_webhooks(post.owner.swarm, post.webhooks)

    def _take_mail(self, swarm: str, row: InboxRow) -> None:
        self._inbox[_taken_as(swarm, row)] = row
        if len(self._inbox) > _MOST_TAKEN:
            self._inbox.popitem(last=False)

    def _write_outbox(self, task: _Task, post: Post) -> None:
        for change in post.outbox_changes:
            self._change_outbox(task, change)
        for row in [row for row in task.outbox.values() if _is_over(row, post)]:
            self._drop_outbox(task, row.id)
        for row in post.outbox:
            task.outbox[self._next_outbox] = row._replace(id=self._next_outbox)
            self._outbox[self._next_outbox] = post.owner, post.task.task_id
            self._next_outbox += 1

    def _change_outbox(self, task: _Task, change: OutboxChange) -> None:
        row = task.outbox.get(change.id)
        if row is None:
            return
        if change.state == "done":
            self._drop_outbox(task, change.id)
        else:
            task.outbox[change.id] = row._replace(**change._asdict())

    def _drop_outbox(self, task: _Task, number: int) -> None:
        owner, task_id = self._outbox.pop(number)
        del task.outbox[number]
        if owner == Owner.of_deleted(owner.id) and not task.outbox:
            del self._shelves[owner].tasks[task_id]

    def _bury(self, owner: Owner, task: _Task) -> None:
        """Keep of a task's mail for peers what is sent although the task was deleted."""
        self._drop_approvals(owner, task.row.task_id)
        grave = Owner.of_deleted(owner.swarm)
        last_words = {n: r for n, r in task.outbox.items() if not r.sender and r.state == "waiting"}
        for number in task.outbox.keys() - last_words.keys():
            del self._outbox[number]
        for number in last_words:
            task_id = str(min(last_words))
            self._outbox[number] = grave, task_id
            last_words[number] = last_words[number]._replace(task_id=task_id)
            row = task.row._replace(task_id=task_id)
            self._shelf(grave).tasks[task_id] = _Task(row, outbox=last_words)

    def _deliver(self, task: _Task, deliveries: Sequence[Delivery]) -> tuple[int, ...]:
        first = self._next_seq
        for seq, delivery in enumerate(deliveries, first):
            task.ready[seq] = delivery
        self._next_seq = first + len(deliveries)
        return tuple(range(first, self._next_seq))

    def _file(self, owner: Owner, shelf: _Shelf, task: _Task) -> None:
        """Add to the list of finished tasks, and forget the oldest past the limit."""
        task.ended_at = datetime.now(UTC).isoformat()
        shelf.finished[task.row.task_id] = None
        while len(shelf.finished) > self._keep_finished:
            forgotten, _ = shelf.finished.popitem(last=False)
            task = shelf.tasks.pop(forgotten)
            for key in task.keys:
                del shelf.keys[key]
            self._bury(owner, task)

    def _add_event(self, owner: Owner, task_id: str, event: EventRow) -> int:
        task = self._task(owner, task_id)
        if task is None:
            return 0
        task.events.append(event)
        task.bytes += text_size(event.extra) + text_size(event.description)
        return len(task.events)

    def _task(self, owner: Owner, task_id: str) -> _Task | None:
        shelf = self._shelves.get(owner)
        return shelf.tasks.get(task_id) if shelf else None

    async def claim(self, owner: Owner, seq: int) -> int:
        """See `mail.db.base.Store.claim`."""
        return self._count_attempt(owner, seq, 1)

    async def release(self, owner: Owner, seq: int) -> None:
        """See `mail.db.base.Store.release`."""
        self._count_attempt(owner, seq, -1)

    def _count_attempt(self, owner: Owner, seq: int, change: int) -> int:
        for task in self._shelves.get(owner, _Shelf()).tasks.values():
            if seq in task.ready:
                delivery = task.ready[seq]
                attempts = max(0, delivery.attempts + change)
                task.ready[seq] = delivery._replace(attempts=attempts)
                return attempts
        raise StoreConflict(f"delivery {seq} is not waiting")

    async def load_task(self, owner: Owner, task_id: str) -> TaskRow | None:
        """See `mail.db.base.Store.load_task`."""
        task = self._task(owner, task_id)
        return task.row if task else None

    async def list_tasks(
        self,
        owner: Owner,
        *,
        states: Sequence[TaskState] = (),
        limit: int | None = None,
        before: str | None = None,
    ) -> list[TaskRow]:
        """See `mail.db.base.Store.list_tasks`."""
        shelf = self._shelves.get(owner, _Shelf())
        rows = [task.row for task in reversed(shelf.tasks.values())]
        if before is not None:
            ids = [row.task_id for row in rows]
            rows = rows[ids.index(before) + 1 :] if before in ids else []
        rows = [row for row in rows if not states or row.state in states]
        return rows if limit is None else rows[:limit]

    async def swarm_tasks(
        self, swarm: str, limit: int, before: tuple[Owner, str] | None = None
    ) -> list[tuple[Owner, TaskRow]]:
        """See `mail.db.base.Store.swarm_tasks`."""
        found = [
            (task.number, owner, task.row)
            for owner, shelf in self._shelves.items()
            for task in shelf.tasks.values()
            if owner.swarm == swarm
        ]
        found.sort(reverse=True)
        if before is not None:
            last = self._task(*before)
            found = [one for one in found if last is not None and one[0] < last.number]
        return [(owner, row) for _, owner, row in found[:limit]]

    async def queue_lengths(self, swarm: str, owner: Owner | None = None) -> list[QueueLength]:
        """See `mail.db.base.Store.queue_lengths`."""
        counts = Counter(
            (delivery.recipient, delivery.tier)
            for whose, shelf in self._shelves.items()
            if whose.swarm == swarm and owner in (None, whose)
            for task in shelf.tasks.values()
            for delivery in task.ready.values()
        )
        return [QueueLength(*key, counts[key]) for key in sorted(counts)]

    async def task_counts(self, owner: Owner, task_ids: Sequence[str]) -> dict[str, TaskCounts]:
        """See `mail.db.base.Store.task_counts`."""
        tasks = {task_id: self._task(owner, task_id) for task_id in task_ids}
        return {
            task_id: TaskCounts(len(task.events), len(task.ready))
            for task_id, task in tasks.items()
            if task is not None
        }

    async def owners(self, swarm: str) -> list[Owner]:
        """See `mail.db.base.Store.owners`."""
        having = (owner for owner, shelf in self._shelves.items() if shelf.tasks)
        return sorted(owner for owner in having if owner.swarm == swarm)

    async def swarms(self) -> list[str]:
        """See `mail.db.base.Store.swarms`."""
        having = {owner.swarm for owner, shelf in self._shelves.items() if shelf.tasks}
        return sorted(having - {""})

    async def open_owners(self, swarm: str) -> list[Owner]:
        """See `mail.db.base.Store.open_owners`."""
        return [
            owner
            for owner, shelf in self._shelves.items()
            if owner.swarm == swarm and any(_has_work(task.row) for task in shelf.tasks.values())
        ]

    async def running_owners(self, swarm: str) -> list[Owner]:
        """See `mail.db.base.Store.running_owners`."""
        having = (owner for owner, shelf in self._shelves.items() if shelf.running)
        return sorted(owner for owner in having if owner.swarm == swarm)

    async def waiting_mail(
        self,
        owner: Owner,
        task_id: str,
        after: Delivery | None = None,
        limit: int | None = None,
    ) -> list[Delivery]:
        """See `mail.db.base.Store.waiting_mail`."""
        task = self._task(owner, task_id)
        rows = [row._replace(seq=seq) for seq, row in task.ready.items()] if task else []
        if after is not None:
            rows = [row for row in rows if _place(row) > _place(after)]
        return sorted(rows, key=_place)[:limit]

    async def all_mail(self, owner: Owner, task_id: str, *, whole: bool = True) -> list[Delivery]:
        """See `mail.db.base.Store.all_mail`."""
        task = self._task(owner, task_id)
        mail = {**task.settled, **task.ready} if task else {}
        return [mail[seq]._replace(seq=seq) for seq in sorted(mail)]

    async def mail_aside(
        self, owner: Owner, task_id: str, after: int = 0, limit: int | None = None
    ) -> list[AsideRow]:
        """See `mail.db.base.Store.mail_aside`."""
        task = self._task(owner, task_id)
        rows = [
            AsideRow(task.settled[seq]._replace(seq=seq), task.aside[seq])
            for seq in sorted(task.aside if task else ())
            if task is not None and seq > after
        ]
        return rows[:limit]

    async def history(self, owner: Owner, task_id: str, agent: str) -> list[str]:
        """See `mail.db.base.Store.history`."""
        task = self._task(owner, task_id)
        return list(task.histories.get(agent, ())) if task else []

    async def journal(self, owner: Owner, seq: int) -> list[JournalRow]:
        """See `mail.db.base.Store.journal`."""
        for task in self._shelves.get(owner, _Shelf()).tasks.values():
            if seq in task.journals:
                return list(task.journals[seq].values())
        return []

    async def begun(self, owner: Owner, task_id: str) -> list[int]:
        """See `mail.db.base.Store.begun`."""
        task = self._task(owner, task_id)
        return sorted(task.journals) if task else []

    async def events(
        self,
        owner: Owner,
        task_id: str,
        after: int = 0,
        limit: int | None = None,
        max_bytes: int | None = None,
    ) -> list[TaskEvent]:
        """See `mail.db.base.Store.events`."""
        task = self._task(owner, task_id)
        if task is None:
            return []
        rows = task.events[after : None if limit is None else after + limit]
        if max_bytes is not None:
            totals = accumulate(text_size(row.extra) + text_size(row.description) for row in rows)
            within = sum(1 for _ in takewhile(lambda total: total <= max_bytes, totals))
            rows = rows[: max(1, within)]
        return [
            as_event(task_id, (row.kind, row.timestamp, seq, row.description, row.extra))
            for seq, row in enumerate(rows, after + 1)
        ]

    async def next_event_bytes(self, owner: Owner, task_id: str, after: int) -> int:
        """See `mail.db.base.Store.next_event_bytes`."""
        task = self._task(owner, task_id)
        rows = task.events[after : after + 1] if task else []
        return sum(text_size(row.extra) + text_size(row.description) for row in rows)

    async def latest_time(self, owner: Owner, task_id: str) -> str:
        """See `mail.db.base.Store.latest_time`."""
        task = self._task(owner, task_id)
        newest = task.events[-NEWEST_EVENTS:] if task else []
        return max((row.timestamp for row in newest), default="")

    async def calls(self, owner: Owner, task_id: str) -> list[CallRow]:
        """See `mail.db.base.Store.calls`."""
        task = self._task(owner, task_id)
        return list(task.calls.values()) if task else []

    async def paused_on(self, owner: Owner, call_ids: Sequence[str], among: int) -> str | None:
        """See `mail.db.base.Store.paused_on`."""
        shelf = self._shelves.get(owner, _Shelf())
        for task in islice(reversed(shelf.tasks.values()), among):
            if task.row.state is TaskState.PAUSED and any(
                call.call_id in call_ids and call.answer is None and not call.is_wait
                for call in task.calls.values()
            ):
                return task.row.task_id
        return None

    async def open_calls(self, owner: Owner, task_id: str) -> list[CallRow]:
        """See `mail.db.base.Store.open_calls`."""
        asked = await self.approvals(owner, task_id)
        decided = {(each.agent, each.call_id) for each in asked if each.status in DECIDED}
        return [
            row
            for row in await self.calls(owner, task_id)
            if row.answer is None and row.shown and (row.agent, row.call_id) not in decided
        ]

    async def short_calls(
        self, owner: Owner, task_ids: Sequence[str], max_shown: int
    ) -> dict[str, list[CallRow]]:
        """See `mail.db.base.Store.short_calls`."""
        found = {task_id: await self.open_calls(owner, task_id) for task_id in task_ids}
        return {
            task_id: [
                row if len(row.shown) <= max_shown else row._replace(shown="{}") for row in rows
            ]
            for task_id, rows in found.items()
            if rows
        }

    async def response(self, owner: Owner, task_id: str) -> str | None:
        """See `mail.db.base.Store.response`."""
        task = self._task(owner, task_id)
        return task.response if task else None

    async def stored_use(self, owner: Owner) -> StoredUse:
        """See `mail.db.base.Store.stored_use`."""
        shelf = self._shelves.get(owner, _Shelf())
        taken = sum(task.bytes for task in shelf.tasks.values())
        remembered = sum(text_size(row.value) for row in shelf.memories.values())
        remembered += sum(map(text_size, self._kept_texts(owner)))
        keys = sum(map(key_size, shelf.keys.values()))
        is_open = sum(task.row.state in _OPEN for task in shelf.tasks.values())
        return StoredUse(taken + remembered + keys, len(shelf.tasks), is_open)

    async def delete_task(self, owner: Owner, task_id: str, *, ended: bool = False) -> None:
        """See `mail.db.base.Store.delete_task`."""
        task = self._task(owner, task_id)
        kept = _OPEN if ended else (TaskState.RUNNING,)
        if task is None or task.row.state in kept:
            raise StoreConflict(f"task '{task_id}' is unknown, or is at work")
        shelf = self._shelves[owner]
        for key in task.keys:
            shelf.keys[key] = IdempotencyRow(*shelf.keys[key][:3])
            shelf.loose_keys[key] = None
        self._bury(owner, task)
        self._forget_feedback(owner, lambda row: row.task_id == task_id)
        del shelf.tasks[task_id]
        shelf.finished.pop(task_id, None)

    async def purge(self) -> bool:
        """See `mail.db.base.Store.purge`: nothing is left behind here."""
        return False

    async def ended_tasks(self, swarm: str, before: str, limit: int) -> list[tuple[Owner, str]]:
        """See `mail.db.base.Store.ended_tasks`."""
        found = [
            (owner, task_id)
            for owner, shelf in self._shelves.items()
            for task_id, task in shelf.tasks.items()
            if owner.swarm == swarm and task.row.state not in _OPEN and task.ended_at < before
        ]
        return found[:limit]

    async def aged_between(
        self, kind: AgedKind, swarm: str, since: str, until: str
    ) -> tuple[str, str] | None:
        """See `mail.db.base.Store.aged_between`."""
        times: Iterable[str]
        if kind == "keys":
            keys = (r.created_at for each in self._shelves.values() for r in each.keys.values())
            times = chain(keys, self._page_times())
        elif kind == "inbox":
            times = (row.created_at for row in self._inbox.values())
        elif kind == "letters":
            times = self._letter_times(swarm)
        elif kind == "files":
            times, since = self._file_times(swarm, since), ""
        else:
            times = (
                task.ended_at
                for owner, shelf in self._shelves.items()
                for task in shelf.tasks.values()
                if owner.swarm == swarm and task.row.state not in _OPEN
            )
        found = [at for at in times if since <= at <= until]
        return (min(found), max(found)) if found else None

    async def sweep_moment(self, name: str) -> str | None:
        """See `mail.db.base.Store.sweep_moment`."""
        return self._sweeps.get(name)

    async def put_sweep_moment(self, name: str, moment: str) -> None:
        """See `mail.db.base.Store.put_sweep_moment`."""
        self._sweeps[name] = moment

    async def find_key(self, owner: Owner, key: str) -> IdempotencyRow | None:
        """See `mail.db.base.Store.find_key`."""
        return self._shelves.get(owner, _Shelf()).keys.get(key)

    async def put_key(self, owner: Owner, row: IdempotencyRow) -> None:
        """See `mail.db.base.Store.put_key`. As many are kept as finished tasks."""
        shelf = self._shelf(owner)
        if row.key in shelf.keys:
            raise KeyTaken
        shelf.keys[row.key] = row
        shelf.loose_keys[row.key] = None
        if len(shelf.loose_keys) > self._keep_finished:
            shelf.drop_key(next(iter(shelf.loose_keys)))

    async def drop_keys(self, before: str, limit: int) -> int:
        """See `mail.db.base.Store.drop_keys`."""
        old = sorted(
            (row.created_at, row.key, owner)
            for owner, shelf in self._shelves.items()
            for row in shelf.keys.values()
            if row.created_at < before
        )[:limit]
        for _, key, owner in old:
            self._shelves[owner].drop_key(key)
        return len(old)

    async def put_memories(self, owner: Owner, rows: Sequence[MemoryRow]) -> None:
        """See `mail.db.base.Store.put_memories`."""
        shelf = self._shelf(owner)
        shelf.memories.update(((row.namespace, row.key), row) for row in rows)

    async def delete_memory(self, owner: Owner, namespace: tuple[str, ...], key: str) -> None:
        """See `mail.db.base.Store.delete_memory`."""
        self._shelves.get(owner, _Shelf()).memories.pop((namespace, key), None)

    async def get_memory(
        self, owner: Owner, namespace: tuple[str, ...], key: str
    ) -> MemoryRow | None:
        """See `mail.db.base.Store.get_memory`."""
        return self._shelves.get(owner, _Shelf()).memories.get((namespace, key))

    async def search_memories(
        self,
        owner: Owner,
        prefix: tuple[str, ...],
        query: str = "",
        *,
        limit: int = 10,
        offset: int = 0,
    ) -> list[MemoryRow]:
        """See `mail.db.base.Store.search_memories`."""
        words = distinct_words(query)
        shelf = self._shelves.get(owner, _Shelf())
        found = [row for row in shelf.memories.values() if row.namespace[: len(prefix)] == prefix]
        found.sort(key=lambda row: row.updated_at, reverse=True)
        if words:
            return best_matches(found, words, limit, offset)
        return found[offset : offset + limit]

    async def memory_namespaces(self, owner: Owner) -> list[tuple[str, ...]]:
        """See `mail.db.base.Store.memory_namespaces`."""
        return sorted({namespace for namespace, _ in self._shelves.get(owner, _Shelf()).memories})

    async def put_token(self, token: TokenRow) -> None:
        """See `mail.db.base.Store.put_token`."""
        self._tokens[token.token_hash] = token

    async def find_token(self, token_hash: str) -> TokenRow | None:
        """See `mail.db.base.Store.find_token`."""
        return self._tokens.get(token_hash)

    async def list_tokens(self) -> list[TokenRow]:
        """See `mail.db.base.Store.list_tokens`."""
        return sorted(self._tokens.values(), key=lambda token: token.created_at)

    async def due_outbox(
        self,
        swarm: str,
        now: str,
        limit: int,
        *,
        owner: Owner | None = None,
        without: Collection[str] = (),
        untold: Collection[str] = (),
    ) -> list[tuple[Owner, OutboxRow]]:
        """See `mail.db.base.Store.due_outbox`."""
        due = (
            (whose, row)
            for whose, row in self._first_waiting(swarm)
            if row.next_at <= now
            and owner in (None, whose)
            and row.peer not in without
            and not (row.told and row.peer in untold)
        )
        return list(islice(due, limit))

    async def next_outbox(self, swarm: str, after: str | None = None) -> str | None:
        """See `mail.db.base.Store.next_outbox`."""
        times = (row.next_at for _, row in self._first_waiting(swarm))
        return min((time for time in times if after is None or time > after), default=None)

    def _first_waiting(self, swarm: str) -> Iterator[tuple[Owner, OutboxRow]]:
        """What is first in each (task, peer), in order."""
        seen: set[tuple[Owner, str, str]] = set()
        for owner, row in self._mail_for_peers(swarm):
            place = owner, row.task_id, row.peer
            if row.state == "waiting" and place not in seen:
                seen.add(place)
                yield owner, row

    def _mail_for_peers(self, swarm: str) -> Iterator[tuple[Owner, OutboxRow]]:
        for number, (owner, task_id) in self._outbox.items():
            if owner.swarm == swarm or owner == Owner.of_deleted(swarm):
                yield owner, self._shelves[owner].tasks[task_id].outbox[number]

    async def unanswered_outbox(
        self,
        swarm: str,
        before: str,
        after: int,
        limit: int,
        *,
        owner: Owner | None = None,
    ) -> list[tuple[Owner, OutboxRow]]:
        """See `mail.db.base.Store.unanswered_outbox`."""
        found = (
            (whose, row)
            for whose, row in self._mail_for_peers(swarm)
            if row.state == "delivered"
            and row.created_at < before
            and row.id > after
            and owner in (None, whose)
        )
        return list(islice(found, limit))

    async def task_outbox(self, owner: Owner, task_id: str) -> list[OutboxRow]:
        """See `mail.db.base.Store.task_outbox`."""
        task = self._task(owner, task_id)
        return list(task.outbox.values()) if task else []

    async def list_outbox(
        self, swarm: str, *, peer: str | None = None, after: int = 0, limit: int = 100
    ) -> list[tuple[Owner, OutboxRow]]:
        """See `mail.db.base.Store.list_outbox`."""
        found = (
            (owner, row)
            for owner, row in self._mail_for_peers(swarm)
            if row.id > after and peer in (None, row.peer)
        )
        return list(islice(found, limit))

    async def change_outbox(self, changes: Sequence[OutboxChange]) -> None:
        """See `mail.db.base.Store.change_outbox`."""
        for change in changes:
            if change.id in self._outbox:
                owner, task_id = self._outbox[change.id]
                self._change_outbox(self._shelves[owner].tasks[task_id], change)

    async def retry_outbox(self, swarm: str, number: int) -> bool:
        """See `mail.db.base.Store.retry_outbox`."""
        owner, task_id = self._outbox.get(number, (None, ""))
        here = owner is not None and (owner.swarm == swarm or owner == Owner.of_deleted(swarm))
        task = self._task(owner, task_id) if owner and here else None
        if task is None or task.outbox[number].state == "delivered":
            return False
        self._change_outbox(task, OutboxChange(number, "waiting"))
        now = datetime.now(UTC).isoformat()
        task.outbox[number] = task.outbox[number]._replace(created_at=now)
        return True

    async def find_inbox(self, swarm: str, peer: str, message_id: str) -> str | None:
        """See `mail.db.base.Store.find_inbox`."""
        row = self._inbox.get((swarm, peer, message_id))
        return row.receipt if row else None

    async def drop_inbox(self, before: str, limit: int) -> int:
        """See `mail.db.base.Store.drop_inbox`."""
        old = [key for key, row in self._inbox.items() if row.created_at < before]
        old.sort(key=lambda key: self._inbox[key].created_at)
        for key in old[:limit]:
            del self._inbox[key]
        return len(old[:limit])


def _taken_as(swarm: str, row: InboxRow) -> tuple[str, str, str]:
    return swarm, row.peer, row.message_id


def _is_over(row: OutboxRow, post: Post) -> bool:
    """Tell whether a commit removes mail: a request that has its answer or needs none."""
    if row.kind != "request":
        return False
    return (post.close_requests and row.state != "dead") or (row.peer, row.ref) in post.answered


def _place(row: Delivery) -> tuple[int, int]:
    return row.tier, row.seq


def _has_work(row: TaskRow) -> bool:
    paused = row.state is TaskState.PAUSED and row.awaited
    return paused or row.state is TaskState.RUNNING
