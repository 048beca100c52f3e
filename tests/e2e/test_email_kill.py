"""``kill -9`` while people answer the email assistant's drafts: each is sent as answered, once.

The emails come from a real IMAP server and go to a real SMTP server, which counts them. The sample
of the suite is small, as in `tests.e2e.test_approvals_kill`; the same variables make it larger.
"""

import asyncio
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest

from mail.api import MAILSwarmTemplate
from mail.llm import ScriptedModel, call
from mail.llm.script_view import ScriptView
from mail.stdlib.email.messages import parse_email
from tests.e2e.test_approvals_kill import CALLS, SEED, House, whole
from tests.stdlib.email.servers import ImapMailbox, Inbox, imap_server, smtp_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SWARMS = Path(__file__).parents[2] / "swarms.json"
ASKED = """From: Ben <ben@example.org>\r
To: ann@example.org\r
Subject: {0}\r
Message-ID: <{0}@example.org>\r
\r
Please tell everybody.\r
"""


def _drafts(view: ScriptView) -> Any:
    """Draft ``CALLS`` emails, one for each address; then it is done."""
    if view.new_results:
        return [call("Done", done=True)]
    number = re.findall(r"\*\*Subject\*\*: (\w+)", view.body)[0]
    email_id = re.findall(r"\*\*ID\*\*: (\S+)", view.body)[0]
    return [
        call(
            "send_email_tool",
            email_id=email_id,
            response_text="as it was",
            email_address=f"{number}-{draft}@example.org",
        )
        for draft in range(CALLS)
    ]


def swarm(folder: Path) -> MAILSwarmTemplate:
    """Return the email assistant, whose drafts are scripted."""
    template = MAILSwarmTemplate.from_swarm_json_file("email_assistant", SWARMS)
    for agent in template.agents:
        if agent.name == "response_agent":
            agent.agent_params = {**agent.agent_params, "model": ScriptedModel(_drafts)}
            agent.agent_params["llm"] = "scripted"
    return template


@dataclass(eq=False)
class Assistant(House):
    """A server with the email assistant, which is killed, and the person's mail servers."""

    template: str = f"{__name__}:swarm"
    unknown: str = "may have been sent"
    box: ImapMailbox = field(default_factory=ImapMailbox)
    inbox: Inbox = field(default_factory=Inbox)

    async def start(self, kill: str = "", **options: Any) -> None:
        settings = {"MAIL_CONFIG_PATH": f"{self.folder}/mail.toml"}
        settings["MAIL_IMAP_PASSWORD"] = self.box.password
        await super().start(kill, environment=settings, **options)

    def body(self, number: int) -> str:
        raw = ASKED.format(f"t{number}").encode()
        uid = max(self.box.emails, default=6) + 1
        self.box.emails[uid] = raw, set()
        return json.dumps(parse_email(raw, f"{self.box.validity}.{uid}").as_input())

    def key(self, args: dict[str, Any]) -> str:
        return str(args["email_address"].partition("@")[0])

    def edited(self, args: dict[str, Any]) -> dict[str, Any]:
        return {**args, "response_text": "edited"}

    def ran(self) -> Counter[tuple[str, str]]:
        return Counter(self.sent())

    def sent(self) -> list[tuple[str, str]]:
        """Return what the SMTP server got, as (whom to, the text)."""
        found = []
        for _, [to], content in self.inbox.got:
            email = message_from_bytes(content, policy=policy.default)
            found.append((to.partition("@")[0], email.get_content().strip()))
        return found


@pytest.fixture
def assistant(tmp_path: Path, database: str) -> Iterator[Assistant]:
    """Run the mail servers, and make the place of the server."""
    box = ImapMailbox()
    with smtp_server() as (inbox, smtp), imap_server(box) as imap:
        (tmp_path / "mail.toml").write_text(
            '[stdlib.email]\nbackend = "imap"\naddress = "ann@example.org"\n'
            f'folder = "{tmp_path}/box"\ncallers = ["user:alice"]\n'
            f'imap_host = "127.0.0.1"\nimap_port = {imap}\nimap_security = "none"\n'
            'imap_user = "ann"\nimap_sent = "Sent"\n'
            f'smtp_host = "127.0.0.1"\nsmtp_port = {smtp}\nsmtp_security = "none"\n'
        )
        yield Assistant(tmp_path, dsn=database, box=box, inbox=inbox)


async def test_each_email_is_sent_as_answered_once(assistant: Assistant) -> None:
    await whole(assistant, SEED)
    kept = [message_from_bytes(raw)["Message-ID"] for _, raw in assistant.box.appended]
    sent = [message_from_bytes(raw)["Message-ID"] for _, _, raw in assistant.inbox.got]
    assert sorted(kept) == sorted(sent)


async def sent_through_a_kill(house: Assistant, number: int, stage: str, *, filed: bool) -> str:
    """Accept an email, kill the server while it is being sent, and return its call's result.

    Args:
        stage: When it is killed: the SMTP server has heard of the email, or has taken it.
        filed: The mail provider keeps a copy of what it takes.
    """

    def die(reached: str, content: bytes) -> None:
        if reached != stage:
            return
        house.inbox.seen = lambda *_: None
        if filed:
            house.box.appended.append(("Sent", content))
        os.kill(house.process.pid, signal.SIGKILL)

    task_id = f"t{number}"
    async with house.client() as client:
        body = {"body": house.body(number), "task_id": task_id}
        made = await client.post("/message", json=body)
        assert made.json()["status"] == "paused", made.text
        page = await client.get("/approvals", params={"task_id": task_id, "status": "open"})
    house.inbox.seen = die
    accepting = asyncio.create_task(house.answer(page.json()["approvals"][0], "accept"))
    await house.died()
    await house.start()
    await accepting
    async with asyncio.timeout(60), house.client() as client:
        while True:
            for event in (await client.get(f"/tasks/{task_id}")).json()["events"]:
                told = json.loads(event["data"])["extra_data"]
                if told.get("tool_name") == "send_email_tool" and "result" in told:
                    return str(told["result"])
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_an_email_that_was_taken_before_the_kill_is_not_sent_again(
    assistant: Assistant,
) -> None:
    await assistant.make_tokens()
    await assistant.start()
    try:
        announced = await sent_through_a_kill(assistant, 0, "MAIL", filed=False)
        filed = await sent_through_a_kill(assistant, 1, "DATA", filed=True)
        lost = await sent_through_a_kill(assistant, 2, "DATA", filed=False)
    finally:
        assistant.clean_up()
    assert announced.endswith(": sent") and filed.endswith(": sent")
    assert [to.partition("-")[0] for to, _ in assistant.sent()] == ["t0", "t1", "t2"]
    taken = [message_from_bytes(raw)["Message-ID"] for _, _, raw in assistant.inbox.got]
    assert "may have been sent" in lost and taken[2] in lost
    kept = [message_from_bytes(raw)["Message-ID"] for _, raw in assistant.box.appended]
    assert kept == taken[:2]
