"""A small crowd on one server: no error, and nothing of it left in the server afterwards."""

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

from benchmarks.crowd import Crowd, Figures, describe
from benchmarks.crowd_server import crowd_config, crowd_template, make_tokens
from mail.core.runtime.active_tasks import ActiveTask
from mail.server.app import create_app
from mail.server.connections import Connection
from mail.services.event_log import Subscription
from tests.server.kit import running_server

USERS, TASKS, STREAMS, STALLED = 20, 100, 40, 10


async def test_a_crowd_leaves_nothing_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'mail.db'}"
    await make_tokens(url, USERS)
    settings = crowd_config(url)
    app = create_app(settings, template=crowd_template())
    state = app.state.mail
    async with running_server(app, settings.limits) as server:
        gc.collect()
        before = left()
        crowd = Crowd(server.url, USERS, TASKS, STREAMS, STALLED, pours=2)
        figures = await crowd.round("first")
        assert figures.errors == []
        assert (figures.ended, len(figures.latencies)) == (STREAMS, TASKS)
        await until(lambda: not server.server_state.connections)
        await until(lambda: state.quotas.open_streams == 0)
        instances = list(state.pool._live.values())
        await until(lambda: all(instance.idle for instance in instances))
        assert len(instances) == USERS
        assert not state.quotas._streams
        engines = [instance.swarm._runtime._context for instance in instances]
        assert not any(engine.events.has_readers for engine in engines)
        await until(lambda: all(count <= before[kind] for kind, count in left().items()))


def left() -> dict[type, int]:
    """Count what a request or a task needs while it lasts."""
    gc.collect()
    kinds = (Subscription, ActiveTask, Connection)
    return {kind: sum(type(item) is kind for item in gc.get_objects()) for kind in kinds}


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that the server does by itself."""
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.05)


def test_figures_name_what_went_wrong() -> None:
    figures = Figures(latencies=[0.001, 0.002, 0.003], errors=["500 broken"], ended=7, seconds=1.5)
    text = describe(2, figures, [100.0, 104.0])
    assert "tasks/s                                2.0" in text
    assert "500 broken" in text
    assert "+4.0 %" in text
