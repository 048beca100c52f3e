"""Three servers behind the shipped proxy, as ``deploy/compose.cluster.yml`` sets it up."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.cli.test_server_process import QUESTION, serving
from tests.support.postgres import Cluster
from tests.support.proxies import behind

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose.cluster.yml"


def proxy_settings() -> dict[str, str]:
    """Return the environment of the proxy in the Compose file."""

    class Loader(yaml.SafeLoader):
        """Reads the tags that Compose adds."""

    Loader.add_constructor("!reset", lambda *_: None)
    services: Any = yaml.load(COMPOSE.read_text(), Loader)["services"]  # noqa: S506 - a safe one
    environment = dict(services["proxy"]["environment"])
    assert environment.pop("MAIL_UPSTREAM").split() == [f"{name}:8000" for name in (
        "server", "server2", "server3"
    )]  # fmt: skip
    return environment


async def test_a_rolling_restart_behind_the_proxy_refuses_nobody(
    tmp_path: Path, cluster: Cluster
) -> None:
    url = cluster.schema()
    async with AsyncExitStack() as stack:
        places = []
        for name in ("one", "two", "three"):
            (tmp_path / name).mkdir()
            started = serving(tmp_path / name, flags=("--store", url))
            places.append(await stack.enter_async_context(started))
        servers = " ".join(place.url.removeprefix("http://") for place in places)
        proxy = stack.enter_context(behind("caddy", servers, **proxy_settings()))
        made = places[0].run("token", "create", "--role", "user", "--id", "alice", "--store", url)
        headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        over, answered = asyncio.Event(), list[int]()

        async def keep_asking() -> None:
            async with httpx.AsyncClient(timeout=60, headers=headers) as client:
                while not over.is_set():
                    answer = await client.post(f"{proxy}/message", json={"body": QUESTION})
                    assert answer.status_code == 200, answer.text
                    answered.append(answer.status_code)

        asking = [asyncio.create_task(keep_asking()) for _ in range(3)]
        for place in places:
            before = len(answered)
            assert await place.stop() == 0
            await place.start()
            async with asyncio.timeout(60):
                while len(answered) < before + 6:
                    await asyncio.sleep(0.05)
        over.set()
        await asyncio.gather(*asking)
        assert len(answered) >= 18
