"""Claims: which process works on a task. Each commit of the task proves it, so only one can.

A claim is two columns of the task: ``node``, the name of the store that holds it (none when the
task has nothing to do), and ``epoch``, the number of claims so far. See the chapter "Claims" of
docs/database.md.
"""

from typing import Final, NamedTuple

from mail.db.driver import Query, Verb, Verbs, read, write
from mail.db.records import Owner, TaskRow
from mail.db.rows import OWNED
from mail.errors import ClaimLost

_TAKE: Final = f"""
UPDATE tasks SET node = $5, epoch = epoch + 1
WHERE {OWNED} AND task_id = $4 AND epoch = $6 RETURNING epoch
"""


class TaskClaim(NamedTuple):
    """The claim of a task as a process knows it.

    Attributes:
        epoch: The number of claims that the task has had.
        held: Whether the newest one is this process's. Nobody has the task otherwise, and the next
            commit takes it.
    """

    epoch: int = 0
    held: bool = False

    @property
    def next_epoch(self) -> int:
        """The epoch with the next commit."""
        return self.epoch + (not self.held)

    def after(self, *, running: bool) -> "TaskClaim":
        """Return the claim after a commit: a task that does not run is nobody's."""
        return TaskClaim(self.next_epoch, held=running)


class ClaimVerbs(Verbs):
    """Claims of tasks."""

    async def claim_task(self, owner: Owner, task_id: str) -> tuple[TaskRow, TaskClaim] | None:
        """Return a task, and the claim under which it may be worked on; None if there is none.

        A task that is nobody's is not changed. From others it is taken: what they still commit is
        refused.

        Raises:
            ClaimLost: somebody else has taken it at the same moment.
        """
        found = await self._claimed(owner, task_id)
        if found is None or not found[0]:
            return found and found[1:]
        return await self._take(owner, task_id, found[2].epoch)

    @read
    def _claimed(self, owner: Owner, task_id: str) -> Verb[tuple[str, TaskRow, TaskClaim] | None]:
        rows = yield from self._row(owner, task_id)
        if not rows:
            return None
        *row, node, epoch = rows[0]
        return node, self.sql.as_task(row), TaskClaim(epoch)

    @write
    def _take(self, owner: Owner, task_id: str, epoch: int) -> Verb[tuple[TaskRow, TaskClaim]]:
        taken = yield Query(_TAKE, (*owner, task_id, self.driver.node, epoch))
        rows = yield from self._row(owner, task_id)
        if not (taken and rows):
            raise ClaimLost(task_id)
        return self.sql.as_task(tuple(rows[0])[:-2]), TaskClaim(epoch + 1, held=True)

    def _row(self, owner: Owner, task_id: str) -> Verb[list[tuple[object, ...]]]:
        text = f"SELECT {self.sql.task_columns}, node, epoch FROM tasks WHERE {OWNED} AND task_id = $4"
        return (yield Query(text, (*owner, task_id)))
