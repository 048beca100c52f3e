"""Files of participants over HTTP: ``/files``; the rules are `mail.services.files`'s.

A file goes in as the body of a request and out as that of an answer, piece by piece. It is never
shown as what its owner says that it is: browsers get bytes to save.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Path, Query
from pydantic import Field, model_validator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mail.auth.callers import Caller
from mail.db.files import FileRow
from mail.net.types import (
    DeleteFileResponse,
    DeskFile,
    GetFilesResponse,
    PostFileTransferResponse,
)
from mail.server.bodies import RequestBody
from mail.server.deps import DeskReader, IdempotencyKey, Participant, State, page_of
from mail.server.exchange import exchange_of
from mail.server.idempotency import answered_once
from mail.server.openapi import errors
from mail.server.routes.desk import OWN_ID, Name, RequestId, one_address
from mail.server.routes.interswarm import AuditedRoute
from mail.server.routing import MAILRouter
from mail.server.state import ServerState
from mail.services.desk import check_claim
from mail.services.files import FILE_URI, NewFile, Transfer

_BYTES: Final[dict[str, Any]] = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
}
_DOWNLOAD: Final[dict[int | str, dict[str, Any]]] = {200: {"content": _BYTES}}
_MAX_LISTED: Final = 1000
_LONGEST_NAME: Final = 1024

router = MAILRouter("desk", route_class=AuditedRoute)

PathFileId = Annotated[str, Path(description="The file.")]


class FileTransfer(RequestBody):
    """To whom a file goes. Exactly one of `recipient_id` and `thread_id` must be there."""

    model_config = one_address("recipient_id", "thread_id")

    recipient_id: Annotated[
        Name | None, Field(description="Who gets it.", examples=["reviewer"])
    ] = None
    thread_id: Annotated[
        Name | None, Field(description="The thread in which it is posted; the caller is in it.")
    ] = None
    sender_id: Annotated[Name | None, Field(description=OWN_ID)] = None
    description: Annotated[str | None, Field(description="What is said about the file.")] = None
    urgent: Annotated[
        bool | None,
        Field(
            description="Whether it wants attention at once.", json_schema_extra={"default": False}
        ),
    ] = None
    request_id: Annotated[
        RequestId | None,
        Field(
            description="The caller's name for this request. A repeat with the same id sends "
            "nothing again. `Idempotency-Key` serves as one, too."
        ),
    ] = None

    @model_validator(mode="after")
    def _to_somebody(self) -> "FileTransfer":
        if (self.recipient_id is None) == (self.thread_id is None):
            raise ValueError("give exactly one of recipient_id and thread_id")
        return self


@router.post(
    "/files",
    responses=errors(507),
    openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
)
async def upload_file(
    request: Request,
    state: State,
    caller: Participant,
    filename: Annotated[
        str,
        Query(
            max_length=_LONGEST_NAME,
            description="Its name. Folders in it, and what not every system takes, are left out.",
        ),
    ] = "file",
    key: IdempotencyKey = None,
) -> DeskFile:
    """Upload a file: the body of the request, of any type.

    Nobody else can get it before it is handed on. `Content-Type` is told to those who get it; if it
    says nothing, a type is guessed from the name. What arrives in part only is not stored.
    """
    exchange_of(request).waits()
    with state.quotas.upload(caller):
        async with aclosing(_content(request, state, caller)) as content:
            new = NewFile(filename, request.headers.get("content-type", ""), key or "")
            row = await state.files.upload(caller.id, new, content)
    return _file(row)


async def _content(
    request: Request, state: ServerState, caller: Caller
) -> AsyncGenerator[bytes, None]:
    """Yield a request's body, at the caller's rate."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        if wait := state.quotas.file_bytes(caller, len(piece)):
            await asyncio.sleep(wait)
        yield piece
        if not message.get("more_body", False):
            return


@router.get("/files", responses=errors(400))
async def get_files(
    state: State,
    caller: Participant,
    after: Annotated[
        str | None, Query(description="The `next_after` of the previous page.")
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=_MAX_LISTED, description="The most files of the page.")
    ] = 100,
) -> GetFilesResponse:
    """List the files that the caller has uploaded."""
    rows = await state.files.list_own(caller.id, after or "", limit + 1)
    shown, last = page_of(rows, limit, lambda row: row.file_id)
    return {
        "files": [*map(_file, shown)],
        "max_bytes": state.files.max_bytes,
        "next_after": last,
    }


@router.get("/files/{file_id}", response_model=None, responses={**_DOWNLOAD, **errors(404)})
async def get_file(
    request: Request, state: State, caller: Participant, file_id: PathFileId
) -> Response:
    """Download a file, whatever it is, as an attachment of `application/octet-stream`.

    For who has uploaded it, and who has a message that carries it; for everybody else it is 404,
    whether or not there is one.
    """
    return _Download(state, caller, await state.files.get(caller.id, file_id))


@router.get("/files/{file_id}/meta", responses=errors(404))
async def get_file_meta(state: State, caller: DeskReader, file_id: PathFileId) -> DeskFile:
    """Get what is known of a file; administrators get that of any."""
    name = None if caller.role == "admin" else caller.id
    return _file(await state.files.get(name, file_id))


@router.post(
    "/files/{file_id}/transfer",
    responses=errors(404, 507),
)
@answered_once()
async def transfer_file(
    request: Request,
    state: State,
    caller: Participant,
    file_id: PathFileId,
    body: FileTransfer,
    key: IdempotencyKey = None,
) -> PostFileTransferResponse:
    """Hand on a file that the caller has uploaded: with a message to a participant or a thread.

    The message names the file, its size, its sha256, and `mail://files/` with its id.
    """
    check_claim("sender_id", body.sender_id, caller.id)
    to = Transfer(
        body.recipient_id or "",
        body.thread_id or "",
        body.description or "",
        bool(body.urgent),
        body.request_id or key or "",
    )
    row, sent = await state.files.transfer(caller.id, file_id, to)
    return {
        "status": "sent",
        "message_id": sent.letter.letter_id,
        "file": _file(row),
    }


@router.delete("/files/{file_id}", responses=errors(404))
async def delete_file(state: State, caller: DeskReader, file_id: PathFileId) -> DeleteFileResponse:
    """Delete a file that the caller has uploaded; administrators delete any.

    Messages that carry it stay.
    """
    name = None if caller.role == "admin" else caller.id
    await state.files.delete(name, file_id)
    return {"status": "deleted", "file_id": file_id}


class _Download(Response):
    """A file as an answer; it counts as one of the caller's downloads, and of its open streams."""

    def __init__(self, state: ServerState, caller: Caller, row: FileRow) -> None:
        super().__init__()
        self._state = state
        self._caller = caller
        self._row = row
        del self.headers["content-length"]
        self.headers.update(_headers(row))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        row, exchange = self._row, exchange_of(Request(scope))
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        quotas = self._state.quotas
        with quotas.stream(self._caller), quotas.download(self._caller):
            async with self._state.files.blobs.read(row.sha256, 0, row.size) as pieces:
                await send(start)
                exchange.waits()
                async for piece in pieces:
                    if exchange.head_only or exchange.client.gone:
                        return
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def _headers(row: FileRow) -> dict[str, str]:
    named = quote(row.name, safe="")
    return {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(row.size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{named}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "ETag": f'"{row.sha256}"',
    }


def _file(row: FileRow) -> DeskFile:
    return {
        "id": row.file_id,
        "uri": f"{FILE_URI}{row.file_id}",
        "owner_id": row.owner,
        "filename": row.name,
        "size": row.size,
        "sha256": row.sha256,
        "media_type": row.media_type,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
    }
