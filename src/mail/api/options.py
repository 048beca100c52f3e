"""The extra keyword arguments that callers may give with a message: an allow-list."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mail.core.runtime.settings import UNSET, Unset
from mail.core.suggest import did_you_mean
from mail.errors import ProtocolError

__all__ = ["DEFAULT_TIMEOUT", "RUN_OPTIONS", "RunOptions", "read_options"]

DEFAULT_TIMEOUT: Final = 3600.0

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
