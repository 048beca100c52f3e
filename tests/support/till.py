"""A swarm for the HTTP surface as a whole: what its one agent does depends on the message.

``ask`` makes it call a breakpoint tool, ``buy`` one that needs an approval, ``fail`` makes its
model fail, ``hang`` makes its model wait for ever; it echoes everything else.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from mail.api import MAILAction, MAILSwarmTemplate
from mail.config.server import ServerConfig, StoreConfig, TeamsConfig
from mail.core.approvals import Approval
from mail.db.memory import MemoryStore
from mail.llm.script import Steps, call, fail
from mail.llm.script_view import ScriptView
from mail.llm.scripted import ScriptedModel
from mail.server.app import create_app
from tests.server.kit import config, know, put_tokens
from tests.support.background import served
from tests.support.swarm import scripted_agent

__all__ = ["definition", "known_callers", "served_from", "settings", "till"]

ASK = MAILAction(
    "ask_cashier",
    "Ask the person at the till.",
    {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]},
    lambda arguments: "never run: it is a breakpoint",
)


async def _answer(view: ScriptView) -> Steps:
    if view.forced == "task_complete":
        return call("task_complete", finish_message="told to finish")
    told = [found for found in view.new_results if found.tool == "ask_cashier"]
    if told:
        return call("task_complete", finish_message=f"The cashier says: {told[-1].content}")
    if view.new_results or "buy" not in view.body:
        return await _say(view)
    return call("help")


async def _say(view: ScriptView) -> Steps:
    if "hang" in view.body:
        await asyncio.Event().wait()
    if "fail" in view.body:
        return fail("the provider is out of tokens")
    if "ask" in view.body:
        return call("ask_cashier", question="how much?")
    return call("task_complete", finish_message=f"You said: {view.body}")


APPROVERS = ("owner", "admin", "participant:editor")
MODEL = ScriptedModel(_answer)


def definition() -> str:
    """Return the same swarm as the text of a definition."""
    agent = {
        "name": "supervisor",
        "factory": "python::mail.factories.supervisor:LiteLLMSupervisorFunction",
        "comm_targets": [],
        "actions": ["ask_cashier"],
        "agent_params": {
            "llm": "scripted",
            "model": f"python::{__name__}:MODEL",
            "system": "Sell.",
        },
        "enable_entrypoint": True,
        "can_complete_tasks": True,
        "tool_format": "completions",
    }
    swarm = {
        "name": "test-swarm",
        "version": "1.3.6",
        "agents": [agent],
        "actions": [],
        "action_imports": [f"python::{__name__}:ASK"],
        "entrypoint": "supervisor",
        "enable_interswarm": True,
        "breakpoint_tools": ["ask_cashier"],
        "approvals": {"help": {"approvers": list(APPROVERS)}},
        "participants": [{"name": "editor"}, {"name": "reviewer"}],
        "teams": [{"id": "alpha", "lead": "editor", "members": ["reviewer"]}],
    }
    return json.dumps(swarm)


def till() -> MAILSwarmTemplate:
    """Return the swarm's template."""
    agent = scripted_agent("supervisor", MODEL, actions=[ASK], system="Sell.")
    return MAILSwarmTemplate(
        name="test-swarm",
        version="1.3.6",
        agents=[agent],
        actions=[ASK],
        entrypoint="supervisor",
        enable_interswarm=True,
        breakpoint_tools=["ask_cashier"],
        approvals={"help": Approval(approvers=APPROVERS)},
        participants=[
            {"name": "editor", "description": "Edits."},
            {"name": "reviewer", "description": "Reviews."},
        ],
        teams=[{"id": "alpha", "lead": "editor", "members": ["reviewer"]}],
    )


def settings(*, debug: bool, **limits: float) -> ServerConfig:
    """Return settings that depend on no file."""
    made = config(shutdown_grace=0.1, **limits)
    trusted = [*made.swarm.remote_imports, __name__]
    swarm = made.swarm.model_copy(update={"remote_imports": trusted})
    teams = TeamsConfig(enabled=True)
    return made.model_copy(update={"debug": debug, "swarm": swarm, "teams": teams})


async def known_callers() -> MemoryStore:
    """Return a store that knows the tokens of the known callers."""
    store = MemoryStore()
    await put_tokens(store)
    return store


@contextmanager
def served_from(
    url: str, template: MAILSwarmTemplate | None = None, changes: Any = None, **limits: float
) -> Iterator[tuple[httpx.Client, FastAPI]]:
    """Serve a swarm from a database that knows the callers; yield a client, and the application.

    Args:
        url: The database.
        template: The swarm; the till without one.
        changes: Parts of the settings.
        limits: Fields of `[server.limits]`.
    """
    made: list[FastAPI] = []

    async def make() -> FastAPI:
        await know(url)
        chosen = settings(debug=False, **limits)
        chosen = chosen.model_copy(update={"store": StoreConfig(url=url), **(changes or {})})
        made.append(create_app(chosen, template=template or till()))
        made[0].state.loop = asyncio.get_running_loop()
        return made[0]

    with served(make) as address, httpx.Client(base_url=address, timeout=20) as client:
        yield client, made[0]
