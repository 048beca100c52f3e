"""`make demo-federation`: three swarms on three servers solve one task together, before your eyes.

The example team `consulting` is dealt out: its supervisor, its consultant and its analyst each get
a swarm, a ``mail server`` on a free loopback port, a folder and a database of their own. The shop
knows the advice, the advice knows the figures; the shop has never heard of the figures. Everything
is real but the language model, which is scripted, so that it works offline and always the same. The
exit code is 0 only if the answer is right, every swarm took part and every server stopped well.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ports import free_port
from serving import (
    SWARMS,
    DemoFailedError,
    Place,
    headline,
    make_token,
    run_in_folder,
    server,
    short,
)

from mail.client import MAILClient
from mail.config import ClientConfig
from mail.core.interswarm import local_task_id
from mail.db import open_store
from mail.db.records import Owner

QUESTION = (
    "We have 200 orders a week, growing 8 percent a month. What should we plan for in 12 months?"
)
EXPECTED = "Plan for 503.6"
TEAM = "consulting"
DEALT = {
    "shop": ("supervisor", ["consultant@advice"], "REMOTE_LEAD"),
    "advice": ("consultant", ["analyst@figures"], "REMOTE_CONSULTANT"),
    "figures": ("analyst", [], "ANALYST"),
}
"""Swarm to its agent, whom that may write to first, and its script."""
ASKER, TASK = "newcomer", "plan-for-next-year"
WIRES = (("shop", "advice"), ("advice", "figures"))
"""The swarms that know each other."""


class Moment(NamedTuple):
    """Something that happened in a swarm."""

    time: datetime
    swarm: str
    kind: str
    extra: dict[str, Any]


def deal(folder: Path) -> Path:
    """Write a swarms file with a swarm for each agent of the team; return it."""
    swarms = json.loads(SWARMS.read_text(encoding="utf-8"))
    team = next(swarm for swarm in swarms if swarm["name"] == TEAM)
    agents = {agent["name"]: agent for agent in team["agents"]}
    made = []
    for name, (role, targets, script) in DEALT.items():
        agent = {
            **agents[role],
            "comm_targets": targets,
            "enable_entrypoint": True,
            "enable_interswarm": True,
            "can_complete_tasks": True,
            "agent_params": {
                **agents[role]["agent_params"],
                "llm": f"scripted/mail.examples.scripts.consulting:{script}",
            },
        }
        more = {"name": name, "entrypoint": role, "agents": [agent], "enable_interswarm": True}
        imports = team["action_imports"] if agent.get("actions") else []
        made.append({**team, **more, "action_imports": imports})
    file = folder / "swarms.json"
    file.write_text(json.dumps(made, indent=2), encoding="utf-8")
    return file


def places(folder: Path) -> dict[str, Place]:
    """Make a folder and choose a port for each swarm's server."""
    source, found = deal(folder), {}
    for name in DEALT:
        (folder / name).mkdir()
        found[name] = Place(folder / name, free_port(), name, source, federated=True)
    return found


# --- how swarms get to know each other ----------------------------------------------------------


async def introduce(here: Place, there: Place) -> None:
    """Let a swarm write to another one: with a token that is made there, and registered here."""
    token, admin = await asyncio.gather(
        make_token(there, "agent", here.swarm), make_token(here, "admin", "keeper")
    )
    config = ClientConfig(timeout=30.0, verbose=False)
    async with MAILClient(here.url, admin, config=config) as client:
        await client.register_swarm(there.swarm, there.url, auth_token=token)
    print(f"{here.swarm} knows {there.swarm} at {there.url}, and has a token for it", flush=True)


# --- what is seen -------------------------------------------------------------------------------


async def moments(place: Place, owner: Owner, task_id: str) -> list[Moment]:
    """Return what happened in one swarm, as its server has stored it."""
    store = open_store(place.store, exclusive=False, read_only=True)
    await store.open()
    try:
        events = await store.events(owner, task_id)
    finally:
        await store.close()
    return [
        Moment(datetime.fromisoformat(event.timestamp), place.swarm, event.kind, event.extra)
        for event in events
    ]


