"""The swarm that is served, for administrators: ``/swarms/dump`` and ``/swarms/load``."""

import logging
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse

from mail.auth.callers import Caller
from mail.server.bodies import SwarmIn, read_body
from mail.server.deps import ADMIN, State
from mail.server.idempotent_response import answered_once
from mail.server.swarm import load_swarm

if TYPE_CHECKING:
    from mail.net.types import GetSwarmsDumpResponse, PostSwarmsLoadResponse

__all__ = ["add_routes"]

_log = logging.getLogger("mail.server")


def add_routes(app: FastAPI) -> None:
    """Add the routes of this module."""
    app.get("/swarms/dump", dependencies=[Depends(ADMIN)])(dump_swarm)
    app.post("/swarms/load")(answered_once(load_swarm_from_json, of_server=True))


async def dump_swarm(state: State) -> JSONResponse:
    """Write the names of the swarm and of its agents to the log."""
    template = state.template
    names = ", ".join(repr(agent.name) for agent in template.agents)
    _log.info("the swarm is %r; its agents are %s", template.name, names)
    answer: GetSwarmsDumpResponse = {"status": "dumped", "swarm_name": template.name}
    return JSONResponse(answer)


async def load_swarm_from_json(
    request: Request, state: State, caller: Annotated[Caller, Depends(ADMIN)]
) -> JSONResponse:
    """Serve another swarm until the next restart; a bad one changes nothing."""
    body = await read_body(request, SwarmIn)
    template = await load_swarm(state, body.definition)
    _log.info("the swarm is %r from now on", template.name)
    answer: PostSwarmsLoadResponse = {"status": "success", "swarm_name": template.name}
    return JSONResponse(answer)
