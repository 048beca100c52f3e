"""Agents whose model calls cost something, and a look at what was stored of it."""

import json
from collections.abc import Sequence
from typing import Any

from mail.core.agents import AgentFunction
from mail.core.call_context import current_call
from mail.core.runtime import MAILRuntime
from mail.core.usage import Usage
from mail.db.store import Store

MODEL = "test/model"
DONE = ("task_complete", {"finish_message": "done"})


def tokens(total: int, *, prompt: int = 0, cost: float | None = None) -> Usage:
    """Return the use of one call; the prompt's share is 0 unless it matters."""
    return Usage(
        prompt_tokens=prompt, completion_tokens=total - prompt, total_tokens=total, cost=cost
    )


def metered(function: AgentFunction, *usages: Usage) -> AgentFunction:
    """Return an agent that reports a model call per usage, and then does what ``function`` does."""

    async def agent(messages: list[dict[str, Any]], choice: Any) -> Any:
        for usage in usages:
            current_call().report(MODEL, usage)
        return await function(messages, choice)

    return agent


def ask(*targets: str) -> list[tuple[str, dict[str, Any]]]:
    """Return a request to each target."""
    return [
        ("send_request", {"target": target, "subject": "Job", "body": "do it"})
        for target in targets
    ]


async def kinds_of(runtime: MAILRuntime, task_id: str = "task-1") -> list[str]:
    """Return the kinds of a task's stored events."""
    task = await runtime.read_task(task_id)
    assert task is not None
    return [event.kind for event in task.events]


async def check_books(runtime: MAILRuntime, task_id: str = "task-1") -> Usage:
    """Check that account, events and synchronous view agree; return the total."""
    task = await runtime.read_task(task_id)
    assert task is not None
    reported = [event.extra for event in task.events if event.kind == "model_usage"]
    agents: dict[str, Usage] = {}
    for extra in reported:
        usage = Usage.from_dict(extra["usage"])
        agents[extra["caller"]] = agents.get(extra["caller"], Usage.none()) + usage
    assert task.usage == agents
    glance = runtime.get_task_by_id(task_id)
    assert glance is None or glance.usage == agents
    return task.total_usage


async def check_history(store: Store, runtime: MAILRuntime, agents: Sequence[str]) -> None:
    """Check that every call in the stored histories has exactly one result, in order."""
    for agent in agents:
        rows = await store.history(runtime._context.owner, "task-1", agent)
        history = [entry for row in rows for entry in json.loads(row)]
        calls = [call["id"] for entry in history for call in entry.get("tool_calls", ())]
        results = [entry["tool_call_id"] for entry in history if entry.get("role") == "tool"]
        assert sorted(calls) == sorted(results), agent
