"""Mail servers on loopback: SMTP by aiosmtpd, IMAP and Google as small servers of our own.

The two of our own speak the wire and refuse what real ones refuse; what they got is kept.
"""

import base64
import json
import re
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


class Inbox:
    """What an SMTP server got: one (sender, recipients, content) for each email.

    ``seen`` is called when an email is announced (``MAIL``), and when it was taken (``DATA``),
    before the client is told so.
    """

    def __init__(self, refused: str = "refused@example.org") -> None:
        self.refused = refused
        self.got: list[tuple[str, list[str], bytes]] = []
        self.before: Any = None
        self.guarded = False
        self.seen: Callable[[str, bytes], None] = lambda stage, content: None

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.guarded and not session.authenticated:
            return "530 log in first"
        self.seen("MAIL", b"")
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Any
    ) -> str:
        if address == self.refused:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.got.append((envelope.mail_from, list(envelope.rcpt_tos), envelope.content))
        self.seen("DATA", envelope.content)
        if self.before == "cut":
            server.transport.abort()
        return "250 accepted" if self.before is None else str(self.before)


class _Controller(Controller):
    """Finds out its port before it looks whether it can be reached there."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextmanager
def smtp_server(
    password: str | None = None,
    *,
    security: str = "none",
    context: ssl.SSLContext | None = None,
) -> Iterator[tuple[Inbox, int]]:
    """Run an SMTP server; yield what it gets, and its port.

    Args:
        password: What clients must know; none is asked for without it.
        security: As in the settings of the mailbox.
        context: What it encrypts with.
    """

    def check(server: object, session: object, envelope: object, how: str, data: object) -> Any:
        good = isinstance(data, LoginPassword) and data.password == (password or "").encode()
        return AuthResult(success=good)

    inbox = Inbox()
    inbox.guarded = password is not None
    options: dict[str, Any] = {"auth_require_tls": False, "authenticator": check}
    if security != "none":
        options["ssl_context" if security == "tls" else "tls_context"] = context
    controller = _Controller(
        inbox, hostname="127.0.0.1", port=0, server_hostname="localhost", **options
    )
    controller.start()
    try:
        yield inbox, controller.port
    finally:
        controller.stop()


class ImapMailbox:
    """The emails of one mailbox: uid to (bytes, flags)."""

    def __init__(self, *emails: bytes) -> None:
        self.emails = {uid: (raw, set[str]()) for uid, raw in enumerate(emails, start=7)}
        self.appended: list[tuple[str, bytes]] = []
        self.commands: list[str] = []
        self.validity = 42
        self.password = 'pass "word\\'

    @property
    def unseen(self) -> list[int]:
        return [uid for uid, (_, flags) in self.emails.items() if r"\Seen" not in flags]


class _Imap(socketserver.StreamRequestHandler):
    """IMAP4rev1 as far as the client needs it: states, quoted strings, literals."""

    def handle(self) -> None:
        self.box: ImapMailbox = self.server.box  # type: ignore[attr-defined]
        self.state, self.readonly = "greeted", True
        self.tell("* OK [CAPABILITY IMAP4rev1] ready")
        while line := self.rfile.readline():
            tag, _, rest = line.decode().rstrip("\r\n").partition(" ")
            name, _, arguments = rest.partition(" ")
            self.box.commands.append(rest)
            if name == "UID":
                name, _, arguments = arguments.partition(" ")
                name = f"UID {name}"
            method = getattr(self, f"do_{name.replace(' ', '_').lower()}", None)
            self.tell(f"{tag} " + (method(arguments) if method else "BAD unknown command"))
            if name == "STARTTLS" and method is not None:
                self.encrypt()
            if name == "LOGOUT":
                return

    def encrypt(self) -> None:
        """Go on encrypted; what was read before is forgotten."""
        self.connection = self.server.context.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # the server knows of the one before encryption alone

    def tell(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")

    def do_capability(self, arguments: str) -> str:
        offered = " STARTTLS" if self.server.security == "starttls" else ""
        self.tell(f"* CAPABILITY IMAP4rev1{offered}")
        return "OK done"

    def do_starttls(self, arguments: str) -> str:
        return "OK go on" if self.server.security == "starttls" else "BAD unknown command"

    def do_login(self, arguments: str) -> str:
        user, password = _strings(arguments)
        if (user, password) != ("ann", self.box.password):
            return "NO [AUTHENTICATIONFAILED] wrong password"
        self.state = "authenticated"
        return "OK logged in"

    def do_select(self, arguments: str, *, readonly: bool = False) -> str:
        if self.state == "greeted":
            return "BAD not authenticated"
        if _strings(arguments) not in (["INBOX"], ["Sent"]):
            return "NO no such mailbox"
        self.state, self.readonly = _strings(arguments)[0], readonly
        self.tell(f"* {len(self.box.emails)} EXISTS")
        self.tell(f"* OK [UIDVALIDITY {self.box.validity}] valid")
        return f"OK [READ-{'ONLY' if readonly else 'WRITE'}] selected"

    def do_examine(self, arguments: str) -> str:
        return self.do_select(arguments, readonly=True)

    def do_uid_search(self, arguments: str) -> str:
        found = self.box.unseen
        if self.state == "Sent" and arguments.startswith('HEADER Message-ID "<'):
            found = self._sent_as(*_strings(arguments))
        elif arguments.startswith("UID "):
            found = [uid for uid in self.box.emails if arguments == f"UID {uid}"]
        elif self.state != "INBOX" or arguments != "UNSEEN":
            return "BAD no"
        self.tell(" ".join(["* SEARCH", *map(str, found)]))
        return "OK done"

    def _sent_as(self, name: str) -> list[int]:
        line = f"Message-ID: {name}\r\n".encode()
        return [uid for uid, (_, raw) in enumerate(self.box.appended, start=1) if line in raw]

    def do_uid_fetch(self, arguments: str) -> str:
        asked = re.fullmatch(r"(\d+) \(UID BODY\.PEEK\[\]<0\.(\d+)>\)", arguments)
        if self.state != "INBOX" or asked is None:
            return "BAD no"
        found = self.box.emails.get(int(asked[1]))
        if found:
            raw = found[0][: int(asked[2])]
            self.wfile.write(f"* 1 FETCH (UID {asked[1]} BODY[]<0> {{{len(raw)}}}\r\n".encode())
            self.wfile.write(raw + b")\r\n")
        return "OK done"

    def do_uid_store(self, arguments: str) -> str:
        asked = re.fullmatch(r"(\d+) \+FLAGS\.SILENT \((\\Seen)\)", arguments)
        if self.state != "INBOX" or asked is None:
            return "BAD no"
        if self.readonly:
            return "NO the mailbox is read-only"
        if found := self.box.emails.get(int(asked[1])):
            found[1].add(asked[2])
        return "OK done"

    def do_append(self, arguments: str) -> str:
        asked = re.fullmatch(r'"(\w+)" \(\\Seen\) (?:"[^"]+" )?\{(\d+)\}', arguments)
        if self.state == "greeted" or asked is None:
            return "BAD no"
        self.tell("+ go on")
        self.box.appended.append((asked[1], self.rfile.read(int(asked[2]))))
        self.rfile.readline()
        return "OK appended" if asked[1] == "Sent" else "NO [TRYCREATE] no such mailbox"

    def do_logout(self, arguments: str) -> str:
        self.tell("* BYE")
        return "OK bye"


def _strings(arguments: str) -> list[str]:
    found = re.findall(r'"((?:[^"\\]|\\.)*)"', arguments)
    return [re.sub(r"\\(.)", r"\1", text) for text in found]


class _Threads(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, block_on_close = True, True, False

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet about clients that hang up."""


@contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def imap_server(
    box: ImapMailbox, *, security: str = "none", context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Run an IMAP server with a mailbox, encrypted as `smtp_server` is; yield its port."""
    server = _Threads(("127.0.0.1", 0), _Imap)
    server.box, server.security, server.context = box, security, context
    if security == "tls":
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    with _serving(server) as port:
        yield port


class Google:
    """The part of Google's REST interfaces that the backend uses, and what was asked of it."""

    def __init__(self) -> None:
        self.emails: dict[str, tuple[bytes, set[str]]] = {}
        self.events: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.inserted: list[tuple[dict[str, list[str]], dict[str, Any]]] = []
        self.requests: list[str] = []
        self.refresh_token = "refresh"
        self.silent_after: str | None = None

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        """Return (status, JSON) for a request that has a token."""
        if path == "/calendar/v3/calendars/primary/events":
            if method == "POST":
                self.inserted.append((query, body))
            return 200, {"items": self.events}
        gmail = "/gmail/v1/users/me/messages"
        if path.startswith(gmail):
            return self._answer_gmail(method, path.removeprefix(gmail), query, body)
        return 403, {"error": {"code": 403, "message": "Insufficient Permission"}}

    def _answer_gmail(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        if (method, path) == ("GET", ""):
            labels, wanted = set(query.get("labelIds", ())), query.get("q", [""])[0]
            wanted = f"<{wanted.removeprefix('rfc822msgid:')}>" if wanted else ""
            found = [
                one
                for one, (raw, has) in self.emails.items()
                if labels <= has and wanted.encode() in raw
            ]
            return 200, {"messages": [{"id": one, "threadId": f"t-{one}"} for one in found]}
        if (method, path) == ("POST", "/send"):
            self.sent.append(body)
            raw = base64.urlsafe_b64decode(body["raw"])
            self.emails[f"sent{len(self.sent)}"] = raw, {"SENT"}
            return 200, {"id": "new"}
        if method == "GET":
            one = path.removeprefix("/")
            if one not in self.emails or query.get("format") != ["raw"]:
                return 404, {"error": {"code": 404, "message": "Requested entity was not found."}}
            raw = base64.urlsafe_b64encode(self.emails[one][0]).decode().rstrip("=")
            return 200, {"id": one, "threadId": f"t-{one}", "raw": raw}
        one, _, verb = path.removeprefix("/").partition("/")
        if verb != "modify" or one not in self.emails:
            return 404, {"error": {"code": 404, "message": "Requested entity was not found."}}
        has = self.emails[one][1]
        has -= set(body.get("removeLabelIds", ()))
        return 200, {}


class _Rest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        google: Google = self.server.google  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        google.requests.append(f"{method} {parts.path}")
        if parts.path == "/token":
            good = parse_qs(body.decode()).get("refresh_token") == [google.refresh_token]
            self._tell(
                200 if good else 400,
                {"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}
                if good
                else {"error": "invalid_grant", "error_description": "Token has been revoked."},
            )
            return
        if self.headers.get("Authorization") != "Bearer t":
            self._tell(401, {"error": {"code": 401, "message": "Invalid Credentials"}})
            return
        told = google.answer(
            method, parts.path, parse_qs(parts.query), json.loads(body) if body else None
        )
        if google.silent_after is not None and parts.path.endswith(google.silent_after):
            self.close_connection = True
            return
        self._tell(*told)

    def _tell(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def google_server(google: Google) -> Iterator[str]:
    """Run a server with Google's REST interfaces; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Rest)
    server.daemon_threads, server.block_on_close = True, False
    server.google = google  # type: ignore[attr-defined]
    with _serving(server) as port:
        yield f"http://127.0.0.1:{port}"
