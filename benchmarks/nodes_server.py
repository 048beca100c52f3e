"""A server of `benchmarks.nodes`: ``python -m benchmarks.nodes_server STORE PAUSE TURNS PORT``.

Its agents take PAUSE seconds a turn. The first answers at once; for a message that begins with
``ask`` it asks the second one first, which makes three turns, and for one that begins with ``wait``
it waits until its caller has said ``release``. TURNS are at work at a time, and a caller has twice
as many tasks in a server; 0 lifts both limits.
"""

import asyncio
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.swarm import reply, work
from mail.api import MAILAgentTemplate, MAILSwarmTemplate
from mail.config.server import LimitsConfig, ServerConfig, SettingsConfig, StoreConfig, SwarmConfig
from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.logs.setup import init_logger
from mail.server.run import run_server

__all__ = ["nodes_template"]


def nodes_template(pause: float) -> MAILSwarmTemplate:
    """Return a swarm of two agents."""
    gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def make_lead(**_: Any) -> AgentFunction:
        async def answer(messages: list[dict[str, Any]], choice: ToolChoice) -> AgentOutput:
            found = re.findall(r"<body>(.*?)</body>", str(messages[-1]["content"]), re.DOTALL)
            what, _, name = found[-1].partition(" ")
            if what == "release":
                gates[name].set()
            if what == "wait":
                await gates[name].wait()
            if pause:
                await asyncio.sleep(pause)
            if what == "ask":
                body = "Do this, please."
                return reply("send_request", target="worker", subject="Job", body=body)
            return reply("task_complete", finish_message="Done.")

        return answer

    def make_worker(**_: Any) -> AgentFunction:
        async def answer(messages: list[dict[str, Any]], choice: ToolChoice) -> AgentOutput:
            await asyncio.sleep(pause)
            return await work(messages, choice)

        return answer

    lead = MAILAgentTemplate(
        "supervisor",
        factory=make_lead,
        comm_targets=["worker"],
        actions=[],
        agent_params={},
        enable_entrypoint=True,
        can_complete_tasks=True,
    )
    worker = MAILAgentTemplate(
        "worker", factory=make_worker, comm_targets=["supervisor"], actions=[], agent_params={}
    )
    return MAILSwarmTemplate("nodes", agents=[lead, worker], entrypoint="supervisor")


def main() -> None:
    """Serve."""
    store, pause, turns, port = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    limits = {"max_concurrent_turns": turns} if turns else {}
    config = ServerConfig(
        host="127.0.0.1",
        port=port,
        swarm=SwarmConfig(name="nodes"),
        store=StoreConfig(url=store),
        settings=SettingsConfig(print_llm_streams=False),
        limits=LimitsConfig(
            max_requests=0, max_running_tasks=2 * turns, max_streams=0, max_queued_tasks=0, **limits
        ),
    )
    with Path(os.devnull).open("w") as stream:
        init_logger(log_dir=None, stream=stream, log_format="json")
        run_server(config, template=nodes_template(pause))


if __name__ == "__main__":
    main()
