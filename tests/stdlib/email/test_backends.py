"""Mailboxes behind the seam: a folder, IMAP with SMTP, and Google, each against a real server."""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest

from mail.config import EmailConfig
from mail.errors import ConfigError, ToolError
from mail.stdlib.email.backends import Backend, LocalBackend, open_backend
from mail.stdlib.email.calendars import read_meeting
from mail.stdlib.email.messages import Sending, compose
from tests.stdlib.email.servers import (
    Google,
    ImapMailbox,
    Inbox,
    google_server,
    imap_server,
    smtp_server,
)

ASKED = b"""From: Ben <ben@example.org>\r
To: ann@example.org\r
Subject: Lunch\r
Message-ID: <one@example.org>\r
Date: Mon, 02 Mar 2026 10:00:00 +0100\r
\r
Shall we?\r
"""
TOLD = ASKED.replace(b"Lunch", b"News").replace(b"one@", b"two@")
MEETING = {
    "attendees": ["ben@example.org", "ann@example.org"],
    "title": "Lunch",
    "start_time": "2026-03-09T12:00:00",
    "end_time": "2026-03-09T13:00:00",
    "organizer_email": "ann@example.org",
    "timezone": "Europe/Berlin",
}
DAY = datetime(2026, 3, 9, tzinfo=UTC)


class World:
    """A backend with two unread emails, and what its servers saw."""

    def __init__(self, backend: Backend, read: Callable[[], int], sent: Callable[[], list]) -> None:
        self.backend, self.count_unread, self.sent = backend, read, sent


@pytest.fixture(params=["local", "imap", "gmail"])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    common = {"address": "ann@example.org", "folder": str(tmp_path), "callers": ["user"]}
    if request.param == "gmail":
        yield from _google(common, tmp_path)
        return
    with smtp_server(password="secret") as (inbox, smtp):
        monkeypatch.setenv("MAIL_SMTP_PASSWORD", "secret")
        common |= _smtp(smtp) | {"smtp_user": "ann"}
        if request.param == "local":
            box = LocalBackend(EmailConfig(**common))
            box.deliver(ASKED)
            box.deliver(TOLD)
            new = tmp_path / "INBOX" / "new"
            yield World(box, lambda: len([*new.iterdir()]), lambda: _smtp_sent(inbox))
            return
        mails = ImapMailbox(ASKED, TOLD)
        monkeypatch.setenv("MAIL_IMAP_PASSWORD", mails.password)
        with imap_server(mails) as port:
            config = EmailConfig(**common, **_imap(port), imap_sent="Sent")
            backend = open_backend(config)
            yield World(backend, lambda: len(mails.unseen), lambda: _smtp_sent(inbox))


def _smtp(port: int) -> dict[str, Any]:
    return {"smtp_host": "127.0.0.1", "smtp_port": port, "smtp_security": "none"}


def _imap(port: int) -> dict[str, Any]:
    more = {"imap_host": "127.0.0.1", "imap_port": port, "imap_security": "none"}
    return {"backend": "imap", "imap_user": "ann", **more}


def _smtp_sent(inbox: Inbox) -> list[bytes]:
    return [content for _, _, content in inbox.got]


def _google(common: dict[str, Any], tmp_path: Path) -> Iterator[World]:
    google = Google()
    # Gmail lists the newest first.
    google.emails = {"2": (TOLD, {"INBOX", "UNREAD"}), "1": (ASKED, {"INBOX", "UNREAD"})}
    with google_server(google) as address:
        yield World(
            open_backend(_google_config(common, tmp_path, address)),
            lambda: sum("UNREAD" in has for _, has in google.emails.values()),
            lambda: [base64.urlsafe_b64decode(one["raw"]) for one in google.sent],
        )


def _google_config(common: dict[str, Any], tmp_path: Path, address: str) -> EmailConfig:
    known = {"client_id": "id", "client_secret": "s", "refresh_token": "refresh"}
    file = tmp_path / "token.json"
    file.write_text(json.dumps(known | {"token_uri": f"{address}/token"}))
    more = {"google_token_file": str(file), "google_endpoint": address}
    return EmailConfig(backend="gmail", **common, **more)


