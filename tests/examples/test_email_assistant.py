"""The email assistant, section by section of the document that it follows.

Its agents are played by scripts on the real runtime, the mailbox is a real folder, and a real SMTP
server counts what is sent.
"""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from mail import MAILSwarm, MAILSwarmTemplate
from mail.config import EmailConfig
from mail.core.render import result_as_returned
from mail.db.memory import MemoryStore
from mail.db.preferences import PREFERENCE_KEY, preference_namespace
from mail.db.records import MemoryRow
from mail.examples.email_assistant import (
    GMAIL_TOOLS_PROMPT,
    agent_system_prompt_hitl_memory,
    default_cal_preferences,
    default_response_preferences,
    default_triage_preferences,
    format_for_display,
    format_gmail_markdown,
    get_memory,
    parse_gmail,
    update_memory,
)
from mail.examples.email_assistant.actions import (
    Question,
    notify_person,
    schedule_meeting_tool,
    send_email_tool,
)
from mail.examples.email_assistant.formatting import describe
from mail.examples.scripts.email_assistant import RESPONSE, TRIAGE
from mail.llm import call, otherwise, say
from mail.llm.litellm_model import close_clients
from mail.llm.script_view import ScriptView
from mail.stdlib.email.backends import LocalBackend
from mail.testing import RecordingModel
from tests.stdlib.email.servers import Inbox, smtp_server
from tests.support.provider import FakeProvider

SWARMS = Path(__file__).parents[2] / "swarms.json"
ASKED = """From: Ben <ben@example.org>
To: ann@example.org
Subject: {subject}
Message-ID: <{subject}@example.org>
References: <before@example.org>

{body}
"""


class World:
    """A swarm with its mailbox, models and what the SMTP server got."""

    def __init__(self, mailbox: LocalBackend, inbox: Inbox) -> None:
        self.mailbox, self.inbox = mailbox, inbox
        self.triage, self.response = RecordingModel(TRIAGE), RecordingModel(RESPONSE)
        self.store = MemoryStore()
        self.swarms: list[MAILSwarm] = []
        self.swarm = self.start()

    def start(self, llm: str = "") -> MAILSwarm:
        template = MAILSwarmTemplate.from_swarm_json_file("email_assistant", SWARMS)
        for agent in template.agents:
            model = self.triage if agent.name == "triage" else self.response
            known = {"llm": llm} if llm else {"model": model}
            agent.agent_params = {**agent.agent_params, **known}
        options = {"user_token": ""}
        self.swarm = template.instantiate(
            options, user_id="ann", print_llm_streams=False, store=self.store
        )
        self.swarms.append(self.swarm)
        return self.swarm

    def play(self, *turns: Any) -> None:
        """Let the response agent make these calls, one reply after the other."""
        left = iter(turns)
        self.response = RecordingModel(lambda view: next(left, [call("Done", done=True)]))
        self.start()

    def deliver(self, body: str = "Can you send it?", subject: str = "Report") -> str:
        raw = ASKED.format(subject=subject, body=body).replace("\n", "\r\n").encode()
        self.mailbox.deliver(raw)
        [email] = [one for one in self.mailbox.unread(50) if one.subject == subject]
        return email.id

    def input_of(self, email_id: str) -> str:
        email = self.mailbox.get(email_id)
        assert email is not None
        return json.dumps(email.as_input())

    async def handle(self, body: str = "Can you send it?", **more: Any) -> Any:
        """Deliver an email, run its task, and return the outcome of the run."""
        email_id = self.deliver(body, **more)
        run = await self.swarm.open_run(self.input_of(email_id), task_id="one")
        return await run.result()

    async def held(self) -> list[dict[str, Any]]:
        found = await self.swarm.get_approvals("open", "one")
        return sorted(found, key=lambda one: one["call_id"])

    async def answer(self, kind: str, args: Any = None, action: str = "") -> Any:
        """Answer an open approval; return the task when nothing goes on any more."""
        held = [one for one in await self.held() if action in one["action_request"]["action"]]
        await self.swarm.answer_approval(held[0]["approval_id"], [{"type": kind, "args": args}])
        return await self.settled()

    async def settled(self) -> Any:
        await self.swarm.await_queue_empty()
        return await self.swarm.read_task("one")

    async def feedback(self) -> list[tuple[str, str]]:
        """Return (answer, the memory that it teaches) of what waits to be learned."""
        owner = self.swarm._runtime._context.owner
        names = await self.store.waiting_feedback(owner)
        rows = [row for name in names for row in await self.store.feedback_on(owner, name, 9)]
        return [(row.type, row.memory) for row in rows]

    @property
    def sent(self) -> list[Any]:
        return [
            message_from_bytes(content, policy=policy.default) for _, _, content in self.inbox.got
        ]

    @property
    def unread(self) -> int:
        return len(self.mailbox.unread(50))


