"""The knobs of one runtime instance."""

from dataclasses import dataclass

__all__ = ["UNSET", "RuntimeSettings", "Unset"]


class Unset:
    """The type of `UNSET`: "not given", where None means "no limit"."""


UNSET = Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Limits of a runtime; the defaults suit a library (ruling 40).

    Attributes:
        max_steps: Messages that a task may process in one run; None for no limit.
        max_concurrent_turns: Agent turns that run at the same time.
        shutdown_grace: Seconds that running turns get when the runtime stops.
        max_repairs: Turns an agent gets to mend a reply that cannot be used.
        max_attempts: Process deaths that one delivery may cause before it is put aside.
        recent_events: Events kept in memory per task for the synchronous accessors.
        recent_tasks: Finished tasks kept in memory for the synchronous accessors.
        stream_buffer: Events buffered per stream; a slower reader catches up from the store.
    """

    max_steps: int | None = None
    max_concurrent_turns: int = 64
    shutdown_grace: float = 20.0
    max_repairs: int = 2
    max_attempts: int = 5
    recent_events: int = 1000
    recent_tasks: int = 256
    stream_buffer: int = 256
