"""Additions of subjects to changes of a task: federation, letters, teams, pauses, manual mode.

Each is a module of its own with a class derived from `TaskSubject`, which the runtime makes and
registers. The end of a turn, the end of a run and the commit call them `together`, and name none.
So a new one touches no module of another.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask, Turn
from mail.core.runtime.turn import Control
from mail.core.runtime.turn_result import TurnResult
from mail.db.calls import CallRow
from mail.db.commit import Commit

# `delivery` and `transaction` are above: the steps that they are of call subjects.
Mail: TypeAlias = Any
TaskChange: TypeAlias = Any
Ending: TypeAlias = Any


class TaskSubject:
    """A subject that adds nothing. Where a method says True, the subjects behind it are not asked.

    A ``change`` is a `mail.core.runtime.transaction.TaskChange`.
    """

    # --- mail -----------------------------------------------------------------------------------

    def addressed(self, mail: Mail, envelope: Envelope) -> None:
        """Send a message to those of its recipients that are not in the mailbox."""

    def takes(self, mail: Mail, name: str, envelope: Envelope, control: Control | None) -> bool:
        """Take a message for an agent, which does not get into the mailbox then."""
        return False

    def answered(self, mail: Mail, agent: str, results: Sequence[dict[str, str]]) -> None:
        """Send an agent that is elsewhere the results of its calls: their ids and contents."""

    # --- the end of a turn ----------------------------------------------------------------------

    def unwanted(self, turn: Turn) -> bool:
        """Tell whether nobody wants a turn any more that is about to begin."""
        return False

    def concluded(self, change: TaskChange, turn: Turn, turn_result: TurnResult) -> None:
        """Note what a turn has read and done, before its mail is sent."""

    def pauses(self, change: TaskChange, turn: Turn, turn_result: TurnResult) -> bool:
        """Let the task wait for the results of a turn's calls."""
        return False

    def failed(self, change: TaskChange, turn: Turn, reason: str) -> bool:
        """Tell whoever a turn's agent works for that it failed."""
        return False

    # --- a task without turns -------------------------------------------------------------------

    def watches(self, task: ActiveTask) -> bool:
        """Tell whether a task is to be looked after even when nothing is left to do in it."""
        return False

    def paused(self, change: TaskChange) -> None:
        """Decide what becomes of a paused task whose turns have ended."""

    def awaits(self, change: TaskChange) -> bool:
        """Tell whether something is awaited that comes from outside the mailbox."""
        return False

    def idle(self, change: TaskChange) -> bool:
        """Decide what becomes of a task in which nothing happens; True also if it is to wait."""
        return False

    # --- every change ---------------------------------------------------------------------------

    def ended(self, change: TaskChange, ending: Ending) -> None:
        """Add what the end of a run closes, and whom it tells."""

    def last(self, change: TaskChange, turn_result: TurnResult | None) -> None:
        """Add what depends on all other decisions; with the result of a turn, if it ends."""

    def collected(self, change: TaskChange, commit: Commit) -> None:
        """Complete a commit that has everything else."""

    async def prepare(self, commit: Commit) -> None:
        """Complete a commit from the store, each time that it is tried."""

    async def repaired(self, commit: Commit) -> bool:
        """Mend a commit that the mail desk has refused; True if it is to be tried again."""
        return False

    # --- in memory ------------------------------------------------------------------------------

    def restored(self, task: ActiveTask, calls: Sequence[CallRow]) -> None:
        """Take up a task from the store, with all of its calls."""

    def stopped(self, task: ActiveTask) -> None:
        """Let go of those who wait, because the runtime stops."""


def together(*subjects: TaskSubject) -> TaskSubject:
    """Return subjects as one: each of its methods calls, in order, those that add something."""
    whole = TaskSubject()
    for name, several, places in _additions(*map(type, subjects)):
        methods = [getattr(subjects[place], name) for place in places]
        setattr(whole, name, methods[0] if len(methods) == 1 else several(methods))
    return whole


@cache
def _additions(*kinds: type[TaskSubject]) -> list[tuple[str, Callable[..., Any], list[int]]]:
    """Return the methods that classes add something to: name, how they are called, and whose."""
    found = []
    for name, nothing in vars(TaskSubject).items():
        if not name.startswith("_"):
            places = [at for at, kind in enumerate(kinds) if getattr(kind, name) is not nothing]
            several = _awaited if inspect.iscoroutinefunction(nothing) else _called
            found += [(name, several, places)] if places else []
    return found


def _called(methods: Sequence[Callable[..., bool | None]]) -> Callable[..., bool]:
    return lambda *arguments: any(method(*arguments) for method in methods)


def _awaited(methods: Sequence[Callable[..., Awaitable[bool | None]]]) -> Callable[..., Any]:
    async def call(*arguments: object) -> bool:
        for method in methods:
            if await method(*arguments):
                return True
        return False

    return call
