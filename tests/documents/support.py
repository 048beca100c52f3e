"""What the documents' tests share: the check of their tables, and looks at what was sent."""

import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from mail import MAILAction, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.factories import LiteLLMSupervisorFunction
from tests.support.provider.record import Seen

__all__ = [
    "NAMES",
    "buffered",
    "fragments",
    "missing_tests",
    "newest_text",
    "one_agent_swarm",
    "tool_results",
]

NAMES = ("Alice", "Bob", "Charlie", "David")
"""The players of the guide's game."""


def missing_tests(blocks: Mapping[str, str], *modules: ModuleType) -> set[str]:
    """Return the tests that a table names and that are in none of the modules, or the reverse."""
    named = {name for names in blocks.values() for name in names.split()}
    there = {name for module in modules for name in vars(module) if name.startswith("test_")}
    return named ^ {name for name in there if not name.startswith("test_table")}


def newest_text(seen: Seen) -> str:
    """Return the newest text of a user's in a request, whatever its format."""
    texts = [m["content"] for m in seen.conversation.messages if m.get("role") == "user"]
    content = texts[-1]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def tool_results(seen: Seen) -> list[str]:
    """Return the tool results in a request."""
    return [result.content for result in seen.conversation.view(seen.model).results]


def buffered(swarm: MAILSwarm, task_id: str, agent: str) -> list[tuple[str, str]]:
    """Return sender and body of what waits for an agent in manual mode."""
    waiting = swarm._runtime.manual_message_buffer.get(f"{task_id}::{agent}", ())
    return [(m["message"]["sender"]["address"], m["message"]["body"]) for m in waiting]


def fragments(text: str) -> list[dict[str, Any]]:
    """Return the JSON data of the events in a server-sent stream."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


def one_agent_swarm(*actions: MAILAction) -> MAILSwarm:
    """Return a swarm of one agent that may complete tasks."""
    agent = MAILAgentTemplate(
        name="AgentName",
        factory=LiteLLMSupervisorFunction,
        comm_targets=[],
        actions=list(actions),
        agent_params={"llm": "openai/gpt-5-mini", "use_proxy": False},
        enable_entrypoint=True,
        can_complete_tasks=True,
    )
    template = MAILSwarmTemplate(name="game", agents=[agent], entrypoint="AgentName")
    return template.instantiate({"user_token": "dummy"}, "GameID")
