"""Entries of the registry: how one is made, what must not be in it, and its form in JSON."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeGuard
from urllib.parse import urlsplit

from typing_extensions import TypedDict

from mail.egress.rules import EgressPolicy, FetchError, check_host
from mail.errors import ConfigError, ProtocolError
from mail.net.types import ProposedSwarm, PublicKey, SwarmEndpoint, SwarmEndpointCleaned
from mail.redaction import redacted
from mail.swarms_json.names import check_swarm_name
from mail.version import get_protocol_version

TOKEN_PREFIX: Final = "SWARM_AUTH_TOKEN"  # noqa: S105 - the beginning of names of variables

MOST_KEYS: Final = 8
"""Public keys that one swarm may have."""

_MAX_URL: Final = 2048
_MAX_METADATA: Final = 4096
_MAX_DESCRIPTION: Final = 1000
_MAX_WORD: Final = 64
_MAX_KEYWORDS: Final = 32
_NOT_PLAIN: Final = re.compile(r"[^A-Z0-9]")
_REFERENCE: Final = re.compile(r"\$\{(.*)\}", re.DOTALL)
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}")
_URL: Final = re.compile(r"[\x21-\x7e]+")
_RAW_KEY: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class SwarmFacts(TypedDict):
    """Facts about a swarm, as it or another server states them."""

    name: str | None
    version: str
    description: str
    keywords: list[str]
    public: bool


def refuse(field: str, problem: str) -> ProtocolError:
    """Make the error for one wrong field of a registration."""
    # Not "auth_token: …": what follows that is blotted out of logs.
    text = f"'{field}' is wrong: {problem}"
    return ProtocolError(text, [{"field": field, "problem": problem}])


def token_variable(swarm_name: str) -> str:
    """Return the name of the environment variable for a swarm's token.

    >>> token_variable("swarm-beta")
    'SWARM_AUTH_TOKEN_SWARM_BETA'
    """
    return f"{TOKEN_PREFIX}_{_NOT_PLAIN.sub('_', swarm_name.upper())}"


def missing_token(swarm_name: str, own_name: str) -> str:
    """Return what an operator is told when there is no token for a swarm."""
    return (
        f"there is no token for swarm {swarm_name!r}, so nothing can be sent to it: run 'mail "
        f"token create --role agent --id {own_name}' on its side, and set "
        f"{token_variable(swarm_name)} to that token on this side before the next start, or "
        "register it again with the token"
    )


def token_reference(swarm_name: str) -> str:
    """Return the reference to that variable, as entries hold it."""
    return f"${{{token_variable(swarm_name)}}}"


def is_reference(text: str) -> bool:
    """Tell whether a text is a reference to any environment variable."""
    return _REFERENCE.fullmatch(text) is not None


def is_token_reference(text: str) -> bool:
    """Tell whether a text is a reference to a variable that may hold the token of a swarm."""
    match = _REFERENCE.fullmatch(text)
    name = match[1] if match else ""
    prefix, rest = name[: len(TOKEN_PREFIX) + 1], name[len(TOKEN_PREFIX) + 1 :]
    return (
        prefix == f"{TOKEN_PREFIX}_" and bool(rest) and not _NOT_PLAIN.search(rest.replace("_", ""))
    )


def check_name(name: str, field: str = "name") -> str:
    """Return the name of a swarm that fits into addresses.

    Raises:
        ProtocolError: it does not.
    """
    try:
        return check_swarm_name(name)
    except ConfigError as error:
        raise refuse(field, str(error)) from None


def check_base_url(url: str, field: str = "base_url") -> str:
    """Return the address of a server without the slash at its end.

    Whether it may be reached is checked whenever it is.

    Raises:
        ProtocolError: it is no plain http or https address.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise refuse(field, "not a valid URL") from None
    if len(url) > _MAX_URL or not _URL.fullmatch(url):
        raise refuse(field, f"must have at most {_MAX_URL} characters, all of them plain ASCII")
    if parts.username is not None or parts.password is not None:
        raise refuse(field, "must not contain a user or password; give the token as 'auth_token'")
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        raise refuse(field, "must not have a query or fragment")
    try:
        check_host(parts.scheme.lower(), host, EgressPolicy())
    except ValueError as error:
        raise refuse(field, str(error)) from None
    return url.rstrip("/")


