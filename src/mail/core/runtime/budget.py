"""Whether a task may make one more model call, and if not, what to tell people."""

from mail.core.runtime.active_tasks import LiveTask
from mail.core.runtime.settings import RuntimeSettings

__all__ = ["refusal"]

_ACT = "no further model call is made for it. Raise the limit, or begin a new task."


def refusal(task: LiveTask, agent: str, settings: RuntimeSettings) -> str | None:
    """Return why an agent's next model call would exceed the task's budget; None when it may go on.

    What calls that run at the moment will use is unknown, so they may still exceed it.
    """
    tokens, cost = settings.task_token_limit, settings.task_cost_limit
    if tokens is None and cost is None:
        return None
    if task.exhausted is not None:
        return task.exhausted
    spending = task.spending
    used, coming = spending.total.total_tokens, spending.latest.get(agent, 0)
    if tokens is not None and used + coming >= tokens:
        if used >= tokens:
            need = f"the task has used {used:,} tokens"
        else:
            need = (
                f"the task has used {used:,} tokens, and the next call of agent '{agent}' takes "
                f"{coming:,} more at least"
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
