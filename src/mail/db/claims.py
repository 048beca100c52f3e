"""Claims: which process works on a task. Each commit of the task proves it, so only one can.

A claim is two columns of the task: ``node``, the name of the store that holds it (none when the
task has nothing to do), and ``epoch``, the number of claims so far. See the chapter "Claims" of
docs/database.md.
"""

from collections.abc import Sequence
from typing import Any, Final

from mail import metrics
from mail.db.driver import Change, Query, Verb, Verbs, read, write
from mail.db.records import Owner, TaskClaim, TaskRow
from mail.db.rows import OWNED, OWNER_COLUMNS, UNFINISHED
from mail.errors import ClaimLost, TaskElsewhere

_TAKE: Final = f"""
UPDATE tasks SET node = $5, epoch = epoch + 1
WHERE {OWNED} AND task_id = $4 AND epoch = $6 RETURNING epoch
"""

QUEUED: Final = "is_running AND node = '' AND epoch = 1"
"""The condition that a task waits for a process with room; see `Commit.queued`."""

ORPHANS_AT_ONCE: Final = 1000


class ClaimVerbs(Verbs):
    """Claims of tasks."""

    async def claim_task(self, owner: Owner, task_id: str) -> tuple[TaskRow, TaskClaim] | None:
        """Return a task, and the claim under which it may be worked on; None if there is none.

        A task that rests is nobody's, and is not changed. One that is unfinished is taken, from a
        process that is gone, too: what that still commits is refused.

        Raises:
            TaskElsewhere: another process has it, and is at work.
            ClaimLost: somebody else has taken it at the same moment.
        """
        found = await self._claimed(owner, task_id)
        if found is None:
            return None
        node, alive, row, claim = found
        if node and node != self.driver.node and alive:
            raise TaskElsewhere(task_id)
        if node or row.is_unfinished:  # no model may be asked before it is taken
            taken = await self._take(owner, task_id, claim.epoch)
            metrics.CLAIMS.add()
            if node not in ("", self.driver.node):
                metrics.TAKEOVERS.add()
            return taken
        return row, claim

    @read
    def holds(self, owner: Owner, task_id: str, claim: TaskClaim) -> Verb[bool]:
        """Tell whether a claim of this process is still the newest of the task."""
        rows = yield from self._row(owner, task_id)
        return bool(rows) and tuple(rows[0])[-2:] == (self.driver.node, claim.epoch)

    @read
    def orphans(self, swarm: str) -> Verb[list[tuple[Owner, str]]]:
        """Return the unfinished tasks that no process is at work on, oldest first, with owners.

        At most `ORPHANS_AT_ONCE`: those that are taken up are orphans no more.
        """
        waits = QUEUED if self.driver.shared else "FALSE"
        gone = f"NOT ({waits}) AND node <> $2 AND NOT {self.sql.alive.format('tasks.node')}"
        return (yield from self._unfinished(swarm, f"{gone} ORDER BY key LIMIT {ORPHANS_AT_ONCE}"))

    @read
    def claimed(self, swarm: str) -> Verb[list[tuple[Owner, str]]]:
        """Return the unfinished tasks that this process has claimed, with owners."""
        return (yield from self._unfinished(swarm, "node = $2"))

    def _unfinished(self, swarm: str, which: str) -> Verb[list[tuple[Owner, str]]]:
        text = f"""
            SELECT {OWNER_COLUMNS}, task_id FROM tasks
            WHERE swarm_name = $1 AND {UNFINISHED} AND {which}"""
        rows = yield Query(text, (swarm, self.driver.node))
        return [(Owner(*row[:3]), row[3]) for row in map(tuple, rows)]

    async def hand_over(self, owner: Owner, task_ids: Sequence[str]) -> None:
        """Let others take up running tasks that this process has claimed, at once."""
        await self._hand_over(owner, task_ids)
        self.driver.tell("orphans")

    @write
    def _hand_over(self, owner: Owner, task_ids: Sequence[str]) -> Verb[None]:
        among = self.sql.among("$5")
        text = f"""
            UPDATE tasks SET node = '', epoch = epoch + 1
            WHERE {OWNED} AND node = $4 AND task_id {among}"""
        yield Change(text, (*owner, self.driver.node, self.sql.list(task_ids)))

    @read
    def queued_owners(self, swarm: str) -> Verb[list[Owner]]:
        """Return who has tasks that wait for a process with room, see `Commit.queued`."""
        text = f"SELECT DISTINCT {OWNER_COLUMNS} FROM tasks WHERE swarm_name = $1 AND {QUEUED}"
        return [Owner(*row) for row in (yield Query(text, (swarm,)))]

    @read
    def queued_tasks(self, owner: Owner) -> Verb[set[str]]:
        """Return the ids of an owner's tasks that wait for a process with room."""
        text = f"SELECT task_id FROM tasks WHERE {OWNED} AND {QUEUED}"
        return {task_id for (task_id,) in (yield Query(text, owner))}

    @write
    def take_queued(self, owner: Owner, most: int) -> Verb[list[tuple[TaskRow, TaskClaim]]]:
        """Claim the oldest tasks of an owner that wait for a process with room; at most so many."""
        text = f"""
            UPDATE tasks SET node = $4, epoch = epoch + 1 WHERE key IN (
                SELECT key FROM tasks WHERE {OWNED} AND {QUEUED}
                ORDER BY key LIMIT $5 FOR UPDATE SKIP LOCKED)
            RETURNING {self.sql.task_columns}, epoch"""
        rows = yield Query(text, (*owner, self.driver.node, most))
        return [
            (self.sql.as_task(row[:-1]), TaskClaim(row[-1], held=True)) for row in map(tuple, rows)
        ]

    @read
    def _claimed(
        self, owner: Owner, task_id: str
    ) -> Verb[tuple[str, bool, TaskRow, TaskClaim] | None]:
        rows = yield from self._row(owner, task_id)
        if not rows:
            return None
        *row, alive, node, epoch = rows[0]
        return node, bool(alive), self.sql.as_task(row), TaskClaim(epoch)

    @write
    def _take(self, owner: Owner, task_id: str, epoch: int) -> Verb[tuple[TaskRow, TaskClaim]]:
        taken = yield Query(_TAKE, (*owner, task_id, self.driver.node, epoch))
        rows = yield from self._row(owner, task_id)
        if not (taken and rows):
            raise ClaimLost(task_id)
        return self.sql.as_task(tuple(rows[0])[:-3]), TaskClaim(epoch + 1, held=True)

    def _row(self, owner: Owner, task_id: str) -> Verb[list[Any]]:
        alive = self.sql.alive.format("tasks.node")
        text = f"""
            SELECT {self.sql.task_columns}, {alive}, node, epoch FROM tasks
            WHERE {OWNED} AND task_id = $4"""
        rows: list[Any] = yield Query(text, (*owner, task_id))
        return rows
