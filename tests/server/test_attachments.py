"""Agents and the files that participants send: what they are told, read, and hand on."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mail.api import MAILSwarmTemplate
from mail.llm.script import Steps, call
from mail.llm.script_view import ScriptView
from tests.server.kit import bearer
from tests.server.test_desk_agents import mail
from tests.server.test_files import download, upload
from tests.support.swarm import scripted_agent
from tests.support.till import served_from

TEXT = "Grüße, 世界!\n" * 40


async def _clerk(view: ScriptView) -> Steps:
    """Do what a participant says in JSON, call by call; then tell all results."""
    if view.forced == "task_complete":
        return call("task_complete", finish_message="told to finish")
    said = view.mail_from("editor", "reviewer")
    assert said is not None
    if not said.body.startswith("["):
        return call("task_complete", finish_message=f"reviewer said: {said.body}")
    order, _, about = said.body.partition("\n\n")
    steps = json.loads(order)
    done = [each.content for each in view.results]
    if view.results and "go on with offset" in done[-1].partition("\n")[0]:
        offset = int(done[-1].partition("go on with offset ")[2].split("\n")[0])
        return call("read_attachment", **(steps[0][1] | {"offset": offset}))
    if len(done) < len(steps):
        name, given = steps[len(done)]
        return call(name, **given)
    told = {"about": about, "done": done, "tools": sorted(view.tools)}
    return call("task_complete", finish_message=json.dumps(told))


def swarm() -> MAILSwarmTemplate:
    """Return a swarm of a clerk to whom two participants write, and a porter whom they do not."""

    return MAILSwarmTemplate(
        name="test-swarm",
        version="1",
        agents=[
            scripted_agent("clerk", _clerk, "porter", "reviewer"),
            scripted_agent("porter", _clerk, "clerk", enable_entrypoint=False),
        ],
        entrypoint="clerk",
        participants=[{"name": name, "description": ""} for name in ("editor", "reviewer")],
    )


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    url = f"sqlite:///{tmp_path_factory.mktemp('attachments')}/mail.db"
    with served_from(url, swarm()) as (client, _):
        yield client


def write(http: httpx.Client, *steps: Any, who: str = "editor", **fields: Any) -> dict[str, Any]:
    """Give the clerk an order, and return what it says in the end."""
    body = {"content": json.dumps(steps), "recipient_id": "clerk", **fields}
    sent = http.post("/messages", headers=bearer(who), json=body)
    assert sent.status_code == 200, sent.text
    answer = mail(http, who)
    assert answer["reply_to"] == sent.json()["message_id"], answer
    try:
        told: dict[str, Any] = json.loads(answer["content"])
    except ValueError:
        told = {"text": answer["content"]}
    return told


def read(file_id: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "read_attachment", {"file_id": file_id, **more}


def test_an_agent_is_told_of_the_file_that_comes_with_a_message(http: httpx.Client) -> None:
    file = upload(http, content=TEXT.encode(), filename="a.txt")
    told = write(http, file_id=file["id"])
    assert told["about"] == (
        f"File: a.txt ({file['size']} bytes, text/plain)\nsha256: {file['sha256']}\n{file['uri']}"
    )
    assert {"read_attachment", "send_attachment"} <= set(told["tools"])
    assert write(http)["about"] == ""


def test_an_agent_reads_a_file_page_by_page(http: httpx.Client) -> None:
    file = upload(http, content=TEXT.encode(), filename="a.txt")
    told = write(http, read(file["uri"], max_bytes=101), file_id=file["id"])
    pages = [page.partition("\n\n") for page in told["done"]]
    assert "".join(text for _, _, text in pages) == TEXT
    assert len(pages) == -(-len(TEXT.encode()) // 99)
    assert all(len(text.encode()) <= 101 for _, _, text in pages)
    first = re.fullmatch(
        r"SUCCESS: a\.txt, bytes 0 to (\d+) of (\d+); go on with offset \1", pages[0][0]
    )
    assert first and int(first[2]) == file["size"]
    assert pages[-1][0].endswith(f"to {file['size']} of {file['size']}")


@pytest.mark.parametrize(
    ("content", "given", "said"),
    [
        (b"\x89PNG\xff", {}, "the file is no text in UTF-8"),
        (b"a\0b", {}, "the file is no text in UTF-8"),
        ("ü".encode() * 9, {"offset": 3}, "offset: it is inside a character"),
        (b"abc", {"offset": 4}, "offset: the file has 3 bytes"),
        (b"cut \xc3", {}, "the file is no text in UTF-8"),
        (b"", {}, "bytes 0 to 0 of 0"),
        (b"abc", {"offset": 3}, "bytes 3 to 3 of 3"),
        (b"abc", {"max_bytes": 10**9}, "max_bytes: "),
    ],
)
def test_what_cannot_be_read_is_said(
    http: httpx.Client, content: bytes, given: dict[str, Any], said: str
) -> None:
    file = upload(http, content=content)
    told = write(http, read(file["id"], **given), file_id=file["id"])
    assert said in told["done"][0]


def test_only_a_letter_of_the_same_task_gives_an_agent_a_file(http: httpx.Client) -> None:
    mine, sent, unsent = upload(http), upload(http, "reviewer"), upload(http)
    assert write(http, who="reviewer", file_id=sent["id"])["about"]  # to the same agent
    ids = (sent["id"], unsent["id"], "none", "../" + mine["id"], "x" * 5000, "mail://files/")
    for each in ids:
        (refused,) = write(http, read(each), file_id=mine["id"])["done"]
        assert refused == "ERROR: no such file came with a message to you in this task"
    for to, file_id, said in (
        ("reviewer", unsent["id"], "no such file came with"),
        ("porter", mine["id"], "'porter' is no participant, and only participants are sent files"),
        ("nobody", mine["id"], "nobody"),
        ("clerk", mine["id"], "to yourself"),
    ):
        step = "send_attachment", {"target": to, "subject": "", "body": "", "file_id": file_id}
        (refused,) = write(http, step, file_id=mine["id"])["done"]
        assert refused.startswith("ERROR: ") and said in refused
    assert download(http, unsent["id"], "reviewer").status_code == 404
    deleted = upload(http)
    body = {"content": json.dumps([read(deleted["id"])]), "recipient_id": "clerk"}
    assert http.delete(f"/files/{deleted['id']}", headers=bearer("editor")).status_code == 200
    answer = http.post(
        "/messages", headers=bearer("editor"), json=body | {"file_id": deleted["id"]}
    )
    assert answer.status_code == 404


def test_an_agent_hands_a_file_on(http: httpx.Client) -> None:
    file = upload(http, content=TEXT.encode(), filename="a.txt")
    assert download(http, file["id"], "reviewer").status_code == 404
    given = {"target": "reviewer", "subject": "Look", "body": "Good?", "file_id": file["uri"]}
    order = {"content": json.dumps([["send_attachment", given]]), "recipient_id": "clerk"}
    sent = http.post("/messages", headers=bearer("editor"), json=order | {"file_id": file["id"]})
    assert sent.status_code == 200
    letter = mail(http, "reviewer")
    assert (letter["sender_id"], letter["file_id"]) == ("clerk", file["id"])
    assert letter["content"].startswith("Good?\n\nFile: a.txt (")
    assert letter["content"].endswith(file["uri"])
    assert download(http, file["id"], "reviewer").text == TEXT
    answer = {"content": "Fine.", "recipient_id": "clerk", "reply_to": letter["id"]}
    assert http.post("/messages", headers=bearer("reviewer"), json=answer).status_code == 200
    assert mail(http, "editor")["content"] == "reviewer said: Fine."