def line_of(moment: Moment) -> str | None:
    """Tell a moment on one line; None when it is not worth one."""
    if moment.kind == "action_complete":
        return f"{moment.extra['tool_name']} returned: {short(moment.extra.get('result', ''), 70)}"
    if moment.kind == "task_complete":
        return f"done: {short(moment.extra.get('response', ''), 70)}"
    message = moment.extra.get("full_message", {}).get("message")
    if moment.kind != "new_message" or message is None:
        return None
    sender = message["sender"]
    if sender["address_type"] == "system":
        return None
    recipients = message.get("recipients") or [message["recipient"]]
    names = ", ".join(recipient["address"] for recipient in recipients)
    return f"{sender['address']} → {names}  [{short(message['subject'], 40)}]"


def show_timeline(seen: Sequence[Moment]) -> None:
    """Print who wrote to whom, in the order of time, with the swarm that saw it."""
    ordered = sorted(seen, key=lambda moment: moment.time)
    for moment in ordered:
        line = line_of(moment)
        if line is not None:
            seconds = (moment.time - ordered[0].time).total_seconds()
            print(f"{seconds:6.2f}s  {moment.swarm:8} {line}", flush=True)


# --- the whole ----------------------------------------------------------------------------------


async def ask(place: Place) -> dict[str, Any]:
    """Ask a swarm the question, as a user of its server."""
    token = await make_token(place, "user", ASKER)
    config = ClientConfig(timeout=60.0, verbose=False)
    async with MAILClient(place.url, token, config=config) as client:
        answer: dict[str, Any] = await client.post_message(QUESTION, task_id=TASK)  # type: ignore[assignment]
    return answer


async def demo(folder: Path) -> None:
    """Run the whole demo in a folder."""
    servers = places(folder)
    shop = servers["shop"]
    headline("Starting three MAIL servers, each with a folder and a database of its own")
    for place in servers.values():
        print(f"{place.swarm:8} {place.url}  its agent: {DEALT[place.swarm][0]}")
    async with AsyncExitStack() as stack:
        await asyncio.gather(
            *(stack.enter_async_context(server(place)) for place in servers.values())
        )
        headline("Letting them know each other (a token from there, POST /swarms here)")
        both = [*WIRES, *((other, one) for one, other in WIRES)]
        await asyncio.gather(*(introduce(servers[one], servers[other]) for one, other in both))
        headline("Asking the shop (POST /message)")
        print(QUESTION)
        answer = await ask(shop)
        asker = Owner("shop", "user", ASKER)
        part = local_task_id(TASK, f"user:{ASKER}@shop")
        owners = {"shop": (asker, TASK)}
        owners |= {other: (Owner(other, "swarm", one), part) for one, other in WIRES}
        seen = [
            moment
            for name, (owner, task_id) in owners.items()
            for moment in await moments(servers[name], owner, task_id)
        ]
        headline("Who wrote to whom, as each swarm saw it")
        show_timeline(seen)
        headline("Answer")
        print(answer["response"])
    silent = DEALT.keys() - {moment.swarm for moment in seen}
    if silent:
        raise DemoFailedError(f"these swarms took no part: {', '.join(sorted(silent))}")
    if EXPECTED not in str(answer["response"]):
        raise DemoFailedError(f"the answer lacks '{EXPECTED}'")


def read_arguments() -> float:
    """Read the command line; return the time limit in seconds."""
    parser = argparse.ArgumentParser(
        description="Three swarms on three servers solve one task together. Offline."
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS", help="default: %(default)s"
    )
    limit: float = parser.parse_args().timeout
    return limit


async def main() -> int:
    """Run the demo within its time limit; return the exit code."""
    code = await run_in_folder(demo, read_arguments())
    if code == 0:
        print("\nNext: connect two servers: docs/federation.md.")
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
