"""Commands about the server and the caller: ping, health, whoami, status, login, logout."""

import argparse
from typing import Any, Final

from mail.cli.exits import DONE, FAILED
from mail.cli.repl.session import Command, Session
from mail.cli.repl.values import add_json

__all__ = ["COMMANDS"]


async def _ping(session: Session, arguments: argparse.Namespace) -> int:
    root: dict[str, Any] = {**await session.client.ping()}
    version, swarm = root.get("version"), root.get("swarm")
    name = f"{root.get('name')} {version}" if version else f"{root.get('name')}"
    # Servers that follow the older openapi.yaml name the swarm, newer ones describe it.
    shown = f"{swarm.get('name')} {swarm.get('version')}" if isinstance(swarm, dict) else f"{swarm}"
    line = f"pong: {name} (protocol {root.get('protocol_version')}), swarm {shown}"
    return session.tell(arguments, root, line)


async def _health(session: Session, arguments: argparse.Namespace) -> int:
    health = await session.client.get_health()
    return session.tell(arguments, health, f"health: {health.get('status')}")


async def _health_update(session: Session, arguments: argparse.Namespace) -> int:
    health = await session.client.update_health(arguments.status)
    return session.tell(arguments, health, f"successfully updated health to {health.get('status')}")


async def _whoami(session: Session, arguments: argparse.Namespace) -> int:
    who = await session.client.get_whoami()
    return session.tell(arguments, who, f"role {who.get('role')} with ID {who.get('id')}")


async def _status(session: Session, arguments: argparse.Namespace) -> int:
    status = await session.client.get_status()
    return session.tell(
        arguments,
        status,
        f"user MAIL {_is(status.get('user_mail_ready'))} ready",
        f"user task {_is(status.get('user_task_running'))} running",
    )


async def _login(session: Session, arguments: argparse.Namespace) -> int:
    who = await session.client.login(arguments.api_key)
    return session.tell(
        arguments,
        who,
        f"successfully logged into {session.client.base_url}",
        f"> role: {who.get('role')}",
        f"> id: {who.get('id')}",
    )


async def _logout(session: Session, arguments: argparse.Namespace) -> int:
    client = session.client
    if client.api_key is None:
        session.screen.fail("error logging out: not currently logged in")
        return FAILED
    client.api_key, client.user_id, client.user_role = None, "unknown", "unknown"
    session.screen.say(f"successfully logged out of {client.base_url}")
    return DONE


def _is(state: object) -> str:
    return "IS" if state else "IS NOT"


def _configure_health_update(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("status", help="the status for GET /health to report")
    add_json(parser)


def _configure_login(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("api_key", help="the new key")
    add_json(parser)


COMMANDS: Final = (
    Command("ping", ("p",), "show the server's name and version", add_json, _ping, "pinging"),
    Command("health", ("h",), "show the server's health", add_json, _health, "getting health"),
    Command(
        "health-update",
        ("hu",),
        "set the server's health (admins)",
        _configure_health_update,
        _health_update,
        "updating health",
    ),
    Command("whoami", ("me", "id"), "show who you are", add_json, _whoami, "getting whoami"),
    Command(
        "status", ("s",), "show the state of your instance", add_json, _status, "getting status"
    ),
    Command("login", ("l",), "switch to another key", _configure_login, _login, "logging in"),
    Command("logout", ("lo",), "stop using a key", add_json, _logout, "logging out"),
)
