"""Callers: the identity behind an access token, and the interface of what verifies one."""

import hashlib
import re
import secrets
from typing import Final, NamedTuple, Protocol

from mail.core.schema import check_task_id
from mail.errors import ProtocolError

ROLES: Final = ("admin", "user", "agent")
"""The roles of callers; ``agent`` is another swarm."""

PRIVILEGED: Final = frozenset({"admin", "agent"})
"""Roles whose tokens are looked up for every request, so that a revocation acts at once."""

_PREFIX: Final = "mail_"
_OWN: Final = re.compile(r"[\w-]{24,160}", re.ASCII)


class Caller(NamedTuple):
    """An authenticated caller. ``(role, id)`` owns tasks and selects the runtime instance."""

    role: str
    id: str


class AuthBackend(Protocol):
    """Anything that knows whose a token is."""

    async def authenticate(self, token: str) -> Caller:
        """Return the caller behind a token.

        Raises:
            Unauthenticated: the token is unknown, expired or revoked.
            AuthUnavailable: the authority did not answer.
        """

    async def close(self) -> None:
        """Let go of connections. May be called twice."""


def hash_token(token: str) -> str:
    """Return the SHA-256 of a token in hex: the only form in which a token is kept."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def new_token() -> str:
    """Return a fresh access token (256 random bits); the prefix lets log filters spot it."""
    return _PREFIX + secrets.token_urlsafe(32)


def is_own_token(token: str) -> bool:
    """Tell whether a text may be one of our own tokens: anything else need not be looked up."""
    return _OWN.fullmatch(token) is not None


def check_caller_id(identifier: str) -> str:
    """Return a caller's id unchanged: 1 to 256 characters, none of them control.

    Raises:
        ProtocolError: it is none of that.
    """
    try:
        return check_task_id(identifier)
    except ProtocolError:
        raise ProtocolError(
            "a caller's id must have 1 to 256 characters and no control characters"
        ) from None