def test_an_email_that_breaks_the_parser_hides_no_others(tmp_path: Path) -> None:
    box = LocalBackend(EmailConfig(folder=str(tmp_path)))
    box.deliver(b"From: " + b"(" * 900 + b"\r\nSubject: Brackets\r\n\r\nx")
    box.deliver(b"Content-Type: text/html\r\n\r\n&#" + b"9" * 5000 + b";")
    box.deliver(ASKED)
    subjects = [email.subject for email in box.unread(10)]
    assert len(subjects) == 3 and {"Lunch", "Brackets"} <= set(subjects)


def test_unread_emails_come_oldest_first_and_stay_unread(world: World) -> None:
    found = world.backend.unread(10)
    assert [email.subject for email in found] == ["Lunch", "News"]
    assert [email.subject for email in world.backend.unread(1)] == ["Lunch"]
    assert found[0].body == "Shall we?" and found[0].author == "Ben <ben@example.org>"
    assert world.backend.get(found[1].id) == found[1]
    assert world.count_unread() == 2


def test_an_email_is_marked_as_read_once_and_alone(world: World) -> None:
    lunch, news = world.backend.unread(10)
    world.backend.mark_as_read(lunch.id)
    world.backend.mark_as_read(lunch.id)
    assert [email.subject for email in world.backend.unread(10)] == ["News"]
    assert world.count_unread() == 1
    assert world.backend.get(lunch.id) == lunch
    assert news.id != lunch.id


@pytest.mark.parametrize("email_id", ["", "../new", "7", "42.999", "none", "1/../2", "x" * 5000])
def test_an_id_that_nothing_has_is_no_email(world: World, email_id: str) -> None:
    assert world.backend.get(email_id) is None
    with pytest.raises(ToolError, match="no email of this mailbox has that ID"):
        world.backend.mark_as_read(email_id)
    assert world.count_unread() == 2


def test_an_answer_is_sent_once_with_the_headers_of_its_thread(world: World) -> None:
    [lunch, _] = world.backend.unread(10)
    text = "Grüße, gern!\n.\n"
    reply = compose(
        "ann@example.org", lunch.reply_to, "Re: Lunch", text, copies=["c@d.org"], original=lunch
    )
    assert world.backend.send(reply, lunch.thread_id) == "sent"
    [content] = world.sent()
    got = message_from_bytes(content, policy=policy.default)
    assert (got["In-Reply-To"], got["References"]) == ("<one@example.org>", "<one@example.org>")
    assert (got["From"], got["To"], got["Cc"]) == ("ann@example.org", "ben@example.org", "c@d.org")
    assert got.get_content().replace("\r\n", "\n") == text


def test_a_meeting_is_in_the_calendar_and_its_attendees_are_invited(
    world: World, request: pytest.FixtureRequest
) -> None:
    told = world.backend.add_meeting(read_meeting(MEETING))
    assert "in the calendar" in told and "nobody" not in told
    if request.node.callspec.params["world"] == "gmail":
        assert not world.sent()  # Google sends the invitations
        return
    [event] = world.backend.events(DAY, DAY + timedelta(days=1))
    assert (event.title, event.start) == ("Lunch", datetime(2026, 3, 9, 11, tzinfo=UTC))
    [content] = world.sent()
    got = message_from_bytes(content, policy=policy.default)
    assert (got["To"], got["Subject"]) == ("ben@example.org", "Invitation: Lunch")
    [attached] = [part for part in got.walk() if part.get_content_type() == "text/calendar"]
    lines = attached.get_payload(decode=True).decode().splitlines()
    assert {"METHOD:REQUEST", "SUMMARY:Lunch", "DTSTART:20260309T110000Z"} <= set(lines)


