"""Approvals: how held calls are configured, who may answer them, and what an answer says."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from mail.errors import ApprovalError, ConfigError

AnswerType = Literal["accept", "edit", "ignore", "response"]
Describe = Callable[[str, str, dict[str, Any]], str]
"""``describe(task_text, action, args)`` returns the Markdown that a person reads."""

ALLOWS: Final[Mapping[str, str]] = {
    "accept": "allow_accept",
    "edit": "allow_edit",
    "ignore": "allow_ignore",
    "response": "allow_respond",
}
"""Answer to the setting that allows it."""

STATUSES: Final[Mapping[str, str]] = {
    "accept": "accepted",
    "edit": "edited",
    "ignore": "ignored",
    "response": "responded",
}
"""Answer to the status of an approval that has got it."""

BREAKPOINT_CONFIG: Final[Mapping[str, bool]] = {
    "allow_accept": False,
    "allow_edit": False,
    "allow_ignore": False,
    "allow_respond": True,
}
"""The answers to a call of a breakpoint tool."""

_TIMEOUTS: Final = ("deny", "ignore", "accept")
_KNOWN: Final = ("owner", "admin")
_NAMED: Final = ("user:", "participant:")
_LONGEST_TTL: Final = 366 * 24 * 3600.0
_LONGEST_NAME: Final = 255

MEMORY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""The pattern of a memory's name."""
_MOST_APPROVERS: Final = 100


