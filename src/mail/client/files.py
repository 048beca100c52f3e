"""The methods of `mail.client.MAILClient` for the files of participants."""

import asyncio
import hashlib
from collections.abc import AsyncIterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO, Any, Final, cast

from mail.client.desk import DeskClient, present, query_of, segment
from mail.client.http import client_errors, key_header, raise_for_status, read_json
from mail.errors import ClientDecodeError
from mail.net.types import (
    DeleteFileResponse,
    DeskFile,
    GetFilesResponse,
    PostFileTransferResponse,
)

_PIECE: Final = 256 * 1024
_BYTES: Final = "application/octet-stream"


class FilesClient(DeskClient):
    """Requests about files. The key is a participant's token."""

    async def upload_file(
        self,
        content: Path | bytes | AsyncIterable[bytes],
        filename: str | None = None,
        *,
        media_type: str | None = None,
        request_id: str | None = None,
    ) -> DeskFile:
        """Upload a file, which nobody else can get yet (``POST /files``).

        Args:
            content: Where it is, or its bytes, or what yields these; it is sent in pieces.
            filename: Its name; that of the path by default.
            media_type: What it is; guessed from the name by default.
            request_id: A name for this request: a repeat with it gets the same file. With it, a
                path or bytes are sent again after a lost connection.

        Returns:
            ``id``, ``uri``, ``filename``, ``size``, ``sha256`` and what else is known.

        Raises:
            OSError: the path cannot be read.
        """
        name = filename or (content.name if isinstance(content, Path) else None)
        path = f"/files{query_of({'filename': name})}"
        headers = {"Content-Type": media_type or _BYTES, **key_header(request_id)}

        async def once() -> Any:
            async with AsyncExitStack() as stack:
                data: Any = content
                if isinstance(content, Path):
                    data = stack.enter_context(await asyncio.to_thread(content.open, "rb"))
                built = self._build_headers(headers)
                await stack.enter_async_context(client_errors())
                answer = await self._send("POST", path, None, built, data=data)
                response = await stack.enter_async_context(answer)
                await raise_for_status(response)
                return await read_json(response)

        repeats = request_id if isinstance(content, Path | bytes) else None
        return cast("DeskFile", await self._repeated(once, repeats))

    async def transfer_file(
        self,
        file_id: str,
        *,
        recipient_id: str | None = None,
        thread_id: str | None = None,
        description: str | None = None,
        urgent: bool = False,
        request_id: str | None = None,
    ) -> PostFileTransferResponse:
        """Hand on a file of one's own with a message (``POST /files/{file_id}/transfer``).

        Args:
            file_id: The file.
            recipient_id: Who gets it.
            thread_id: Or the thread whose members get it.
            description: What is said about it.
            urgent: Whether it wants attention at once.
            request_id: A name for this request: a repeat with it sends nothing twice.

        Returns:
            ``message_id`` and ``file``.
        """
        payload = {
            "recipient_id": recipient_id,
            "thread_id": thread_id,
            "description": description,
            "urgent": urgent or None,
        }
        path = f"{_file(file_id)}/transfer"
        answer = await self._request_object("POST", path, present(payload), request_id)
        return cast("PostFileTransferResponse", answer)

    async def get_file(self, file_id: str) -> DeskFile:
        """Return what is known of a file (``GET /files/{file_id}/meta``)."""
        return cast("DeskFile", await self._request_object("GET", f"{_file(file_id)}/meta"))

    async def get_files(
        self, after: str | None = None, limit: int | None = None
    ) -> GetFilesResponse:
        """Return a page of one's own files, and how large one may be (``GET /files``).

        Args:
            after: The ``next_after`` of the previous page.
            limit: At most so many; 100 by default.
        """
        path = f"/files{query_of({'after': after, 'limit': limit})}"
        return cast("GetFilesResponse", await self._request_object("GET", path))

    async def download_file(self, file_id: str, target: Path) -> DeskFile:
        """Write a file to a new path, piece by piece (``GET /files/{file_id}``).

        Returns:
            What is known of it; see `get_file`.

        Raises:
            FileExistsError: there is something at that path.
            ClientDecodeError: what came is not the file; nothing is left at the path.
        """
        known = await self.get_file(file_id)
        file = await asyncio.to_thread(target.open, "xb")
        try:
            with file:
                await self._fetch(_file(file_id), file, known["sha256"])
        except BaseException:
            await asyncio.to_thread(target.unlink, missing_ok=True)
            raise
        return known

    async def _fetch(self, path: str, file: IO[bytes], sha256: str) -> None:
        """Write what a request is answered with, and look at its hash."""
        found = hashlib.sha256()
        async with client_errors():
            headers = self._build_headers({"Accept": _BYTES})
            async with await self._send("GET", path, None, headers) as response:
                await raise_for_status(response)
                async for piece in response.content.iter_chunked(_PIECE):
                    found.update(piece)
                    await asyncio.to_thread(file.write, piece)
        if found.hexdigest() != sha256:
            raise ClientDecodeError("the file did not arrive as it was sent")

    async def delete_file(self, file_id: str) -> DeleteFileResponse:
        """Delete a file of one's own, also for those who got it (``DELETE /files/{file_id}``)."""
        return cast("DeleteFileResponse", await self._request_object("DELETE", _file(file_id)))


def _file(file_id: str) -> str:
    return f"/files/{segment(file_id)}"
