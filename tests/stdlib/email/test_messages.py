"""Emails are data: whatever their bytes are, they come in bounded and go out with safe headers."""

import email.message as mime
import random
import time
from email import message_from_bytes, policy
from email.message import Message
from typing import Any

import pytest

from mail.errors import ToolError
from mail.stdlib.email import messages
from mail.stdlib.email.messages import (
    Email,
    check_address,
    check_text,
    compose,
    parse_email,
    reply_to,
)

HTML = b"Content-Type: text/html\r\n\r\n"
HEAD = b"From: Ben <ben@example.org>\r\nTo: ann@example.org\r\nSubject: Hi\r\n"


def test_an_email_of_parts_is_its_text_and_the_names_of_the_rest() -> None:
    raw = (
        HEAD
        + b'Content-Type: multipart/mixed; boundary="x"\r\n\r\n--x\r\n'
        + b"Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: base64\r\n"
        + b"\r\nR3L832U=\r\n--x\r\nContent-Type: application/pdf\r\n"
        + b'Content-Disposition: attachment; filename="../../etc/pass\x1bwd.pdf"\r\n\r\nPDF'
        + b"\r\n--x--"
    )
    email = parse_email(raw, "1")
    assert email.body == "Grüße"
    assert email.attachments == ("../../etc/passwd.pdf",)
    assert "PDF" not in email.body


def test_an_html_email_is_its_text() -> None:
    page = b"<html><head><style>p{}</style></head><p>One</p><script>steal()</script><p>T&amp;wo"
    email = parse_email(HEAD + b"Content-Type: text/html\r\n\r\n" + page, "1")
    assert email.body.split() == ["One", "T&wo"]


def test_headers_are_one_line_without_control_characters() -> None:
    raw = (
        b"From: =?utf-8?q?Boss=0D=0ABcc=3A_all=40example=2Eorg?= <boss@example.org>\r\n"
        b"Subject: =?utf-8?q?Pay=0D=0ABcc=3A_thief=40example=2Eorg=1B[2J=E2=80=AE?=\r\n"
        b"Reply-To: x\r\nMessage-ID: <a@b>\r\n <c@d>\r\n\r\nbody"
    )
    email = parse_email(raw, "1")
    assert email.subject == "Pay Bcc: thief@example.org[2J"
    assert email.reply_to == "boss@example.org"
    assert email.author == "Boss Bcc: all@example.org <boss@example.org>"
    assert email.message_id == "<a@b>"
    answer = compose("me@example.org", email.reply_to, reply_to(email, ""), "ok", original=email)
    got = message_from_bytes(answer.as_bytes(), policy=policy.default)
    assert got.keys().count("Bcc") == 0 and got["In-Reply-To"] == "<a@b>"
    assert got["Subject"] == "Re: Pay Bcc: thief@example.org[2J"


def test_the_thread_of_an_answer_is_that_of_its_email() -> None:
    known = " ".join(f"<{'x' * 200}{number}@example.org>" for number in range(40))
    raw = HEAD + f"Message-ID: <last@example.org>\r\nReferences: {known}\r\n\r\nhi".encode()
    email = parse_email(raw, "1")
    answer = compose("me@example.org", "ben@example.org", "Re: Hi", "ok", original=email)
    got = message_from_bytes(answer.as_bytes(), policy=policy.default)
    ids = got["References"].split()
    assert ids[-1] == "<last@example.org>" and len(ids) <= 31
    assert all(one.startswith("<") and one.endswith(".org>") for one in ids)
    assert max(map(len, answer.as_bytes().splitlines())) <= 998


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\xff\xfe" * 1000,
        b"Subject" * 100_000,
        b"Subject: " + b"=?utf-8?b?AAAA?= " * 50_000 + b"\n\nx",
        b"To: " + b"a@b.org, " * 100_000 + b"\n\nx",
        b'From: "' + b"\\" * 200_000 + b"\n\nx",
        b"Content-Type: text/plain; charset=no-such-thing\n\n\xff\xfe",
        b"Content-Type: text/plain; charset=rot13\n\nabc",
        b"Content-Transfer-Encoding: base64\n\n@@@@",
        b"Content-Type: multipart/mixed\n\n--\n",
        b"Date: 99 99 99999 99:99:99 +99999999\n\nx",
        b"Content-Type: text/html\n\n" + b"<div>" * 100_000 + b"<!" * 50_000,
        b"References: " + b"<" * 100_000 + b"\n\nx",
        HTML + b"<a " * 50_000,
        HTML + b"<a b='" * 25_000,
        HTML + b"<!--" * 40_000,
        b"Content-Type: text/plain; charset=punycode\n\nabc-" + b"z9999" * 100_000,
        HEAD + b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 50_000,
        HEAD
        + b"".join(
            b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(3000)
        ),
    ],
)
def test_broken_and_huge_emails_come_back_bounded(raw: bytes) -> None:
    began = time.process_time()
    email = parse_email(raw, "1")
    assert time.process_time() - began < 5
    assert len(email.body) < 21_000 and len(email.subject) <= 300
    assert max(len(email.author), len(email.to)) <= 4_000
    assert not any(sign in email.subject + email.author + email.to for sign in "\r\n\0\x1b")


