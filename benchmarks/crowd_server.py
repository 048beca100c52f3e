"""The server of the crowd in a process of its own: ``python -m benchmarks.crowd_server FOLDER``.

Its swarm needs no model. What a user's first message says decides a task:

- ``do``: the lead asks the worker once and answers (four messages);
- ``wait NAME``: the lead answers when somebody says ``release NAME``;
- ``pour NAME``: lead and worker exchange long mail first, megabytes of events, then the lead waits.
"""

import asyncio
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.swarm import reply
from mail.api import MAILAgentTemplate, MAILSwarmTemplate
from mail.auth.callers import hash_token
from mail.config.server import LimitsConfig, ServerConfig, SettingsConfig, StoreConfig, SwarmConfig
from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.db.records import TokenRow
from mail.db.urls import open_store
from mail.server.run import run_server

__all__ = ["crowd_config", "crowd_template", "make_tokens", "token_of"]

_POURED = 20
"""Long letters in a row, and as many long answers."""
_LONG = "A long letter. " * 4000


class _Swarm:
    """The two agents' functions; all callers' instances share what holds them up."""

    def __init__(self) -> None:
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def lead(self, **_: Any) -> AgentFunction:
        async def lead(messages: list[dict[str, Any]], choice: ToolChoice) -> AgentOutput:
            what, _, name = _body(messages[0]).partition(" ")
            if what == "release":
                self._gates[name].set()  # and stays open, for who comes to it later
            letters = {"do": 1, "pour": _POURED}.get(what, 0)
            if sum(message["role"] == "user" for message in messages) <= letters:
                text = _LONG if what == "pour" else "Do this, please."
                return reply("send_request", target="worker", subject="Job", body=text)
            if what in ("wait", "pour"):
                await self._gates[name].wait()
            return reply("task_complete", finish_message="It is done.")

        return lead

    def work(self, **_: Any) -> AgentFunction:
        async def work(messages: list[dict[str, Any]], choice: ToolChoice) -> AgentOutput:
            text = _body(messages[-1])
            return reply("send_response", target="supervisor", subject="Re: Job", body=text)

        return work


def _body(message: dict[str, Any]) -> str:
    found = re.search(r"<body>(.*?)</body>", str(message.get("content")), re.DOTALL)
    return found[1] if found else ""


def crowd_template() -> MAILSwarmTemplate:
    """Return the swarm."""
    swarm = _Swarm()
    lead = MAILAgentTemplate(
        "supervisor",
        factory=swarm.lead,
        comm_targets=["worker"],
        actions=[],
        agent_params={},
        enable_entrypoint=True,
        can_complete_tasks=True,
    )
    worker = MAILAgentTemplate(
        "worker", factory=swarm.work, comm_targets=["supervisor"], actions=[], agent_params={}
    )
    return MAILSwarmTemplate("crowd", agents=[lead, worker], entrypoint="supervisor")


def crowd_config(store: str, **limits: Any) -> ServerConfig:
    """Return the server's settings. The limits per caller and of requests are lifted."""
    lifted = {"max_requests": 0, "max_running_tasks": 0, "max_streams": 0}
    return ServerConfig(
        host="127.0.0.1",
        port=0,
        swarm=SwarmConfig(name="crowd"),
        store=StoreConfig(url=store),
        settings=SettingsConfig(task_message_limit=200, print_llm_streams=False),
        limits=LimitsConfig(**(lifted | limits)),
    )


def token_of(user: int) -> str:
    """Return a user's token."""
    return f"mail_crowd-token-of-user-{user:06d}"


async def make_tokens(url: str, users: int) -> None:
    """Make the users' tokens, as ``mail token create`` does."""
    store = open_store(url, exclusive=False)
    await store.open()
    for user in range(users):
        row = TokenRow(hash_token(token_of(user)), "user", f"user-{user}", "2026-01-01T00:00:00Z")
        await store.put_token(row)
    await store.close()


def main(folder: Path, port: int) -> None:
    """Serve until told to stop."""
    config = crowd_config(f"sqlite:///{folder / 'mail.db'}")
    run_server(config.model_copy(update={"port": port}), template=crowd_template())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
