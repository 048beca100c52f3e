"""Small swarms for the tests of single rules."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

from mail.core.render import result_as_returned
from mail.core.runtime import MAILRuntime
from mail.testing import agent_from
from tests.support.swarm import runtime_of, supervisor, worker

Call = tuple[str, dict[str, Any]]


def request(target: str, body: str = "do it", **more: Any) -> Call:
    """Return a call of ``send_request``."""
    return "send_request", {"target": target, "subject": "Job", "body": body, **more}


def response(target: str, body: str = "did it") -> Call:
    """Return a call of ``send_response``."""
    return "send_response", {"target": target, "subject": "Re: Job", "body": body}


def done(text: str = "done") -> Call:
    """Return a call of ``task_complete``."""
    return "task_complete", {"finish_message": text}


WAIT: Call = ("await_message", {})
IGNORE: Call = ("ignore_broadcast", {})


class Part:
    """What an agent does, one list of calls per turn, and what it was shown.

    After its last list it finishes when it is forced to, and waits otherwise.
    """

    def __init__(self, *turns: list[Call]) -> None:
        self._turns = iter(turns)
        self.shown: list[list[dict[str, Any]]] = []

    def __call__(self, messages: list[dict[str, Any]], choice: object) -> list[Call]:
        self.shown.append([dict(entry) for entry in messages])
        if isinstance(choice, dict):
            return [done("forced")]
        return next(self._turns, [WAIT])

    @property
    def read(self) -> list[str]:
        """The bodies of the messages that it took, in order."""
        found = [
            re.search(r"<body>(.*?)</body>", str(m[-1].get("content")), re.S) for m in self.shown
        ]
        return [match[1] if match else "" for match in found]

    @property
    def results(self) -> list[str]:
        """The tool results of its newest history."""
        found = [str(m["content"]) for m in self.shown[-1] if m.get("role") == "tool"]
        return [result_as_returned(content) for content in found]


def swarm(
    lead: Part | Callable[..., Any],
    work: Part | Callable[..., Any] | None = None,
    *,
    rights: dict[str, Any] | None = None,
    actions: dict[str, Any] | None = None,
    **options: Any,
) -> MAILRuntime:
    """Return a runtime with a supervisor and a worker.

    Args:
        lead: What the supervisor does.
        work: What the worker does; it waits when there is none.
        rights: Fields of the worker to change.
        actions: The worker's actions.
    """
    agents = {
        "supervisor": supervisor(agent_from(lead, "s")),
        "worker": worker(agent_from(work or Part(), "w"), actions=actions),
    }
    for name, value in (rights or {}).items():
        setattr(agents["worker"], name, value)
    return runtime_of(agents, **options)


async def messages_of(runtime: MAILRuntime, task_id: str = "task-1") -> list[dict[str, Any]]:
    """Return all messages that a task has sent."""
    task = await runtime.read_task(task_id)
    assert task is not None
    return [dict(message) for message in task.get_messages()]


async def kinds_of(runtime: MAILRuntime, task_id: str = "task-1") -> list[str]:
    """Return the kinds of a task's events."""
    task = await runtime.read_task(task_id)
    assert task is not None
    return [event.kind for event in task.events]


async def let_others_run(rounds: int = 100) -> None:
    """Give everything that is ready its chance."""
    for _ in range(rounds):
        await asyncio.sleep(0)
