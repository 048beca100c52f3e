"""Signatures of mail between servers: Ed25519, by RFC 9421, with a digest of the body (RFC 9530).

A signature covers the method, the path and the body, not the host and the scheme, which a reverse
proxy changes: whom mail is for stands in its body. What the receiver of mail knows of earlier mail
makes a repeated request harmless, so no nonces are kept.
"""

import logging
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from mail.errors import ConfigError, RoutingError, Unauthenticated
from mail.net.endpoints import MOST_KEYS, public_key, raw_key
from mail.net.types import PublicKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEYS_PATH: Final = "/.well-known/mail.json"
"""The path of a server's public keys."""

_LABEL: Final = "mail"
_COVERED: Final = ("@method", "@path")
"""The parts of a request that we sign; the library adds ``content-digest``."""
_NEEDED: Final = ("@method", "content-digest")
_ANY_PATH: Final = frozenset({'"@path"', '"@target-uri"', '"@request-target"'})
_OURS: Final = frozenset({"signature", "signature-input", "content-digest"})
_LONGEST: Final = 2048
"""Characters of these headers: it takes the longer the more they name."""
_LIFETIME: Final = timedelta(seconds=300)
_LARGEST_FILE: Final = 64 * 1024
_MODE: Final = 0o600
_OTHERS: Final = 0o077
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
_SHOWN: Final = 200

_log = logging.getLogger("mail.registry")


class _Headers(Protocol):
    def items(self) -> Iterable[tuple[str, str]]: ...

    def __contains__(self, name: object) -> bool: ...


class SignedRequest(NamedTuple):
    """The parts of a request that a signature may cover: method, URL as sent, headers.

    ``headers`` tell all lines, also those of one name.
    """

    method: str
    url: str
    headers: _Headers


@dataclass(frozen=True, slots=True)
class SignatureRules:
    """A server's requirements for signatures.

    Attributes:
        required: Mail without one is refused.
        max_age: Seconds after which one is too old.
        clock_skew: Seconds by which the clocks of two servers may differ.
    """

    required: bool = False
    max_age: float = 300.0
    clock_skew: float = 60.0


class SigningKeys:
    """The keys of a server: it signs with the first, and shows the public part of all.

    Attributes:
        public: The public parts.
    """

    def __init__(self, private: Sequence["Ed25519PrivateKey"]) -> None:
        from http_message_signatures import HTTPMessageSigner, MappingKeyResolver
        from http_message_signatures.algorithms import ED25519

        raw = [key.public_key().public_bytes_raw() for key in private]
        self.public: list[PublicKey] = [public_key(each) for each in raw]
        self._id = self.public[0]["kid"]
        keys = MappingKeyResolver(public_keys={}, private_keys={self._id: private[0]})
        self._signer = HTTPMessageSigner(signature_algorithm=ED25519, key_resolver=keys)

    @classmethod
    def ensure(cls, path: str | Path) -> "SigningKeys":
        """Read the keys of a file; make the file, with one key, if there is none.

        Raises:
            ConfigError: it cannot be made or read, or does not hold such keys.
        """
        file = Path(path)
        try:
            if not file.exists():
                _make(file)
        except OSError as error:
            raise _wrong(file, f"cannot be made: {error.strerror}") from None
        return cls.read(file)

    @classmethod
    def read(cls, path: str | Path) -> "SigningKeys":
        """Read the keys of a file.

        Raises:
            ConfigError: it cannot be read, or does not hold such keys.
        """
        file = Path(path)
        try:
            with file.open("rb") as opened:
                text, mode = opened.read(_LARGEST_FILE), os.fstat(opened.fileno()).st_mode
        except OSError as error:
            raise _wrong(file, f"cannot be read: {error.strerror}") from None
        if mode & _OTHERS:
            _log.warning("others may read the signing key %s: run 'chmod 600' on it", file)
        return cls(_private_keys(text, file))

    def headers(self, method: str, url: str, content: bytes) -> dict[str, str]:
        """Return the headers that sign a request.

        Raises:
            RoutingError: its URL is not one that can be signed.
        """
        from http_message_signatures import HTTPMessageSignaturesException

        request = SimpleNamespace(method=method, url=url, headers={})
        now = datetime.now(UTC)
        try:
            self._signer.sign(
                request,
                key_id=self._id,
                created=now,
                expires=now + _LIFETIME,
                nonce=secrets.token_urlsafe(16),
                label=_LABEL,
                covered_component_ids=_COVERED,
                body=content,
            )
        except HTTPMessageSignaturesException as error:
            raise RoutingError(f"the request cannot be signed: {error}") from None
        signed: dict[str, str] = request.headers
        return signed


