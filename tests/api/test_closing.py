"""A swarm that shuts down closes the agent functions that hold something."""

import logging
from typing import Any

import pytest

from mail import MAILAgent, MAILSwarm
from mail.db import open_store
from mail.testing import replies


class Holding:
    """An agent function with connections; closing them may fail."""

    def __init__(self, failure: Exception | None = None) -> None:
        self._answer = replies([("task_complete", {"finish_message": "done"})])
        self._failure = failure
        self.closed = 0

    async def __call__(self, messages: list[dict[str, Any]], tool_choice: Any) -> Any:
        return await self._answer(messages, tool_choice)

    async def aclose(self) -> None:
        self.closed += 1
        if self._failure is not None:
            raise self._failure


def swarm_of(*functions: Any, store: Any = None) -> MAILSwarm:
    agents = [
        MAILAgent(f"agent{n}", "made here", [], function, [], {}, True, False, True)
        for n, function in enumerate(functions)
    ]
    return MAILSwarm("test", "1", agents, [], "agent0", print_llm_streams=False, store=store)


async def test_every_agent_function_that_can_be_closed_is_closed_once() -> None:
    first, second = Holding(), Holding()
    swarm = swarm_of(first, replies(), second)
    answer, _ = await swarm.post_message("Hello")
    assert answer["message"]["body"] == "done"
    assert (first.closed, second.closed) == (0, 0)
    await swarm.shutdown()
    assert (first.closed, second.closed) == (1, 1)


async def test_a_failure_to_close_is_logged_and_keeps_nothing_else_open(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("memory://")
    closed = []
    monkeypatch.setattr("mail.api.swarm.library_store", lambda given, histories, swarm: store)
    monkeypatch.setattr(type(store), "close", lambda self: _note(closed))
    broken, fine = Holding(OSError("gone")), Holding()
    swarm = swarm_of(broken, fine)
    with caplog.at_level(logging.WARNING, logger="mail.api.swarm"):
        await swarm.shutdown()
    assert (broken.closed, fine.closed, closed) == (1, 1, ["store"])
    [record] = caplog.records
    assert record.getMessage() == "an agent's connections could not be closed"


async def _note(closed: list[str]) -> None:
    closed.append("store")
