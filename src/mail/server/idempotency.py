"""``Idempotency-Key``: a POST that is repeated gets the first answer, and does nothing again.

A key belongs to its caller. What it stands for is the request's method, path and body; with another
one of these it is refused. A request that begins a run stores its key in the commit that accepts
the message, so there is no moment at which only one of them is there. Whatever is refused before
that leaves no key: a repeat is judged anew.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from mail.db.records import IdempotencyRow, Owner
from mail.db.store import Store
from mail.errors import MAILError, ProtocolError
from mail.server.bodies import parse_json
from mail.server.errors import KeyOfDeletedTask, KeyReused
from mail.server.intake import KEY_HEADER, made_of_body
from mail.server.keylocks import KeyLocks

REPLAYED: Final = "Idempotency-Replayed"
"""The header of an answer to a repeat."""
_SORTED: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))

R = TypeVar("R", bound=Response)
T = TypeVar("T")

OwnersLocks = KeyLocks[tuple[Owner, str]]
"""By owner and key: a repeat waits until the first request is accepted."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A request with a key.

    Attributes:
        owner: Whose key it is.
        key: The key.
        fingerprint: What the key stands for; see `fingerprint`.
    """

    store: Store
    locks: OwnersLocks
    owner: Owner
    key: str
    fingerprint: str

    @classmethod
    async def of(
        cls, request: Request, key: str, store: Store, locks: OwnersLocks, owner: Owner
    ) -> "Keyed":
        """Return a request with its key.

        Raises:
            ProtocolError: it has two.
        """
        if len(request.headers.getlist(KEY_HEADER)) > 1:
            raise ProtocolError(f"{KEY_HEADER} must be sent only once")
        found = await made_of_body(
            request, partial(fingerprint, request.method, request.scope["path"])
        )
        return cls(store, locks, owner, key, found)

    def of_server(self) -> "Keyed":
        """Return the same, whichever swarm the server serves."""
        return replace(self, owner=self.owner._replace(swarm=""))

    def row(self, answer: str | None = None) -> IdempotencyRow:
        """Return what is to be stored of this request."""
        now = datetime.now(UTC).isoformat()
        return IdempotencyRow(self.key, self.fingerprint, now, answer=answer)

    async def find(self) -> IdempotencyRow | None:
        """Return what the key stands for so far, or None.

        Raises:
            KeyReused: it stands for another request.
        """
        found = await self.store.find_key(self.owner, self.key)
        if found is not None and found.fingerprint != self.fingerprint:
            raise KeyReused(self.key)
        return found

    async def once(
        self,
        begin: Callable[[IdempotencyRow], Awaitable[T]],
        follow: Callable[[IdempotencyRow], Awaitable[T]],
    ) -> T:
        """Begin what the request asks for, or follow what an earlier one with the key began.

        Args:
            begin: Begins it, and stores the row (with what only `begin` knows) in the same commit.
            follow: Finds what was begun, by its row.

        Raises:
            KeyReused: the key stands for another request.
            KeyOfDeletedTask: what it began was deleted.
            MAILError: what ``begin`` raises; nothing was begun.
        """
        async with self.locks.hold((self.owner, self.key)):
            found = await self.find()
            if found is None:
                try:
                    return await begin(self.row())
                except MAILError:
                    # A first request whose client left, or another process, may have been faster;
                    # then even the reason why this one was refused is its doing.
                    found = await self.find()
                    if found is None:
                        raise
        if not found.task_id:
            raise KeyOfDeletedTask(self.key)
        return await follow(found)


def fingerprint(method: str, path: str, body: bytes) -> str:
    """Return the SHA-256 of a request.

    JSON counts for its values: the order of keys, white space and the way in which a text or number
    is written make no difference. Anything else counts byte for byte.
    """
    try:
        value = parse_json(body)
        # Value by value, for the encoder that writes all at once lets no other thread on meanwhile.
        kind, text = "json", "".join(_SORTED.iterencode(value)).encode()
    except ValueError:
        kind, text = "bytes", body
    head = f"{method}\0{path}\0{kind}\0".encode("utf-8", "surrogatepass")
    return hashlib.sha256(head + text).hexdigest()


def replayed(response: R) -> R:
    """Mark the answer to a repeat."""
    response.headers[REPLAYED] = "true"
    return response
