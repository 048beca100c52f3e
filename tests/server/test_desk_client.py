"""`MAILClient` at the mail desk."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mail.client import MAILClient
from mail.db.memory import MemoryStore
from mail.errors import ClientHTTPError
from mail.server.app import create_app
from tests.server.kit import TOKENS, running_server
from tests.support.till import settings, till


@pytest.fixture
async def place(store: MemoryStore) -> AsyncIterator[str]:
    app = create_app(settings(debug=False), template=till(), store=store)
    async with running_server(app) as server:
        yield server.url


@pytest.fixture
async def editor(place: str) -> AsyncIterator[MAILClient]:
    async with MAILClient(place, TOKENS["editor"]) as client:
        yield client


@pytest.fixture
async def reviewer(place: str) -> AsyncIterator[MAILClient]:
    async with MAILClient(place, TOKENS["reviewer"]) as client:
        yield client


async def test_a_letter_is_sent_found_read_and_acknowledged(
    editor: MAILClient, reviewer: MAILClient
) -> None:
    to = {"recipient_id": "reviewer", "subject": "Hi", "wants_ack": True, "urgent": True}
    sent = await editor.send_desk_message("Ready & waiting?", **to, request_id="r1")
    again = await editor.send_desk_message("Ready & waiting?", **to, request_id="r1")
    message_id = sent["message_id"]
    assert again["message_id"] == message_id
    assert (await reviewer.wait_for_mail(5))["unread"] == 1
    assert (await reviewer.check_new_messages())["unread"] == 1
    overdue = (await editor.get_overdue_messages())["overdue"]
    assert [each["message"]["id"] for each in overdue] == [message_id]
    (found,) = (await reviewer.search_messages('"ready & waiting" -no', limit=5))["messages"]
    assert (found["id"], found["read"]) == (message_id, False)
    page = await reviewer.get_desk_messages(limit=3, unread=True, mark_read=False)
    assert [each["content"] for each in page["messages"]] == ["Ready & waiting?"]
    assert (page["messages"][0]["urgent"], page["unread"]) == (True, 1)
    read = await reviewer.get_desk_message(message_id)
    assert (read["message"]["subject"], read["receipts"]) == ("Hi", None)
    done = await reviewer.acknowledge_message(message_id, "on it")
    assert (done["status"], done["receipt"]["note"]) == ("acknowledged", "on it")
    assert (await reviewer.acknowledge_message(message_id))["status"] == "already_acknowledged"
    (receipt,) = (await editor.get_desk_message(message_id, mark_read=False))["receipts"] or ()
    assert (receipt["state"], receipt["answered_at"]) == ("acknowledged", None)
    answer = await reviewer.send_desk_message("Yes", recipient_id="editor", reply_to=message_id)
    (receipt,) = (await editor.get_desk_message(message_id))["receipts"] or ()
    assert (receipt["state"], receipt["answer_id"]) == ("answered", answer["message_id"])
    assert receipt["answered_at"] == answer["message"]["created_at"]
    first = await reviewer.get_desk_messages(request_id="page")
    since = first["messages"][0]["created_at"]
    assert (await reviewer.get_desk_messages(since=since))["messages"] == []
    assert (await reviewer.get_desk_messages(request_id="page"))["messages"] == first["messages"]


async def test_threads(editor: MAILClient, reviewer: MAILClient) -> None:
    made = await editor.create_thread("Release", [], "Which branch?")
    thread_id = made["thread"]["id"]
    assert (await reviewer.join_thread(thread_id))["status"] == "joined"
    posts = (await reviewer.get_desk_messages(thread_id=thread_id))["messages"]
    assert posts[-1]["id"] == made["message_id"]
    await reviewer.send_desk_message("main", thread_id=thread_id, reply_to=made["message_id"])
    (found,) = (await editor.search_messages("main", thread_id=thread_id))["messages"]
    assert found["sender_id"] == "reviewer"
    assert (await editor.get_thread(thread_id))["participants"] == ["editor", "reviewer"]
    assert [each["id"] for each in (await reviewer.get_threads(limit=1))["threads"]] == [thread_id]
    gone = await editor.remove_participant(thread_id, "reviewer")
    assert gone["removed_id"] == "reviewer"
    with pytest.raises(ClientHTTPError, match="no such thread"):
        await reviewer.get_thread(thread_id)
    assert (await editor.add_participant(thread_id, "reviewer"))["status"] == "added"
    told = await editor.send_desk_message("All", recipient_ids=["reviewer", "editor"])
    assert told["message"]["recipient_ids"] == ["reviewer"]


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.get_desk_message("unread"),
        lambda c: c.get_desk_message("../health"),
        lambda c: c.get_desk_message(".."),
        lambda c: c.get_desk_message(""),
        lambda c: c.acknowledge_message("search"),
        lambda c: c.get_thread("."),
        lambda c: c.get_thread(""),
        lambda c: c.join_thread("a/b?c"),
        lambda c: c.remove_participant("a", ".."),
    ],
)
async def test_an_id_is_never_another_path(
    editor: MAILClient, call: Callable[[MAILClient], Any]
) -> None:
    with pytest.raises(ClientHTTPError, match=r"no such|not found") as refused:
        await call(editor)
    assert refused.value.status == 404


async def test_a_user_is_told_whose_token_it_takes(place: str) -> None:
    async with MAILClient(place, TOKENS["alice"]) as alice:
        with pytest.raises(ClientHTTPError, match="participant") as refused:
            await alice.get_desk_messages()
    assert refused.value.status == 403
