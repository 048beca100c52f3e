"""The seam between agents and mailboxes, and the backends that need no further packages."""

import imaplib
import logging
import mailbox
import re
import smtplib
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from email.message import EmailMessage
from email.utils import getaddresses
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from mail.errors import ToolError
from mail.stdlib.email.calendars import CalendarFile, Event, Meeting, invitation
from mail.stdlib.email.messages import (
    NOT_HERE,
    Email,
    Sending,
    Stage,
    compose,
    one_line,
    parse_email,
)

if TYPE_CHECKING:
    from mail.config.stdlib import EmailConfig

logger = logging.getLogger(__name__)

_MOST_FOLDER: Final = 100_000
_MOST_SENT: Final = 2_000  # a copy that a crash has left is one of the newest
_MOST_HEADERS: Final = 64 * 1024
_DONE: Final = 250
_FORWARDS: Final = 251
_MAY_BE_SENT: Final = "the connection broke while it was being sent, so it may have been sent"


class Backend(Protocol):
    """A mailbox with its calendar. All methods block, and may be called from any thread.

    A method raises ToolError, with a text that an agent or an operator can act on, when the backend
    refuses or cannot be reached.
    """

    @property
    def address(self) -> str:
        """The mailbox's own address."""

    @property
    def place(self) -> str:
        """Its place, for an operator: an absolute path, or the address."""

    def unread(self, limit: int) -> list[Email]:
        """Return unread emails, the oldest first, at most ``limit``."""

    def get(self, email_id: str) -> Email | None:
        """Return an email, or None if the mailbox has none with this id."""

    def mark_as_read(self, email_id: str) -> None:
        """Mark an email as read; that it is read already is no error.

        Raises:
            ToolError: no email has that id, or it cannot be marked.
        """

    def send(
        self, message: EmailMessage, thread_id: str = "", sending: Sending | None = None
    ) -> str:
        """Send an email, once.

        Args:
            message: It has a Message-ID: the same one in each attempt.
            thread_id: The conversation that it belongs to.
            sending: The progress of an earlier attempt; it records that of this one.

        Returns:
            What happened, as a sentence.

        Raises:
            ToolError: it was not sent, or an earlier attempt may have sent it.
        """

    def events(self, start: datetime, end: datetime) -> list[Event]:
        """Return the calendar's events between two times."""

    def add_meeting(self, meeting: Meeting) -> str:
        """Put a meeting into the calendar and invite its attendees.

        Returns:
            What happened, as a sentence.
        """


# --- sending ------------------------------------------------------------------------------------


def send_by_smtp(
    config: "EmailConfig", message: EmailMessage, note: Callable[[Stage], None]
) -> str:
    """Send an email to its recipients over a connection of its own; see `Backend.send`.

    Args:
        config: The ``smtp_…`` settings.
        message: The email.
        note: Stores how far it has come.
    """
    try:
        with _smtp(config) as server:
            refused = _announce(server, message)
            note("sending")
            content = message.as_bytes(policy=message.policy.clone(linesep="\r\n"))
            try:
                code, text = server.data(content)
            except smtplib.SMTPResponseException:
                raise  # the server has said no
            except (OSError, smtplib.SMTPServerDisconnected) as error:
                raise ToolError(f"{_MAY_BE_SENT}: {_told(error)}") from None
            if code != _DONE:
                raise smtplib.SMTPDataError(code, text)
            note("sent")
    except (OSError, smtplib.SMTPException) as error:
        raise ToolError(f"not sent: {_told(error)}") from None
    if not refused:
        return "sent"
    names = ", ".join(sorted(refused))
    return f"sent, but the server refused these recipients: {one_line(names, 500)}"


def _announce(server: smtplib.SMTP, message: EmailMessage) -> dict[str, tuple[int, bytes]]:
    """Name the sender and the recipients; return those that the server refuses."""
    server.ehlo_or_helo_if_needed()
    sender = str(message["From"])
    code, text = server.mail(sender)
    if code != _DONE:
        raise smtplib.SMTPSenderRefused(code, text, sender)
    named = getaddresses([str(message[name]) for name in ("To", "Cc") if message[name]])
    answers = {address: server.rcpt(address) for _, address in named}
    refused = {one: told for one, told in answers.items() if told[0] not in (_DONE, _FORWARDS)}
    if len(refused) == len(answers):
        raise smtplib.SMTPRecipientsRefused(refused)
    return refused


