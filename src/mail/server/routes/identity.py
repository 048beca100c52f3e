"""What callers may know about themselves: ``GET /whoami`` and ``GET /status``."""

from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.responses import JSONResponse

from mail.server.deps import Person, State

if TYPE_CHECKING:
    from mail.net.types import GetStatusResponse, GetWhoamiResponse

__all__ = ["add_routes"]


def add_routes(app: FastAPI) -> None:
    """Add the routes of this module."""
    app.get("/whoami")(whoami)
    app.get("/status")(status)


async def whoami(caller: Person) -> JSONResponse:
    """Say who the caller is."""
    answer: GetWhoamiResponse = {"id": caller.id, "role": caller.role, "username": caller.id}
    return JSONResponse(answer)


async def status(state: State, caller: Person) -> JSONResponse:
    """Say whether the swarm is ready and whether the caller has a running instance.

    An instance runs as long as it exists, so the last two fields agree, as they did in 1.3.6.
    """
    present = state.pool.peek(caller) is not None
    answer: GetStatusResponse = {
        "swarm": {"name": state.template.name, "status": "ready"},
        "active_users": state.pool.count("user"),
        "user_mail_ready": present,
        "user_task_running": present,
    }
    return JSONResponse(answer)
