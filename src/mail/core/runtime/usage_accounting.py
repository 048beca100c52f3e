"""Taking down what the model calls of a turn use: into the task's account at once, and as events.

The account goes into the store with the next commit of the task, whichever that is; the events go
with the turn's own. A turn that takes its reply from the journal makes no call and reports none.
"""

import asyncio
import logging
from dataclasses import dataclass, field, replace

from mail.core.runtime.turn import EventDraft, Turn, storable
from mail.core.runtime.turn_result import Draft
from mail.core.usage import Usage

__all__ = ["Meter", "log_usage"]

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Meter:
    """Takes the reports of one turn. ``priced`` tells that money is limited.

    Made in the runtime's event loop; a report may come from any thread.
    """

    turn: Turn
    priced: bool
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def report(self, model: str, usage: Usage) -> None:
        """Take what one call to a model used."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._take(model, usage)
        else:  # in order: before an agent function that waits for this thread goes on
            self._loop.call_soon_threadsafe(self._take, model, usage)

    def _take(self, model: str, usage: Usage) -> None:
        turn = self.turn
        model = storable(str(model))
        if not usage.total_tokens:
            usage = replace(usage, total_tokens=usage.prompt_tokens + usage.completion_tokens)
        if self.priced and usage.cost is None and turn.agent not in turn.task.spending.agents:
            logger.warning("the price of '%s' is unknown; task_cost_limit does not see it", model)
        total = turn.task.spend(turn.agent, usage)
        turn.reports.append(
            EventDraft(
                "model_usage",
                f"agent {turn.agent} used {usage.total_tokens} tokens of {model}",
                {
                    "caller": turn.agent,
                    "model": model,
                    "usage": usage.to_dict(),
                    "task_usage": total.to_dict(),
                },
            )
        )


def log_usage(draft: Draft, turn: Turn) -> None:
    """Add the events of a turn's reports that no commit has taken yet."""
    draft.events.extend(event.row(draft.timestamp) for event in turn.reports)
