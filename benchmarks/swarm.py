"""A two-agent swarm without a model: each task is question, request, response and answer.

Its agents do what agents with a model do, short of calling one: they read the newest entry of their
history to decide, and they return tool calls in the chat-completions format.
"""

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mail.clock import SystemClock
from mail.core.agents import AgentCore, AgentOutput, ToolChoice
from mail.core.compose import Composer
from mail.core.message import MAILMessage, create_agent_address, create_user_address
from mail.core.runtime import MAILRuntime
from mail.core.tools.call import AgentToolCall
from mail.db import open_store
from mail.db.store import Store

MESSAGES_PER_TASK = 4
_COMPOSER = Composer("bench", SystemClock())

History = list[dict[str, Any]]


def reply(name: str, **arguments: Any) -> AgentOutput:
    """Return one tool call and the assistant message that it came in."""
    call_id = f"call_{os.urandom(8).hex()}"
    function = {"name": name, "arguments": json.dumps(arguments)}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    call = AgentToolCall(
        tool_name=name, tool_args=arguments, tool_call_id=call_id, completion=message
    )
    return None, [call]


async def lead(messages: History, tool_choice: ToolChoice) -> AgentOutput:
    """Ask the worker once, then answer."""
    if "What is to be done?" in messages[-1]["content"]:
        return reply("send_request", target="worker", subject="Job", body="Do this, please.")
    return reply("task_complete", finish_message="It is done.")


async def work(messages: History, tool_choice: ToolChoice) -> AgentOutput:
    """Answer the supervisor."""
    body = "Here it is." if "Do this, please." in messages[-1]["content"] else "What?"
    return reply("send_response", target="supervisor", subject="Re: Job", body=body)


def question(task_id: str | None = None) -> MAILMessage:
    """Return a user's message for a task of its own."""
    return _COMPOSER.message(
        "request",
        task_id or str(uuid.uuid4()),
        create_user_address("bench"),
        [create_agent_address("supervisor")],
        "Question",
        "What is to be done?",
    ).to_wire()


def make_runtime(
    store: Store | None = None, agents: dict[str, AgentCore] | None = None
) -> MAILRuntime:
    """Return a runtime over the two agents."""
    agents = agents or {
        "supervisor": AgentCore(lead, ["worker"], enable_entrypoint=True, can_complete_tasks=True),
        "worker": AgentCore(work, ["supervisor"]),
    }
    return MAILRuntime(agents, {}, "bench", "user", "bench", print_llm_streams=False, store=store)


@asynccontextmanager
async def sqlite_store() -> AsyncIterator[Store]:
    """Open a SQLite store with ``synchronous=FULL`` in a folder of its own."""
    with TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'bench.db'}", durability="full")
        await store.open()
        try:
            yield store
        finally:
            await store.close()


async def run_tasks(
    runtime: MAILRuntime,
    tasks: int,
    concurrent: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Run tasks, so many at a time, and return microseconds per message: of wall or CPU time."""
    await runtime.start()
    left = iter(range(tasks))

    async def caller() -> None:
        for _ in left:
            await runtime.submit_and_wait(question())

    began = clock()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrent, tasks)):
            group.create_task(caller())
    return (clock() - began) / (tasks * MESSAGES_PER_TASK) * 1e6
