"""What anybody may know: ``GET /`` and ``/health``."""

from typing import Annotated, Final

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse

from mail.auth.callers import Caller
from mail.net.types import GetHealthResponse, GetRootResponse
from mail.server.bodies import HealthIn, read_body
from mail.server.deps import ADMIN, PUBLIC, State
from mail.server.errors import RETRY_AFTER
from mail.server.idempotent_response import answered_once
from mail.server.state import ServerState
from mail.version import get_protocol_version, get_version

__all__ = ["add_routes"]

_UNAVAILABLE: Final = 503


def add_routes(app: FastAPI) -> None:
    """Add the routes of this module."""
    app.get("/", dependencies=[Depends(PUBLIC)])(root)
    app.get("/health", dependencies=[Depends(PUBLIC)])(health)
    app.post("/health")(answered_once(health_post, of_server=True))


async def root(state: State) -> JSONResponse:
    """Say what runs here."""
    template = state.template
    answer: GetRootResponse = {
        "name": "mail",
        "version": get_version(),
        "protocol_version": get_protocol_version(),
        "swarm": {
            "name": template.name,
            "version": template.version,
            "description": template.description,
            "entrypoint": template.entrypoint,
            "keywords": list(template.keywords),
            "public": template.public,
        },
        "status": "draining" if state.draining else "running",
        "uptime": state.uptime,
    }
    return JSONResponse(answer)


async def health(state: State) -> JSONResponse:
    """Say whether work is welcome: 503 while the server drains, ``degraded`` without its store."""
    if state.draining:
        answer = _health(state) | {"status": "draining"}
        return JSONResponse(answer, _UNAVAILABLE, {"Retry-After": RETRY_AFTER})
    degraded = {"status": "degraded"} if await state.is_degraded() else {}
    return JSONResponse(_health(state) | degraded)


async def health_post(
    request: Request, state: State, caller: Annotated[Caller, Depends(ADMIN)]
) -> JSONResponse:
    """Set what ``GET /health`` says."""
    state.set_health((await read_body(request, HealthIn)).status)
    return JSONResponse(_health(state))


def _health(state: ServerState) -> GetHealthResponse:
    return {
        "status": state.health,
        "swarm_name": state.template.name,
        "timestamp": state.health_at,
    }
