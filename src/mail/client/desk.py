"""The methods of `mail.client.MAILClient` for participants: messages, threads, teams."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote

from mail.client.http import HTTPClient
from mail.net.types import (
    DeleteThreadMemberResponse,
    DeskThread,
    GetDeskMessageResponse,
    GetMessagesResponse,
    GetOverdueResponse,
    GetParticipantsResponse,
    GetSearchResponse,
    GetTeamsResponse,
    GetThreadsResponse,
    GetUnreadResponse,
    PostAckResponse,
    PostMessagesResponse,
    PostTeamBroadcastResponse,
    PostTeamMessageResponse,
    PostThreadMemberResponse,
    PostThreadsResponse,
)

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
            recipient_id: Who gets it, as a direct message.
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
        answer = await self._request_object("POST", "/messages", present(payload), request_id)
        return cast("PostMessagesResponse", answer)

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
        answer = await self._request_object("GET", f"/messages{query_of(given)}")
        return cast("GetMessagesResponse", answer)

    async def get_desk_message(
        self, message_id: str, *, mark_read: bool = True
    ) -> GetDeskMessageResponse:
        """Return one message, to its sender with receipts (``GET /messages/{message_id}``)."""
        query = "" if mark_read else "?mark_read=false"
        answer = await self._request_object("GET", f"{_message(message_id)}{query}")
        return cast("GetDeskMessageResponse", answer)

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
        answer = await self._request_object("GET", f"/messages/search{query_of(given)}")
        return cast("GetSearchResponse", answer)

    async def check_new_messages(self) -> GetUnreadResponse:
        """Return how many messages are ``unread``; mark none (``GET /messages/unread``)."""
        return cast("GetUnreadResponse", await self._request_object("GET", "/messages/unread"))

    async def wait_for_mail(self, seconds: float = 60.0) -> GetUnreadResponse:
        """Wait until a message is unread, for up to 300 seconds (``GET /messages/unread``).

        Returns:
            How many are ``unread``: 0 when the time is over.
        """
        answer = await self._request_object("GET", f"/messages/unread?wait={seconds}")
        return cast("GetUnreadResponse", answer)

    async def get_overdue_messages(self, older_than: float = 0.0) -> GetOverdueResponse:
        """Return what one sent so many seconds ago and is not acknowledged.

        The request is ``GET /messages/overdue``.
        """
        path = f"/messages/overdue?older_than={older_than}"
        return cast("GetOverdueResponse", await self._request_object("GET", path))

    async def acknowledge_message(self, message_id: str, note: str = "") -> PostAckResponse:
        """Acknowledge a message, with a word to its sender (``POST /messages/{id}/ack``)."""
        payload = {"note": note} if note else {}
        answer = await self._request_object("POST", f"{_message(message_id)}/ack", payload)
        return cast("PostAckResponse", answer)

    async def get_participants(self) -> GetParticipantsResponse:
        """Return who can be written to, with what they do (``GET /participants``)."""
        answer = await self._request_object("GET", "/participants")
        return cast("GetParticipantsResponse", answer)

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
        answer = await self._request_object("POST", "/threads", present(payload))
        return cast("PostThreadsResponse", answer)

    async def get_threads(
        self, after: str | None = None, limit: int | None = None
    ) -> GetThreadsResponse:
        """Return a page of the threads that one is in, newest activity first (``GET /threads``).

        Args:
            after: The ``next_after`` of the previous page.
            limit: At most so many; 100 by default.
        """
        given = {"after": after, "limit": limit}
        answer = await self._request_object("GET", f"/threads{query_of(given)}")
        return cast("GetThreadsResponse", answer)

    async def get_thread(self, thread_id: str) -> DeskThread:
        """Return a thread that one is in, and who else is (``GET /threads/{thread_id}``)."""
        return cast("DeskThread", await self._request_object("GET", _thread(thread_id)))

    async def join_thread(self, thread_id: str) -> PostThreadMemberResponse:
        """Join a thread (``POST /threads/{thread_id}/join``)."""
        answer = await self._request_object("POST", f"{_thread(thread_id)}/join")
        return cast("PostThreadMemberResponse", answer)

    async def add_participant(self, thread_id: str, participant: str) -> PostThreadMemberResponse:
        """Add somebody to a thread (``POST /threads/{thread_id}/participants``)."""
        path = f"{_thread(thread_id)}/participants"
        answer = await self._request_object("POST", path, {"agent_id_to_add": participant})
        return cast("PostThreadMemberResponse", answer)

    async def remove_participant(
        self, thread_id: str, participant: str
    ) -> DeleteThreadMemberResponse:
        """Leave a thread, or remove somebody from one's own.

        The request is ``DELETE /threads/{thread_id}/participants/{name}``.
        """
        path = f"{_thread(thread_id)}/participants/{segment(participant)}"
        return cast("DeleteThreadMemberResponse", await self._request_object("DELETE", path))

    async def get_teams(self) -> GetTeamsResponse:
        """Return the teams that one is in; none if teams are not enabled (``GET /teams``)."""
        return cast("GetTeamsResponse", await self._request_object("GET", "/teams"))

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
        answer = await self._request_object("POST", path, present(payload), request_id)
        return cast("PostTeamMessageResponse", answer)

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
        answer = await self._request_object("POST", path, present(payload), request_id)
        return cast("PostTeamBroadcastResponse", answer)


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def query_of(fields: Mapping[str, object]) -> str:
    """Return what stands behind a path, without what is not given."""
    given = [f"{name}={quote(str(value), safe='')}" for name, value in present(fields).items()]
    return f"?{'&'.join(given)}" if given else ""


def _message(message_id: str) -> str:
    return f"/messages/{segment(message_id, _BESIDE_MESSAGES)}"


def _thread(thread_id: str) -> str:
    return f"/threads/{segment(thread_id)}"


def segment(name: str, taken: Collection[str] = ()) -> str:
    """Return an id as a part of a path, or what is nobody's id for one that leads elsewhere."""
    return "%20" if name in ("", ".", "..", *taken) else quote(name, safe="")


def _team(team_id: str) -> str:
    return f"/teams/{segment(team_id)}"
