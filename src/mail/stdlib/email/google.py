"""Gmail and Google Calendar, through Google's client library (extra ``email-google``)."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from email.message import EmailMessage
from http.client import BadStatusLine, HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from mail.errors import ConfigError, ToolError
from mail.stdlib.email.calendars import Event, Meeting
from mail.stdlib.email.messages import NOT_HERE, Email, Sending, one_line, parse_email

if TYPE_CHECKING:
    from mail.config.stdlib import EmailConfig

SCOPES: Final = (
    "https://www.googleapis.com/auth/gmail.modify",
    "https://www.googleapis.com/auth/gmail.send",
    "https://www.googleapis.com/auth/calendar.events",
)
"""The scopes that the token must have."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MOST_EVENTS: Final = 200
_MOST_TOKEN: Final = 65_536
_NOT_INSTALLED: Final = "the backend 'gmail' needs a package: install 'mail-protocol[email-google]'"
_MAY_BE_DONE: Final = "the connection broke before Google answered, so it may have been done"


class GoogleBackend:
    """The mailbox and the calendar of a Google account.

    Args:
        config: The ``google_…`` settings. The token file is the one that Google's own tools write
            for an authorised user: ``client_id``, ``client_secret``, ``refresh_token`` and maybe
            ``token_uri``.

    Raises:
        ConfigError: the package is missing, or the token file cannot be read.
    """

    def __init__(self, config: "EmailConfig") -> None:
        try:
            import google_auth_httplib2
            import googleapiclient.discovery
            import httplib2
        except ImportError:
            raise ConfigError(_NOT_INSTALLED) from None
        del google_auth_httplib2, googleapiclient, httplib2
        self._config = config
        self._token = _read_token(config.google_token_file)

    @property
    def address(self) -> str:
        """The mailbox's own address."""
        return self._config.address

    @property
    def place(self) -> str:
        """The place of the mailbox, for an operator."""
        return self._config.address

    # --- emails ---------------------------------------------------------------------------------

    def unread(self, limit: int) -> list[Email]:
        """Return unread emails, the oldest first, at most ``limit``."""
        with self._service("gmail", "v1") as gmail:
            found: list[Any] = []
            token: str | None = None
            while len(found) < limit:
                ask = {"userId": "me", "labelIds": ["INBOX", "UNREAD"], "maxResults": 100}
                answer = self._do(gmail.users().messages().list(**ask, pageToken=token))
                found.extend(answer.get("messages", ()))
                token = answer.get("nextPageToken")
                if not token or len(found) > 10 * limit:
                    break
            found.reverse()  # Gmail begins with the newest
            emails = (self._fetch(gmail, str(one.get("id", ""))) for one in found[:limit])
            return [email for email in emails if email is not None]

    def get(self, email_id: str) -> Email | None:
        """Return an email, or None if the mailbox has none with this id."""
        if not _ID.fullmatch(email_id):
            return None
        with self._service("gmail", "v1") as gmail:
            return self._fetch(gmail, email_id)

    def _fetch(self, gmail: Any, email_id: str) -> Email | None:
        ask = gmail.users().messages().get(userId="me", id=email_id, format="raw")
        answer = self._do(ask, missing=None)
        if answer is None:
            return None
        raw = base64.urlsafe_b64decode(str(answer.get("raw", "")) + "==")[: self._config.max_bytes]
        return parse_email(raw, email_id, str(answer.get("threadId", "")))

    def mark_as_read(self, email_id: str) -> None:
        """Mark an email as read."""
        if not _ID.fullmatch(email_id):
            raise ToolError(NOT_HERE)
        with self._service("gmail", "v1") as gmail:
            body = {"removeLabelIds": ["UNREAD"]}
            ask = gmail.users().messages().modify(userId="me", id=email_id, body=body)
            if self._do(ask, missing=None) is None:
                raise ToolError(NOT_HERE)

    def send(
        self, message: EmailMessage, thread_id: str = "", sending: Sending | None = None
    ) -> str:
        """Send an email, once."""
        sending = sending or Sending()
        body = {"raw": base64.urlsafe_b64encode(message.as_bytes()).decode()}
        if thread_id:
            body["threadId"] = thread_id
        with self._service("gmail", "v1") as gmail:

            def has_sent(message_id: str) -> bool:
                name = message_id.strip("<>")
                ask = {"labelIds": ["SENT"], "q": f"rfc822msgid:{name}", "maxResults": 1}
                found = self._do(gmail.users().messages().list(userId="me", **ask))
                return bool(found.get("messages"))

            if sending.stage:
                sending.confirm(message["Message-ID"], has_sent)
                return "sent"
            sending.note("sending")
            self._do(gmail.users().messages().send(userId="me", body=body))
            sending.note("sent")
        return "sent"

    # --- the calendar ---------------------------------------------------------------------------

    def events(self, start: datetime, end: datetime) -> list[Event]:
        """Return the calendar's events between two times."""
        with self._service("calendar", "v3") as calendar:
            ask = calendar.events().list(
                calendarId=self._config.google_calendar,
                timeMin=start.isoformat(),
                timeMax=end.isoformat(),
                singleEvents=True,
                orderBy="startTime",
                maxResults=_MOST_EVENTS,
            )
            items = self._do(ask).get("items", ())
        zone = ZoneInfo(self._config.timezone)
        return [_event(item, zone) for item in items if item.get("status") != "cancelled"]

    def add_meeting(self, meeting: Meeting) -> str:
        """Put a meeting into the calendar; Google invites the attendees."""
        body = {
            "summary": meeting.title,
            "start": {"dateTime": meeting.start.isoformat(), "timeZone": meeting.timezone},
            "end": {"dateTime": meeting.end.isoformat(), "timeZone": meeting.timezone},
            "attendees": [{"email": address} for address in meeting.attendees],
        }
        with self._service("calendar", "v3") as calendar:
            ask = calendar.events().insert(
                calendarId=self._config.google_calendar, body=body, sendUpdates="all"
            )
            self._do(ask)
        return "the meeting is in the calendar, and Google invites the attendees"

    # --- requests -------------------------------------------------------------------------------

    @contextmanager
    def _service(self, name: str, version: str) -> Iterator[Any]:
        """Build a client with a connection of its own; its documents come with the library."""
        import google_auth_httplib2
        from google.auth.exceptions import GoogleAuthError
        from google.oauth2.credentials import Credentials
        from googleapiclient.discovery import build
        from httplib2 import HttpLib2Error

        address, told = self._config.google_endpoint, self._token
        credentials = Credentials(
            token=None,
            refresh_token=told["refresh_token"],
            token_uri=told.get("token_uri", "https://oauth2.googleapis.com/token"),
            client_id=told["client_id"],
            client_secret=told["client_secret"],
            scopes=list(SCOPES),
        )
        transport = google_auth_httplib2.AuthorizedHttp(
            credentials, http=_make_http(self._config.timeout)
        )
        options = {"api_endpoint": f"{address}/calendar/v3/" if name == "calendar" else address}
        try:
            with build(
                name,
                version,
                http=transport,
                client_options=options if address else None,
                cache_discovery=False,
                static_discovery=True,
            ) as service:
                yield service
        except GoogleAuthError as error:
            reason = one_line(str(error.args[0] if error.args else error), 200)
            raise ToolError(f"Google does not accept the token: {reason}") from None
        except (OSError, HTTPException, HttpLib2Error) as error:
            if isinstance(error, _Unanswered):
                raise ToolError(_MAY_BE_DONE) from None
            name = type(error).__name__
            raise ToolError(f"Google cannot be reached, or broke off ({name})") from None

    def _do(self, request: Any, **instead: Any) -> Any:
        """Carry out a request once.

        Raises:
            ToolError: it was refused. A 404 gives ``missing``, if that is told.
        """
        from googleapiclient.errors import HttpError

        try:
            return request.execute(num_retries=0)
        except HttpError as error:
            if error.resp.status in (400, 404) and "missing" in instead:
                return instead["missing"]
            reason = one_line(str(error.reason or ""), 200)
            raise ToolError(f"Google answered {error.resp.status} {reason}".rstrip()) from None


