"""Every test here runs behind a wall: no name is resolved and nothing but loopback is reached."""

import ipaddress
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mail.egress import client as egress
from tests.stdlib.outside import OTHER, PUBLIC, Outside


@pytest.fixture(autouse=True)
def wall(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Refuse what would leave the machine, whatever the code does; returns what tried to."""
    tried: list[str] = []
    connect, connect_ex, sendto = (
        socket.socket.connect,
        socket.socket.connect_ex,
        socket.socket.sendto,
    )
    look_up = socket.getaddrinfo

    def check(address: Any) -> None:
        if isinstance(address, tuple) and not ipaddress.ip_address(address[0]).is_loopback:
            tried.append(str(address[0]))
            raise PermissionError("the tests' wall")

    def guarded(method: Callable[..., Any], place: int) -> Callable[..., Any]:
        def call(self: socket.socket, *args: Any) -> Any:
            check(args[place])
            return method(self, *args)

        return call

    def look_up_literals(host: Any, *args: Any, **more: Any) -> Any:
        ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host or "0.0.0.0")  # noqa: S104
        return look_up(host, *args, **more)

    monkeypatch.setattr(socket.socket, "connect", guarded(connect, 0))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(connect_ex, 0))
    monkeypatch.setattr(socket.socket, "sendto", guarded(sendto, -1))
    monkeypatch.setattr(socket, "getaddrinfo", look_up_literals)
    return tried


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Outside:
    """Put a table in the place of the resolver and of the transport."""
    world = Outside(names={"public.example": [PUBLIC], "other.example": [OTHER]})
    monkeypatch.setattr(egress, "system_addresses", world.resolve)
    monkeypatch.setattr(egress, "system_transport", lambda: world.transport)
    return world


@pytest.fixture(autouse=True)
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a text the configuration file in force; at first the workspace is tmp_path/workspace."""
    path = tmp_path / "mail.toml"
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(path))

    def write(text: str) -> None:
        path.write_text(text, encoding="utf-8")

    write(f'[stdlib.fs]\nroot = "{tmp_path}/workspace"\n')
    return write