@pytest.fixture(scope="module")
def smtp() -> Iterator[tuple[Inbox, int]]:
    with smtp_server() as found:
        yield found


@pytest.fixture
async def world(
    smtp: tuple[Inbox, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    inbox, port = smtp
    inbox.got.clear()
    file = tmp_path / "mail.toml"
    file.write_text(
        f'[stdlib.email]\naddress = "ann@example.org"\nfolder = "{tmp_path}/box"\n'
        f'smtp_host = "127.0.0.1"\nsmtp_port = {port}\nsmtp_security = "none"\n'
    )
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(file))
    made = World(LocalBackend(EmailConfig()), inbox)
    yield made
    for swarm in made.swarms:
        await swarm.shutdown()


REPLY = {"response_text": "It is attached.", "email_address": "ben@example.org"}
MEETING = {
    "attendees": ["ben@example.org"],
    "title": "Report",
    "start_time": "2030-03-05T14:00:00",
    "end_time": "2030-03-05T14:30:00",
    "organizer_email": "ann@example.org",
    "timezone": "UTC",
}


def results_of(world: World) -> list[str]:
    """Return the tool results that the response agent's model has been shown."""
    shown = world.response.requests[-1].messages
    return [result_as_returned(m["content"]) for m in shown if m.get("role") == "tool"]


# --- 1. response agent subgraph -------------------------------------------------------------------


async def test_1_the_loop_goes_on_until_done_and_then_the_email_is_read(world: World) -> None:
    outcome = await world.handle()
    assert outcome.status == "paused" and world.unread == 1 and not world.sent
    task = await world.answer("accept")
    assert task.status == "completed"
    assert world.unread == 0
    [reply] = world.sent
    assert (reply["To"], reply["Subject"]) == ("ben@example.org", "Re: Report")
    assert reply["In-Reply-To"] == "<Report@example.org>"
    assert reply["References"] == "<before@example.org> <Report@example.org>"
    tools = [e.extra["tool_name"] for e in task.events if e.kind == "action_complete"]
    assert tools == ["triage_email", "send_email_tool", "Done"]


async def test_the_mailbox_has_threads_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    read = world.mailbox.mark_as_read

    def mark(_: LocalBackend, email_id: str) -> None:
        seen.append(threading.current_thread().name)
        read(email_id)

    await world.handle()
    monkeypatch.setattr(LocalBackend, "mark_as_read", mark)
    await world.answer("accept")
    assert seen and all(name.startswith("mail-email") for name in seen)


async def test_1_an_email_is_sorted_first(world: World) -> None:
    ignored = await world.handle("Our newsletter. Click to unsubscribe.")
    assert ignored.status == "completed" and "Ignored: Report" in str(ignored)
    assert not world.response.requests
    assert world.unread == 1  # a flag of `mail email ingest` marks it as read


async def test_1_the_person_is_told_of_an_email_that_needs_no_answer(world: World) -> None:
    await world.handle("For your information: maintenance tonight.")
    [notice] = await world.held()
    assert notice["action_request"]["action"] == "notify_person"
    assert "maintenance tonight" in notice["description"]
    task = await world.answer("response", "Thank them.")
    assert "Thank them" in world.response.requests[0].messages[0]["content"]
    assert task.status == "paused"
    assert [one["action_request"]["action"] for one in await world.held()] == ["send_email_tool"]


# --- 2. the model's node --------------------------------------------------------------------------


async def test_2_preferences_are_in_the_system_prompt(world: World) -> None:
    await world.handle()
    [asked] = world.response.requests
    assert GMAIL_TOOLS_PROMPT in asked.system
    assert default_response_preferences in asked.system
    assert default_cal_preferences in asked.system
    assert default_triage_preferences in world.triage.requests[0].system
    fields = ("tools_prompt", "background", "response_preferences", "cal_preferences")
    known = {name: f"<{name}>" for name in fields}
    filled = agent_system_prompt_hitl_memory.format(**known)
    assert all(text in filled for text in known.values())


async def test_2_a_remembered_preference_takes_the_place_of_the_default(world: World) -> None:
    await world.swarm.start()
    owner = world.swarm._runtime._context.owner
    namespace = preference_namespace(owner.swarm, "response_preferences")
    value = json.dumps({"kind": "Memory", "content": {"content": "Write {rhymes}."}})
    now = "2026-01-01T00:00:00+00:00"
    await world.store.put_memories(owner, [MemoryRow(namespace, PREFERENCE_KEY, value, now, now)])
    await world.handle()
    asked = world.response.requests[0].system
    assert "Write {rhymes}." in asked and default_response_preferences not in asked


async def test_2_a_tool_is_required_and_these_five_are_offered(world: World) -> None:
    await world.handle()
    [asked] = world.response.requests
    assert asked.tool_choice == "required"
    names = [tool["function"]["name"] for tool in asked.tools]
    assert names == [
        "send_email_tool",
        "schedule_meeting_tool",
        "check_calendar_tool",
        "Question",
        "Done",
    ]
    [sorting] = world.triage.requests
    assert [tool["function"]["name"] for tool in sorting.tools] == ["triage_email"]


# --- 3. what follows a reply ----------------------------------------------------------------------


async def test_3_done_among_other_calls_drops_the_others(world: World) -> None:
    world.play([call("send_email_tool", email_id="new", **REPLY), call("Done", done=True)])
    outcome = await world.handle()
    assert outcome.status == "completed"
    assert not world.sent and world.unread == 0
    assert not await world.swarm.get_approvals("all", "one")


async def test_3_a_reply_without_a_call_is_asked_for_once_more(world: World) -> None:
    world.play(
        [
            say("I would answer."),
        ],
        [call("Done", done=True)],
    )
    outcome = await world.handle()
    assert outcome.status == "completed" and world.unread == 0
    first, again = world.response.requests
    assert len(again.messages) == len(first.messages) + 2
    assert "no tool" in again.messages[-1]["content"]


async def test_3_a_model_that_never_calls_a_tool_ends_the_task_and_nothing_is_read(
    world: World,
) -> None:
    world.response = RecordingModel([otherwise(say("Dear Ben"))])
    world.start()
    outcome = await world.handle()
    assert outcome.status == "completed" and "no tool" in str(outcome)
    assert len(world.response.requests) == 2 and world.unread == 1 and not world.sent


# --- 4. the interrupt handler ---------------------------------------------------------------------


async def test_4_the_request_has_the_call_its_config_and_the_email(world: World) -> None:
    world.play([call("send_email_tool", email_id="new", **REPLY)])
    await world.handle("Line one\n# not a heading\n<img src=x>")
    [held] = await world.held()
    assert held["action_request"] == {
        "action": "send_email_tool",
        "args": {"email_id": "new", **REPLY},
    }
    assert held["config"] == {
        "allow_ignore": True,
        "allow_respond": True,
        "allow_edit": True,
        "allow_accept": True,
    }
    shown = held["description"]
    assert "**From**: Ben" in shown and "> # not a heading" in shown
    assert shown.endswith(format_for_display({"name": "send_email_tool", **_args(held)}))


def _args(held: dict[str, Any]) -> dict[str, Any]:
    return {"args": held["action_request"]["args"]}


async def test_4_accept_runs_the_original_arguments(world: World) -> None:
    world.play([call("schedule_meeting_tool", **MEETING)])
    await world.handle()
    assert (await world.answer("accept")).status == "completed"
    [invitation] = world.sent
    assert invitation["Subject"] == "Invitation: Report"
    assert results_of(world)[0].startswith("SUCCESS: Meeting 'Report', 05-03-2030 14:00")
    assert await world.feedback() == []


async def test_4_edit_replaces_the_call(world: World) -> None:
    world.play([call("send_email_tool", email_id="new", **REPLY)])
    await world.handle()
    args = {"email_id": "new", **REPLY, "response_text": "Here it is."}
    task = await world.answer("edit", {"action": "send_email_tool", "args": args})
    assert task.status == "completed"
    [reply] = world.sent
    assert reply.get_content().strip() == "Here it is."
    [said] = [m for m in world.response.requests[-1].messages if m.get("tool_calls")]
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == args
    assert await world.feedback() == [("edit", "response_preferences")]


@pytest.mark.parametrize(
    "made",
    [
        call("send_email_tool", email_id="new", **REPLY),
        call("schedule_meeting_tool", **MEETING),
        call("Question", content="Which report?"),
    ],
    ids=lambda made: made.name,
)
async def test_4_ignore_ends_the_workflow(world: World, made: Any) -> None:
    world.play([made])
    await world.handle()
    task = await world.answer("ignore")
    assert task.status == "completed"
    assert not world.sent and len(world.response.requests) == 1
    assert world.unread == 1  # mark-as-read comes after Done alone
    assert await world.feedback() == [("ignore", "triage_preferences")]


async def test_4_a_response_goes_to_the_model_and_the_loop_goes_on(world: World) -> None:
    world.play(
        [call("send_email_tool", email_id="new", **REPLY)],
        [call("send_email_tool", email_id="new", **{**REPLY, "response_text": "Shorter."})],
    )
    await world.handle()
    task = await world.answer("response", "Make it shorter.")
    assert task.status == "paused" and not world.sent
    assert "Make it shorter." in results_of(world)[0]
    assert (await world.answer("accept")).status == "completed"
    assert [one.get_content().strip() for one in world.sent] == ["Shorter."]
    assert await world.feedback() == [("response", "response_preferences")]


async def test_4_an_answer_to_a_question_goes_to_the_model(world: World) -> None:
    await world.handle("What is your budget?")
    [held] = await world.held()
    assert held["config"] == {
        "allow_ignore": True,
        "allow_respond": True,
        "allow_edit": False,
        "allow_accept": False,
    }
    task = await world.answer("response", "It is 100 euros.")
    assert task.status == "paused"
    [draft] = await world.held()
    assert "It is 100 euros." in draft["action_request"]["args"]["response_text"]


def test_2_the_swarm_declares_the_default_preferences() -> None:
    template = MAILSwarmTemplate.from_swarm_json_file("email_assistant", SWARMS)
    assert template.memories == {
        "triage_preferences": default_triage_preferences,
        "response_preferences": default_response_preferences,
        "cal_preferences": default_cal_preferences,
    }
    store = InMemoryStore()
    namespace = ("email_assistant", "cal_preferences")
    assert get_memory(store, namespace, default_cal_preferences) == default_cal_preferences
    assert callable(update_memory)


def test_4_the_tools_are_held_also_in_a_swarm_that_says_nothing_of_it() -> None:
    held = {
        one.name: one.approval.config
        for one in (send_email_tool, schedule_meeting_tool, Question, notify_person)
        if one.approval is not None
    }
    template = MAILSwarmTemplate.from_swarm_json_file("email_assistant", SWARMS)
    assert held == {name: one.config for name, one in template.approvals.items()}


@pytest.mark.parametrize(
    ("tool", "answer", "memory"),
    [
        ("send_email_tool", "edit", "response_preferences"),
        ("send_email_tool", "response", "response_preferences"),
        ("send_email_tool", "ignore", "triage_preferences"),
        ("send_email_tool", "accept", None),
        ("schedule_meeting_tool", "edit", "cal_preferences"),
        ("schedule_meeting_tool", "response", "cal_preferences"),
        ("schedule_meeting_tool", "ignore", "triage_preferences"),
        ("schedule_meeting_tool", "accept", None),
        ("Question", "response", None),
        ("Question", "ignore", "triage_preferences"),
    ],
)
def test_4_which_memory_an_answer_teaches(tool: str, answer: str, memory: str | None) -> None:
    template = MAILSwarmTemplate.from_swarm_json_file("email_assistant", SWARMS)
    assert (template.approvals[tool].feedback or {}).get(answer) == memory


async def test_4_what_needs_nobody_runs_at_once_and_never_again(world: World) -> None:
    send = [call("send_email_tool", email_id="new", **REPLY), call("Question", content="Why?")]
    world.play([call("check_calendar_tool", dates=["05-03-2030"]), *send])
    await world.handle()
    assert len(await world.held()) == 2
    assert (await world.answer("accept", action="send_email_tool")).status == "paused"
    assert len(world.sent) == 1
    await world.swarm.shutdown()
    world.start()  # another process takes the task up
    await world.swarm.start()
    assert (await world.answer("response", "Because.")).status == "completed"
    assert len(world.sent) == 1
    task = await world.settled()
    ran = [e.extra["tool_name"] for e in task.events if e.kind == "action_complete"]
    assert ran.count("check_calendar_tool") == ran.count("send_email_tool") == 1


async def test_4_of_two_held_calls_the_second_is_cancelled_with_the_first(world: World) -> None:
    send = call("send_email_tool", email_id="new", **REPLY)
    world.play([send, call("schedule_meeting_tool", **MEETING)])
    await world.handle()
    await world.answer("ignore", action="send_email_tool")
    states = [one["status"] for one in await world.swarm.get_approvals("all", "one")]
    assert sorted(states) == ["cancelled", "ignored"] and not world.sent


async def test_4_a_provider_takes_what_edits_and_answers_make_of_a_history(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(view: ScriptView) -> Any:
        return TRIAGE(view) if "triage_email" in view.tools else RESPONSE(view)

    async with FakeProvider(script) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        world.start(llm="openai/gpt-5-mini")
        await world.handle("Can we meet on 05-03-2030?")
        [held] = await world.held()
        args = {**held["action_request"]["args"], "title": "Edited"}
        await world.answer("edit", {"action": "schedule_meeting_tool", "args": args})
        await world.answer("response", "Be brief.")
        assert (await world.answer("accept")).status == "completed"
        await world.swarm.shutdown()
        await close_clients()
    assert {seen.status for seen in provider.requests} == {200}
    assert all(seen.tool_choice == "required" for seen in provider.requests)
    assert [one["Subject"] for one in world.sent] == ["Invitation: Edited", "Re: Report"]


# --- 5. the tools ---------------------------------------------------------------------------------


async def test_5_a_meeting_is_checked_scheduled_and_told(world: World) -> None:
    await world.handle("Can we meet on 05-03-2030?", subject="Plan")
    [held] = await world.held()
    assert held["action_request"]["action"] == "schedule_meeting_tool"
    assert results_of(world)[0].startswith("SUCCESS: Tuesday, 05-03-2030 (UTC):\n- no events")
    await world.answer("accept")
    await world.answer("accept")
    assert [one["Subject"] for one in world.sent] == ["Invitation: Plan", "Re: Plan"]
    assert "fetch_emails" in GMAIL_TOOLS_PROMPT and world.unread == 0


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({**REPLY, "email_id": "no-such-email"}, "'email_id' names no email"),
        ({**REPLY, "email_id": "new", "email_address": "a@b.org\nBcc: c@d.org"}, "email_address"),
        ({**REPLY, "email_id": "new", "additional_recipients": ["x"]}, "additional_recipients"),
        ({**REPLY, "email_id": "new", "response_text": " "}, "response_text"),
    ],
)
async def test_5_arguments_that_make_no_email_send_none(
    world: World, args: dict[str, Any], text: str
) -> None:
    world.play([call("send_email_tool", **args)])
    await world.handle()
    await world.answer("accept")
    assert text in results_of(world)[0] and results_of(world)[0].startswith("ERROR")
    assert not world.sent


