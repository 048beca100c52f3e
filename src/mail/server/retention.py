"""Deletion by age: keys and pages of requests, receipts of peers' mail, and what settings say.

A sweep goes by a time of its own, kept in the store, that follows the clock by at most
`HOURLY_STEP` an hour, ahead or back. So a clock that jumps ahead by years makes records go at
twice their age's pace, not all at once, and one that is set right again changes nothing more,
whether it was years ahead or behind.

Where that time is unknown or far behind, the records tell more than the clock. The first sweep
starts at the newest record that is not after the clock, so what is fresh stays even if the clock is
wrong from the start. A time that lags goes on at the first record that is still to grow old:
nothing becomes too old in between.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mail.core.interswarm import INBOX_AGE
from mail.db.desk import LetterPlace
from mail.db.records import Owner
from mail.db.store import Store
from mail.db.sweep import AgedKind
from mail.errors import MAILError, StoreConflict
from mail.services.files import DeskFiles

FIRST_STEP: Final = timedelta(hours=1)
"""By how much the time of a sweep changes at most when a server starts."""
HOURLY_STEP: Final = timedelta(hours=2)
"""By how much it changes at most with every hour that a server runs."""

_EVERY_SECONDS: Final = 3600.0
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_LAG_TO_TELL: Final = timedelta(days=1)
_KEYS_AT_ONCE: Final = 500
_RECEIPTS_AT_ONCE: Final = 500
_PAGES_AT_ONCE: Final = 500
_TASKS_AT_ONCE: Final = 50
_LETTERS_AT_ONCE: Final = 200

_log = logging.getLogger("mail.server")


@dataclass(slots=True, eq=False, kw_only=True)
class Retention:
    """Deletes what is too old, at the start and every hour.

    Attributes:
        store: The store to delete from.
        swarm: Returns the name of the swarm that is served.
        key_hours: The age of idempotency keys, and of the pages of letters that requests got.
        task_days: The age of tasks, counted from their last change; None keeps them.
        files: Returns the files of that swarm; None for none.
        letter_days: The age of letters that all recipients have seen; None keeps them.
        is_busy: Tells whether an engine has a task in memory; such a task waits for the next sweep.
        now: The wall clock.
    """

    store: Store
    swarm: Callable[[], str]
    key_hours: float
    task_days: float | None
    is_busy: Callable[[Owner, str], bool]
    letter_days: float | None = None
    files: Callable[[], DeskFiles] | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def run(self) -> None:
        """Sweep until cancelled."""
        step = FIRST_STEP
        while True:
            await self.sweep(step)
            await asyncio.sleep(_EVERY_SECONDS)
            step = HOURLY_STEP

    async def sweep(self, step: timedelta) -> None:
        """Delete once what is too old, and what is left of deleted tasks; failures are logged."""
        parts = (
            self._sweep_keys,
            self._sweep_inbox,
            self._index_letters,
            self._sweep_letters,
            self._sweep_files,
            self._sweep_tasks,
            self._purge,
        )
        for part in parts:
            try:
                await part(step)
            except MAILError as error:
                _log.warning("old records could not be deleted: %s", error)

    async def _sweep_keys(self, step: timedelta) -> None:
        age = timedelta(hours=self.key_hours)
        before = (await self._advance("keys", "", age, step) - age).isoformat()
        while await self.store.drop_aged("idempotency", before, _KEYS_AT_ONCE) == _KEYS_AT_ONCE:
            pass
        while await self.store.drop_aged("desk_pages", before, _PAGES_AT_ONCE) == _PAGES_AT_ONCE:
            pass

    async def _sweep_inbox(self, step: timedelta) -> None:
        before = (await self._advance("inbox", "", INBOX_AGE, step) - INBOX_AGE).isoformat()
        while await self.store.drop_aged("inbox", before, _RECEIPTS_AT_ONCE) == _RECEIPTS_AT_ONCE:
            pass

    async def _index_letters(self, step: timedelta) -> None:
        """Let letters be found that an earlier version has stored: once, after an upgrade."""
        while await self.store.index_letters(_LETTERS_AT_ONCE):
            pass

    async def _sweep_letters(self, step: timedelta) -> None:
        if self.letter_days is None:
            return
        swarm = self.swarm()
        age = timedelta(days=self.letter_days)
        before = (await self._advance("letters", swarm, age, step) - age).isoformat()
        removed, place = 0, LetterPlace()
        while True:
            seen = await self.store.drop_letters(swarm, before, _LETTERS_AT_ONCE, place)
            removed += seen.removed
            if seen.place is None:
                break
            place = seen.place
        if removed:
            _log.info("old letters deleted", extra={"letters": removed})

    async def _sweep_files(self, step: timedelta) -> None:
        if self.files is None:
            return
        moment = await self._advance("files", self.swarm(), timedelta(), step)
        removed = await self.files().sweep(moment.isoformat(timespec="microseconds"))
        if removed:
            _log.info("expired files deleted", extra={"files": removed})

    async def _sweep_tasks(self, step: timedelta) -> None:
        if self.task_days is None:
            return
        swarm = self.swarm()
        age = timedelta(days=self.task_days)
        before = (await self._advance("tasks", swarm, age, step) - age).isoformat()
        deleted, kept = 0, set[tuple[Owner, str]]()
        while True:
            found = await self.store.ended_tasks(swarm, before, _TASKS_AT_ONCE + len(kept))
            new = [one for one in found if one not in kept]
            gone = await asyncio.gather(*(self._delete(owner, task_id) for owner, task_id in new))
            deleted += sum(gone)
            kept.update(one for one, is_gone in zip(new, gone, strict=True) if not is_gone)
            await self._purge(step)
            if len(new) < _TASKS_AT_ONCE:
                break
        if deleted:
            _log.info("old tasks deleted", extra={"tasks": deleted})

    async def _delete(self, owner: Owner, task_id: str) -> bool:
        if self.is_busy(owner, task_id):
            return False
        try:
            await self.store.delete_task(owner, task_id, ended=True)
        except StoreConflict:  # it goes on, or is gone
            return False
        return True

    async def _purge(self, step: timedelta) -> None:
        while await self.store.purge():
            pass

    async def _advance(
        self, kind: AgedKind, swarm: str, age: timedelta, step: timedelta
    ) -> datetime:
        """Let the time of a sweep follow the clock by one step, and return it.

        Args:
            kind: The kind of records.
            swarm: Of which swarm; no text for all.
            age: The age that records of the kind reach; 0 if they say it themselves.
            step: By how much it may change.
        """
        now, name = self.now(), f"{kind}:{swarm}" if swarm else kind
        last = await self.store.sweep_moment(name)
        known = now if last is None else datetime.fromisoformat(last)
        if last is None or known + step < now:
            since = (_NEVER if last is None else known - age).isoformat()
            until = now.isoformat(timespec="microseconds")
            times = await self.store.aged_between(kind, swarm, since, until)
            if times is not None:
                first, newest = (datetime.fromisoformat(at) for at in times)
                known = newest if last is None else max(known, first)
            elif last is None:
                return now  # nothing can go, and the clock alone is not believed
        moment = max(known - step, min(now, known + step))
        if now - moment > _LAG_TO_TELL:
            _log.warning(
                "the clock is far ahead of the last deletion by age, which follows it slowly; "
                "check the clock if the server was not stopped for long",
                extra={"sweep": name, "behind_hours": round((now - moment).total_seconds() / 3600)},
            )
        await self.store.put_sweep_moment(name, moment.isoformat())
        return min(now, moment)
