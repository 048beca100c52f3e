"""What routes ask for: the server's state, the caller, and an audience for every route.

A route names its audience by depending on an `Audience`. `check_audiences` refuses to build a
server with a route that names none: what is not allowed is denied.
"""

from functools import partial
from typing import Annotated, Final

from fastapi import Depends, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request

from mail.auth.callers import Caller
from mail.auth.guards import extract_token
from mail.errors import ConfigError, Forbidden
from mail.logcontext import note
from mail.server.state import ServerState, state_of

__all__ = [
    "ADMIN",
    "AUTHENTICATED",
    "PEOPLE",
    "PUBLIC",
    "Audience",
    "BearerToken",
    "Person",
    "State",
    "audience_of",
    "check_audiences",
    "current_caller",
]


async def _token(request: Request) -> str:  # async: FastAPI sends plain functions to a thread
    return extract_token(request)


async def _state(request: Request) -> ServerState:
    return state_of(request)


BearerToken = Annotated[str, Depends(_token)]
State = Annotated[ServerState, Depends(_state)]


async def current_caller(request: Request, token: BearerToken, state: State) -> Caller:
    """Resolve the caller, once per request.

    Raises:
        Unauthenticated: no token, or one that the authority refuses.
        AuthUnavailable: the authority did not answer.
        QuotaExceeded: too many requests in a short time.
    """
    caller = await state.auth.authenticate(token)
    note(caller_role=caller.role, caller_id=caller.id)
    state.quotas.request(caller)
    request.state.body_place = partial(state.quotas.body, caller)
    return caller


class Audience:
    """Roles that may use a route; as a dependency it yields the caller."""

    def __init__(self, *roles: str) -> None:
        self.roles: Final = frozenset(roles)

    async def __call__(self, caller: Annotated[Caller, Depends(current_caller)]) -> Caller:
        """Return the caller.

        Raises:
            Forbidden: its role is not in the audience.
        """
        if caller.role not in self.roles:
            raise Forbidden(f"invalid role: this requires {' or '.join(sorted(self.roles))}")
        return caller


class _Everyone(Audience):
    """Anybody, with or without a token."""

    async def __call__(self) -> None:  # type: ignore[override]  # asks for no caller
        """Let the request pass."""


PUBLIC: Final = _Everyone()
AUTHENTICATED: Final = Audience("admin", "user", "agent")
PEOPLE: Final = Audience("admin", "user")
ADMIN: Final = Audience("admin")

Person = Annotated[Caller, Depends(PEOPLE)]


def audience_of(route: APIRoute) -> Audience | None:
    """Return the audience that a route declares, or None."""
    return next((guard for guard in _guards(route.dependant)), None)


def check_audiences(app: FastAPI) -> None:
    """Make sure that every route names its audience.

    Raises:
        ConfigError: one does not.
    """
    for route in app.routes:
        if not isinstance(route, APIRoute) or audience_of(route) is None:
            raise ConfigError(f"route {getattr(route, 'path', route)!r} declares no audience")


def _guards(dependant: Dependant) -> list[Audience]:
    return [d.call for d in dependant.dependencies if isinstance(d.call, Audience)]