async def test_5_the_mailbox_is_for_those_whom_the_operator_names(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "mail.toml"
    file.write_text(file.read_text() + 'callers = ["user:ben"]\n')
    outcome = await world.handle()
    assert outcome.status == "completed" and "somebody else's" in str(outcome)
    assert not world.triage.requests and not world.response.requests
    assert world.unread == 1


# --- 6. mark as read ------------------------------------------------------------------------------


async def test_6_done_marks_the_email_of_the_task_and_no_other(world: World) -> None:
    world.deliver(subject="Other")
    world.play([call("Done", done=False)], [call("Done", done=True)])
    await world.handle()
    assert [one.subject for one in world.mailbox.unread(9)] == ["Other"]
    assert results_of(world)[0].startswith("ERROR: call Done with done = true")


async def test_6_the_work_ends_although_the_mailbox_does_not_answer(
    world: World, tmp_path: Path
) -> None:
    world.play([call("Question", content="Go on?")], [call("Done", done=True)])
    await world.handle()
    file = tmp_path / "mail.toml"
    file.write_text(file.read_text().replace("/box", "/mail.toml"))
    task = await world.answer("response", "Yes.")
    assert task.status == "completed"
    assert any("was not marked as read" in str(event.extra) for event in task.events)


ALONE = {"from": "Ben <ben@example.org>", "to": "ann@example.org", "subject": "Report"}


async def test_an_email_that_no_mailbox_has_is_answered_and_what_was_not_done_is_said(
    world: World,
) -> None:
    email_input = {**ALONE, "id": "18c2f", "body": "Can you send me the report?"}
    run = await world.swarm.open_run(json.dumps(email_input), task_id="one")
    assert (await run.result()).status == "paused"
    [draft] = await world.held()
    assert draft["action_request"]["args"]["email_id"] == "18c2f"
    task = await world.answer("accept")
    [sent] = world.sent
    assert (sent["To"], sent["Subject"]) == ("ben@example.org", "Re: Report")
    told = [e.extra["result"] for e in task.events if e.kind == "action_complete"]
    assert "not filed with the email that it answers: no email of this mailbox" in told[1]
    assert task.status == "completed"
    final = "Done. The email was not marked as read: no email of this mailbox has that ID"
    assert task.events[-1].extra["response"] == final


async def test_an_email_without_an_id_says_that_nothing_was_marked(world: World) -> None:
    world.play([call("Done", done=True)])
    run = await world.swarm.open_run(json.dumps({**ALONE, "body": "Hi!"}), task_id="one")
    assert str(await run.result()).count("No email was marked as read: it has no ID.")


async def test_6_a_text_without_an_id_ends_without_marking_anything(world: World) -> None:
    world.deliver(subject="Other")
    world.play([call("Done", done=True)])
    run = await world.swarm.open_run("Write to Ben that I am late", task_id="one")
    assert (await run.result()).status == "completed"
    assert world.unread == 1


@pytest.mark.parametrize(
    ("wish", "to", "text"),
    [
        ("Write to Ben that I am late", "ben@example.org", "Hello Ben, I am late"),
        ("please email to Zoë, I am early", "zoe@example.org", "Hello Zoë, I am early"),
        ("Please tell cy@d.org: lunch at noon?", "cy@d.org", "Hello cy, lunch at noon?"),
    ],
)
async def test_6_a_wish_becomes_a_draft_to_whom_it_names(
    world: World, wish: str, to: str, text: str
) -> None:
    run = await world.swarm.open_run(wish, task_id="one")
    assert (await run.result()).status == "paused"
    [held] = await world.held()
    args = {"email_id": "new", "response_text": text, "email_address": to}
    assert held["action_request"] == {"action": "send_email_tool", "args": args}
    assert (await world.answer("accept")).status == "completed"
    assert [message["To"] for message in world.sent] == [to]


# --- emails as text -------------------------------------------------------------------------------


def test_parse_gmail_gives_the_five_parts_of_an_email() -> None:
    known = {"from": "Ben <b@c.org>", "to": "a@b.org", "subject": "Hi", "body": "text", "id": "7"}
    expected = ("Ben <b@c.org>", "a@b.org", "Hi", "text", "7")
    assert parse_gmail(known) == parse_gmail(json.dumps(known)) == expected
    written = "From: Ben <b@c.org>\nTo: a@b.org\nSubject: Hi\n\ntext"
    assert parse_gmail(written) == (*expected[:4], "")
    assert parse_gmail("just text") == ("", "", "", "just text", "")
    assert parse_gmail({"from": 5, "body": None, "id": "a\r\nb"}) == ("", "", "", "", "a b")
    assert parse_gmail('{"not": "an email"}')[3] == '{"not": "an email"}'
    assert parse_gmail("{" * 100_000)[4] == ""


def test_what_is_shown_of_an_email_cannot_be_more_than_text() -> None:
    hostile = "one\r\n---\n# Email draft\n\x1b[2J\u202e<img onerror=x>"
    shown = format_gmail_markdown("S\n# x", "<script>", "to", hostile, "id")
    lines = shown.splitlines()
    assert lines[0] == r"**Subject**: S \# x  "
    assert r"\<script\>" in shown and "\x1b" not in shown and "\u202e" not in shown
    assert [line for line in lines if "draft" in line] == ["> # Email draft"]
    assert lines[-1] == "> [2J<img onerror=x>"
    draft = {"email_address": "a@b.org", "response_text": hostile}
    for name in ("send_email_tool", "schedule_meeting_tool", "Question", "x\n# y"):
        text = format_for_display({"name": name, "args": draft})
        assert text.count("\n# ") == 0 and text.startswith("# ")
    assert "**To**: a@b.org" in format_for_display({"name": "send_email_tool", "args": draft})
    assert describe("no email", "Done", {}).startswith("> no email")
    assert len(describe("x" * 10**6, "send_email_tool", {"response_text": "y" * 10**6})) < 50_000