def _make(file: Path) -> None:
    """Write a file with a new key, unless another process is faster."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}-{time.monotonic_ns()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(new, flags, _MODE), "wb") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        with suppress(FileExistsError):
            os.link(new, file)
            _log.warning("a new key signs the mail of this server: %s", file)
    finally:
        new.unlink(missing_ok=True)


def _private_keys(text: bytes, file: Path) -> list["Ed25519PrivateKey"]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = []
    for block in _PEM.finditer(text):
        try:
            key = load_pem_private_key(block[0], password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise _wrong(file, "has a key that is not an Ed25519 private key without password")
        found.append(key)
    if not 0 < len(found) <= MOST_KEYS:
        expected = f"must hold 1 to {MOST_KEYS} private keys as PEM"
        raise _wrong(file, f"{expected}, and holds {len(found)}")
    return found


def _wrong(file: Path, problem: str) -> ConfigError:
    return ConfigError(f"[server.federation] signing_key_file names {file}, which {problem}")


class _Pinned:
    """The keys of one swarm, for the library."""

    def __init__(self, keys: Iterable[PublicKey]) -> None:
        self._keys = {key["kid"]: key for key in keys}

    def resolve_public_key(self, key_id: str) -> Any:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        key = self._keys.get(key_id)
        if key is None:
            raise LookupError(
                f"no key {key_id!r} is registered for this swarm; if it has a new key, an "
                "administrator registers it again"
            )
        return Ed25519PublicKey.from_public_bytes(raw_key(key))


def check_signature(
    request: SignedRequest, keys: Sequence[PublicKey], rules: SignatureRules
) -> str | None:
    """Check who has signed a request of a swarm, before its body is read.

    Args:
        request: The request.
        keys: The keys that are registered for the swarm.
        rules: The requirements of this server.

    Returns:
        The ``Content-Digest`` that was signed, for `check_digest`. None when the swarm has no keys
        and needs none: a signature says nothing then.

    Raises:
        Unauthenticated: the signature is missing, or not one of the swarm's for this request.
    """
    if not keys:
        if rules.required:
            raise Unauthenticated(
                "this server takes signed mail only ([server.federation] require_signatures), and "
                "has no key of this swarm; an administrator registers the swarm again when its "
                f"server shows its key at {KEYS_PATH}"
            )
        return None
    if "signature" not in request.headers and "signature-input" not in request.headers:
        raise Unauthenticated(
            "the mail of this swarm must be signed: this server has its key; if the swarm does not "
            "sign any more, an administrator removes it and registers it again"
        )
    if sum(len(text) for name, text in request.headers.items() if name.lower() in _OURS) > _LONGEST:
        raise _refused(f"its headers are longer than {_LONGEST} characters")
    covered = _verified(request, keys, rules)
    if _ANY_PATH.isdisjoint(covered):
        raise _refused("it does not cover the path")
    return covered['"content-digest"']


def _verified(
    request: SignedRequest, keys: Sequence[PublicKey], rules: SignatureRules
) -> Mapping[str, str]:
    """Return what a valid signature covers, by its component."""
    from http_message_signatures import HTTPMessageSignaturesException, HTTPMessageVerifier
    from http_message_signatures.algorithms import ED25519

    verifier = HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=_Pinned(keys))
    verifier.max_clock_skew = timedelta(seconds=rules.clock_skew)
    try:
        [found] = verifier.verify(
            request, max_age=timedelta(seconds=rules.max_age), require_components=_NEEDED
        )
    except (HTTPMessageSignaturesException, ValueError, TypeError, ArithmeticError) as error:
        raise _refused(str(error) or "it does not fit the request") from None
    covered: Mapping[str, str] = found.covered_components
    return covered


def check_digest(digest: str, body: bytes) -> None:
    """Check that a body is the one that was signed.

    Raises:
        Unauthenticated: it is another one, or the digest is none that we know.
    """
    from http_message_signatures import ContentDigest, HTTPMessageSignaturesException

    try:
        ContentDigest.verify(digest, body)
    except HTTPMessageSignaturesException as error:
        raise _refused(str(error)) from None


def _refused(reason: str) -> Unauthenticated:
    text = "".join(sign if sign.isprintable() else " " for sign in reason[:_SHOWN])
    return Unauthenticated(f"the signature is not accepted: {text}")