def check_token(swarm_name: str, token: str) -> str:
    """Return a token, or the reference to the variable that is this swarm's.

    Raises:
        ProtocolError: it refers to anything else, or cannot be sent in a header.
    """
    if is_reference(token) and token != token_reference(swarm_name):
        raise refuse(
            "auth_token",
            f"a reference may only name {token_reference(swarm_name)}, the variable of this swarm",
        )
    if not _TOKEN.fullmatch(token):
        raise refuse("auth_token", "must be 1 to 4096 visible ASCII characters")
    return token


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a registration's metadata, which is stored and shown as it is.

    Raises:
        ProtocolError: it is not a small JSON object, or holds what looks like a secret.
    """
    if metadata is None:
        return None
    try:
        text = json.dumps({**metadata}, allow_nan=False, ensure_ascii=False)
        size = len(text.encode())  # a ValueError when it holds half a character
    except (TypeError, ValueError, RecursionError):
        raise refuse("metadata", "must be a JSON object") from None
    if size > _MAX_METADATA:
        raise refuse("metadata", f"must have at most {_MAX_METADATA} bytes as JSON")
    copy: dict[str, Any] = json.loads(text)
    shown = redacted(copy)
    for key, value in copy.items():
        if shown.get(key) != value:
            raise refuse(
                "metadata",
                f"{key[:_MAX_WORD]!r} looks like a secret or is nested too deeply, and metadata is "
                "shown to anybody",
            )
    return copy


def public_key(raw: bytes) -> PublicKey:
    """Return the 32 bytes of an Ed25519 key as a JSON Web Key."""
    x = _base64url(raw)
    members = f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'  # as RFC 7638 wants them
    kid = _base64url(hashlib.sha256(members.encode()).digest())
    return {"kty": "OKP", "crv": "Ed25519", "x": x, "kid": kid}


def raw_key(key: PublicKey) -> bytes:
    """Return the 32 bytes of a key."""
    return base64.urlsafe_b64decode(key["x"] + "=")


def check_public_key(value: Any, field: str = "public_key") -> PublicKey:
    """Return a key as it is stored; other members of it are left out.

    Raises:
        ProtocolError: it is no Ed25519 key, or is not named by its thumbprint.
    """
    given = value if isinstance(value, Mapping) else {}
    x = given.get("x")
    if (given.get("kty"), given.get("crv")) != ("OKP", "Ed25519") or not (
        isinstance(x, str) and _RAW_KEY.fullmatch(x)
    ):
        raise refuse(field, "must be an Ed25519 key as a JSON Web Key: kty, crv and x")
    key = public_key(base64.urlsafe_b64decode(x + "="))
    if given.get("kid", key["kid"]) != key["kid"]:
        raise refuse(field, f"its kid must be its thumbprint, {key['kid']}")
    return key


def shown_keys(document: Mapping[str, Any]) -> list[PublicKey]:
    """Return the keys that a server shows; those that cannot be used are left out."""
    found, listed = [], document.get("keys")
    for each in listed[:MOST_KEYS] if isinstance(listed, list) else ():
        try:
            found.append(check_public_key(each))
        except ProtocolError:
            continue
    return found


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def facts_of(answer: Any) -> SwarmFacts:
    """Read what a server says about its swarm in its ``GET /``; what is too long is cut.

    Raises:
        FetchError: it is not the answer of a MAIL server.
    """
    swarm = answer.get("swarm") if isinstance(answer, dict) else None
    if isinstance(swarm, str):  # as in an older openapi.yaml
        swarm = {"name": swarm}
    if not isinstance(swarm, dict):
        raise FetchError("it is not a MAIL server")
    name = swarm.get("name")
    return {
        "name": name if isinstance(name, str) else None,
        "version": _text(answer.get("protocol_version"), _MAX_WORD) or get_protocol_version(),
        "description": _text(swarm.get("description"), _MAX_DESCRIPTION),
        "keywords": _words(swarm.get("keywords")),
        "public": swarm.get("public") is True,
    }


def make_endpoint(
    swarm_name: str,
    base_url: str,
    facts: SwarmFacts,
    *,
    auth_token_ref: str | None = None,
    metadata: dict[str, Any] | None = None,
    volatile: bool = False,
    public_keys: Sequence[PublicKey] = (),
) -> SwarmEndpoint:
    """Make the entry of a swarm that has answered just now."""
    made: SwarmEndpoint = {
        "swarm_name": swarm_name,
        "base_url": base_url,
        "version": facts["version"],
        "health_check_url": f"{base_url}/health",
        "auth_token_ref": auth_token_ref,
        "last_seen": datetime.now(UTC),
        "is_active": True,
        "latency": None,
        "swarm_description": facts["description"],
        "keywords": list(facts["keywords"]),
        "metadata": metadata,
        "public": facts["public"],
        "volatile": volatile,
    }
    if public_keys:
        made["public_keys"] = [*public_keys]
    return made


def cleaned(endpoint: SwarmEndpoint) -> SwarmEndpointCleaned:
    """Return what anybody may know of an entry: no token, and no reference to one."""
    seen = endpoint["last_seen"]
    return {
        "swarm_name": endpoint["swarm_name"],
        "base_url": endpoint["base_url"],
        "version": endpoint["version"],
        "last_seen": None if seen is None else seen.isoformat(),
        "is_active": endpoint["is_active"],
        "latency": endpoint["latency"],
        "swarm_description": endpoint["swarm_description"],
        "keywords": endpoint["keywords"],
        "metadata": endpoint["metadata"],
        "public_keys": endpoint.get("public_keys", []),
    }


def endpoint_to_json(endpoint: SwarmEndpoint) -> dict[str, Any]:
    """Return an entry for a file: a token is replaced by the reference to its variable."""
    seen, token = endpoint["last_seen"], endpoint["auth_token_ref"]
    return {
        **endpoint,
        "last_seen": None if seen is None else seen.isoformat(),
        "auth_token_ref": token_reference(endpoint["swarm_name"]) if token else None,
    }


def endpoint_from_json(name: str, entry: Any) -> SwarmEndpoint:
    """Read an entry of a file. Its health address follows from its base URL.

    Raises:
        ValueError: it cannot be used; the text says why.
    """
    if not isinstance(entry, dict):
        raise ProtocolError("must be an object")
    base_url = entry.get("base_url")
    if not isinstance(base_url, str):
        raise refuse("base_url", "must be text")
    token = entry.get("auth_token_ref") or entry.get("auth_token") or None  # the older key
    if token is not None and not isinstance(token, str):
        raise refuse("auth_token_ref", "must be text or null")
    metadata = entry.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise refuse("metadata", "must be a JSON object")
    latency = entry.get("latency")
    facts: SwarmFacts = {
        "name": name,
        "version": _text(entry.get("version"), _MAX_WORD) or get_protocol_version(),
        "description": _text(entry.get("swarm_description"), _MAX_DESCRIPTION),
        "keywords": _words(entry.get("keywords")),
        "public": entry.get("public") is True,
    }
    made = make_endpoint(
        check_name(name),
        check_base_url(base_url),
        facts,
        auth_token_ref=None if token is None else check_token(name, token),
        metadata=check_metadata(metadata),
        volatile=entry.get("volatile") is True,
        public_keys=_keys(entry.get("public_keys")),
    )
    made["last_seen"] = _instant(entry.get("last_seen"))
    made["is_active"] = entry.get("is_active") is not False
    made["latency"] = float(latency) if _is_number(latency) else None
    return made


def proposal_from_json(name: str, entry: Any) -> ProposedSwarm:
    """Read a proposal of a file, or what another server lists; of the latter no token is read.

    Raises:
        ValueError: it cannot be used; the text says why.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("base_url"), str):
        raise refuse("base_url", "must be text")
    return {
        "swarm_name": check_name(name, "swarm_name"),
        "base_url": check_base_url(entry["base_url"]),
        "swarm_description": _text(entry.get("swarm_description"), _MAX_DESCRIPTION),
        "keywords": _words(entry.get("keywords")),
        "listed_by": _text(entry.get("listed_by"), _MAX_URL),
    }


def _text(value: Any, at_most: int) -> str:
    """Return printable text, cut to a length; others write it, and it is shown to anybody."""
    if not isinstance(value, str):
        return ""
    return "".join(sign if sign.isprintable() else " " for sign in value[:at_most])


def _words(value: Any) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return []
    words = (_text(word, _MAX_WORD) for word in value if isinstance(word, str))
    return [word for word, _ in zip(words, range(_MAX_KEYWORDS), strict=False)]


def _keys(value: Any) -> list[PublicKey]:
    """Read the keys of an entry; to leave one out would let the swarm go unsigned."""
    if not (value is None or (isinstance(value, list) and len(value) <= MOST_KEYS)):
        raise refuse("public_keys", f"must be a list of at most {MOST_KEYS} keys")
    return [check_public_key(each, "public_keys") for each in value or ()]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def _instant(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
