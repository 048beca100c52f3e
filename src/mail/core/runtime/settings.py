"""The knobs of one runtime instance."""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.db.commit import Commit
    from mail.db.records import Owner
    from mail.db.webhooks import WebhookRow

_WHOLE = (int,)
_FRACTIONS = (int, float)
_MONEY = ("task_cost_limit",)
_LIMITS = (
    "max_steps",
    "task_token_limit",
    "task_cost_limit",
    "task_byte_limit",
    "max_history_bytes",
    "max_result_bytes",
    "max_argument_bytes",
    "max_reply_bytes",
    "max_concurrent_turns",
)
_COUNTS = MappingProxyType(
    {
        "max_step_calls": 1,
        "max_repairs": 0,
        "max_attempts": 1,
        "recent_events": 0,
        "recent_tasks": 0,
        "stream_buffer": 1,
    }
)
"""The least that makes sense."""


class Unset(Enum):
    """The type of `UNSET`: "not given", where None means "no limit"."""

    UNSET = "unset"


UNSET = Unset.UNSET


class Starts(Protocol):
    """The part of a runtime's scheduler that the limit uses."""

    @property
    def at_work(self) -> int:
        """The number of the runtime's turns that are at work."""

    def start_one(self) -> bool:
        """Start the next turn; tell whether there was one."""


class TurnLimit:
    """A limit of the turns that are at work at the same time in the runtimes that share it.

    A free place goes to the runtime with the fewest turns at work, among those that have mail.

    Args:
        most: The number of places.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._asking: dict[Starts, None] = {}

    def fill(self, scheduler: Starts) -> None:
        """Start what a runtime has ready as places become free, side by side with the others."""
        self._asking[scheduler] = None
        self._hand_out()

    def leave(self) -> None:
        """Give a place back."""
        self._free += 1
        if self._asking:
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _hand_out(self) -> None:
        while self._free > 0 and self._asking:
            if len(self._asking) == 1:
                (least,) = self._asking
            else:
                least = min(self._asking, key=lambda scheduler: scheduler.at_work)
            if least.start_one():
                self._free -= 1
            else:
                del self._asking[least]


class News(Protocol):
    """Tells somebody outside of commits; see `mail.services.webhook`."""

    def told_by(self, commit: "Commit") -> "tuple[WebhookRow, ...]":
        """Return what is to be stored with a commit."""

    def wake(self) -> None:
        """Hear that something has been stored."""


class Quota(Protocol):
    """Limits the storage of the owners of tasks; see `mail.server.storage`."""

    def wrote(self, owner: "Owner", size: int) -> None:
        """Hear that a commit has added so many bytes."""

    def refusal(self, owner: "Owner") -> str | None:
        """Return why no task of an owner may go on; None if it may."""

    async def open_tasks(self, owner: "Owner") -> int | None:
        """Return how many tasks of an owner run, are queued or paused; None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Limits of a runtime; the defaults suit a library.

    Attributes:
        max_steps: Messages that a task may process in one run; None for no limit.
        task_token_limit: Tokens that the model calls of a task may use, in all of its runs
            together; None for no limit.
        task_cost_limit: US dollars that they may cost, as far as prices are known; None for no
            limit.
        task_byte_limit: About how many bytes the records of a task may take before no further model
            calls are made for it; None for no limit.
        max_history_bytes: Bytes that the histories of an owner's agents may take in memory; an
            agent whose history in a task is larger is not called any more. None for no limit.
        max_result_bytes: The result of an action is cut after so many bytes; None for no limit.
        max_argument_bytes: Arguments of a tool call that have more bytes as JSON are refused, with
            a turn to mend the call; None for no limit.
        max_reply_bytes: An agent whose reply has more bytes fails; None for no limit.
        dynamic_ctx_ratio: The share of a model's context (0 to 1) above which older history is
            summarised for the call; 0 for never.
        max_concurrent_turns: Agent turns that run at the same time; None for no limit.
        queue_after: Tasks at work in the runtime after which new ones wait in a store that is
            shared, for any process that has room; None for never.
        turn_limit: A limit of turns that several runtimes share, beside their own; None for none.
        shutdown_grace: Seconds that running turns get when the runtime stops.
        max_step_calls: Times that an agent is called in one manual step before the step fails.
        max_repairs: Turns an agent gets to mend a reply that cannot be used.
        max_attempts: Process deaths that one delivery may cause before it is put aside.
        recent_events: Events kept in memory per task for the synchronous accessors.
        recent_tasks: Finished tasks kept in memory for the synchronous accessors.
        exposed: The agents that mail of other swarms may reach, among those with
            ``enable_entrypoint`` or ``enable_interswarm``. None for all of these.
        stream_buffer: Events buffered per stream; a slower reader catches up from the store.
        memories: The texts of memories that nobody has changed, by name.
        hint_pause: Seconds after which other swarms hear that nothing goes on in a task but
            waiting, if no mail has told them; it doubles when they do not answer.
        news: The events that the webhook is told; None without one.
        quota: The limit on the storage of tasks' owners; None for no limit.
    """

    max_steps: int | None = None
    task_token_limit: int | None = None
    task_cost_limit: float | None = None
    task_byte_limit: int | None = None
    max_history_bytes: int | None = None
    max_result_bytes: int | None = None
    max_argument_bytes: int | None = None
    max_reply_bytes: int | None = None
    dynamic_ctx_ratio: float = 0.0
    max_concurrent_turns: int | None = None
    queue_after: int | None = None
    turn_limit: TurnLimit | None = None
    shutdown_grace: float = 20.0
    max_step_calls: int = 50
    max_repairs: int = 2
    max_attempts: int = 5
    recent_events: int = 1000
    recent_tasks: int = 256
    stream_buffer: int = 256
    exposed: frozenset[str] | None = None
    hint_pause: float = 1.0
    memories: Mapping[str, str] = field(default_factory=dict)
    news: News | None = None
    quota: Quota | None = None

    def __post_init__(self) -> None:
        """Check all limits.

        Raises:
            ConfigError: a number of the wrong type or size, naming it.
        """
        for name in _LIMITS:
            limit, kinds = getattr(self, name), _FRACTIONS if name in _MONEY else _WHOLE
            if limit is not None and not (_is(limit, *kinds) and 0 < limit < math.inf):
                noun = "number" if name in _MONEY else "whole number"
                raise ConfigError(
                    f"{name} must be a {noun} above 0, or None for no limit; got {limit!r}"
                )
        ratio, grace = self.dynamic_ctx_ratio, self.shutdown_grace
        if not (_is(ratio, *_FRACTIONS) and 0 <= ratio <= 1):
            raise ConfigError(f"dynamic_ctx_ratio must be between 0 and 1, got {ratio!r}")
        if not (_is(grace, *_FRACTIONS) and grace >= 0):
            raise ConfigError(
                f"shutdown_grace must be 0 or a positive number of seconds, got {grace!r}"
            )
        for name, least in _COUNTS.items():
            count = getattr(self, name)
            if not (_is(count, *_WHOLE) and count >= least):
                raise ConfigError(
                    f"{name} must be a whole number of at least {least}, got {count!r}"
                )


def _is(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)
