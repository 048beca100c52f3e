"""Emails as agents and people see them: read from hostile bytes, and written with safe headers.

What comes in is data that anybody on the internet wrote. It is bounded, flattened to text without
control characters, and never trusted to be well formed.
"""

import logging
import re
import unicodedata
from codecs import lookup
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.message import EmailMessage, Message
from email.utils import formatdate, getaddresses, make_msgid, parseaddr, parsedate_to_datetime
from hashlib import sha256
from html import unescape
from itertools import islice
from typing import Any, Final, Literal

from mail.errors import ToolError

logger = logging.getLogger(__name__)

MAX_RECIPIENTS: Final = 50
MAX_TEXT: Final = 100_000
"""Characters that an email may have which an agent sends."""

_MOST_BODY: Final = 20_000
_MOST_DECODED: Final = 8 * _MOST_BODY
_MOST_SUBJECT: Final = 300
_MOST_HEADER: Final = 4_000
_MOST_PARTS: Final = 100
_MOST_NAMES: Final = 20
_MOST_REFERENCES: Final = 30
_CUT: Final = "\n[… cut here: the email is longer]"
_TOO_DEEP: Final = "[this email cannot be read: it is nested too deeply]"
_UNREADABLE: Final = "[this email cannot be read; its SHA-256 is {}]"
_MESSAGE_ID: Final = re.compile(r"<[^\s<>\x00-\x1f\x7f-\uffff]{1,240}>")
_LOCAL: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS: Final = re.compile(rf"(?=.{{3,254}}\Z)(?=.{{1,64}}@){_LOCAL}@{_LABEL}(?:\.{_LABEL})*")
_WRITTEN: Final = policy.SMTP.clone(max_line_length=998, cte_type="7bit")
"""Long Message-IDs stay whole, and any server takes the result."""
_NO_CHARSETS: Final = frozenset(("idna", "punycode", "raw-unicode-escape", "unicode-escape"))
"""Codecs that no email has; Python takes a text's length squared for some, and warns of others."""
_REORDERING: Final = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

NOT_HERE: Final = "no email of this mailbox has that ID"

