"""Mail servers are talked to encrypted, with a certificate for their name, or not at all."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mail.config import EmailConfig
from mail.errors import ToolError
from mail.stdlib.email.backends import Backend, open_backend
from mail.stdlib.email.messages import compose
from tests.stdlib.email.servers import ImapMailbox, Inbox, imap_server, smtp_server
from tests.support.authority import Authority

SECURITIES = ["tls", "starttls"]


class Servers(NamedTuple):
    """Mail servers on loopback, and a mailbox that uses them."""

    box: ImapMailbox
    inbox: Inbox
    backend: Callable[..., Backend]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def run(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Servers]]:
    with ExitStack() as running:

        def start(security: str, context: ssl.SSLContext | None = None) -> Servers:
            box = ImapMailbox(b"Subject: Lunch\r\n\r\nShall we?\r\n")
            monkeypatch.setenv("MAIL_IMAP_PASSWORD", box.password)
            monkeypatch.setenv("MAIL_SMTP_PASSWORD", "secret")
            how = {"security": security, "context": context or authority.serving("127.0.0.1")}
            inbox, smtp = running.enter_context(smtp_server("secret", **how))
            imap = running.enter_context(imap_server(box, **how))

            def backend(security: str) -> Backend:
                settings: dict[str, Any] = {"imap_port": imap, "smtp_port": smtp}
                for kind in ("imap", "smtp"):
                    settings |= {f"{kind}_host": "127.0.0.1", f"{kind}_security": security}
                    settings |= {f"{kind}_user": "ann"}
                who = {"address": "ann@example.org", "callers": ["user"], "imap_sent": "Sent"}
                more = {"folder": str(tmp_path), "timeout": 5}
                return open_backend(EmailConfig(backend="imap", **who, **more, **settings))

            return Servers(box, inbox, backend)

        yield start


def refusals(backend: Backend) -> list[str]:
    """Return why nothing can be read, and why nothing can be sent."""
    with pytest.raises(ToolError) as reading:
        backend.unread(5)
    with pytest.raises(ToolError) as sending:
        backend.send(compose("ann@example.org", "ben@example.org", "Hi", "text"))
    return [str(reading.value), str(sending.value)]


def check_nothing_was_told(servers: Servers) -> None:
    """Check that neither a password nor an email has reached the servers."""
    assert not servers.inbox.got
    assert not [one for one in servers.box.commands if one.startswith(("LOGIN", "APPEND"))]


@pytest.mark.parametrize("security", SECURITIES)
def test_emails_go_both_ways_encrypted(
    security: str, run: Any, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    servers = run(security)
    backend = servers.backend(security)
    [lunch] = backend.unread(5)
    assert lunch.subject == "Lunch"
    assert backend.send(compose("ann@example.org", "ben@example.org", "Hi", "text")) == "sent"
    assert len(servers.inbox.got) == len(servers.box.appended) == 1


@pytest.mark.parametrize("security", SECURITIES)
def test_an_unknown_authority_is_refused(security: str, run: Any) -> None:
    servers = run(security)
    for reason in refusals(servers.backend(security)):
        assert "certificate is refused: unable to get local issuer" in reason
    check_nothing_was_told(servers)


@pytest.mark.parametrize("security", SECURITIES)
def test_a_certificate_for_another_host_is_refused(
    security: str, run: Any, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    servers = run(security, authority.serving("mail.example.org"))
    for reason in refusals(servers.backend(security)):
        assert "certificate is refused" in reason and "not valid for '127.0.0.1'" in reason
    check_nothing_was_told(servers)


@pytest.mark.parametrize("security", SECURITIES)
def test_a_server_without_encryption_is_told_nothing(security: str, run: Any) -> None:
    servers = run("none")
    reading, sending = refusals(servers.backend(security))
    if security == "tls":
        assert "no encrypted connection to the mail server could be made" in reading
        assert "no encrypted connection to the mail server could be made" in sending
    else:
        assert "TLS not supported by server" in reading
        assert "STARTTLS extension not supported by server" in sending
    check_nothing_was_told(servers)