class Answerer(NamedTuple):
    """A person, or the system, that answers a held call.

    Attributes:
        role: The caller's role, or ``system`` for a time-out.
        id: The caller's id.
        participant: Whether the caller is a participant of the swarm.
        owner: Whether the task is the caller's own.
    """

    role: str
    id: str
    participant: bool = False
    owner: bool = False

    def __str__(self) -> str:
        return f"participant:{self.id}" if self.participant else f"{self.role}:{self.id}"

    def may(self, approvers: Sequence[str]) -> bool:
        """Tell whether the caller is one of the approvers."""
        known = {str(self)} if self.participant or self.role == "user" else set()
        known |= {"owner"} if self.owner else set()
        known |= {"admin"} if self.role == "admin" else set()
        return self.role == "system" or not known.isdisjoint(approvers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The rules by which calls of a tool are held until a person has answered.

    Attributes:
        allow_accept: The call may be run as it is.
        allow_edit: It may be run with other arguments.
        allow_ignore: It may be left out, which ends the workflow.
        allow_respond: A text may be given as its result.
        ttl: Seconds until nobody may answer any more; None for no limit.
        on_timeout: The answer then: ``deny`` (the agent is told, and goes on), ``ignore`` or
            ``accept``.
        approvers: Those who may answer: ``owner`` (of the task), ``admin``, ``user:<id>``,
            ``participant:<id>``.
        describe: Makes the description that a person reads; by default the task's first message
            and the call.
        feedback: Answer type to the name of the memory that such an answer teaches.

    Raises:
        ConfigError: a value that is none of these, naming it.
    """

    allow_accept: bool = True
    allow_edit: bool = True
    allow_ignore: bool = True
    allow_respond: bool = True
    ttl: float | None = None
    on_timeout: Literal["deny", "ignore", "accept"] = "deny"
    approvers: Sequence[str] = _KNOWN
    describe: Describe | None = None
    feedback: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        for name in ALLOWS.values():
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"approval: {name} must be true or false")
        if not self.allowed:
            raise ConfigError(f"approval: allow at least one of {', '.join(ALLOWS.values())}")
        self._check_time()
        object.__setattr__(self, "approvers", _approvers(self.approvers))
        if self.describe is not None and not callable(self.describe):
            raise ConfigError("approval: describe must be a function")
        if self.feedback is not None:
            object.__setattr__(self, "feedback", _feedback(self.feedback))

    def _check_time(self) -> None:
        ttl = self.ttl
        number = isinstance(ttl, int | float) and not isinstance(ttl, bool)
        if ttl is not None and not (number and 0 < ttl <= _LONGEST_TTL):
            raise ConfigError(
                "approval: ttl must be a number of seconds above 0 and at most a year, or null; "
                f"got {ttl!r}"
            )
        if self.on_timeout not in _TIMEOUTS:
            raise ConfigError(
                f"approval: on_timeout must be one of {', '.join(_TIMEOUTS)}; "
                f"got {self.on_timeout!r}"
            )

    @property
    def allowed(self) -> list[str]:
        """The answers that are allowed."""
        return [answer for answer, setting in ALLOWS.items() if getattr(self, setting)]

    @property
    def config(self) -> dict[str, bool]:
        """The allowed answers, as approvals show them."""
        return {setting: getattr(self, setting) for setting in ALLOWS.values()}


def _approvers(given: object) -> tuple[str, ...]:
    listed = list(given) if isinstance(given, list | tuple) else []
    if not listed or len(listed) > _MOST_APPROVERS:
        raise ConfigError(f"approval: approvers must be a list of 1 to {_MOST_APPROVERS} names")
    for name in listed:
        named = isinstance(name, str) and name.startswith(_NAMED) and name.partition(":")[2]
        if not (name in _KNOWN or (named and len(name) <= _LONGEST_NAME and name.isprintable())):
            raise ConfigError(
                "approval: an approver is 'owner', 'admin', 'user:<id>' or 'participant:<id>'; "
                f"got {name!r}"
            )
    return tuple(listed)


def _feedback(given: object) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ConfigError("approval: feedback must be an object from answer to memory name")
    for answer, name in given.items():
        if answer not in ALLOWS:
            raise ConfigError(
                f"approval: feedback is given for {', '.join(ALLOWS)}; got {answer!r}"
            )
        if not isinstance(name, str) or not MEMORY_NAME.fullmatch(name):
            raise ConfigError(
                "approval: feedback names a memory with 1 to 64 letters, digits, '_' and '-'"
            )
    return dict(given)


NO_APPROVALS: Final[Mapping[str, Approval]] = MappingProxyType({})


class Answer(NamedTuple):
    """An answer as it was given.

    Attributes:
        type: The kind of answer.
        action: The tool that an edit names, or no text.
        args: The arguments of an edit; of an accept only where it repeats them.
        text: The text of a response.
    """

    type: AnswerType
    action: str = ""
    args: Mapping[str, Any] | None = None
    text: str = ""

    def to_wire(self) -> dict[str, Any]:
        """Return the answer as the record of an approval shows it."""
        if self.type == "edit":
            return {
                "type": self.type,
                "args": {"action": self.action, "args": dict(self.args or {})},
            }
        return {"type": self.type, "args": self.text if self.type == "response" else None}


def read_answer(given: object) -> Answer:
    """Read an answer: an object with ``type`` and ``args``, or a list with one.

    Raises:
        ApprovalError: it is none.
    """
    if isinstance(given, list | tuple):
        if len(given) != 1:
            raise ApprovalError("the answer must be an object, or a list with one object")
        given = given[0]
    if not isinstance(given, Mapping):
        raise ApprovalError("the answer must be an object with 'type' and 'args'")
    unknown = sorted(str(name) for name in given if name not in ("type", "args"))
    if unknown:
        raise ApprovalError(f"the answer has 'type' and 'args', and no '{unknown[0][:80]}'")
    kind, args = given.get("type"), given.get("args")
    if kind == "accept":  # some tools repeat the request; what differs from it is refused later
        return Answer("accept") if args is None else _edit(args)._replace(type="accept")
    if kind == "ignore":
        return Answer("ignore")
    if kind == "edit":
        return _edit(args)
    if kind == "response":
        if not isinstance(args, str) or not args.strip():
            raise ApprovalError("args of a response must be a text")
        return Answer("response", text=args)
    raise ApprovalError(f"type must be one of {', '.join(ALLOWS)}")


def _edit(args: object) -> Answer:
    if not isinstance(args, Mapping) or not isinstance(args.get("args"), Mapping):
        raise ApprovalError("args must be an object with 'action' and 'args'")
    action = args.get("action", "")
    if not isinstance(action, str):
        raise ApprovalError("the action in args must be a text")
    if not all(isinstance(name, str) for name in args["args"]):
        raise ApprovalError("the names of arguments must be texts")
    return Answer("edit", action, dict(args["args"]))
