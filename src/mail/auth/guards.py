"""The documented helpers around callers: dependencies for any FastAPI application.

They ask the `AuthBackend` in ``app.state.auth``. An application without one gets what a server
with this environment would use: the external service, or the tokens in the server's store. Nothing
in a request but its ``Authorization`` header can change an answer: the helpers take no other
argument, because a framework would read it from the query.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from mail.auth.builtin import AUTH_ENDPOINT, TOKEN_INFO_ENDPOINT, build_auth
from mail.auth.callers import AuthBackend, Caller
from mail.auth.remote import RemoteAuth
from mail.config.env import current, setting
from mail.config.server import ServerConfig, resolve_store_url
from mail.db.urls import open_store
from mail.errors import AuthUnavailable, ConfigError, Forbidden, StoreError, Unauthenticated

_NO_STORE: Final = (
    f"the token store cannot be read; DATABASE_URL names a server's store, {AUTH_ENDPOINT} and "
    f"{TOKEN_INFO_ENDPOINT} an external token service"
)


async def login(api_key: str) -> str:
    """Exchange a key for a token at the external service.

    Raises:
        ConfigError: ``AUTH_ENDPOINT`` and ``TOKEN_INFO_ENDPOINT`` are not both set.
        Unauthenticated: the service refuses the key.
        AuthUnavailable: the service did not answer.
    """
    async with _remote() as remote:
        return await remote.login(api_key)


async def get_token_info(token: str) -> dict[str, Any]:
    """Return what the external service says about a token: ``role``, ``id``, ``api_key``.

    Raises:
        ConfigError: ``AUTH_ENDPOINT`` and ``TOKEN_INFO_ENDPOINT`` are not both set.
        Unauthenticated: the service refuses the token.
        AuthUnavailable: the service did not answer.
    """
    async with _remote() as remote:
        return await remote.token_info(token)


def bearer_token(request: Request) -> str:
    """Return the bearer token of a request.

    Raises:
        Unauthenticated: there is no ``Authorization`` header, or not exactly one bearer token.
    """
    headers: list[tuple[bytes, bytes]] = request.scope["headers"]
    values = [value for name, value in headers if name == b"authorization"]
    if not values:
        raise Unauthenticated("no API key provided")
    scheme, _, token = values[0].decode("latin-1").partition(" ")
    token = token.strip()
    if len(values) > 1 or scheme.lower() != "bearer" or not token or " " in token:
        raise Unauthenticated("invalid API key format")
    return token


@contextmanager
def _as_http() -> Iterator[None]:
    """Raise what a framework knows an answer for."""
    try:
        yield
    except Unauthenticated as error:
        raise HTTPException(401, str(error), {"WWW-Authenticate": "Bearer"}) from error
    except Forbidden as error:
        raise HTTPException(403, str(error)) from error
    except (AuthUnavailable, ConfigError) as error:
        raise HTTPException(503, str(error)) from error
    except StoreError as error:
        raise HTTPException(503, _NO_STORE) from error


extract_token = _as_http()(bearer_token)
"""`bearer_token` as a dependency: what it raises is an ``HTTPException``, 401."""


async def extract_token_info(request: Request) -> dict[str, Any]:
    """Return ``{"role", "id", "api_key"}`` of the caller.

    Raises:
        HTTPException: as `require_role`, but for the role.
    """
    caller = await _caller(request)
    return {"role": caller.role, "id": caller.id, "api_key": bearer_token(request)}


async def require_role(request: Request, roles: Sequence[str]) -> Caller:
    """Return the caller if it has one of the roles.

    Raises:
        HTTPException: 401 without a token, or with one that the authority refuses; 403 for another
            role; 503 when the authority did not answer, or the settings that name it are wrong.
    """
    caller = await _caller(request)
    if caller.role not in roles:
        raise HTTPException(403, f"invalid role: this requires {' or '.join(roles)}")
    return caller


async def caller_is_admin(request: Request) -> bool:
    """Return True for an administrator, else raise as `require_role` does."""
    return bool(await require_role(request, ("admin",)))


async def caller_is_user(request: Request) -> bool:
    """Return True for a user, else raise as `require_role` does."""
    return bool(await require_role(request, ("user",)))


async def caller_is_agent(request: Request) -> bool:
    """Return True for another swarm's agent, else raise as `require_role` does."""
    return bool(await require_role(request, ("agent",)))


async def caller_is_admin_or_user(request: Request) -> bool:
    """Return True for an administrator or a user, else raise as `require_role` does."""
    return bool(await require_role(request, ("admin", "user")))


def require_debug(request: Request) -> None:
    """Let debug-only routes answer only when the server runs in debug mode.

    Raises:
        HTTPException: 404, as for a route that does not exist.
    """
    if not getattr(request.app.state, "debug", False):
        raise HTTPException(404, "Not found")


def generate_user_id(token_info: Mapping[str, Any]) -> str:
    """Return the identifier of a person: role and id, for example ``user_alice``."""
    return f"{token_info['role']}_{token_info['id']}"


def generate_agent_id(token_info: Mapping[str, Any]) -> str:
    """Return the identifier of a remote agent, for example ``swarm_beta``."""
    return f"swarm_{token_info['id']}"


async def _caller(request: Request) -> Caller:
    with _as_http():
        token = bearer_token(request)
        async with _backend(request) as backend:
            return await backend.authenticate(token)


@asynccontextmanager
async def _backend(request: Request) -> AsyncIterator[AuthBackend]:
    own: AuthBackend | None = getattr(request.app.state, "auth", None)
    if own is not None:
        yield own
        return
    # Nothing is kept between requests: only the application knows when it ends.
    store = open_store(resolve_store_url(ServerConfig()), exclusive=False, read_only=True)
    backend = build_auth(current(), store)
    try:
        if not isinstance(backend, RemoteAuth):
            await store.open()
        yield backend
    finally:
        await backend.close()
        await store.close()


@asynccontextmanager
async def _remote() -> AsyncIterator[RemoteAuth]:
    auth, info = setting(AUTH_ENDPOINT), setting(TOKEN_INFO_ENDPOINT)
    if not (auth and info):
        raise ConfigError(f"{AUTH_ENDPOINT} and {TOKEN_INFO_ENDPOINT} must both be set")
    remote = RemoteAuth(auth, info)
    try:
        yield remote
    finally:
        await remote.close()
