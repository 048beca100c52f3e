"""What the commit of a turn, or about a task, is going to change."""

from dataclasses import dataclass, field

from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import LiveTask
from mail.core.runtime.delivery import Mail
from mail.core.runtime.endings import Ending
from mail.core.runtime.turn import Control, Turn
from mail.core.runtime.turn_result import Draft
from mail.db.base import CallRow, EventRow, HistoryRow, Owner, TurnCommit

__all__ = ["Plan"]


@dataclass(slots=True, eq=False)
class Plan:
    """What one commit will change, and what must be told afterwards."""

    task: LiveTask
    mail: Mail = field(default_factory=Mail)
    ending: Ending | None = None
    dead: str | None = None
    calls: tuple[CallRow, ...] = ()  # on which the turn pauses
    step: str = ""  # the manual step that is answered itself
    follow_up: tuple[Envelope, Control] | None = None
    shown: tuple[int, ...] = ()  # buffered mail that a manual step has shown its agent
    cut_off: tuple[EventRow, ...] = ()  # of turns that end with the task

    def turn_commit(self, owner: Owner, turn: Turn, draft: Draft) -> TurnCommit:
        """Return the commit of a turn: what its draft holds and what was decided about it."""
        ending = self.ending
        histories: tuple[HistoryRow, ...] = ()
        if draft.history and draft.failure is None:
            histories = (HistoryRow(turn.agent, draft.history),)
        return TurnCommit(
            owner=owner,
            task=self.task.row,
            seq=turn.seq,
            dead=self.dead,
            deliveries=self.mail.deliveries,
            events=(
                *draft.events,
                *self.mail.events,
                *self.cut_off,
                *(ending.events if ending else ()),
            ),
            histories=histories + (ending.histories if ending else ()),
            calls=(*self.calls, *(ending.calls if ending else ())),
            memories=(*draft.memories, *(ending.memories if ending else ())),
            settled=self.shown + (ending.settled if ending else ()),
            response=ending.response if ending else None,
            snapshot=ending is not None,
        )
