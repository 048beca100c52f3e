"""Messages that are posted into a swarm, and the options of the runs that they begin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from mail.clock import Clock
from mail.core.addresses import create_address, create_agent_address
from mail.core.compose import Composer
from mail.core.envelope import Envelope
from mail.core.runtime.settings import UNSET, Unset
from mail.core.schema import check_task_id, check_text
from mail.core.suggest import did_you_mean
from mail.errors import ProtocolError

SenderType = Literal["admin", "agent", "user"]
PostedKind = Literal["request", "response", "broadcast", "interrupt"]

SENDER_TYPES: Final[tuple[SenderType, ...]] = ("admin", "agent", "user")
POSTED_KINDS: Final[tuple[PostedKind, ...]] = ("request", "response", "broadcast", "interrupt")
_SINGLE: Final = ("request", "response")


def _posted_kind(kind: str) -> PostedKind:
    """Return a message type that may be posted (MAIL-TASK-7).

    Raises:
        ProtocolError: there is no such type, or only the runtime sends it.
    """
    if kind == "broadcast_complete":
        raise ProtocolError("a broadcast_complete cannot be posted; only agents can end tasks")
    if kind not in POSTED_KINDS:
        hint = did_you_mean(str(kind), POSTED_KINDS)
        raise ProtocolError(
            f"invalid message type: '{kind}'; expected one of {', '.join(POSTED_KINDS)}.{hint}"
        )
    return kind


def compose_posted(  # noqa: PLR0913 - the parts of a message
    swarm: str,
    clock: Clock,
    *,
    sender: tuple[str, str],
    kind: str,
    targets: Sequence[str],
    subject: str,
    body: str,
    task_id: str | None,
) -> Envelope:
    """Build a message to agents of a swarm.

    Args:
        swarm: The swarm's name.
        clock: Gives time and ids.
        sender: Kind and name of the sender.
        kind: request, response, broadcast or interrupt; a response gets a fresh ``request_id``.
        targets: Names of agents, or ``all``; exactly one for a request or response.
        subject: The subject.
        body: The body.
        task_id: The task it belongs to; a new one when None.

    Raises:
        ProtocolError: one of these does not make a message.
    """
    if sender[0] not in SENDER_TYPES:
        raise ProtocolError(f"invalid sender type: {sender[0]}")
    if isinstance(targets, str):
        raise ProtocolError(f"targets must be a list of agent names, got the string '{targets}'")
    checked = _posted_kind(kind)
    if checked in _SINGLE and len(targets) != 1:
        raise ProtocolError(f"{checked} messages must have exactly one target")
    if not targets:
        raise ProtocolError(f"{checked} messages must have at least one target")
    check_text(sender[1], "sender")
    check_text(subject, "subject")
    check_text(body, "body")
    return Composer(swarm, clock).message(
        checked,
        clock.new_id() if task_id is None else check_task_id(task_id),
        create_address(sender[1], sender[0]),
        map(create_agent_address, targets),
        subject,
        body,
    )


DEFAULT_TIMEOUT: Final = 3600.0

# An allow-list: other keyword arguments are refused.
RUN_OPTIONS: Final = (
    "timeout",
    "max_steps",
    "breakpoint_tool_call_result",
    "breakpoint_tool_caller",
    "stream_tokens",
)
"""``breakpoint_tool_caller`` is accepted and ignored: the open calls know their agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a caller asks of one run.

    Attributes:
        timeout: Seconds that the caller waits.
        max_steps: Messages that the run may process; None for no limit, UNSET for the swarm's.
        breakpoint_tool_call_result: The results to resume with, in one of the documented shapes.
        stream_tokens: Whether a stream also carries pieces of model calls.
    """

    timeout: float = DEFAULT_TIMEOUT
    max_steps: int | Unset | None = UNSET
    breakpoint_tool_call_result: object = None
    stream_tokens: bool = False

    def for_runtime(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the runtime's ``submit_and_…`` methods."""
        return {
            "max_steps": self.max_steps,
            "breakpoint_tool_call_result": self.breakpoint_tool_call_result,
            "stream_tokens": self.stream_tokens,
        }


def read_options(given: Mapping[str, Any], **known: Any) -> RunOptions:
    """Check extra keyword arguments.

    Args:
        given: What the caller passed.
        known: Options that came as parameters of their own; ``given`` wins over them.

    Raises:
        ProtocolError: an unknown name, or a value of the wrong type.
    """
    for name in given:
        if name not in RUN_OPTIONS:
            hint = did_you_mean(name, RUN_OPTIONS)
            raise ProtocolError(
                f"unknown option '{name}'; allowed are {', '.join(RUN_OPTIONS)}.{hint}"
            )
    options = {**known, **given}
    options.pop("breakpoint_tool_caller", None)
    _check_number("timeout", options.get("timeout", DEFAULT_TIMEOUT))
    steps = options.get("max_steps", UNSET)
    if not (steps is None or isinstance(steps, Unset)):
        options["max_steps"] = _steps(steps)
    if not isinstance(options.get("stream_tokens", False), bool):
        raise ProtocolError("stream_tokens must be true or false")
    return RunOptions(**options)


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ProtocolError(f"{name} must be a number of seconds above 0, got {value!r}")


def _steps(value: object) -> int:
    try:
        if isinstance(value, int | str) and not isinstance(value, bool) and int(value) > 0:
            return int(value)
    except ValueError:
        pass
    raise ProtocolError(f"max_steps must be an int or null, and above 0; got {value!r}")