def _read_token(path: str) -> dict[str, str]:
    place = Path(path).expanduser()
    try:
        with place.open("rb") as file:
            found = json.loads(file.read(_MOST_TOKEN))
    except (OSError, ValueError):
        raise ConfigError(f"the token file {place} cannot be read, or is no JSON") from None
    needed = ("client_id", "client_secret", "refresh_token")
    if not isinstance(found, dict) or not all(isinstance(found.get(one), str) for one in needed):
        raise ConfigError(f"the token file {place} must have {', '.join(needed)}")
    return found


def _event(item: dict[str, Any], zone: ZoneInfo) -> Event:
    start, whole_day = _moment(item.get("start", {}), zone)
    end, _ = _moment(item.get("end", {}), zone)
    return Event(start, end, one_line(str(item.get("summary") or "")) or "(no title)", whole_day)


def _moment(told: dict[str, str], zone: ZoneInfo) -> tuple[datetime, bool]:
    if "dateTime" in told:
        found = datetime.fromisoformat(told["dateTime"])
        return (found if found.tzinfo else found.replace(tzinfo=zone)), False
    return datetime.combine(date.fromisoformat(told["date"]), time.min, zone), True


class _Unanswered(ConnectionError):
    """The server closed the connection in place of an answer."""


class _Connection:
    """A connection that fails where there is no answer; httplib2 would send even a POST again."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def getresponse(self) -> Any:
        """Return the answer.

        Raises:
            _Unanswered: there is none.
        """
        try:
            return self._connection.getresponse()
        except (BadStatusLine, OSError) as error:
            raise _Unanswered(str(error)) from error


def _make_http(timeout: float) -> Any:
    """Return an HTTP client of which no request is sent twice."""
    import httplib2

    class _Http(httplib2.Http):  # type: ignore[misc]
        def _conn_request(
            self, conn: HTTPConnection, request_uri: str, method: str, body: Any, headers: Any
        ) -> Any:
            request: Callable[..., Any] = super()._conn_request
            return request(_Connection(conn), request_uri, method, body, headers)

    return _Http(timeout=timeout)
