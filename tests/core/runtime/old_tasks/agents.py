"""Two swarms whose agents do what the name of a task says; `write` has made tasks of each kind.

While ``hanging``, agents do not come to an end: then a process is killed, and another one goes on.
"""

import asyncio
from typing import Any

from mail.core.actions import ActionCore
from mail.core.agents import AgentCore
from mail.core.teams import Teams
from mail.testing import tool_calls

KINDS = ("running", "chain", "breakpoint", "peer", "team", "person", "earlier")
"""What the lead of a task waits for: an agent, one that waits for another, a caller, another swarm,
a teammate, a participant. Of the last kind the first run is over, and left a question open."""

TEAM = {"id": "alpha", "lead": "lead", "members": ["worker", "writer"]}
WAIT = ("await_message", {"reason": "nothing to do"})
Call = tuple[str, dict[str, Any]]


def ask(target: str, body: str) -> Call:
    return "send_request", {"target": target, "subject": "s", "body": body}


def answer(target: str) -> Call:
    return "send_response", {"target": target, "subject": "s", "body": "answer"}


def finish(text: str) -> Call:
    return "task_complete", {"finish_message": text}


def tell(to: str, message: str, **more: Any) -> Call:
    return "teammate_message", {"teamId": "alpha", "to": to, "message": message, **more}


FIRST = {
    "running": [ask("worker", "do running"), WAIT],
    "chain": [ask("writer", "relay chain"), WAIT],
    "breakpoint": [("review", {"what": "it"})],
    "peer": [ask("wind@weather", "do peer"), WAIT],
    "team": [tell("worker", "do team", waitForReply=True, timeoutSeconds=3600)],
    "person": [ask("ops", "do person"), WAIT],
    "earlier": [ask("worker", "keep earlier"), finish("the first run")],
}


def options() -> dict[str, Any]:
    """Return the options of the runtimes of the first swarm."""
    teams = Teams.of([TEAM], enabled=True)
    return {"teams": teams, "participants": ["ops"], "breakpoint_tools": ["review"]}


class Agents:
    """The agents of both swarms."""

    def __init__(self, *, hanging: bool) -> None:
        self.hanging = hanging

    def harbour(self) -> dict[str, AgentCore]:
        """Return the agents of the swarm whose tasks these are."""
        review = {"review": ActionCore(function=_never, name="review")}
        return {
            "lead": AgentCore(
                self.lead,
                ["worker", "writer", "ops", "*@*"],
                can_complete_tasks=True,
                enable_entrypoint=True,
                actions=review,
            ),
            "worker": AgentCore(self.worker, ["lead", "writer"]),
            "writer": AgentCore(self.writer, ["lead", "worker"]),
        }

    def weather(self) -> dict[str, AgentCore]:
        """Return the agents of the other swarm."""
        return {
            "wind": AgentCore(self.wind, ["*@*"], can_complete_tasks=True, enable_interswarm=True)
        }

    async def lead(self, messages: list[dict[str, Any]], choice: object) -> Any:
        newest = str(messages[-1]["content"])
        said = " ".join(str(each.get("content")) for each in messages)
        kind = next(each for each in KINDS if f"kind {each}" in said)
        if isinstance(choice, dict):
            return _calls(messages, finish(f"stalled {kind}"))
        if "go on" in newest:
            return _calls(messages, ask("worker", "do what I asked before"), WAIT)
        if "answer" in newest:
            return _calls(messages, finish(f"done {kind}"))
        return _calls(messages, *(FIRST[kind] if f"kind {kind}" in newest else [WAIT]))

    async def worker(self, messages: list[dict[str, Any]], choice: object) -> Any:
        newest = str(messages[-1]["content"])
        if "keep" in newest:
            return _calls(messages, WAIT)
        await self._hang()
        if "do team" in newest:
            return _calls(messages, tell("lead", "answer"), WAIT)
        return _calls(messages, answer("writer" if "relayed" in newest else "lead"), WAIT)

    async def writer(self, messages: list[dict[str, Any]], choice: object) -> Any:
        relays = "relay chain" in str(messages[-1]["content"])
        call = ask("worker", "relayed") if relays else answer("lead")
        return _calls(messages, call, WAIT)

    async def wind(self, messages: list[dict[str, Any]], choice: object) -> Any:
        await self._hang()
        return _calls(messages, answer("lead@harbour"), WAIT)

    async def _hang(self) -> None:
        if self.hanging:
            await asyncio.Event().wait()


def _calls(messages: list[dict[str, Any]], *calls: Call) -> Any:
    return None, tool_calls(*calls, prefix=f"c{len(messages)}")


async def _never(arguments: dict[str, Any]) -> str:
    raise AssertionError("calls of breakpoint tools are not run")
