"""Two hundred agents wait for an Ollama server that says nothing; all others work on."""

import asyncio

import pytest

from mail import MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.factories import LiteLLMSupervisorFunction
from mail.llm.script import call, otherwise
from tests.support.provider import FakeProvider

WAITING = 200


def stalling_swarm() -> MAILSwarm:
    """Return a swarm of two leads: one asks OpenAI, one Ollama."""
    leads = [
        MAILAgentTemplate(
            name=name,
            factory=LiteLLMSupervisorFunction,
            comm_targets=[],
            actions=[],
            agent_params={"llm": llm, "system": "You lead.", "use_proxy": False},
            enable_entrypoint=True,
            can_complete_tasks=True,
            tool_format="completions",
        )
        for name, llm in (("quick", "openai/gpt-5-mini"), ("slow", "ollama/stalled:1b"))
    ]
    template = MAILSwarmTemplate(name="stalls", version="1.3.6", agents=leads, entrypoint="quick")
    return template.instantiate({"user_token": "a" * 16}, user_id="alice", print_llm_streams=False)


async def body_of(swarm: MAILSwarm, entrypoint: str) -> str:
    run = await swarm.open_run("Go.", streamed=False, entrypoint=entrypoint)
    return (await run.result()).message["message"]["body"]


async def test_a_silent_server_stops_nobody_else(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, all_reached = 0, asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal reached
        reached += 1
        if reached == WAITING:
            all_reached.set()
        await reader.read()
        writer.close()

    provider.script = [otherwise(call("task_complete", finish_message="fine"))]
    async with await asyncio.start_server(silent, "127.0.0.1", 0, backlog=WAITING) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("OLLAMA_API_BASE", f"http://127.0.0.1:{port}")
        swarm = stalling_swarm()
        try:
            assert await body_of(swarm, "quick") == "fine"
            waiting = [asyncio.create_task(body_of(swarm, "slow")) for _ in range(WAITING)]
            await asyncio.wait_for(all_reached.wait(), 60.0)
            async with asyncio.timeout(20.0):
                for _ in range(5):
                    assert await body_of(swarm, "quick") == "fine"
            assert not any(task.done() for task in waiting)
            assert reached == WAITING
            for task in waiting:
                task.cancel()
        finally:
            await swarm.shutdown(0.0)
