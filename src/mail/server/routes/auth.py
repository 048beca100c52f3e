"""The built-in token authority in the documented shapes, so that other servers can use it."""

from typing import Annotated

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse

from mail.auth.callers import Caller
from mail.server.deps import AUTHENTICATED, BearerToken, State
from mail.server.idempotent_response import answered_once

__all__ = ["add_routes"]

_Anyone = Annotated[Caller, Depends(AUTHENTICATED)]


def add_routes(app: FastAPI) -> None:
    """Add the routes of this module."""
    app.post("/auth/login")(answered_once(login, keep=False))
    app.get("/auth/check")(check)


async def login(
    request: Request, state: State, caller: _Anyone, token: BearerToken
) -> JSONResponse:
    """Accept a key; the key itself serves as the token (ruling 48)."""
    return JSONResponse({"token": token})


async def check(caller: _Anyone, token: BearerToken) -> JSONResponse:
    """Say whose a token is."""
    return JSONResponse({"role": caller.role, "id": caller.id, "api_key": token})
