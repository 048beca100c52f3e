"""A factory for swarm definitions that arrive over HTTP: its agents repeat what they hear."""

import asyncio
import re
import threading
import time
from collections import Counter
from typing import Any

from mail.core.agents import AgentFunction
from mail.core.tools.call import AgentToolCall
from mail.testing import tool_calls

__all__ = ["GATES", "TOGETHER", "definition", "parrot", "slow_parrot"]

GATES: dict[str, asyncio.Event] = {}
"""What ``hang`` waits for (``gate``), and what it sets before it waits (``entered``)."""

TOGETHER: Counter[str] = Counter()
"""How many slow factories work (``now``), and the most that did at a time (``most``)."""

_LOCK = threading.Lock()


def parrot(accent: str = "one", user_token: str = "", **_: Any) -> AgentFunction:
    """Make an agent: ``hang`` makes it wait, ``ask`` makes it call the breakpoint tool."""
    voice = f"{accent} with {user_token[:10]}" if user_token else accent

    async def answer(messages: list[dict[str, Any]], tool_choice: Any) -> Any:
        last = messages[-1]
        if last.get("role") == "tool":
            return None, _finish(f"{voice} was told {last['content']}")
        found = re.findall(r"<body>(.*?)</body>", str(last.get("content")), re.DOTALL)
        body = found[-1] if found else ""
        if "ask" in body:
            return None, tool_calls(("help", {}), prefix="ask")
        if "hang" in body:
            GATES["entered"].set()
            await GATES["gate"].wait()
        return None, _finish(f"{voice}: {body}")

    return answer


def slow_parrot(**params: Any) -> AgentFunction:
    """Make an agent, and notice who else does at the same time."""
    with _LOCK:
        TOGETHER["now"] += 1
        TOGETHER["most"] = max(TOGETHER["most"], TOGETHER["now"])
    time.sleep(0.02)  # long enough that a second one would be seen
    with _LOCK:
        TOGETHER["now"] -= 1
    return parrot(**params)


def definition(
    name: str = "test-swarm",
    accent: str = "one",
    agent: str = "supervisor",
    factory: str = f"python::{__name__}:parrot",
    **more: Any,
) -> dict[str, Any]:
    """Return the definition of a swarm of one such agent."""
    entry = {
        "name": agent,
        "factory": factory,
        "comm_targets": [],
        "agent_params": {"accent": accent},
        "enable_entrypoint": True,
        "can_complete_tasks": True,
    }
    swarm = {"name": name, "version": "1.0.0", "entrypoint": agent, "agents": [entry]}
    return swarm | {"actions": [], "breakpoint_tools": ["help"]} | more


def _finish(text: str) -> list[AgentToolCall]:
    return tool_calls(("task_complete", {"finish_message": text}), prefix="done")