_CUT_OFF: Final = (
    "it may have been sent: the program stopped while it was being sent, and {why}. It is not sent "
    "again. Its Message-ID is {message_id}; look for it, or ask the recipient, before you send "
    "another one"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    """An email in a mailbox.

    Attributes:
        id: The backend's identifier.
        thread_id: The backend's own name of the conversation, if it has one.
        message_id: Its Message-ID with the angle brackets, or no text.
        references: The Message-IDs of the conversation before it, oldest first.
        author: The claimed author, as one line.
        reply_to: The address that an answer goes to, or no text if there is no usable one.
        to: The recipients, as one line.
        subject: One line.
        date: As its author wrote it, in ISO 8601, or no text.
        body: Its text; that of an HTML email without the markup. Cut if it is long.
        attachments: The names of its attachments, which are not read.
    """

    id: str
    author: str
    to: str
    subject: str
    body: str
    thread_id: str = ""
    message_id: str = ""
    references: tuple[str, ...] = ()
    reply_to: str = ""
    date: str = ""
    attachments: tuple[str, ...] = ()

    def as_input(self) -> dict[str, Any]:
        """Return the email as the document calls it: ``email_input``, a dictionary of texts."""
        shown: dict[str, Any] = {
            "id": self.id,
            "thread_id": self.thread_id,
            "from": self.author,
            "to": self.to,
            "subject": self.subject,
            "date": self.date,
            "body": self.body,
        }
        if self.attachments:
            shown["attachments"] = list(self.attachments)
        return shown


# --- text -------------------------------------------------------------------------------------


def one_line(text: str, most: int = _MOST_SUBJECT) -> str:
    """Return a text's words on one line, without control characters, cut to a length."""
    line = " ".join(plain_text(text[: most * 4]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def plain_text(text: str) -> str:
    """Return text without control characters and marks that change the order of what is shown."""
    whole = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    return "".join(sign for sign in whole if _shown(sign))


def _shown(sign: str) -> bool:
    if sign in "\n\t":
        return True
    return sign not in _REORDERING and unicodedata.category(sign) not in ("Cc", "Cs")


_BLOCKS: Final = frozenset(("p", "div", "br", "li", "tr", "h1", "h2", "h3", "blockquote"))
_HIDDEN: Final = frozenset(("head", "title", "template"))
_RAW: Final = {
    name: re.compile(rf"(?is).*?(?:</{name}\b[^>]*+(?:>|\Z)|\Z)") for name in ("script", "style")
}
"""All until the end of an element that holds no text."""
_TAG: Final = re.compile(
    r"""(?is)<(?:!--.*?(?:-->|\Z)
    |(/?)([a-z][^\s/>]*+)(?:[^>=]++|=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))?+)*+(?:>|\Z)
    |[!?/][^>]*+(?:>|\Z))""",
    re.VERBOSE,
)
"""A tag or a comment. Without its end it is the rest of the page, so no sign is looked at twice."""
_LONG_NUMBER: Final = re.compile(r"&#[0-9]{8,}+")


def _text_of_html(page: str) -> str:
    lines = (" ".join(line.split()) for line in "".join(_pieces(page)).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _pieces(page: str) -> Iterator[str]:
    """Yield the texts of a page that are shown, and the line breaks between them.

    It takes time in proportion to the page's length; `html.parser` takes that of its square.
    """
    at = hidden = 0
    while tag := _TAG.search(page, at):
        if not hidden:
            yield _unescaped(page[at : tag.start()])
        at, name = tag.end(), (tag[2] or "").lower()
        if tag[1]:
            hidden = max(0, hidden - (name in _HIDDEN))
        elif name in _RAW:
            found = _RAW[name].match(page, at)
            at = found.end() if found else len(page)
        else:
            hidden += name in _HIDDEN
            if name in _BLOCKS:
                yield "\n"
    if not hidden:
        yield _unescaped(page[at:])


def _unescaped(text: str) -> str:
    return unescape(_LONG_NUMBER.sub("&#0", text))  # Python refuses to read such numbers


# --- reading ----------------------------------------------------------------------------------


class _Bounded(policy.Compat32):
    """Reads the beginning of each header; Python takes its length's square for the parameters."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        """Parse a header as `email.policy` does."""
        name, value = super().header_source_parse(sourcelines)
        return name, value[:_MOST_HEADER]


_BOUNDED: Final = _Bounded()
_LIMITS: Final = (
    (re.compile(rb"\r\n?|\n"), 100_000),
    (re.compile(rb"[\r\n]--"), 1_000),
    (re.compile(rb"(?i)(?:\A|[\r\n])content-type:[\x00-\x20]*+(?:multipart|message)/"), 20),
)
"""The number of lines, of beginnings of parts and of levels that are read of an email."""


def _beginning(raw: bytes) -> bytes:
    """Return so much of an email as the parser reads in a moment: it compares lines and levels."""
    for mark, most in _LIMITS:
        beyond = next(islice(mark.finditer(raw), most, None), None)
        if beyond is not None:
            raw = raw[: beyond.start()]
    return raw


def parse_email(raw: bytes, email_id: str, thread_id: str = "") -> Email:
    """Read an email. Whatever the bytes are, something readable comes back.

    Args:
        raw: The email, or its beginning.
        email_id: The backend's identifier.
        thread_id: The backend's own name of its conversation.
    """
    try:
        return _parse(raw, email_id, thread_id)
    except Exception:  # whatever one email does to the parsers, the others are read
        logger.warning("an email cannot be read", exc_info=True, extra={"email_id": email_id})
        body = _UNREADABLE.format(sha256(raw).hexdigest())  # without it they would be one task
        return Email(id=email_id, thread_id=thread_id, author="", to="", subject="", body=body)


def _parse(raw: bytes, email_id: str, thread_id: str) -> Email:
    try:
        message = message_from_bytes(_beginning(raw), policy=_BOUNDED)
        body, attachments = _read_parts(message)
    except RecursionError:
        head = raw[:65536].partition(b"\r\n\r\n" if b"\r\n\r\n" in raw[:65536] else b"\n\n")[0]
        flat = re.sub(rb"(?im)^content-type:.*(?:\r?\n[ \t].*)*", b"", head)
        message = message_from_bytes(flat, policy=_BOUNDED)
        body, attachments = _TOO_DEEP, ()
    body = plain_text(body[: 2 * _MOST_BODY]).strip()
    name, address = _person(message, "From")
    author = f"{name} <{address}>" if name and address else address or _header(message, "From")
    found = _MESSAGE_ID.search(_header(message, "Message-ID"))
    known = _MESSAGE_ID.findall(_header(message, "References"))
    known = known or _MESSAGE_ID.findall(_header(message, "In-Reply-To"))
    return Email(
        id=email_id,
        thread_id=thread_id,
        message_id=found.group() if found else "",
        references=tuple(known[-_MOST_REFERENCES:]),
        author=one_line(author),
        reply_to=_person(message, "Reply-To")[1] or address,
        to=one_line(_header(message, "To")),
        subject=one_line(_header(message, "Subject")),
        date=_date(_header(message, "Date")),
        body=body if len(body) <= _MOST_BODY else body[:_MOST_BODY] + _CUT,
        attachments=attachments,
    )


def _header(message: Message, name: str) -> str:
    """Return a header's decoded text on one line."""
    return _decoded_words(str(message.get(name, ""))[:_MOST_HEADER])


def _decoded_words(raw: str) -> str:
    try:
        text = str(make_header(decode_header(raw)))
    except (ValueError, LookupError, UnicodeError):
        text = raw
    return one_line(text, _MOST_HEADER)


def _person(message: Message, header: str) -> tuple[str, str]:
    """Return (name, address) of the first usable address in a header, or empty texts.

    Addresses are found before words are decoded: what a name says is never an address.
    """
    raw = one_line(str(message.get(header, ""))[:_MOST_HEADER], _MOST_HEADER)
    try:
        people = getaddresses([raw])
    except RecursionError:  # comments within comments
        return "", ""
    for name, address in people:
        if _ADDRESS.fullmatch(address):
            return re.sub(r"[<>\"]", " ", _decoded_words(name)).strip(), address
    return "", ""


def _date(header: str) -> str:
    try:
        return parsedate_to_datetime(header).isoformat()
    except (ValueError, TypeError, OverflowError, IndexError):
        return ""


def _read_parts(message: Message) -> tuple[str, tuple[str, ...]]:
    """Return (the text, the names of the attachments) of an email."""
    texts: dict[str, list[str]] = {"text/plain": [], "text/html": []}
    names: list[str] = []
    left = _MOST_DECODED
    for part in islice(message.walk(), _MOST_PARTS):
        if part.is_multipart():
            continue
        kind, name = part.get_content_type(), part.get_filename()
        if name is not None or part.get_content_disposition() == "attachment":
            names.append(one_line(str(name or "unnamed"), 100))
        elif kind in texts and left > 0:
            texts[kind].append(_decoded(part, left))
            left -= len(texts[kind][-1])
    plain, pages = ("\n".join(found) for found in texts.values())
    return plain.strip() or _text_of_html(pages), tuple(names[:_MOST_NAMES])


def _decoded(part: Message, most: int) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    payload = payload[:most]
    charset = str(part.get_content_charset("utf-8"))
    try:
        if lookup(charset).name in _NO_CHARSETS:
            charset = "utf-8"
        return payload.decode(charset, "replace")
    except (LookupError, UnicodeError):
        return payload.decode("utf-8", "replace")


# --- writing ----------------------------------------------------------------------------------


def check_address(address: object, name: str = "address") -> str:
    """Return the plain address of ``user@host`` or ``Name <user@host>``.

    Raises:
        ToolError: it is no usable address of one person.
    """
    text = address.strip() if isinstance(address, str) else ""
    if len(text) <= 320 and text.isprintable():
        found = text
        if text.endswith(">") and text.count("<") == 1:
            found = parseaddr(text)[1]
        if _ADDRESS.fullmatch(found):
            return found
    shown = one_line(str(address), 60)
    raise ToolError(f"'{name}' must be an email address such as ann@example.org, got '{shown}'")


def check_text(text: object, name: str, most: int = MAX_TEXT) -> str:
    """Return a text that is not blank and not too long, without control characters.

    Raises:
        ToolError: it is blank, too long, or no text.
    """
    if not isinstance(text, str) or not text.strip():
        raise ToolError(f"'{name}' must be a text that is not empty")
    if len(text) > most:
        raise ToolError(f"'{name}' has {len(text):,} characters; at most {most:,} are possible")
    return plain_text(text)


def reply_to(original: Email | None, text: str) -> str:
    """Return the subject of an answer, or of a new email with this text."""
    if original is None:
        return one_line(text.strip().splitlines()[0] if text.strip() else "", 80) or "(no subject)"
    subject = original.subject or "(no subject)"
    return subject if subject.lower().startswith("re:") else f"Re: {subject}"


def compose(
    sender: str,
    to: str,
    subject: str,
    text: str,
    *,
    copies: Iterable[str] = (),
    original: Email | None = None,
    message_id: str = "",
) -> EmailMessage:
    """Write an email; with ``original`` an answer, in the thread of that email.

    Args:
        sender: The mailbox's own address.
        to: An address that `check_address` returned; so are ``copies``.
        subject: One line.
        text: The body.
        copies: Further recipients.
        original: The email that it answers.
        message_id: Its Message-ID, where it has one already.
    """
    message = EmailMessage(policy=_WRITTEN)
    message["From"] = sender
    message["To"] = to
    others = [address for address in dict.fromkeys(copies) if address.lower() != to.lower()]
    if others:
        message["Cc"] = ", ".join(others)
    message["Subject"] = one_line(subject)
    message["Date"] = formatdate()
    message["Message-ID"] = message_id or make_msgid(domain=sender.rpartition("@")[2])
    if original is not None and original.message_id:
        message["In-Reply-To"] = original.message_id
        before = [one for one in original.references if one != original.message_id]
        message["References"] = " ".join([*before, original.message_id])
    message.set_content(text if text.endswith("\n") else f"{text}\n")
    return message


# --- sending once -----------------------------------------------------------------------------

Stage = Literal["", "sending", "sent"]
"""The progress of an email: not begun, being handed over, or accepted by the mail server."""


@dataclass(frozen=True, slots=True)
class Sending:
    """Lets an email be sent once although the program may be killed at any moment.

    Attributes:
        stage: The progress of an attempt that a crash cut off.
        note: Stores a stage, before anything that follows from it is done. What it raises is not
            caught.
    """

    stage: Stage = ""
    note: Callable[[Stage], None] = lambda stage: None

    def confirm(self, message_id: str, has_copy: Callable[[str], bool]) -> bool:
        """Return if the earlier attempt has sent the email; tell whether a copy of it was kept.

        Args:
            message_id: Of the email.
            has_copy: Looks for an email, by its Message-ID, among those that were sent. It may
                raise ToolError.

        Raises:
            ToolError: nothing proves that it was sent.
        """
        try:
            found, why = has_copy(message_id), "there is no copy of it among the sent emails"
        except ToolError as error:
            found, why = False, f"the sent emails cannot be searched: {error}"
        if not found and self.stage == "sending":
            raise ToolError(_CUT_OFF.format(why=why, message_id=message_id))
        return found