def test_an_email_whose_sending_was_cut_off_is_not_sent_again(world: World) -> None:
    stages: list[str] = []
    message = compose("ann@example.org", "ben@example.org", "Once", "text")
    assert world.backend.send(message, "", Sending(note=stages.append)) == "sent"
    assert stages == ["sending", "sent"] and len(world.sent()) == 1
    # The crash came before anybody knew that it was sent, and the copy of it proves it.
    assert world.backend.send(message, "", Sending("sending", stages.append)) == "sent"
    other = compose("ann@example.org", "ben@example.org", "Lost", "text")
    with pytest.raises(ToolError, match="may have been sent") as caught:
        world.backend.send(other, "", Sending("sending", stages.append))
    assert other["Message-ID"] in str(caught.value)
    assert "there is no copy of it among the sent emails" in str(caught.value)
    assert world.backend.send(other, "", Sending("sent", stages.append)) == "sent"
    assert stages == ["sending", "sent"] and len(world.sent()) == 1


# --- what is special to one ---------------------------------------------------------------------


def test_without_a_server_what_is_sent_stays_in_the_folder(tmp_path: Path) -> None:
    box = open_backend(EmailConfig(folder=str(tmp_path)))
    assert "kept" in box.send(compose("me@example.org", "b@c.org", "Hi", "text"))
    [kept] = (tmp_path / "INBOX" / ".Sent" / "cur").iterdir()
    assert b"Subject: Hi" in kept.read_bytes() and kept.name.endswith(":2,S")


def test_without_a_server_an_email_is_kept_once_although_the_first_attempt_was_cut_off(
    tmp_path: Path,
) -> None:
    box, message = (
        LocalBackend(EmailConfig(folder=str(tmp_path))),
        compose("a@b.org", "c@d.org", "Hi", "x"),
    )
    for _ in range(2):  # before the copy was written, and after that
        assert "kept" in box.send(message, "", Sending("sending"))
    assert len([*(tmp_path / "INBOX" / ".Sent" / "cur").iterdir()]) == 1


def test_sent_emails_that_cannot_be_searched_prove_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mails = ImapMailbox()
    monkeypatch.setenv("MAIL_IMAP_PASSWORD", mails.password)
    common = {"folder": str(tmp_path), "callers": ["user"], **_smtp(1), "imap_sent": "Outbox"}
    with imap_server(mails) as port:
        box = open_backend(EmailConfig(**common, **_imap(port)))
        message = compose("a@b.org", "c@d.org", "Hi", "text")
        with pytest.raises(ToolError, match=r"cannot be searched: .*no such mailbox"):
            box.send(message, "", Sending("sending"))


def test_flags_that_another_program_has_set_are_kept(tmp_path: Path) -> None:
    box = LocalBackend(EmailConfig(folder=str(tmp_path)))
    box.deliver(ASKED)
    [path] = (tmp_path / "INBOX" / "new").iterdir()
    path.rename(tmp_path / "INBOX" / "cur" / f"{path.name}:2,FR")
    [email] = box.unread(5)
    box.mark_as_read(email.id)
    assert [one.name for one in (tmp_path / "INBOX" / "cur").iterdir()] == [f"{path.name}:2,FRS"]


def test_a_folder_that_cannot_be_used_is_an_error_that_names_no_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolError, match="cannot be opened") as caught:
        open_backend(EmailConfig(folder=str(tmp_path / "file")))
    assert str(tmp_path) not in str(caught.value)


def test_numbers_of_an_earlier_mailbox_name_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mails = ImapMailbox(ASKED)
    monkeypatch.setenv("MAIL_IMAP_PASSWORD", mails.password)
    with imap_server(mails) as port:
        common = {"folder": str(tmp_path), "callers": ["user"], "smtp_host": "127.0.0.1"}
        box = open_backend(EmailConfig(**common, **_imap(port)))
        [email] = box.unread(5)
        mails.validity += 1
        assert box.get(email.id) is None
        with pytest.raises(ToolError, match="no email of this mailbox has that ID"):
            box.mark_as_read(email.id)
        assert len(mails.unseen) == 1
        mails.password = "another"
        with pytest.raises(ToolError, match="wrong password") as caught:
            box.unread(5)
        assert 'pass "word' not in str(caught.value)


