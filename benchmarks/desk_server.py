"""The servers of `benchmarks.desk`: ``python -m benchmarks.desk_server KIND FOLDER COUNT PORT``.

``mail`` is the server with so many participants; it tells at ``/waiting`` how many of them wait.
``bare`` is the floor: routes that hang until another one has stored a row and set their event.
"""

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.responses import PlainTextResponse

from benchmarks.edge_server import Inserter, edge_template
from mail.auth.callers import hash_token
from mail.config.server import LimitsConfig, ServerConfig, SettingsConfig, StoreConfig, SwarmConfig
from mail.db.records import TokenRow
from mail.db.urls import open_store
from mail.logs.setup import init_logger
from mail.server.app import create_app
from mail.server.connections import connections
from mail.server.run import share_interpreter, spare_collector

__all__ = ["SENDER", "make_tokens", "name_of", "token_of"]

SENDER: Final = "sender"


def name_of(number: int) -> str:
    """Return a participant's name."""
    return f"waiter-{number:04d}"


def token_of(name: str) -> str:
    """Return a participant's token."""
    return f"mail_desk-token-of-{name}".ljust(40, "x")


def _store_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'mail.db'}"


async def make_tokens(folder: Path, count: int) -> None:
    """Make the participants' tokens, as ``mail token create`` does."""
    store = open_store(_store_url(folder), exclusive=False)
    await store.open()
    for name in (SENDER, *map(name_of, range(count))):
        row = TokenRow(hash_token(token_of(name)), "agent", name, "2026-01-01T00:00:00Z")
        await store.put_token(row)
    await store.close()


def mail_app(folder: Path, count: int, port: int) -> tuple[FastAPI, ServerConfig]:
    """Return the server with its participants; only its limits per caller are lifted."""
    config = ServerConfig(
        host="127.0.0.1",
        port=port,
        swarm=SwarmConfig(name="edge"),
        store=StoreConfig(url=_store_url(folder)),
        settings=SettingsConfig(print_llm_streams=False),
        limits=LimitsConfig(max_requests=0, max_streams=0),
    )
    template = edge_template()
    names = (SENDER, *map(name_of, range(count)))
    template.participants = [{"name": name, "description": ""} for name in names]
    app = create_app(config, template=template)

    async def waiting(request: object) -> PlainTextResponse:
        return PlainTextResponse(str(app.state.mail.quotas.open_streams))

    app.router.add_route("/waiting", waiting)
    return app, config


class Letter(BaseModel):
    """A bare letter; to nobody by name it is for all."""

    to: str
    content: str


def bare_app(folder: Path) -> FastAPI:
    """Return the floor."""
    inserter = Inserter(folder / "bare.db")
    events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        inserter.start()
        yield
        inserter.stop()

    app = FastAPI(lifespan=lifespan)

    @app.get("/waiting")
    async def waiting() -> int:
        return sum(map(len, events.values()))

    @app.get("/wait/{name}")
    async def wait(name: str) -> dict[str, int]:
        event = asyncio.Event()
        events[name].add(event)
        await event.wait()
        events[name].discard(event)
        return {"unread": 1}

    @app.post("/send")
    async def send(letter: Letter) -> dict[str, int]:
        number = await inserter.insert(letter.content)
        for name in [letter.to] if letter.to else list(events):
            for event in events[name]:
                event.set()
        return {"id": number}

    return app


def main(kind: str, folder: Path, count: int, port: int) -> None:
    """Serve until told to stop."""
    if kind == "bare":
        uvicorn.run(bare_app(folder), port=port, access_log=False, log_level="warning")
        return
    with Path(os.devnull).open("w") as stream:
        init_logger(log_dir=folder / "logs", stream=stream, log_format="json")
        app, config = mail_app(folder, count, port)
        share_interpreter()
        spare_collector()
        uvicorn.run(
            app,
            port=port,
            access_log=False,
            log_config=None,
            ws="none",
            http=connections(config.limits),
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
