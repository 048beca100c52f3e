"""Routes whose whole answer is kept: carried out once for each ``Idempotency-Key``.

For routes that begin a run, whose answers come from the run's log, see `mail.server.idempotency`.
"""

import json
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response, StreamingResponse

from mail.db.rows import key_size
from mail.errors import KeyTaken, StoreError
from mail.server.errors import StorageFull
from mail.server.exchange import exchange_of
from mail.server.idempotency import Keyed, replayed
from mail.server.routing import as_response
from mail.server.storage import StorageShares

if TYPE_CHECKING:
    from mail.server.state import ServerState

Endpoint = Callable[..., Awaitable[Any]]

LARGEST_KEPT: Final = 4 * 1024
"""Bytes of an answer that are kept. Keys are cheap to make, so what they keep must be small."""
_OK: Final = range(200, 300)

_log = logging.getLogger("mail.server")


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
            state: ServerState = given["state"]
            keyed = await state.keyed(given["request"], given["caller"], given.get("key"))
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
