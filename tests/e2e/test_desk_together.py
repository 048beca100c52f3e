"""A swarm and two outsiders with MCP clients solve a task, whatever is killed meanwhile.

The editor writes from ``mail mcp`` to a thread in which the tester and the swarm's lead are; the
lead's workers count; the tester looks at a file of the editor's, and sends back another one.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mail.db.urls import open_store
from tests.e2e.desk_participant import Outside
from tests.e2e.desk_simulation import make_tokens, token_of
from tests.e2e.evidence import report
from tests.e2e.processes import Place
from tests.e2e.script import PARTICIPANTS, WORKERS
from tests.e2e.test_kill import held

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

JOB = "count the birches"
ANSWER = f"{JOB}: north has 1 lines; south has 1 lines"
PLAN = "Birches are white.\n" * 100
EDITOR, TESTER = PARTICIPANTS


async def test_a_swarm_and_two_outsiders_solve_a_task(either_place: Place) -> None:
    place = either_place
    async with solving(place) as (editor, tester):
        thread, file_id = await begin(editor, tester)
        place.close_gate("model-north")
        post = {"thread_id": thread, "content": JOB, "request_id": "the-job", "wants_ack": True}
        asked = (await editor.call("send_message", **post))["message_id"]
        await read(tester)
        tester.begin("wait_for_mail", seconds=50)
        await held(place, "model-north")
        await asyncio.gather(tester.kill(), place.kill())
        kill = await place.evidence.note_kill()
        editor.begin("send_message", **post)
        assert (await editor.outcome())[0], "there is no server, but the message is sent"
        await place.start(participants=PARTICIPANTS)
        assert (await editor.call("send_message", **post))["message_id"] == asked
        await tester.start()
        assert (await tester.call("get_file", file_id=file_id))["text"] == PLAN
        tester.begin("wait_for_mail", seconds=50)
        place.open_gate("model-north")
        assert (await tester.outcome())[1]["unread"] == 1
        await answer(tester, thread, asked)
        await check_editor(editor, thread, asked)
        await check_shown(place, editor, thread)
    runs = [(name, _last_line(text), n) for (name, text), n in place.evidence.runs().items()]
    for worker in WORKERS:
        assert [n for name, job, n in runs if (name, job) == (f"note_{worker}", JOB)] == [1]
    assert len(kill.lost) == 1
    place.evidence.check_calls()
    assert "Traceback" not in place.log
    report(f"in flight {len(kill.lost)}, repeats {place.evidence.repeats()}")


async def begin(editor: Outside, tester: Outside) -> tuple[str, str]:
    """Open the thread and pass the file along; return their ids."""
    made = await editor.call("create_thread", title="Birches", participants=[TESTER, "lead"])
    assert [each["kind"] for each in await read(tester)] == ["notice"]
    await editor.call(
        "transfer_file",
        recipient_id=TESTER,
        destination_filename="plan.txt",
        content_base64=base64.b64encode(PLAN.encode()).decode(),
    )
    [carrier] = await read(tester)
    return made["thread"]["id"], carrier["file_id"]


async def answer(tester: Outside, thread: str, asked: str) -> None:
    """See that the swarm's answer is there; acknowledge the question, and report in a file."""
    [got] = await read(tester)
    assert (got["sender_id"], _last_line(got["content"])) == ("lead", ANSWER)
    assert (got["thread_id"], got["reply_to"]) == (thread, asked)
    await tester.call("acknowledge_message", message_id=asked, note="counted")
    await tester.call(
        "transfer_file",
        recipient_id=EDITOR,
        destination_filename="report.txt",
        content_base64=base64.b64encode(got["content"].encode()).decode(),
    )


def _last_line(text: str) -> str:
    """Return a message without what a post of a thread brings along before it."""
    return text.rpartition("\n")[2]


async def read(who: Outside) -> list[Any]:
    """Return somebody's unread messages."""
    page = await who.call("get_messages", unread=True)
    found: list[Any] = page["messages"]
    return found


async def check_editor(editor: Outside, thread: str, post: str) -> None:
    """See that the editor has the answer once, the file, and the receipts."""
    news = await read(editor)
    assert [each["sender_id"] for each in news] == [TESTER, "lead"]
    got = await editor.call("get_file", file_id=news[0]["file_id"])
    assert _last_line(got["text"]) == ANSWER == _last_line(news[1]["content"])
    posts = (await editor.call("get_messages", thread_id=thread))["messages"]
    posts = [each for each in posts if each["kind"] == "thread"]
    said = [(each["sender_id"], _last_line(each["content"])) for each in posts]
    assert said == [("lead", ANSWER), (EDITOR, JOB)]
    receipts = (await editor.call("get_receipts", message_id=post))["receipts"]
    states = {each["recipient_id"]: (each["state"], each["note"]) for each in receipts}
    assert states == {TESTER: ("acknowledged", "counted"), "lead": ("answered", "")}


async def check_shown(place: Place, editor: Outside, thread: str) -> None:
    """See that to the lead is shown what its model's requests had, and nothing else."""
    place.close_gate("model-lead")
    more = await editor.call("send_message", thread_id=thread, content="stop now")
    later = await editor.call("send_message", thread_id=thread, content="stop later")
    async with asyncio.timeout(30):
        while (EDITOR, "stop now") not in seen_by(place, "lead"):
            await asyncio.sleep(0.02)
    states = [await lead_state(editor, each["message_id"]) for each in (more, later)]
    assert states == ["stored", "stored"], "a turn that is not committed has shown nothing"
    place.open_gate("model-lead")
    async with asyncio.timeout(30):
        while "stored" in [await lead_state(editor, each["message_id"]) for each in (more, later)]:
            await asyncio.sleep(0.02)
    posts = (await editor.call("get_messages", thread_id=thread, limit=50))["messages"]
    posts = [each for each in posts if each["kind"] == "thread"]
    to_lead = [each for each in posts if "lead" in each["recipient_ids"]]
    seen = seen_by(place, "lead")
    shown = [await lead_state(editor, each["id"]) != "stored" for each in to_lead]
    assert shown == [(each["sender_id"], each["content"]) in seen for each in to_lead]


async def lead_state(editor: Outside, message: str) -> str:
    """Return what became of a message at the lead."""
    receipts = (await editor.call("get_receipts", message_id=message))["receipts"]
    return next(str(each["state"]) for each in receipts if each["recipient_id"] == "lead")


def seen_by(place: Place, agent: str) -> set[tuple[str, str]]:
    """Return sender and text of all mail in the requests to an agent's model, without its past."""
    lines = (place.folder / "seen.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    mail = (each for who, mails in found if who == agent for each in mails)
    return {(sender, _last_line(text)) for sender, text in mail}


@asynccontextmanager
async def solving(place: Place) -> AsyncIterator[tuple[Outside, Outside]]:
    """Start the server and the two participants."""
    store = open_store(place.store_url, exclusive=False)
    await store.open()
    await make_tokens(store, PARTICIPANTS)
    await store.close()
    await place.start(participants=PARTICIPANTS)
    editor = Outside("stdio", place.url, token_of(EDITOR))
    tester = Outside("http", place.url, token_of(TESTER))
    try:
        await asyncio.gather(editor.start(), tester.start())
        yield editor, tester
    finally:
        await asyncio.gather(editor.kill(), tester.kill(), return_exceptions=True)
