"""The figures of a run: counted while it goes on, and told in one line of the log at its end."""

import logging
import time
from typing import TYPE_CHECKING

from mail import metrics
from mail.core.tasks import TaskState
from mail.core.usage import Spending

if TYPE_CHECKING:
    from mail.core.runtime.waiters import RunEnd

logger = logging.getLogger(__name__)


class RunFigures:
    """Figures of a task's run since it began, or since this process took it up.

    Args:
        usage: The use of models by the task before, as in its row.
    """

    __slots__ = ("_began", "_usage", "agents", "turns")

    def __init__(self, usage: str = "{}") -> None:
        self._began = time.monotonic()
        self._usage = usage
        self.agents: set[str] = set()
        self.turns = 0

    def count(self, agent: str, *, failed: bool) -> None:
        """Count a turn that is stored."""
        self.agents.add(agent)
        self.turns += 1
        metrics.TURNS.add(agent, "failed" if failed else "done")

    def end(self, end: "RunEnd", usage: str) -> None:
        """Count the run, given the task's ``usage`` by now, and log it unless it only pauses."""
        outcome = end.status.value
        metrics.RUNS.add(outcome)
        if end.status is TaskState.PAUSED:
            return
        seconds = time.monotonic() - self._began
        metrics.RUN_SECONDS.observe(seconds, outcome)
        if logger.isEnabledFor(logging.INFO):
            known = {"task_id": end.task_id, "outcome": outcome, **self._used(usage)}
            logger.info("task finished", extra={**known, "seconds": round(seconds, 3)})

    def _used(self, usage: str) -> dict[str, object]:
        """Return what the run has used; the cost only if a price is known."""
        used: dict[str, object] = {"agents": len(self.agents), "turns": self.turns}
        before, now = (Spending.from_json(text).total for text in (self._usage, usage))
        used["model_calls"] = now.calls - before.calls
        for name in ("prompt_tokens", "completion_tokens"):
            used[name] = getattr(now, name) - getattr(before, name)
        if now.cost is not None:
            used["cost"] = round(now.cost - (before.cost or 0.0), 6)
        return used
