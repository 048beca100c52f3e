"""Relayed calls: what a process asks of the one that has a task; see `mail.core.runtime.relay`."""

from typing import Final, NamedTuple

from mail.db.driver import Change, Insert, Query, Verb, Verbs, read, write
from mail.db.records import Owner
from mail.db.rows import OWNED, OWNER_COLUMNS

_ADD: Final = "INSERT INTO relayed (task, kind, arguments) VALUES ($1, $2, $3)"
_MAKE: Final = "UPDATE relayed SET node = $2 WHERE number = $1 AND node = ''"
_ANSWER: Final = "UPDATE relayed SET answer = $2 WHERE number = $1"
_FORGET: Final = "DELETE FROM relayed WHERE number = $1"


class RelayedCall(NamedTuple):
    """A call that another process is to make.

    Attributes:
        number: Given by the store.
        owner: The owner of the task.
        kind: What is to be called.
        arguments: Its arguments as JSON.
    """

    number: int
    owner: Owner
    kind: str
    arguments: str


class RelayVerbs(Verbs):
    """Relayed calls."""

    @write
    def relay(self, owner: Owner, task_id: str, kind: str, arguments: str) -> Verb[int | None]:
        """Ask the process that has a task to make a call; return its number.

        None means that there is no such task.
        """
        text = f"SELECT key FROM tasks WHERE {OWNED} AND task_id = $4"
        found = yield Query(text, (*owner, task_id))
        if not found:
            return None
        (number,) = yield Insert(_ADD, "number", [(found[0][0], kind, arguments)])
        return int(number)

    @read
    def relayed_calls(self, swarm: str) -> Verb[list[RelayedCall]]:
        """Return the calls that this process is to make, oldest first: 64 at most."""
        text = f"""
            SELECT number, {OWNER_COLUMNS}, kind, arguments
            FROM relayed JOIN tasks ON tasks.key = relayed.task
            WHERE swarm_name = $1 AND tasks.node = $2 AND relayed.node = ''
            ORDER BY number LIMIT 64"""
        rows = yield Query(text, (swarm, self.driver.node))
        return [RelayedCall(row[0], Owner(*row[1:4]), *row[4:]) for row in map(tuple, rows)]

    @write
    def make_relayed(self, number: int) -> Verb[bool]:
        """Begin to make a call; False if it was withdrawn, or somebody else makes it."""
        return bool((yield Change(_MAKE, (number, self.driver.node))))

    @write
    def answer_relayed(self, number: int, answer: str) -> Verb[None]:
        """Store what came of a call, as JSON, for whoever asked."""
        yield Change(_ANSWER, (number, answer))

    @read
    def relayed_answer(self, number: int) -> Verb[str | None]:
        """Return what came of a call, or None as long as nothing has."""
        rows = yield Query("SELECT answer FROM relayed WHERE number = $1", (number,))
        return rows[0][0] if rows else None

    @write
    def forget_relayed(self, number: int) -> Verb[None]:
        """Remove a call whose answer is known, or not wanted any more."""
        yield Change(_FORGET, (number,))

    @write
    def withdraw_relayed(self, number: int) -> Verb[bool]:
        """Take a call back that nobody will make: its task is nobody's, or their process is gone.

        Returns:
            False as long as somebody may make it, or once it was answered.
        """
        at_work = self.sql.alive
        text = f"""
            DELETE FROM relayed WHERE number = $1 AND answer IS NULL
                AND (relayed.node = '' OR NOT {at_work.format("relayed.node")})
                AND NOT EXISTS (
                    SELECT 1 FROM tasks
                    WHERE tasks.key = relayed.task AND tasks.node NOT IN ('', $2)
                        AND {at_work.format("tasks.node")})"""
        return bool((yield Change(text, (number, self.driver.node))))