@contextmanager
def _smtp(config: "EmailConfig") -> Iterator[smtplib.SMTP]:
    context = ssl.create_default_context() if config.smtp_security != "none" else None
    where = config.smtp_host, config.smtp_port
    if config.smtp_security == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(*where, timeout=config.timeout, context=context)
    else:
        server = smtplib.SMTP(*where, timeout=config.timeout)
    try:
        if config.smtp_security == "starttls":
            server.starttls(context=context)
        if config.smtp_user:
            server.login(config.smtp_user, config.password("smtp"))
        yield server
    finally:
        server.close()  # QUIT could fail after the email was accepted


def _told(error: Exception) -> str:
    """Return why a mail server did not do something, without what an agent must not see."""
    match error:
        case smtplib.SMTPAuthenticationError():
            told = "does not accept the user name and password"
        case smtplib.SMTPRecipientsRefused():
            texts = (text.decode(errors="replace") for _, text in error.recipients.values())
            reasons = sorted({one_line(text, 100) for text in texts})
            told = f"refuses the recipients ({'; '.join(reasons)})"
        case smtplib.SMTPResponseException():
            text = error.smtp_error
            shown = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
            told = f"answered {error.smtp_code} {one_line(shown, 200)}"
        case imaplib.IMAP4.error() | smtplib.SMTPNotSupportedError():
            told = f"refused: {one_line(str(error), 200)}"
        case TimeoutError():
            told = "did not answer in time"
        case ssl.SSLCertVerificationError():
            return (
                f"the mail server's certificate is refused: {one_line(error.verify_message, 200)}"
            )
        case ssl.SSLError():
            reason = one_line(error.reason or type(error).__name__, 100)
            return f"no encrypted connection to the mail server could be made ({reason})"
        case _:
            told = f"cannot be reached ({type(error).__name__})"
    return f"the mail server {told}"


class _Posting(ABC):
    """A mailbox without a calendar server: sending, and a calendar file."""

    def __init__(self, config: "EmailConfig", calendar: Path) -> None:
        self._config = config
        self._calendar = CalendarFile(calendar)

    @property
    def address(self) -> str:
        """The mailbox's own address."""
        return self._config.address

    @property
    def place(self) -> str:
        """The place of the mailbox, for an operator."""
        return self._config.address

    def send(
        self, message: EmailMessage, thread_id: str = "", sending: Sending | None = None
    ) -> str:
        """Send an email, once; a thread is what the headers say."""
        sending = sending or Sending()
        if not self._config.smtp_host:
            if not (sending.stage and self._has_kept(message["Message-ID"])):
                sending.note("sending")
                self._keep(message)
            return "kept in the folder of sent emails"
        kept, told = False, "sent"
        if sending.stage:
            kept = sending.confirm(message["Message-ID"], self._has_kept)
        else:
            told = send_by_smtp(self._config, message, sending.note)
        if not kept:
            try:
                self._keep(message)
            except (OSError, ToolError, imaplib.IMAP4.error):
                logger.warning("an email was sent, but no copy of it was kept", exc_info=True)
        return told

    @abstractmethod
    def _keep(self, message: EmailMessage) -> None:
        """Keep a copy of what was sent."""

    @abstractmethod
    def _has_kept(self, message_id: str) -> bool:
        """Tell whether there is a copy of an email among those that were sent."""

    def events(self, start: datetime, end: datetime) -> list[Event]:
        """Return the calendar's events between two times."""
        return self._calendar.events(start, end)

    def add_meeting(self, meeting: Meeting) -> str:
        """Put a meeting into the calendar; the attendees are invited by email."""
        attached = invitation(meeting)
        self._calendar.add(meeting)
        others = [one for one in meeting.attendees if one.lower() != self.address.lower()]
        if not others:
            return "the meeting is in the calendar"
        when = f"{meeting.start:%A, %d %B %Y, %H:%M} to {meeting.end:%H:%M}"
        text = f"{meeting.title}\n{when} ({meeting.timezone})"
        message = compose(
            self.address, others[0], f"Invitation: {meeting.title}", text, copies=others[1:]
        )
        message.add_alternative(
            attached,
            maintype="text",
            subtype="calendar",
            cte="base64",
            params={"method": "REQUEST", "charset": "utf-8"},
        )
        try:
            return f"the meeting is in the calendar; invitations: {self.send(message)}"
        except ToolError as error:
            return f"the meeting is in the calendar, but nobody was invited: {error}"


# --- a folder -----------------------------------------------------------------------------------


