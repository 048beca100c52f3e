"""The system's instruction to a turn, beside the message that it answers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from pydantic_core import from_json, to_json

ResponseType = Literal["broadcast", "response", "request"]
"""The kind of message that the last words of a manual step become."""


class ControlKind(StrEnum):
    """The instruction of a system message to the turn that takes it."""

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
        payload: The driver's addition to the agent's buffered mail.
        llm: The model of this step in place of the agent's own.
        system: The system prompt of this step in place of the agent's own.
        ctx_ratio: The step's ``dynamic_ctx_ratio``; 0 for the runtime's.
        calls: The number of calls of the agent in this step, with the running one.
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
    """The progress of a turn: an interrupt can still cancel the model's call, nothing after it."""

    MODEL = "model"
    ACTING = "acting"
