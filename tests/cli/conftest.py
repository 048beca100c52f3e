"""A small swarm behind a real server, for commands that talk to one."""

from collections.abc import AsyncIterator

import pytest

from mail.server.app import create_app
from tests.server import conftest as served
from tests.server.kit import Script, Template, config, serving

store = served.store


@pytest.fixture
def script() -> Script:
    """What the swarm's agent does."""
    return Script()


@pytest.fixture
async def server(script: Script, store: object) -> AsyncIterator[str]:
    """Return the URL of a running server whose swarm has a breakpoint tool."""
    template = Template(script, breakpoint_tools=["send_interrupt"])
    app = create_app(config(shutdown_grace=0.5), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        yield str(client.base_url).rstrip("/")
    script.gate.set()
