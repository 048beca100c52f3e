"""Resuming a paused task: results for its open breakpoint calls, ready for one commit (ruling 31).

Everything is checked before anything is changed, so a refused resume leaves no trace.
"""

from dataclasses import dataclass, field

from pydantic_core import to_json

from mail.core.compose import Subject
from mail.core.runtime.active_tasks import LiveTask
from mail.core.runtime.breakpoints import match_answers
from mail.core.runtime.context import Parts
from mail.core.runtime.delivery import Mail, PostOffice
from mail.core.runtime.mailbox import LaneKey
from mail.core.runtime.turn import Control, ControlKind, EventDraft
from mail.core.tools.call import AgentToolCall
from mail.db.base import CallRow, EventRow, HistoryRow, Post
from mail.errors import UnknownAgent

__all__ = ["Resumption", "prepare_resumption"]


@dataclass(slots=True, eq=False)
class Resumption:
    """What a resume changes.

    ``calls`` are the answered rows, ``before`` the same rows as they were. ``ready`` are the agents
    that have all of their results now; ``mail`` wakes them.
    """

    task: LiveTask
    before: list[CallRow]
    calls: list[CallRow] = field(default_factory=list)
    histories: list[HistoryRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    ready: dict[str, CallRow] = field(default_factory=dict)
    mail: Mail = field(default_factory=Mail)

    @property
    def steps(self) -> frozenset[str]:
        """The ids of the manual steps that the answered calls belong to."""
        controls = [Control.from_json(row.control) for row in self.calls]
        return frozenset(found.step.ref for found in controls if found and found.step)

    def apply(self) -> None:
        """Note the results in the live task."""
        self._note(self.calls)

    def undo(self) -> None:
        """Take `apply` back: the results could not be stored."""
        self._note(self.before)

    def _note(self, rows: list[CallRow]) -> None:
        self.task.calls.update(((row.agent, row.call_id), row) for row in rows)

    def fill(self, post: Post) -> None:
        """Put everything into a commit of the task."""
        post.deliveries, post.events = self.mail.deliveries, tuple(self.events)
        post.histories, post.calls = tuple(self.histories), tuple(self.calls)

    def stored(self, parts: Parts) -> None:
        """Let the agents see their results, and those go on that have all of them."""
        parts.histories.forget(self.task.task_id, {row.agent for row in self.calls})
        self.task.fresh = False  # the store knows more of them now
        for agent in self.ready:
            parts.mailbox.unblock(LaneKey(self.task.task_id, agent))


def prepare_resumption(
    task: LiveTask, payload: object, parts: Parts, post_office: PostOffice
) -> Resumption:
    """Check the results that a caller gives; nothing is changed yet.

    Raises:
        BreakpointError, AlreadyAnswered: see `mail.core.runtime.breakpoints.match_answers`.
        UnknownAgent: a paused agent is not in the swarm any more.
    """
    answers = match_answers(task, payload)
    resumption = Resumption(task, [row for row, _ in answers])
    now = parts.clock.now()
    for row, content in answers:
        if row.agent not in parts.agents:
            raise UnknownAgent(f"agent '{row.agent}', whose call '{row.call_id}' is, has gone")
        _record(resumption, row, content, now)
    resumption.ready = _ready(resumption)
    for agent in sorted(resumption.ready):
        control = Control.from_json(resumption.ready[agent].control)
        notice = parts.composer.notice(task.task_id, agent, Subject.ACTION_COMPLETE_BROADCAST, "")
        post_office.add(
            resumption.mail, notice, control or Control(ControlKind.RESUME), silent=True
        )
    return resumption


def _ready(resumption: Resumption) -> dict[str, CallRow]:
    """Return the agents whose last open calls are answered, each with one of its calls."""
    done = {(row.agent, row.call_id) for row in resumption.calls}
    return {
        row.agent: row
        for row in resumption.calls
        if all((c.agent, c.call_id) in done for c in resumption.task.open_calls(row.agent))
    }


def _record(resumption: Resumption, row: CallRow, content: str, timestamp: str) -> None:
    resumption.calls.append(row._replace(answer=content))
    made = AgentToolCall.model_validate_json(row.call)
    entry = to_json([made.create_response_msg(content)]).decode()
    resumption.histories.append(HistoryRow(row.agent, entry))
    event = EventDraft(
        "breakpoint_action_complete",
        f"breakpoint action complete (caller = {row.agent}):\n{content}",
        {
            "caller": row.agent,
            "tool_name": made.tool_name,
            "tool_call_id": row.call_id,
            "result": content,
        },
    )
    resumption.events.append(event.row(timestamp))
