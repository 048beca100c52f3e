"""Taking down what the model calls of a turn use: into the task's account at once, and as events.

The account goes into the store with the next commit of the task, whichever that is; the events go
with the turn's own. A turn that takes its reply from the journal makes no call and reports none.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace

from mail.core.runtime.active_tasks import ActiveTask
from mail.core.runtime.settings import RuntimeSettings
from mail.core.runtime.turn import Turn
from mail.core.runtime.turn_result import EventDraft, milliseconds, storable
from mail.core.usage import Usage

__all__ = ["Meter", "refusal"]

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Meter:
    """Takes the reports of one turn. ``priced`` tells that money is limited.

    A model call has lasted since the report before it, the first one since the agent was called.

    Made in the runtime's event loop; a report may come from any thread.
    """

    turn: Turn
    priced: bool
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _began: float = field(default_factory=time.perf_counter)

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
            logger.warning(
                "the price of '%s' is unknown; it does not count towards task_cost_limit", model
            )
        total = turn.task.spend(turn.agent, usage)
        began, self._began = self._began, time.perf_counter()
        event = EventDraft(
            "model_usage",
            f"agent {turn.agent} used {usage.total_tokens} tokens of {model}",
            {
                "caller": turn.agent,
                "model": model,
                "usage": usage.to_dict(),
                "task_usage": total.to_dict(),
                "duration_ms": milliseconds(self._began - began),
            },
        )
        turn.reports.append(event.row(turn.task.now()))


_ACT = "no further model calls are made for it. Raise the limit or start a new task."


def refusal(task: ActiveTask, agent: str, settings: RuntimeSettings) -> str | None:
    """Return why an agent's next model call would exceed the task's budget; None when it may go on.

    What calls that run at the moment will use is unknown, so they may still exceed it.
    """
    tokens, cost = settings.task_token_limit, settings.task_cost_limit
    most = settings.task_byte_limit
    if task.exhausted is not None:
        return task.exhausted
    if most is not None and task.bytes >= most:
        return (
            f"the records of the task take {task.bytes:,} bytes; its limit is {most:,} "
            f"(max_task_bytes), so {_ACT}"
        )
    spending = task.spending
    used, coming = spending.total.total_tokens, spending.latest.get(agent, 0)
    if tokens is not None and used + coming >= tokens:
        if used >= tokens:
            need = f"the task has used {used:,} tokens"
        else:
            need = (
                f"the task has used {used:,} tokens, and the next call of agent '{agent}' needs "
                f"at least {coming:,} more"
            )
        return f"{need}; its budget is {tokens:,} (task_token_limit), so {_ACT}"
    spent = spending.total.cost or 0.0
    if cost is not None and spent >= cost:
        return (
            f"the model calls of the task have cost {_money(spent)}; its budget is {_money(cost)} "
            f"(task_cost_limit), so {_ACT}"
        )
    return None


def _money(dollars: float) -> str:
    """Return US dollars: cents, and as many more places as it takes.

    >>> _money(0.5), _money(1234.5678), _money(0.1 + 0.2)
    ('$0.50', '$1,234.5678', '$0.30')
    """
    whole, _, places = f"{dollars:,.10f}".partition(".")
    return f"${whole}.{places.rstrip('0').ljust(2, '0')}"
