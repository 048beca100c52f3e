"""Commands about the server's registry and template: swarms-get, swarm-register, -dump, -load."""

import argparse
from typing import Final

from mail.cli.exits import DONE
from mail.cli.repl.session import Command, Session
from mail.cli.repl.values import add_json

__all__ = ["COMMANDS"]


async def _swarms_get(session: Session, arguments: argparse.Namespace) -> int:
    answer = await session.client.get_swarms()
    if session.wants_json(arguments):
        session.screen.show_json(answer)
        return DONE
    swarms = answer.get("swarms") or []
    session.screen.say(f"found {len(swarms)} swarms:")
    for swarm in swarms:
        state = "" if swarm.get("is_active", True) else "  (not responding)"
        session.screen.say(f"{swarm.get('swarm_name')}@{swarm.get('base_url')}", (state, "dim"))
    return DONE


async def _swarm_register(session: Session, arguments: argparse.Namespace) -> int:
    answer = await session.client.register_swarm(
        arguments.name,
        arguments.base_url,
        auth_token=arguments.auth_token,
        volatile=arguments.volatile,
    )
    return session.tell(arguments, answer, f"swarm {answer.get('swarm_name')} registered")


async def _swarm_dump(session: Session, arguments: argparse.Namespace) -> int:
    answer = await session.client.dump_swarm()
    return session.tell(arguments, answer, f"swarm '{answer.get('swarm_name')}' dumped")


async def _swarm_load(session: Session, arguments: argparse.Namespace) -> int:
    answer = await session.client.load_swarm_from_json(arguments.swarm_json)
    return session.tell(arguments, answer, f"swarm '{answer.get('swarm_name')}' loaded")


def _configure_register(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", help="the other swarm's name")
    add("base_url", help="the base URL of its server")
    add("auth_token", nargs="?", help="the token this server uses to call it")
    add("-V", "--volatile", action="store_true", help="forget it when the server stops")
    add_json(parser)


def _configure_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("swarm_json", help="the definition of one swarm, as JSON")
    add_json(parser)


COMMANDS: Final = (
    Command(
        "swarms-get",
        ("sg", "swarms-g"),
        "list the swarms that the server knows",
        add_json,
        _swarms_get,
        "getting swarms",
    ),
    Command(
        "swarm-register",
        ("sr", "swarm-r"),
        "register another swarm (admins)",
        _configure_register,
        _swarm_register,
        "registering swarm",
    ),
    Command(
        "swarm-dump",
        ("sd", "swarm-d"),
        "write the swarm to the server's log (admins)",
        add_json,
        _swarm_dump,
        "dumping swarm",
    ),
    Command(
        "swarm-load-from-json",
        ("sl", "swarm-l"),
        "replace the server's swarm (admins)",
        _configure_load,
        _swarm_load,
        "loading swarm from JSON",
    ),
)
