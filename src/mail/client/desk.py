"""The methods of `mail.client.MAILClient` for participants: messages, threads, teams, files."""

import asyncio
import hashlib
from collections.abc import AsyncIterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, cast

from mail.client.http import (
    HTTPClient,
    client_errors,
    key_header,
    query_of,
    raise_for_status,
    read_json,
    segment,
)
from mail.errors import ClientDecodeError
from mail.net.types import (
    DeleteFileResponse,
    DeleteThreadMemberResponse,
    DeskFile,
    DeskThread,
    GetDeskMessageResponse,
    GetFilesResponse,
    GetMessagesResponse,
    GetOverdueResponse,
    GetParticipantsResponse,
    GetSearchResponse,
    GetTeamsResponse,
    GetThreadsResponse,
    GetUnreadResponse,
    PostAckResponse,
    PostFileTransferResponse,
    PostMessagesResponse,
    PostTeamBroadcastResponse,
    PostTeamMessageResponse,
    PostThreadMemberResponse,
    PostThreadsResponse,
)

_PIECE: Final = 256 * 1024
_BYTES: Final = "application/octet-stream"
_BESIDE_MESSAGES: Final = frozenset({"unread", "overdue", "search"})


class DeskClient(HTTPClient):
    """Requests to the mail desk. The key is a participant's token.

    Ids are texts; one that is wrong is answered with 404, like one of somebody else.
    """

    async def send_desk_message(  # noqa: PLR0913 - the fields of a message
        self,
        content: str,
        *,
        recipient_id: str | None = None,
        thread_id: str | None = None,
        recipient_ids: Sequence[str] | None = None,
        subject: str | None = None,
        reply_to: str | None = None,
        urgent: bool = False,
        wants_ack: bool = False,
        file_id: str | None = None,
        request_id: str | None = None,
    ) -> PostMessagesResponse:
        """Send a message to a participant, to several, or to a thread (``POST /messages``).

        Args:
            content: The text.
            recipient_id: The recipient of a direct message.
            thread_id: Or the thread in which it is posted.
            recipient_ids: Or who get it, as a broadcast: all of them, or nobody.
            subject: A line.
            reply_to: The id of the message that it answers.
            urgent: Whether it wants attention at once.
            wants_ack: Ask the recipients to acknowledge it.
            file_id: A file of one's own that goes with it; see `upload_file`.
            request_id: A name for this request. A repeat with it sends nothing twice. With it, the
                client repeats the request after a lost connection, as with an idempotency key.

        Returns:
            ``message_id`` and ``message``. It is stored for all of its recipients.
        """
        payload = {
            "content": content,
            "recipient_id": recipient_id,
            "thread_id": thread_id,
            "recipient_ids": None if recipient_ids is None else list(recipient_ids),
            "subject": subject,
            "reply_to": reply_to,
            "urgent": urgent or None,
            "wants_ack": wants_ack or None,
            "file_id": file_id,
        }
        return await self._ask(PostMessagesResponse, "POST", "/messages", payload, request_id)

    async def get_desk_messages(
        self,
        *,
        thread_id: str | None = None,
        limit: int | None = None,
        since: str | None = None,
        before: int | None = None,
        unread: bool = False,
        mark_read: bool = True,
        request_id: str | None = None,
    ) -> GetMessagesResponse:
        """Return a page of one's messages, newest first, and mark them (``GET /messages``).

        Args:
            thread_id: All messages of this thread, one's own too.
            limit: At most so many, 1 to 100; 10 by default.
            since: Only messages after this time, RFC 3339 with a time zone.
            before: Only older ones: the ``next_before`` of the previous page.
            unread: Only unread ones.
            mark_read: Whether they count as read from now on.
            request_id: A name for this request: a repeat with it gets the same page.

        Returns:
            ``messages``, ``unread`` (how many are left) and ``next_before``.
        """
        given = {
            "thread_id": thread_id,
            "limit": limit,
            "since": since,
            "before": before,
            "unread": "true" if unread else None,
            "mark_read": None if mark_read else "false",
            "request_id": request_id,
        }
        return await self._ask(GetMessagesResponse, "GET", "/messages", query=given)

    async def get_desk_message(
        self, message_id: str, *, mark_read: bool = True
    ) -> GetDeskMessageResponse:
        """Return one message, to its sender with receipts (``GET /messages/{message_id}``)."""
        query = "" if mark_read else "?mark_read=false"
        return await self._ask(GetDeskMessageResponse, "GET", f"{_message(message_id)}{query}")

    async def search_messages(
        self,
        query: str,
        *,
        thread_id: str | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> GetSearchResponse:
        """Find messages by their words, newest first (``GET /messages/search``).

        Args:
            query: Words that all must be there, ``"phrases"``, ``-without``, ``beginnings*``.
            thread_id: Only messages of this thread.
            limit: At most so many, 1 to 100; 10 by default.
            before: Only older ones: the ``next_before`` of the previous page.

        Returns:
            ``messages``, with a ``snippet`` of each in place of its content, and ``next_before``,
            which is None at the end.
        """
        given = {"q": query, "thread_id": thread_id, "limit": limit, "before": before}
        return await self._ask(GetSearchResponse, "GET", "/messages/search", query=given)

    async def check_new_messages(self) -> GetUnreadResponse:
        """Return how many messages are ``unread``; mark none (``GET /messages/unread``)."""
        return await self._ask(GetUnreadResponse, "GET", "/messages/unread")

    async def wait_for_mail(self, seconds: float = 60.0) -> GetUnreadResponse:
        """Wait until a message is unread, for up to 300 seconds (``GET /messages/unread``).

        Returns:
            How many are ``unread``: 0 when the time is over.
        """
        return await self._ask(GetUnreadResponse, "GET", f"/messages/unread?wait={seconds}")

    async def get_overdue_messages(self, older_than: float = 0.0) -> GetOverdueResponse:
        """Return what one sent so many seconds ago and is not acknowledged.

        The request is ``GET /messages/overdue``.
        """
        path = f"/messages/overdue?older_than={older_than}"
        return await self._ask(GetOverdueResponse, "GET", path)

    async def acknowledge_message(self, message_id: str, note: str = "") -> PostAckResponse:
        """Acknowledge a message, with a word to its sender (``POST /messages/{id}/ack``)."""
        payload = {"note": note} if note else {}
        return await self._ask(PostAckResponse, "POST", f"{_message(message_id)}/ack", payload)

    async def get_participants(self) -> GetParticipantsResponse:
        """Return who can be written to, with what they do (``GET /participants``)."""
        return await self._ask(GetParticipantsResponse, "GET", "/participants")

    async def create_thread(
        self, title: str, participants: Sequence[str], initial_message: str | None = None
    ) -> PostThreadsResponse:
        """Create a thread and be in it; the others get a notice (``POST /threads``).

        Returns:
            ``thread`` and, with an initial message, its ``message_id``.
        """
        payload = {
            "title": title,
            "participants": list(participants),
            "initial_message": initial_message,
        }
        return await self._ask(PostThreadsResponse, "POST", "/threads", payload)

    async def get_threads(
        self, after: str | None = None, limit: int | None = None
    ) -> GetThreadsResponse:
        """Return a page of the threads that one is in, newest activity first (``GET /threads``).

        Args:
            after: The ``next_after`` of the previous page.
            limit: At most so many; 100 by default.
        """
        given = {"after": after, "limit": limit}
        return await self._ask(GetThreadsResponse, "GET", "/threads", query=given)

    async def get_thread(self, thread_id: str) -> DeskThread:
        """Return a thread that one is in, and who else is (``GET /threads/{thread_id}``)."""
        return await self._ask(DeskThread, "GET", _thread(thread_id))

    async def join_thread(self, thread_id: str) -> PostThreadMemberResponse:
        """Join a thread (``POST /threads/{thread_id}/join``)."""
        return await self._ask(PostThreadMemberResponse, "POST", f"{_thread(thread_id)}/join")

    async def add_participant(self, thread_id: str, participant: str) -> PostThreadMemberResponse:
        """Add somebody to a thread (``POST /threads/{thread_id}/participants``)."""
        path = f"{_thread(thread_id)}/participants"
        return await self._ask(
            PostThreadMemberResponse, "POST", path, {"agent_id_to_add": participant}
        )

    async def remove_participant(
        self, thread_id: str, participant: str
    ) -> DeleteThreadMemberResponse:
        """Leave a thread, or remove somebody from one's own.

        The request is ``DELETE /threads/{thread_id}/participants/{name}``.
        """
        path = f"{_thread(thread_id)}/participants/{segment(participant)}"
        return await self._ask(DeleteThreadMemberResponse, "DELETE", path)

    async def get_teams(self) -> GetTeamsResponse:
        """Return the teams that one is in; none if teams are not enabled (``GET /teams``)."""
        return await self._ask(GetTeamsResponse, "GET", "/teams")

    async def teammate_message(
        self,
        team_id: str,
        to: str,
        message: str,
        *,
        urgent: bool = False,
        wait: float | None = None,
        request_id: str | None = None,
    ) -> PostTeamMessageResponse:
        """Send a message to a member of a team (``POST /teams/{team_id}/messages``).

        Args:
            team_id: The team.
            to: The member's name, or ``lead``.
            message: The text.
            urgent: Whether it wants attention at once.
            wait: Wait so many seconds for the reply, 300 at most; None: do not wait.
            request_id: A name for this request. A repeat with it sends nothing twice. With it, the
                client repeats the request after a lost connection, as with an idempotency key.

        Returns:
            ``messageId``, and after a wait ``status`` (``replied`` or ``timeout``) and ``reply``.
        """
        payload = {
            "to": to,
            "message": message,
            "priority": "urgent" if urgent else None,
            "waitForReply": True if wait is not None else None,
            "timeoutSeconds": wait,
        }
        path = f"{_team(team_id)}/messages"
        return await self._ask(PostTeamMessageResponse, "POST", path, payload, request_id)

    async def teammate_broadcast(
        self,
        team_id: str,
        message: str,
        *,
        urgent: bool = False,
        exclude_self: bool = False,
        request_id: str | None = None,
    ) -> PostTeamBroadcastResponse:
        """Send a message to all members of a team (``POST /teams/{team_id}/broadcasts``).

        Args:
            team_id: The team.
            message: The text.
            urgent: Whether it wants attention at once.
            exclude_self: Send no copy to the caller. The lead gets none in any case.
            request_id: As of `teammate_message`.

        Returns:
            ``messageId`` and ``deliveredTo``.
        """
        payload = {
            "message": message,
            "priority": "urgent" if urgent else None,
            "excludeSelf": exclude_self or None,
        }
        path = f"{_team(team_id)}/broadcasts"
        return await self._ask(PostTeamBroadcastResponse, "POST", path, payload, request_id)

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
            content: Its path, its bytes, or an iterator of these; it is sent in pieces.
            filename: Its name; that of the path by default.
            media_type: Its media type; guessed from the name by default.
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
            recipient_id: The recipient.
            thread_id: Or the thread whose members get it.
            description: A description of it.
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
        return await self._ask(PostFileTransferResponse, "POST", path, payload, request_id)

    async def get_file(self, file_id: str) -> DeskFile:
        """Return what is known of a file (``GET /files/{file_id}/meta``)."""
        return await self._ask(DeskFile, "GET", f"{_file(file_id)}/meta")

    async def get_files(
        self, after: str | None = None, limit: int | None = None
    ) -> GetFilesResponse:
        """Return a page of one's own files, and how large one may be (``GET /files``).

        Args:
            after: The ``next_after`` of the previous page.
            limit: At most so many; 100 by default.
        """
        return await self._ask(
            GetFilesResponse, "GET", "/files", query={"after": after, "limit": limit}
        )

    async def download_file(self, file_id: str, target: Path) -> DeskFile:
        """Write a file to a new path, piece by piece (``GET /files/{file_id}``).

        Returns:
            What is known of it; see `get_file`.

        Raises:
            FileExistsError: there is something at that path.
            ClientDecodeError: what came is not the file; nothing is left at the path.
        """
        known, found = await self.get_file(file_id), hashlib.sha256()
        headers = self._build_headers({"Accept": _BYTES})
        file = await asyncio.to_thread(target.open, "xb")
        try:
            with file:
                async with (
                    client_errors(),
                    await self._send("GET", _file(file_id), None, headers) as response,
                ):
                    await raise_for_status(response)
                    async for piece in response.content.iter_chunked(_PIECE):
                        found.update(piece)
                        await asyncio.to_thread(file.write, piece)
            if found.hexdigest() != known["sha256"]:
                told = "the file did not arrive as it was sent"
                raise ClientDecodeError(told)  # noqa: TRY301 - nothing of it is left, too
        except BaseException:
            await asyncio.to_thread(target.unlink, missing_ok=True)
            raise
        return known

    async def delete_file(self, file_id: str) -> DeleteFileResponse:
        """Delete a file of one's own, also for those who got it (``DELETE /files/{file_id}``)."""
        return await self._ask(DeleteFileResponse, "DELETE", _file(file_id))


def _message(message_id: str) -> str:
    return f"/messages/{segment(message_id, _BESIDE_MESSAGES)}"


def _thread(thread_id: str) -> str:
    return f"/threads/{segment(thread_id)}"


def _team(team_id: str) -> str:
    return f"/teams/{segment(team_id)}"


def _file(file_id: str) -> str:
    return f"/files/{segment(file_id)}"
