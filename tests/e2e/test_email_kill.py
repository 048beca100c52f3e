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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest

from mail.api import MAILSwarmTemplate
from mail.config.server import ServerConfig, SettingsConfig, SwarmConfig
from mail.db.urls import open_store
from mail.llm import ScriptedModel, call
from mail.llm.script_view import ScriptView
from mail.logs.setup import init_logger
from mail.server.run import run_server
from mail.stdlib.email.messages import parse_email
from tests.e2e.served import NO_LIMITS
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


def serve(folder: str, store: str, port: int) -> None:
    """Serve the email assistant until the process is killed."""
    log = os.open(Path(folder, "server.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    init_logger(log_dir=Path(folder, "logs"))
    os.environ["MAIL_CONFIG_PATH"] = str(Path(folder, "mail.toml"))
    os.environ["MAIL_IMAP_PASSWORD"] = ImapMailbox().password
    template = MAILSwarmTemplate.from_swarm_json_file("email_assistant", SWARMS)
    for agent in template.agents:
        if agent.name == "response_agent":
            agent.agent_params = {**agent.agent_params, "model": ScriptedModel(_drafts)}
            agent.agent_params["llm"] = "scripted"
    config = ServerConfig(
        host="127.0.0.1",
        port=port,
        swarm=SwarmConfig(name="email_assistant", registry_file=str(Path(folder, "registry.json"))),
        settings=SettingsConfig(task_message_limit=50, print_llm_streams=False),
        limits=NO_LIMITS,
    )
    run_server(config, template=template, store=open_store(store))


@dataclass
class Assistant(House):
    """A server with the email assistant, which is killed, and the person's mail servers."""

    serving: Callable[[str, str, int], None] = serve
    unknown: str = "may have been sent"
    box: ImapMailbox = field(default_factory=ImapMailbox)
    inbox: Inbox = field(default_factory=Inbox)

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
def assistant(tmp_path: Path) -> Iterator[Assistant]:
    box = ImapMailbox()
    with smtp_server() as (inbox, smtp), imap_server(box) as imap:
        (tmp_path / "mail.toml").write_text(
            '[stdlib.email]\nbackend = "imap"\naddress = "ann@example.org"\n'
            f'folder = "{tmp_path}/box"\ncallers = ["user:alice"]\n'
            f'imap_host = "127.0.0.1"\nimap_port = {imap}\nimap_security = "none"\n'
            'imap_user = "ann"\nimap_sent = "Sent"\n'
            f'smtp_host = "127.0.0.1"\nsmtp_port = {smtp}\nsmtp_security = "none"\n'
        )
        yield Assistant(tmp_path, f"sqlite:///{tmp_path / 'mail.db'}", box=box, inbox=inbox)


async def test_each_email_is_sent_as_answered_once(assistant: Assistant) -> None:
    await whole(assistant, SEED)
    kept = [message_from_bytes(raw)["Message-ID"] for _, raw in assistant.box.appended]
    sent = [message_from_bytes(raw)["Message-ID"] for _, _, raw in assistant.inbox.got]
    assert sorted(kept) == sorted(sent)


async def test_the_same_with_postgresql(assistant: Assistant, dsn: str) -> None:
    assistant.store = dsn
    await whole(assistant, SEED + 1)


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
    await house.dead()
    await house.start()
    await accepting
    async with asyncio.timeout(60), house.client() as client:
        while True:
            for event in (await client.get(f"/tasks/{task_id}")).json()["events"]:
                told = json.loads(event["data"])["extra_data"]
                if told.get("tool_name") == "send_email_tool" and "result" in told:
                    return str(told["result"])
            await asyncio.sleep(0.05)


async def test_an_email_that_was_taken_before_the_kill_is_not_sent_again(
    assistant: Assistant,
) -> None:
    await assistant.open()
    try:
        announced = await sent_through_a_kill(assistant, 0, "MAIL", filed=False)
        filed = await sent_through_a_kill(assistant, 1, "DATA", filed=True)
        lost = await sent_through_a_kill(assistant, 2, "DATA", filed=False)
    finally:
        await assistant.kill()
    assert announced.endswith(": sent") and filed.endswith(": sent")
    assert [to.partition("-")[0] for to, _ in assistant.sent()] == ["t0", "t1", "t2"]
    taken = [message_from_bytes(raw)["Message-ID"] for _, _, raw in assistant.inbox.got]
    assert "may have been sent" in lost and taken[2] in lost
    kept = [message_from_bytes(raw)["Message-ID"] for _, raw in assistant.box.appended]
    assert kept == taken[:2]
