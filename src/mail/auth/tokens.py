"""Making, listing and revoking the tokens of the built-in authority.

``mail token`` and the routes ``/tokens`` are thin over this. The store keeps hashes only, so a
token is shown once, when it is made. Docs: ``docs/cli.md``.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unicodedata import category

from mail.auth.callers import check_caller_id, hash_token, new_token
from mail.core.suggest import hinted
from mail.db.keys import TokenVerbs
from mail.db.records import TokenRow
from mail.errors import ConfigError, UnknownToken

MOST_DAYS: Final = 36500
"""A token that expires does so before this many days."""

_CONTROL: Final = frozenset({"Cc", "Cs"})
_SHOWN_HASH: Final = 12
_LEAST_PREFIX: Final = 4


async def create_token(
    store: TokenVerbs, role: str, identifier: str, *, label: str = "", days: float | None = None
) -> tuple[str, TokenRow]:
    """Store a new token and return it, with its row.

    Args:
        store: The store of tokens.
        role: ``admin``, ``user`` or ``agent``.
        identifier: The caller's id.
        label: A note for people.
        days: The days until it expires; None for never.

    Raises:
        ProtocolError: the id cannot be a caller's.
        ConfigError: the label has control characters.
    """
    if any(category(sign) in _CONTROL for sign in label):
        raise ConfigError("the label of a token must not contain control characters")
    token, now = new_token(), datetime.now(UTC)
    row = TokenRow(
        token_hash=hash_token(token),
        role=role,
        id=check_caller_id(identifier),
        label=label,
        created_at=now.isoformat(),
        expires_at=None if days is None else (now + timedelta(days=days)).isoformat(),
    )
    await store.put_token(row)
    return token, row


def check_purpose(
    role: str,
    identifier: str,
    swarm: str,
    declared: Collection[str],
    *,
    participant: bool,
    flag: str,
) -> None:
    """Check that an agent's token is for what its id stands for.

    Args:
        role: The token's role.
        identifier: Its id.
        swarm: The swarm.
        declared: The names of its participants.
        participant: The token is said to be a participant's.
        flag: The flag for it.

    Raises:
        ConfigError: the id is no participant of the swarm, or is one and that was not said.
    """
    name = repr(identifier)
    if role != "agent":
        if participant:
            raise ConfigError("only a token of the role agent is a participant's")
    elif participant and identifier not in declared:
        known = ", ".join(map(repr, sorted(declared))) or "none"
        text = f"the swarm '{swarm}' declares no participant {name} (participants: {known})"
        raise ConfigError(hinted(text, identifier, declared))
    elif not participant and identifier in declared:
        raise ConfigError(
            f"{name} is a participant of the swarm '{swarm}'; add {flag} for its token, or "
            "choose another id for a swarm"
        )


async def revoke_token(store: TokenVerbs, prefix: str) -> TokenRow:
    """Revoke the token whose hash begins with a text; one that is revoked stays as it is.

    Raises:
        ConfigError: the text is too short, or more than one hash begins with it.
        UnknownToken: none does.
    """
    beginning = prefix.lower()
    if len(beginning) < _LEAST_PREFIX:
        raise ConfigError(f"give at least {_LEAST_PREFIX} characters of the hash")
    found = [row for row in await store.list_tokens() if row.token_hash.startswith(beginning)]
    if not found:
        raise UnknownToken("no token hash has this prefix; see `mail token list`")
    if len(found) > 1:
        raise ConfigError(f"{len(found)} token hashes have this prefix; give more of it")
    row = found[0]
    if row.revoked_at is None:
        row = row._replace(revoked_at=datetime.now(UTC).isoformat())
        await store.put_token(row)
    return row


def token_record(row: TokenRow) -> dict[str, Any]:
    """Return what people see of a token."""
    return {
        "hash": row.token_hash[:_SHOWN_HASH],
        "role": row.role,
        "id": row.id,
        "label": row.label,
        "state": token_state(row),
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
    }


def kind_of_token(row: TokenRow, participants: Collection[str] | None) -> str | None:
    """Tell what an agent's token is for; None without the names of the participants."""
    if row.role != "agent" or participants is None:
        return None
    return "participant" if row.id in participants else "peer"


def token_state(row: TokenRow) -> str:
    """Tell whether a token is ``valid``, ``expired`` or ``revoked``."""
    if row.revoked_at is not None:
        return "revoked"
    if row.expires_at is not None and datetime.fromisoformat(row.expires_at) <= datetime.now(UTC):
        return "expired"
    return "valid"
