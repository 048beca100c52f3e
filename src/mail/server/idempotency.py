"""``Idempotency-Key``: a POST that is repeated gets the first answer, and does nothing again.

A key belongs to its caller. What it stands for is the request's method, path and body; with another
one of these it is refused. A request that begins a run stores its key in the commit that accepts
the message, so there is no moment at which only one of them is there. Whatever is refused before
that leaves no key: a repeat is judged anew.
"""

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from mail.db.keys import key_size
from mail.db.records import IdempotencyRow, Owner
from mail.db.store import Store
from mail.errors import KeyTaken, MAILError, ProtocolError, StoreError
from mail.server.answers import as_response
from mail.server.bodies import parse_json
from mail.server.errors import KeyOfDeletedTask, KeyReused, StorageFull
from mail.server.exchange import exchange_of
from mail.server.intake import KEY_HEADER, made_of_body
from mail.server.quotas import KeyLocks
from mail.server.storage import StorageShares

REPLAYED: Final = "Idempotency-Replayed"
"""The header of an answer to a repeat."""
_SORTED: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))

R = TypeVar("R", bound=Response)
T = TypeVar("T")

OwnersLocks = KeyLocks[tuple[Owner, str]]
"""By owner and key: a repeat waits until the first request is accepted."""

Endpoint = Callable[..., Awaitable[Any]]

LARGEST_KEPT: Final = 4 * 1024
"""Bytes of an answer that are kept. Keys are cheap to make, so what they keep must be small."""
_OK: Final = range(200, 300)

_log = logging.getLogger("mail.server")


@dataclass(frozen=True, slots=True)
class Keyed:
    """A request with a key.

    Attributes:
        owner: The owner of the key.
        key: The key.
        fingerprint: The fingerprint of the request; see `fingerprint`.
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


def answered_once(*, keep: bool = True, of_server: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Let an endpoint honour ``Idempotency-Key``; a decorator below the one of the route.

    The endpoint has parameters named ``request``, ``state``, ``caller`` and ``key``.

    A 2xx answer is kept, and a repeat gets it; a concurrent one waits for it. When the process dies
    between the work and the keeping, the answer is larger than `LARGEST_KEPT`, or the caller stores
    as much as one may, a repeat does the work again: use it for endpoints whose work may be done
    twice, or that look at `Exchange.done_before`.

    Args:
        keep: Keep the answer. False is for answers with secrets: a repeat makes a new one, but
            the key still stands for one request only.
        of_server: The key holds for the server, whichever swarm it serves; without it, for the
            swarm, like the caller's tasks.
    """

    def decorated(endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def answer(**given: Any) -> Any:
            state = given["state"]
            keyed: Keyed | None = await state.keyed(
                given["request"], given["caller"], given.get("key")
            )
            if keyed is None:
                return await endpoint(**given)
            if of_server:
                keyed = keyed.of_server()
            async with keyed.locks.hold((keyed.owner, keyed.key)):
                found = await keyed.find()
                if found is not None and found.answer is not None:
                    return replayed(_response(found.answer))
                if found is not None:
                    exchange_of(given["request"]).done_before = True
                response = as_response(await endpoint(**given))
                if found is None and response.status_code in _OK:
                    await _keep(state.shares, keyed, _kept(response) if keep else None)
                return response

        answer.answers_once = True  # type: ignore[attr-defined]  # a test looks for it on each POST
        return answer

    return decorated


def _kept(response: Response) -> str | None:
    if isinstance(response, StreamingResponse):  # it has more than one piece
        return None
    body = bytes(response.body).decode()
    if len(body) > LARGEST_KEPT:
        return None
    return json.dumps({"status": response.status_code, "body": body})


async def _keep(shares: StorageShares, keyed: Keyed, kept: str | None) -> None:
    row = keyed.row(kept)
    try:
        await shares.admit(keyed.owner)
        await keyed.store.put_key(keyed.owner, row)
        shares.wrote(keyed.owner, key_size(row))
    except KeyTaken:  # by another process, for the same request at the same time
        pass
    except StorageFull:  # who has no room for the key can still cancel, and log in
        pass
    except StoreError as error:  # the work is done: its answer must not be an error
        _log.warning("an idempotency key could not be stored: %s", error)


def _response(kept: str) -> Response:
    answer = json.loads(kept)
    return Response(answer["body"], answer["status"], media_type="application/json")