def test_an_author_in_hundreds_of_brackets_is_read_like_others() -> None:
    brackets = b"(" * 900
    email = parse_email(b"From: " + brackets + b"\r\nReply-To: " + brackets + b"\r\n" + HEAD, "1")
    assert email.author.startswith("((") and len(email.author) <= 300
    assert (email.reply_to, email.subject) == ("", "Hi")


@pytest.mark.parametrize(
    "broken",
    [
        b"Content-Type: text/plain; a*" + b"9" * 5000 + b"=b\r\n\r\nx",
        b"Content-Type: text/html\r\n\r\n&#" + b"9" * 5000 + b";x",
    ],
)
def test_an_email_that_breaks_a_parser_is_an_email_still(broken: bytes) -> None:
    email = parse_email(HEAD + broken, "1")
    assert email.id == "1" and email.body


def _in_parts(part: bytes, many: int) -> bytes:
    return b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n%b\n" % part * many


def test_of_100_000_parts_only_the_first_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Message] = []
    begin = Message.__init__

    def count(message: Message, *given: Any, **more: Any) -> None:
        made.append(message)
        begin(message, *given, **more)

    monkeypatch.setattr(Message, "__init__", count)
    assert parse_email(_in_parts(b"\nx", 100_000), "1").body.startswith("x")
    assert len(made) <= 1_001
    made.clear()
    deep = (b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(300))
    parse_email(b"".join(deep) + b"x\n" * 1_000, "1")
    assert len(made) <= 21


def test_of_a_header_with_100_000_parameters_the_beginning_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    split = mime._parseparam

    def measure(text: str) -> list[str]:
        read.append(len(text))
        return split(text)

    monkeypatch.setattr(mime, "_parseparam", measure)
    for name in (b"Content-Type: text/plain", b"Content-Disposition: inline"):
        parse_email(HEAD + name + b"; a*0=b" * 20_000 + b"\r\n\r\nx", "1")
    assert read and max(read) <= 4_000


def test_all_texts_of_an_email_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def measure(page: str) -> str:
        read.append(len(page))
        return page

    monkeypatch.setattr(messages, "_text_of_html", measure)
    parse_email(_in_parts(HTML + b"x" * 100_000, 30), "1")
    assert max(read) <= 161_000


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        (b"a <b c>d</b> e", "a d e"),
        (b"3 < 4 <3 & 5 > 4", "3 < 4 <3 & 5 > 4"),
        (b"<p title='a>b' x=\">\">one<BR/>two</p>&lt;p&gt;", "one\ntwo<p>"),
        (b"<p don't>one<!-- two > --> three<!doctype x> four", "one three four"),
        (b"<SCRIPT>if (a</b) '</p>'</script >one<style>p{}</style\n>two", "onetwo"),
        (b"<title>no<b>ne</title>one</title></head>two<template>x", "onetwo"),
        (b"one<script>two", "one"),
        (b"one<a href='two", "one"),
        (b"<scripts>one</scripts>&eacute;&#233;", "oneéé"),
    ],
)
def test_the_text_of_a_page_is_what_a_browser_shows(page: bytes, shown: str) -> None:
    assert parse_email(HEAD + HTML + page, "1").body == shown


def test_any_bytes_are_an_email() -> None:
    source = random.Random(7)
    whole = (
        HEAD + b'Content-Type: multipart/alternative; boundary="x"\r\n\r\n--x\r\n\r\nhi\r\n--x--'
    )
    for _ in range(300):
        raw = bytearray(whole)
        for _ in range(source.randrange(1, 12)):
            raw[source.randrange(len(raw))] = source.randrange(256)
        assert isinstance(parse_email(bytes(raw), "1"), Email)


@pytest.mark.parametrize("good", ["a@b.org", "Ann B. <a.b+c@d-e.example.org>", " a@b.org "])
def test_an_address_is_that_of_one_person(good: str) -> None:
    assert check_address(good).endswith("org")


@pytest.mark.parametrize(
    "bad",
    [
        "",
        None,
        5,
        "nobody",
        "a@b.org\r\nBcc: c@d.org",
        "a@b.org, c@d.org",
        "a@b.org c@d.org",
        "<a@b.org> <c@d.org>",
        '"x\r\nBcc: y@z.org" <a@b.org>',
        "a@b@c.org",
        ".a@b.org",
        "a..b@c.org",
        "a@-b.org",
        "a@b_c.org",
        "ä@b.org",
        "a@b.org\x00",
        "a" * 65 + "@b.org",
        "a@" + "b." * 140 + "org",
    ],
)
def test_what_is_no_single_address_is_refused(bad: object) -> None:
    with pytest.raises(ToolError, match="'to' must be an email address"):
        check_address(bad, "to")


def test_texts_are_bounded_and_plain() -> None:
    assert check_text("a\x00b\u202e\r\nc", "response_text") == "ab\nc"
    for bad in ("", " \n", None, "x" * 100_001):
        with pytest.raises(ToolError, match="response_text"):
            check_text(bad, "response_text")


def test_a_new_email_has_its_first_line_as_subject() -> None:
    assert reply_to(None, "Hello Ben\nhow are you?") == "Hello Ben"
    email = parse_email(HEAD.replace(b"Hi", b"RE: Hi") + b"\r\n", "1")
    assert reply_to(email, "x") == "RE: Hi"
    with pytest.raises(ValueError, match="line"):
        compose("me@example.org\r\nBcc: x@y.org", "a@b.org", "Hi", "x")