def test_what_an_smtp_server_refuses_is_told(tmp_path: Path) -> None:
    with smtp_server() as (inbox, port):
        box = open_backend(EmailConfig(folder=str(tmp_path), **_smtp(port)))
        message = compose("a@b.org", "refused@example.org", "Hi", "text")
        with pytest.raises(ToolError, match=r"refuses the recipients \(550|no such user"):
            box.send(message)
        both = compose("a@b.org", "c@d.org", "Hi", "text", copies=["refused@example.org"])
        assert "refused these recipients: refused@example.org" in box.send(both)
        inbox.before = "554 spam"
        with pytest.raises(ToolError, match="554 spam"):
            box.send(compose("a@b.org", "c@d.org", "Hi", "text"))
        inbox.before = "cut"
        with pytest.raises(ToolError, match="may have been sent"):
            box.send(compose("a@b.org", "c@d.org", "Hi", "text"))
    with pytest.raises(ToolError, match="not sent: the mail server cannot be reached"):
        box.send(message)
    kept = list((tmp_path / "INBOX" / ".Sent" / "cur").iterdir())
    assert len(kept) == 1  # only what was sent


def test_google_is_asked_once_even_if_it_hangs_up(tmp_path: Path) -> None:
    google = Google()
    with google_server(google) as address:
        box = open_backend(_google_config({"callers": ["user"]}, tmp_path, address))
        google.silent_after = "/send"
        with pytest.raises(ToolError, match="may have been done"):
            box.send(compose("a@b.org", "c@d.org", "Hi", "text"), "t-1")
        assert len(google.sent) == 1 and google.sent[0]["threadId"] == "t-1"
        google.refresh_token = "revoked"
        with pytest.raises(ToolError, match="does not accept the token: invalid_grant"):
            box.unread(1)
    with pytest.raises(ToolError, match="Google"):
        box.unread(1)


def test_google_shows_its_calendar_and_invites(tmp_path: Path) -> None:
    google = Google()
    google.events = [
        {
            "summary": "Stand-up",
            "start": {"dateTime": "2026-03-09T09:00:00+01:00"},
            "end": {"dateTime": "2026-03-09T09:15:00+01:00"},
        },
        {"summary": "Fair", "start": {"date": "2026-03-09"}, "end": {"date": "2026-03-10"}},
        {"summary": "Off", "status": "cancelled", "start": {}, "end": {}},
    ]
    with google_server(google) as address:
        box = open_backend(_google_config({"callers": ["user"]}, tmp_path, address))
        standup, fair = box.events(DAY, DAY + timedelta(days=1))
        assert (standup.title, standup.start.hour, fair.all_day) == ("Stand-up", 9, True)
        box.add_meeting(read_meeting(MEETING))
        [(query, event)] = google.inserted
        assert query["sendUpdates"] == ["all"]
        assert event["start"] == {
            "dateTime": "2026-03-09T12:00:00+01:00",
            "timeZone": "Europe/Berlin",
        }
        assert [one["email"] for one in event["attendees"]] == MEETING["attendees"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"backend": "imap"}, "'callers' is needed by the backend 'imap'"),
        ({"backend": "gmail", "callers": ["admin"]}, "'google_token_file' is needed"),
        ({"smtp_host": "x.org", "smtp_user": "a", "smtp_security": "none"}, "readable on its way"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        open_backend(EmailConfig(**settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"address": "nobody"},
        {"address": "a@b.org\r\nBcc: x@y.org"},
        {"callers": ["root"]},
        {"timezone": "Mars/Olympus"},
        {"imap_user": "ann\r\nA1 DELETE INBOX"},
        {"smtp_port": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        EmailConfig(**settings)