class LocalBackend(_Posting):
    """A Maildir and an iCalendar file in a folder.

    ``INBOX`` is a Maildir that any mail program or server may deliver to, ``INBOX/.Sent`` holds
    what was sent, ``calendar.ics`` is the calendar. With ``smtp_host`` emails are sent, else they
    are kept in ``.Sent`` only. Reading creates nothing: without the folder there are no emails.

    Args:
        config: The settings; ``folder`` counts from the folder in which the program was started.
    """

    def __init__(self, config: "EmailConfig") -> None:
        folder = Path(config.folder).expanduser().absolute()
        super().__init__(config, folder / "calendar.ics")
        self._folder, self._inbox = folder, folder / "INBOX"
        try:
            if folder.exists():  # a file at its place, or one that may not be read, is an error
                next(folder.iterdir(), None)
        except OSError as error:
            raise ToolError(f"the mailbox cannot be opened: {error.strerror}") from None

    @property
    def place(self) -> str:
        """The place of the mailbox, for an operator."""
        return str(self._folder)

    def _create(self) -> None:
        """Create what is missing of the mailbox.

        Raises:
            ToolError: it cannot be created.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            mailbox.Maildir(self._inbox, create=True).close()
            mailbox.Maildir(self._inbox / ".Sent", create=True).close()
        except OSError as error:
            raise ToolError(f"the mailbox cannot be opened: {error.strerror}") from None

    def add_meeting(self, meeting: Meeting) -> str:
        """Put a meeting into the calendar."""
        self._create()
        return super().add_meeting(meeting)

    def unread(self, limit: int) -> list[Email]:
        """Return unread emails, the oldest first, at most ``limit``."""
        waiting = [path for path in self._files() if "S" not in _flags(path)]
        found = []
        for path in sorted(waiting, key=lambda path: (_modified(path), path.name))[:limit]:
            email = self._load(path)
            if email is not None:
                found.append(email)
        return found

    def get(self, email_id: str) -> Email | None:
        """Return an email, or None if the mailbox has none with this id."""
        path = self._find(email_id)
        return self._load(path) if path else None

    def mark_as_read(self, email_id: str) -> None:
        """Mark an email as read."""
        path = self._find(email_id)
        if path is None:
            raise ToolError(NOT_HERE)
        if "S" in _flags(path):
            return
        self._create()
        flags = "".join(sorted({*_flags(path), "S"}))
        try:
            path.rename(self._inbox / "cur" / f"{_key(path)}:2,{flags}")
        except FileNotFoundError:
            return  # somebody else has just done so, or has deleted it
        except OSError as error:
            raise ToolError(f"the email cannot be marked as read: {error.strerror}") from None

    def deliver(self, raw: bytes) -> str:
        """Put an email into the mailbox, as a mail server would; return its id."""
        self._create()
        box = mailbox.Maildir(self._inbox, create=True)
        try:
            return box.add(raw)
        finally:
            box.close()

    def _keep(self, message: EmailMessage) -> None:
        self._create()
        box = mailbox.Maildir(self._inbox / ".Sent", create=True)
        try:
            kept = mailbox.MaildirMessage(message)
            kept.set_subdir("cur")
            kept.set_flags("S")
            box.add(kept)
        except OSError as error:
            raise ToolError(f"the email cannot be kept: {error.strerror}") from None
        finally:
            box.close()

    def _has_kept(self, message_id: str) -> bool:
        sent = self._files(self._inbox / ".Sent")
        sent.sort(key=_modified, reverse=True)
        return any(_message_id(path) == message_id for path in sent[:_MOST_SENT])

    def _files(self, folder: Path | None = None) -> list[Path]:
        found: list[Path] = []
        for name in ("new", "cur"):
            try:
                found.extend(islice(((folder or self._inbox) / name).iterdir(), _MOST_FOLDER))
            except OSError:
                continue
        return found

    def _find(self, email_id: str) -> Path | None:
        """Return the file of an email; its id is compared and never made a path."""
        return next((path for path in self._files() if _key(path) == email_id), None)

    def _load(self, path: Path) -> Email | None:
        try:
            with path.open("rb") as file:
                return parse_email(file.read(self._config.max_bytes), _key(path))
        except OSError:
            return None


def _key(path: Path) -> str:
    return path.name.partition(":")[0]


def _flags(path: Path) -> str:
    return path.name.partition(":2,")[2] if path.parent.name == "cur" else ""


def _message_id(path: Path) -> str:
    """Return the Message-ID of an email that was kept, or no text."""
    try:
        with path.open("rb") as file:
            return parse_email(file.read(_MOST_HEADERS), _key(path)).message_id
    except OSError:
        return ""


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


# --- IMAP ---------------------------------------------------------------------------------------

_UID: Final = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})")
_BYTES: Final = re.compile(rb"UID ([0-9]+)")


class ImapBackend(_Posting):
    """A mailbox on an IMAP server, an SMTP server for what is sent, and a calendar file.

    An email's id is ``UIDVALIDITY.UID``. Each operation has a connection of its own.

    Args:
        config: The settings.
    """

    def __init__(self, config: "EmailConfig") -> None:
        folder = Path(config.folder).expanduser().absolute()
        super().__init__(config, folder / "calendar.ics")

    def unread(self, limit: int) -> list[Email]:
        """Return unread emails, the oldest first, at most ``limit``."""
        with self._opened() as (server, validity):
            _, found = self._checked(server.uid("SEARCH", "UNSEEN"))
            uids = b" ".join(part for part in found if part).split()[:limit]
            emails = (self._fetch(server, validity, uid.decode()) for uid in uids)
            return [email for email in emails if email is not None]

    def get(self, email_id: str) -> Email | None:
        """Return an email, or None if the mailbox has none with this id."""
        known = _UID.fullmatch(email_id)
        if known is None:
            return None
        with self._opened() as (server, validity):
            return self._fetch(server, validity, known[2]) if validity == known[1] else None

    def mark_as_read(self, email_id: str) -> None:
        """Mark an email as read."""
        known = _UID.fullmatch(email_id)
        if known is None:
            raise ToolError(NOT_HERE)
        with self._opened(readonly=False) as (server, validity):
            _, found = self._checked(server.uid("SEARCH", "UID", known[2]))
            if validity != known[1] or not any(found):
                raise ToolError(NOT_HERE)
            self._checked(server.uid("STORE", known[2], "+FLAGS.SILENT", r"(\Seen)"))

    def _keep(self, message: EmailMessage) -> None:
        if not self._config.imap_sent:
            return
        with self._connected() as server:
            name = _quoted(self._config.imap_sent)
            self._checked(server.append(name, r"(\Seen)", "", message.as_bytes()))

    def _has_kept(self, message_id: str) -> bool:
        if not self._config.imap_sent:
            return False
        with self._connected() as server:
            self._checked(server.select(_quoted(self._config.imap_sent), readonly=True))
            criteria = "HEADER", "Message-ID", _quoted(message_id)
            _, found = self._checked(server.uid("SEARCH", *criteria))
            return any(found)

    def _fetch(self, server: imaplib.IMAP4, validity: str, uid: str) -> Email | None:
        what = f"(UID BODY.PEEK[]<0.{self._config.max_bytes}>)"
        _, found = self._checked(server.uid("FETCH", uid, what))
        for part in found:
            if not isinstance(part, tuple):
                continue
            named = _BYTES.search(part[0])
            if named is None or named[1].decode() == uid:
                return parse_email(part[1], f"{validity}.{uid}")
        return None

    @contextmanager
    def _opened(self, *, readonly: bool = True) -> Iterator[tuple[imaplib.IMAP4, str]]:
        """Select the mailbox; yield the connection and the validity of its numbers."""
        with self._connected() as server:
            self._checked(server.select(_quoted(self._config.imap_mailbox), readonly=readonly))
            _, [validity] = server.response("UIDVALIDITY")
            yield server, validity.decode() if isinstance(validity, bytes) else "0"

    @contextmanager
    def _connected(self) -> Iterator[imaplib.IMAP4]:
        config = self._config
        where = config.imap_host, config.imap_port
        context = ssl.create_default_context() if config.imap_security != "none" else None
        try:
            if config.imap_security == "tls":
                server: imaplib.IMAP4 = imaplib.IMAP4_SSL(
                    *where, ssl_context=context, timeout=config.timeout
                )
            else:
                server = imaplib.IMAP4(*where, timeout=config.timeout)
            try:
                if config.imap_security == "starttls":
                    server.starttls(context)
                server.login(_quoted(config.imap_user), config.password("imap"))
                yield server
            finally:
                with suppress(OSError, imaplib.IMAP4.error):  # it may be gone
                    server.logout()
        except (OSError, imaplib.IMAP4.error) as error:
            raise ToolError(_told(error)) from None

    def _checked(self, answer: tuple[str, list[Any]]) -> tuple[str, list[Any]]:
        """Return an answer that is no refusal.

        Raises:
            imaplib.IMAP4.error: it is one.
        """
        if answer[0] != "OK":
            said = answer[1][0] if answer[1] else b""
            raise imaplib.IMAP4.error(said.decode(errors="replace") if said else answer[0])
        return answer


def _quoted(text: str) -> str:
    """Return text as a quoted string of IMAP."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# --- which one ----------------------------------------------------------------------------------


def open_backend(config: "EmailConfig") -> Backend:
    """Return the backend that the settings name.

    Raises:
        ConfigError: a setting that it needs is missing.
        ToolError: it cannot be opened.
    """
    config.check()
    if config.backend == "imap":
        return ImapBackend(config)
    if config.backend == "gmail":
        from mail.stdlib.email.google import GoogleBackend

        return GoogleBackend(config)
    return LocalBackend(config)
