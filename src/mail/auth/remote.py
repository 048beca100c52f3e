"""The external token service: log in with the caller's key, then ask whose the token is."""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from mail.auth.callers import ROLES, Caller, check_caller_id
from mail.auth.token_cache import Found, TokenCache
from mail.errors import AuthUnavailable, ProtocolError, Unauthenticated

if TYPE_CHECKING:
    import aiohttp

LOOK_UP_SECONDS: Final = 3.0
_MAX_ANSWER_BYTES: Final = 64 * 1024
_REFUSALS: Final = frozenset({401, 403})


class RemoteAuth:
    """An `AuthBackend` over the documented pair of endpoints.

    One look-up is a ``POST auth_endpoint`` with the caller's key as bearer, which answers
    ``{"token": …}``, and a ``GET token_info_endpoint`` with that token as bearer, which answers
    ``{"role", "id", "api_key"}``. Both together may take ``timeout`` seconds.
    """

    def __init__(
        self, auth_endpoint: str, token_info_endpoint: str, *, timeout: float = LOOK_UP_SECONDS
    ) -> None:
        self._auth_endpoint = auth_endpoint
        self._token_info_endpoint = token_info_endpoint
        self._timeout = timeout
        self._lookups = TokenCache(self._look_up)
        self._session: aiohttp.ClientSession | None = None

    async def authenticate(self, token: str) -> Caller:
        """Authenticate as `AuthBackend.authenticate` says."""
        return await self._lookups.get(token)

    async def login(self, api_key: str) -> str:
        """Exchange a caller's key for a token.

        Raises:
            Unauthenticated: the service refuses the key.
            AuthUnavailable: the service did not answer, or not sensibly.
        """
        answer = await self._ask("POST", self._auth_endpoint, api_key, "invalid API key")
        token = answer.get("token")
        if not isinstance(token, str) or not token:
            raise AuthUnavailable("the authentication service returned no token")
        return token

    async def token_info(self, token: str) -> dict[str, Any]:
        """Return what the service says about a token: ``role``, ``id``, ``api_key``.

        Raises:
            Unauthenticated: the service refuses the token.
            AuthUnavailable: the service did not answer, or not sensibly.
        """
        return await self._ask("GET", self._token_info_endpoint, token, "invalid token")

    async def close(self) -> None:
        """Close its connections."""
        await self._lookups.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _look_up(self, api_key: str) -> Found:
        try:
            async with asyncio.timeout(self._timeout):
                info = await self.token_info(await self.login(api_key))
        except TimeoutError:
            raise AuthUnavailable("the authentication service did not answer in time") from None
        return _read_info(info)

    async def _ask(self, method: str, url: str, bearer: str, refusal: str) -> dict[str, Any]:
        import aiohttp

        headers = {"Authorization": f"Bearer {bearer}"}
        try:
            async with self._open().request(method, url, headers=headers) as response:
                if response.status in _REFUSALS:
                    raise Unauthenticated(refusal)
                if response.status != 200:
                    raise AuthUnavailable(
                        f"the authentication service returned status {response.status}"
                    )
                return await _read_object(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # The error's own text may hold the URL with its password.
            kind = type(error).__name__
            raise AuthUnavailable(f"the authentication service did not answer ({kind})") from None
        except ValueError:  # a header or URL that cannot be sent
            raise Unauthenticated(refusal) from None

    def _open(self) -> "aiohttp.ClientSession":
        if self._session is None:
            import aiohttp

            timeout = aiohttp.ClientTimeout(total=self._timeout)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session


async def _read_object(response: "aiohttp.ClientResponse") -> dict[str, Any]:
    try:
        await response.content.readexactly(_MAX_ANSWER_BYTES + 1)
    except asyncio.IncompleteReadError as whole:
        text = whole.partial
    else:
        raise AuthUnavailable("the answer of the authentication service is too large")
    try:
        answer = from_json(text)
    except ValueError:
        raise AuthUnavailable("the authentication service did not return JSON") from None
    if not isinstance(answer, dict):
        raise AuthUnavailable("the authentication service did not return a JSON object")
    return answer


def _read_info(info: Mapping[str, Any]) -> Found:
    role, identifier, expires = info.get("role"), info.get("id"), info.get("exp")
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)
    if role not in ROLES or not isinstance(identifier, str):
        raise AuthUnavailable("the authentication service did not return a valid role and id")
    try:
        check_caller_id(identifier)
    except ProtocolError as error:
        raise AuthUnavailable(f"the authentication service's answer: {error}") from None
    if isinstance(expires, (int, float)) and not isinstance(expires, bool):
        return Found(Caller(role, identifier), max(0.0, expires - time.time()))
    return Found(Caller(role, identifier))
