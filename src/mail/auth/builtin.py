"""The built-in token authority, and the choice between it and an external one."""

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

from mail.auth.callers import AuthBackend, Caller, hash_token, is_own_token
from mail.auth.remote import RemoteAuth
from mail.auth.token_cache import Found, TokenCache
from mail.config.env import setting
from mail.db.keys import TokenVerbs
from mail.errors import AuthUnavailable, ConfigError, StoreError, Unauthenticated

__all__ = ["AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT", "BuiltinAuth", "RemoteAuth", "build_auth"]

AUTH_ENDPOINT = "AUTH_ENDPOINT"
TOKEN_INFO_ENDPOINT = "TOKEN_INFO_ENDPOINT"  # noqa: S105 - the name of a variable

_UNKNOWN = "invalid API key"


class BuiltinAuth:
    """An `AuthBackend` over the tokens in the server's own store (``mail token create``)."""

    def __init__(self, store: TokenVerbs) -> None:
        self._store = store
        self._lookups = TokenCache(self._look_up)

    async def authenticate(self, token: str) -> Caller:
        """Authenticate as `AuthBackend.authenticate` says."""
        if not is_own_token(token):
            raise Unauthenticated(_UNKNOWN)
        return await self._lookups.get(token)

    async def close(self) -> None:
        """Close it; the store stays open: it belongs to the server."""
        await self._lookups.close()

    async def _look_up(self, token: str) -> Found:
        try:
            row = await self._store.find_token(hash_token(token))
        except StoreError as error:
            raise AuthUnavailable("the token store did not answer") from error
        if row is None or row.revoked_at is not None:
            raise Unauthenticated(_UNKNOWN)
        caller = Caller(row.role, row.id)
        if row.expires_at is None:
            return Found(caller)
        left = (_instant(row.expires_at) - datetime.now(UTC)).total_seconds()
        if left <= 0:
            raise Unauthenticated(_UNKNOWN)
        return Found(caller, left)


def build_auth(environ: Mapping[str, str], store: TokenVerbs) -> AuthBackend:
    """Choose the authority.

    Args:
        environ: The environment: with both ``AUTH_ENDPOINT`` and ``TOKEN_INFO_ENDPOINT`` the
            external service is used, with neither the tokens in the store.
        store: The server's store.

    Raises:
        ConfigError: one of the two variables is set without the other, or is not a plain HTTP URL.
    """
    login = setting(AUTH_ENDPOINT, environ)
    info = setting(TOKEN_INFO_ENDPOINT, environ)
    if not login and not info:
        return BuiltinAuth(store)
    if not login or not info:
        missing = TOKEN_INFO_ENDPOINT if login else AUTH_ENDPOINT
        raise ConfigError(
            f"{missing} is not set: set both {AUTH_ENDPOINT} and {TOKEN_INFO_ENDPOINT} to use an "
            "external token service, or neither to use the built-in one"
        )
    for name, value in ((AUTH_ENDPOINT, login), (TOKEN_INFO_ENDPOINT, info)):
        _check_endpoint(name, value)
    return RemoteAuth(login, info)


def _check_endpoint(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises when it is no port
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise ConfigError(f"{name} is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{name} must be an http:// or https:// URL")
    if parts.username is not None:
        raise ConfigError(f"{name} must not contain a user name or password")


def _instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
