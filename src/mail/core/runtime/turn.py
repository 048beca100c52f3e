"""One agent's turn: the message that it answers, and the system's instruction beside it."""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic_core import from_json, to_json

from mail.clock import format_uuid
from mail.core.envelope import Envelope
from mail.db.records import EventRow

if TYPE_CHECKING:
    import asyncio

    from mail.core.addresses import MAILAddress
    from mail.core.runtime.active_tasks import ActiveTask
    from mail.core.runtime.mailbox import QueuedMessage

ResponseType = Literal["broadcast", "response", "request"]
"""How the words that end a manual step are sent."""


class ControlKind(StrEnum):
    """What a system message asks of the turn that takes it."""

    NOTICE = "notice"
    FOLLOW_UP = "follow_up"
    REPAIR = "repair"
    FINISH = "finish"
    RESUME = "resume"
    STEP = "step"
    RUN = "run"
    END = "end"


class Origin(NamedTuple):
    """For whom an agent works when the system prompts it: who asked, and with which request."""

    address_type: str
    address: str
    ref: str

    @property
    def is_person(self) -> bool:
        """Tell whether a user or administrator asked."""
        return self.address_type in ("user", "admin")


class ManualStep(NamedTuple):
    """A step that a driver in manual mode asked for: who hears the words that end it, and how.

    Attributes:
        ref: The step's own id; its caller waits under it.
        response_type: broadcast, response or request.
        targets: The agents that get the words, or ``("all",)``.
        payload: What the driver adds to the agent's buffered mail.
        llm: The model of this step in place of the agent's own.
        system: The system prompt of this step in place of the agent's own.
        ctx_ratio: The step's ``dynamic_ctx_ratio``; 0 for the runtime's.
        calls: How often the agent has been called in this step, with the running call.
    """

    ref: str
    response_type: "ResponseType"
    targets: tuple[str, ...]
    payload: str = ""
    llm: str | None = None
    system: str | None = None
    ctx_ratio: float = 0.0
    calls: int = 1


@dataclass(frozen=True, slots=True)
class Control:
    """The typed instruction beside a system message, whose text decides nothing (MAIL-DATA-13).

    ``reason`` of a FINISH is ``"limit"`` or ``"stall"``; ``attempt`` counts repair turns. ``step``
    is the manual step that the turn belongs to. A RUN runs the accepted ``call`` of the agent, by
    its id and with these arguments; an END ends the run, because somebody ignored a call.
    ``letters`` are the ids of the participants' letters that ended waits whose results the turn
    reads.
    """

    kind: ControlKind
    reason: str = ""
    attempt: int = 0
    origin: Origin | None = None
    step: ManualStep | None = None
    call: tuple[str, dict[str, Any]] | None = None
    letters: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the instruction as JSON."""
        parts: list[Any] = [self.kind, self.reason, self.attempt, self.origin, self.step]
        more = [self.call, self.letters] if self.call or self.letters else []
        return to_json(parts + more).decode()

    @property
    def decided(self) -> bool:
        """Tell whether it carries out what somebody answered about a held call."""
        return self.kind in (ControlKind.RUN, ControlKind.END)

    @classmethod
    def from_json(cls, text: str | None) -> "Control | None":
        """Read what `to_json` wrote; None stays None."""
        if text is None:
            return None
        kind, reason, attempt, origin, *more = from_json(text)
        step = ManualStep(*more[0]) if more and more[0] else None
        return cls(
            ControlKind(kind),
            reason,
            attempt,
            Origin(*origin) if origin else None,
            step._replace(targets=tuple(step.targets)) if step else None,
            (more[1][0], more[1][1]) if more[1:] and more[1] else None,
            tuple(more[2]) if more[2:] else (),
        )


class Phase(StrEnum):
    """How far a turn is: an interrupt can still cancel the model's call, nothing after it."""

    MODEL = "model"
    ACTING = "acting"


@dataclass(slots=True, eq=False, kw_only=True)
class Turn:
    """A claimed delivery while its agent works on it.

    ``step`` is the turn's identity: the same text when the turn is run again after a crash.
    ``counted`` tells that the turn got past the step limit; it is a step once it is committed.
    ``begun`` tells that its asyncio task runs, ``void`` that its mail was cancelled meanwhile.
    ``reports`` are the events of its model calls that no commit has taken yet. ``buffered`` is the
    mail that a manual step shows its agent; it is consumed together with the step. ``shown`` is the
    message as its agent reads it. ``awaits`` are the teammates whose replies it will wait for.

    ``envelope``, ``control`` and ``seq`` are those of the delivery, ``manual`` the manual step that
    it belongs to, if any. ``finishing`` tells that the system asks the agent to finish the run.
    """

    task: "ActiveTask"
    agent: str
    queued: "QueuedMessage"
    phase: Phase = Phase.MODEL
    abandoned: bool = False
    counted: bool = False
    begun: bool = False
    void: bool = False
    handle: "asyncio.Task[None] | None" = None
    partial: list[str] = field(default_factory=list)
    reports: list[EventRow] = field(default_factory=list)
    buffered: "list[QueuedMessage]" = field(default_factory=list)
    shown: str = ""
    awaits: list[str] = field(default_factory=list)
    envelope: Envelope = field(init=False)
    control: Control | None = field(init=False)
    manual: ManualStep | None = field(init=False)
    finishing: bool = field(init=False)
    seq: int = field(init=False)
    step: str = field(init=False)
    _made: int = 0

    def __post_init__(self) -> None:
        queued, task = self.queued, self.task
        self.envelope, self.control, self.seq = queued.envelope, queued.control, queued.seq
        control = queued.control
        self.manual = control.step if control else None
        self.finishing = control is not None and control.kind is ControlKind.FINISH
        self.step = f"{task.row.task_owner}/{task.task_id}/{queued.envelope.id}/{self.agent}"

    @property
    def runs(self) -> str:
        """The id of the accepted call that it runs in place of calling the agent, or no text."""
        control = self.control
        return control.call[0] if control is not None and control.call is not None else ""

    @property
    def at_limit(self) -> bool:
        """Tell whether the agent is to finish the run because its limit of messages is reached."""
        return self.finishing and self.control is not None and self.control.reason == "limit"

    @property
    def decided(self) -> bool:
        """Tell whether it only carries out what somebody answered about a held call."""
        return self.control is not None and self.control.decided

    @property
    def origin(self) -> Origin | None:
        """For whom the agent works in this turn."""
        sender: MAILAddress = self.envelope.sender
        if sender["address_type"] == "system":
            return self.control.origin if self.control else None
        return Origin(sender["address_type"], sender["address"], self.envelope.ref)

    @property
    def texts(self) -> tuple[str, ...]:
        """What the turn has read, which its records repeat; see `mail.db.post.Post`."""
        own = (self.envelope.body,)
        if not self.buffered:
            return own
        return own + tuple(queued.envelope.body for queued in self.buffered)

    def take_reports(self) -> tuple[EventRow, ...]:
        """Return the events of its model calls for a commit of its own, once."""
        rows = tuple(self.reports)
        self.reports.clear()
        return rows

    def next_id(self) -> str:
        """Return an id for something that the turn makes; a re-run gives the same ids."""
        self._made += 1
        digest = hashlib.sha256(f"{self.step}/{self._made}".encode()).digest()
        return format_uuid(digest[:16], version=8)
