"""``mail-email ingest``: one task for each new email, however often and by whomever it is run."""

import asyncio
import sys
from pathlib import Path

import pytest

from mail.cli.commands import email_main as main
from mail.cli.email import email_task_id
from mail.client import MAILClient
from mail.config import EmailConfig
from mail.stdlib.email.backends import LocalBackend
from mail.stdlib.email.messages import parse_email
from tests.server.kit import TOKENS

pytestmark = pytest.mark.e2e


def letter(number: int, body: str = "hello", author: str = "ben@example.org") -> bytes:
    head = f"From: {author}\r\nSubject: Mail {number}\r\nMessage-ID: <{number}@example.org>\r\n\r\n"
    return (head + body).encode()


@pytest.fixture
def mailbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalBackend:
    file = tmp_path / "mail.toml"
    file.write_text(f'[stdlib.email]\nfolder = "{tmp_path}/box"\n')
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(file))
    monkeypatch.setenv("MAIL_API_KEY", TOKENS["alice"])
    return LocalBackend(EmailConfig())


async def ingest(server: str, *more: str) -> int:
    return await asyncio.to_thread(main, ["ingest", "--url", server, *more])


async def test_each_email_becomes_one_task(
    server: str, mailbox: LocalBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        mailbox.deliver(letter(number))
    mailbox.deliver(letter(0))  # the same email, once more
    assert await ingest(server, "--limit", "2") == 0
    assert [line[:15] for line in capsys.readouterr().out.splitlines()] == [
        "started: Mail 0",
        "started: Mail 1",
    ]
    both = await asyncio.gather(ingest(server, "--json"), ingest(server, "--json"))
    assert both == [0, 0]
    capsys.readouterr()
    assert await ingest(server) == 0
    assert capsys.readouterr().out == ""
    async with MAILClient(server, TOKENS["alice"]) as client:
        tasks = await client.get_tasks()
        assert len(tasks) == 3
        for email in mailbox.unread(9):
            task = await client.get_task(email_task_id(email))
            assert email.subject in str(task["events"][0])
    assert len(mailbox.unread(9)) == 4  # to mark them as read is the agents' part


async def test_emails_of_ended_tasks_are_marked_as_read_if_one_says_so(
    server: str, mailbox: LocalBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    mailbox.deliver(letter(1))
    assert await ingest(server) == 0
    async with MAILClient(server, TOKENS["alice"]) as client:
        [task_id] = await client.get_tasks()
        for _ in range(500):
            if (await client.get_task(task_id))["status"] == "completed":
                break
            await asyncio.sleep(0.01)
    assert await ingest(server) == 0 and len(mailbox.unread(9)) == 1
    assert await ingest(server, "--mark-ignored") == 0
    assert mailbox.unread(9) == []
    assert "marked as read: Mail 1" in capsys.readouterr().out


async def test_watching_goes_on_with_what_comes_later(server: str, mailbox: LocalBackend) -> None:
    watching = ["-m", "mail.cli", "email", "ingest", "--url", server, "--watch", "0.05"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *watching, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        for number in range(2):
            mailbox.deliver(letter(number))
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            assert f"started: Mail {number}" in line.decode()
    finally:
        process.kill()
        await process.wait()


async def test_what_is_missing_is_told(
    server: str,
    mailbox: LocalBackend,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MAIL_URL", raising=False)
    assert await asyncio.to_thread(main, ["ingest"]) == 2
    assert "MAIL_URL" in capsys.readouterr().err
    mailbox.deliver(letter(1))
    assert await ingest("http://127.0.0.1:9") == 1


def test_a_stranger_who_takes_the_id_of_another_email_does_not_hide_it() -> None:
    first, again = (parse_email(letter(1, body), body) for body in ("a", "b"))
    other = parse_email(letter(1, author="eve@example.org"), "3")
    assert email_task_id(first) == email_task_id(again) != email_task_id(other)
    nameless = [parse_email(f"Subject: {body}\r\n\r\n{body}".encode(), "1") for body in ("a", "b")]
    assert len({email_task_id(one) for one in nameless}) == 2


async def test_the_wrong_folder_has_no_emails_and_is_not_created(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("MAIL_API_KEY", TOKENS["alice"])
    assert await ingest(server) == 0
    told = capsys.readouterr()
    assert told.out == "" and f"no new emails in {elsewhere / 'mailbox'}\n" in told.err
    assert list(elsewhere.iterdir()) == []
