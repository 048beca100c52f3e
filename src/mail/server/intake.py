"""The bodies of requests: read within the caller's share, and large ones in their turn.

A caller has a rate of bytes. A body is not kept: the request may wait for a run that takes an hour.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request

from mail.auth.callers import Caller
from mail.config.server import LimitsConfig
from mail.core.large import LARGE, in_turn
from mail.core.schema import problems_in
from mail.server.bodies import (
    RequestBody,
    check_names,
    parse_object,
    refusal,
)
from mail.server.exchange import caller_of, exchange_of
from mail.server.middleware import BODY_SECONDS
from mail.server.quotas import MAX_INFLIGHT, Quotas

KEY_HEADER: Final = "Idempotency-Key"
_LOOK_SECONDS: Final = 0.05
_KEY: Final = KEY_HEADER.lower().encode()

B = TypeVar("B", bound=RequestBody)
T = TypeVar("T")


class Intake:
    """Takes in the bodies of one server's requests.

    Args:
        limits: The size limits of bodies.
        quotas: The callers' shares.
        at_work: Returns what a caller's long messages come to that are not worked off yet.
    """

    def __init__(
        self, limits: LimitsConfig, quotas: Quotas, at_work: Callable[[Caller], int]
    ) -> None:
        self._max_message = limits.max_message_bytes
        self._max_bytes = limits.max_body_bytes
        self._quotas = quotas
        self._at_work = at_work

    async def receive(self, request: Request) -> bytes:
        """Return the body of a caller's request, once it is there and it is the request's turn.

        Raises:
            QuotaExceeded: too many bytes of the caller's come too fast, or are in progress; or too
                many of its requests wait.
            BodyTooLarge, BodyTooSlow: it is more, or takes longer, than the server takes.
        """
        exchange, caller = exchange_of(request), caller_of(request)
        exchange.waits()
        declared = min(exchange.declared, self._max_bytes)
        if wait := self._quotas.body_bytes(caller, declared):
            await asyncio.sleep(wait)
        pieces: list[bytes] = []
        async with self._quotas.bodies(caller):
            try:
                if declared > LARGE:
                    await self._find_room(request, declared)
                more = True  # `Request.body` would keep it, and `Request.stream` takes a generator
                while more:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    pieces.append(message.get("body", b""))
                    more = message.get("more_body", False)
            finally:  # what came counts, also if the rest did not
                undeclared = sum(map(len, pieces)) - declared
                if undeclared > 0:
                    self._quotas.owe_bytes(caller, undeclared)
            if undeclared > LARGE:
                await self._find_room(request, undeclared)
            await exchange.begins()
        return b"".join(pieces)

    async def _find_room(self, request: Request, size: int) -> None:
        """Wait until there is room for a large body, and hold it until the request has ended.

        Raises:
            QuotaExceeded: there is none for long.
        """
        caller = caller_of(request)
        room = self._quotas.room(caller)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await room.take(size, exchange_of(request).held)
                while (taken := self._at_work(caller)) and taken + size > MAX_INFLIGHT:  # noqa: ASYNC110 - agents tell nobody
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise self._quotas.no_room() from None

    def check_message(self, content: object, field: str) -> None:
        """Refuse the text of a message, or results of calls, when it is too long.

        Raises:
            ProtocolError: it is; the error names the field.
        """
        if content is None or (isinstance(content, str) and 4 * len(content) <= self._max_message):
            return
        text = content.encode() if isinstance(content, str) else to_json(content)
        if len(text) > self._max_message:
            problem = (
                f"must not be longer than {self._max_message} bytes, got {len(text)}; send "
                "less, or it in parts to one task, or name a file or URL to an agent with tools "
                "for them (docs/files.md#texts-larger-than-a-message), or raise "
                "[server.limits] max_message_bytes"
            )
            raise refusal([{"field": field, "problem": problem}])


async def body_of(request: Request) -> bytes:
    """Return the body of a caller's request. Something has to be made of it next.

    Raises:
        Unauthenticated: it is not the one that was signed.
        QuotaExceeded, BodyTooLarge, BodyTooSlow: see `Intake.receive`.
    """
    exchange = exchange_of(request)
    if exchange.body is None:
        intake: Intake = request.app.state.mail.intake
        body = await intake.receive(request)
        if exchange.body_check is not None:
            await in_turn(len(body), partial(exchange.body_check, body))
        exchange.body = body
    return exchange.body


async def made_of_body(request: Request, make: Callable[[bytes], T]) -> T:
    """Return what a function makes of a body; it is let go, unless an idempotency key needs it.

    Raises:
        QuotaExceeded, BodyTooLarge, BodyTooSlow: see `Intake.receive`.
    """
    text, exchange = await body_of(request), exchange_of(request)
    exchange.body = text if _KEY in exchange.given else None
    return await in_turn(len(text), partial(make, text))


async def read_object(request: Request, make: Callable[[dict[str, Any]], T]) -> T:
    """Read and parse the body of a request, and return what a function makes of it.

    Raises:
        ProtocolError: it is not a JSON object, or ``make`` says so.
        QuotaExceeded, BodyTooLarge, BodyTooSlow: see `Intake.receive`.
    """
    return await made_of_body(request, lambda text: make(parse_object(text)))


async def read_body(request: Request, model: type[B]) -> B:
    """Read a body, check the names of its fields, and make its model of it.

    Raises:
        ProtocolError: it does not fit the model.
        QuotaExceeded, BodyTooLarge, BodyTooSlow: see `Intake.receive`.
    """
    path = request.scope["path"]

    def modelled(text: bytes) -> B:
        values = parse_object(text, empty=model.may_be_empty, in_list=model.may_be_in_list)
        known = check_names(values, model, path)
        return model.model_validate({name: values[name] for name in values if name in known})

    try:
        return await made_of_body(request, modelled)
    except ValidationError as error:
        raise refusal(problems_in(error.errors())) from None
