"""Large texts: whatever a commit brings comes back as it was, and durable stores write it once."""

import asyncio
import json
import random
import threading
from typing import Any

import pytest
from pydantic_core import to_json

from mail.core.render import xml_text
from mail.core.tasks import TaskState
from mail.db import packing
from mail.db.calls import CallRow
from mail.db.post import Post
from mail.db.records import HistoryRow, JournalRow
from mail.db.store import Store
from tests.support.databases import Database, PostgresDatabase

Rows = Any

PROSE = "".join(
    random.Random(number).choice(
        ('Ein "Satz",\n', "<b>fett</b> & so\r\n", "C:\\temp\t", "grün 🐟 ")
    )
    for number in range(400)
)
TEXTS = {
    "prose": PROSE,
    "letters": "a" * 9000,
    "marks": "@text{=}" * 100 + "x" * 5000 + "@text{p:" + "0" * 32 + "}" + "y" * 5000,
    "marks alone": "@text{" * 2000,
    "half marks": "@text{=}@tex" * 1500,
    "escapes": "\\n" * 3000 + "\n" * 3000,
    "controls": "\x00\x1a\x7f\u2028" * 2000,
}


def wire(body: str) -> str:
    return to_json({"id": "m1", "message": {"subject": "s", "body": body}}).decode()


def arguments(text: str, *, ascii_only: bool) -> str:
    return json.dumps({"target": "user", "message": text}, ensure_ascii=ascii_only)


def history(text: str, *, ascii_only: bool = False) -> str:
    call = {"id": "c1", "function": {"arguments": arguments(text, ascii_only=ascii_only)}}
    return to_json(
        [
            {"role": "user", "content": f"<body>{xml_text(text)}</body>"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "content": f"SUCCESS:\n{text}"},
        ]
    ).decode()


def a_turn(rows: Rows, seq: int, text: str) -> Any:
    """Make the commit of a turn that repeats a text in every way."""
    answer = wire(text)
    return rows.turn(
        seq,
        task=rows.task(state=TaskState.COMPLETED),
        texts=(text,),
        response=answer,
        snapshot=True,
        deliveries=(rows.mail(payload=answer),),
        events=(
            rows.event("tool_call", extra=to_json({"tool_args": {"message": text}}).decode()),
            rows.event(extra=f'{{"full_message":{answer}}}', description=f"said: {text}"),
        ),
        histories=(
            HistoryRow("supervisor", history(text)),
            HistoryRow("weather", history(text, ascii_only=True)),
        ),
        calls=(
            CallRow("supervisor", "c1", arguments(text, ascii_only=False), wire(text), answer=text),
            CallRow("supervisor", "c2", "{}", "{}", answer=text),
        ),
    )


async def everything(store: Store, owner: Any) -> dict[str, Any]:
    """Read all that a task has."""
    return {
        "mail": [row.payload for row in await store.all_mail(owner, "t1")],
        "waiting": [row.payload for row in await store.waiting_mail(owner, "t1")],
        "events": [
            (event.kind, event.description, event.extra)
            for event in await store.events(owner, "t1")
        ],
        "supervisor": await store.history(owner, "t1", "supervisor"),
        "weather": await store.history(owner, "t1", "weather"),
        "calls": await store.calls(owner, "t1"),
        "response": await store.response(owner, "t1"),
    }


def expected(rows: Rows, turn: Any, text: str) -> dict[str, Any]:
    return {
        "mail": [wire(text), wire(text)],
        "waiting": [wire(text)],
        "events": [(row.kind, row.description, json.loads(row.extra)) for row in turn.events],
        "supervisor": [history(text)],
        "weather": [history(text, ascii_only=True)],
        "calls": list(turn.calls),
        "response": wire(text),
    }


@pytest.mark.parametrize("name", TEXTS)
async def test_everything_comes_back_as_it_was(store: Store, rows: Rows, name: str) -> None:
    text = TEXTS[name]
    post = rows.post(new=True, deliveries=(rows.mail(payload=wire(text)),))
    (seq,) = (await store.post(post)).seqs
    turn = a_turn(rows, seq, text)
    await store.commit_turn(turn)
    assert await everything(store, rows.alice) == expected(rows, turn, text)


@pytest.mark.parametrize("name", TEXTS)
async def test_who_wrote_to_whom_is_read_without_the_texts(
    durable: Store, rows: Rows, name: str
) -> None:
    mail = rows.mail(payload=wire(TEXTS[name]))
    await durable.post(rows.post(new=True, deliveries=(mail, mail)))
    found = await durable.all_mail(rows.alice, "t1", whole=False)
    assert [row.recipient for row in found] == [mail.recipient] * 2
    read = [json.loads(row.payload) for row in found]
    assert [(each["id"], each["message"]["subject"]) for each in read] == [("m1", "s")] * 2
    assert max(len(row.payload) for row in found) < 2048


async def test_a_journal_comes_back_as_it_was(store: Store, rows: Rows) -> None:
    seq = await rows.begin(store)
    facts = (
        JournalRow("reply", "done", wire(PROSE)),
        JournalRow("c1", "done", arguments(PROSE, ascii_only=True)),
        JournalRow("c2", "done", " {}"),
    )
    await store.commit_turn(rows.turn(seq, done=False, journal=facts))
    assert await store.journal(rows.alice, seq) == list(facts)
    assert await store.journal(rows.bob, seq) == []


async def test_equal_texts_of_two_callers_are_apart(store: Store, rows: Rows) -> None:
    for owner in (rows.alice, rows.bob):
        await rows.begin(store, owner=owner, response=wire(PROSE))
    assert await store.response(rows.bob, "t1") == wire(PROSE)


async def test_a_reference_that_somebody_writes_is_a_text_like_others(
    durable: Store, database: Database, rows: Rows
) -> None:
    await rows.begin(durable, "t1", owner=rows.bob, response=wire("secret " * 1000))
    ((found, _),) = database.query("SELECT hash, text FROM task_texts")
    guessed = f" @text{{p:{found}}}"
    await rows.begin(durable, owner=rows.alice, response=wire(guessed))
    assert await durable.response(rows.alice, "t1") == wire(guessed)
    long = guessed + "x" * 9000
    await rows.begin(durable, owner=rows.alice, response=wire(long))
    assert await durable.response(rows.alice, "t1") == wire(long)


LONG = "z" * 5000
BESIDE = {
    "its end": (("=}" + LONG,), "@text{" + LONG),
    "its begin": ((LONG + "@tex",), LONG + "@text{user}"),
    "one that XML makes": ((LONG + "@te\x00xt{",), LONG + "@text{"),
    "another's end": ((LONG, "}" + "y" * 5000), LONG + "y" * 5000),
}


@pytest.mark.parametrize("name", BESIDE)
async def test_a_text_never_takes_a_part_of_a_reference_with_it(
    store: Store, rows: Rows, name: str
) -> None:
    texts, body = BESIDE[name]
    seq = await rows.begin(store)
    event = rows.event(extra=wire(body), description=body)
    await store.commit_turn(rows.turn(seq, texts=texts, response=wire(body), events=(event,)))
    assert await store.response(rows.alice, "t1") == wire(body)
    (*_, found) = await store.events(rows.alice, "t1")
    assert (found.description, found.extra) == (body, json.loads(wire(body)))


LISTS = {
    "many texts": json.dumps([f"{number}" * 1200 for number in range(100, 150)]),
    "a text among numbers": json.dumps(["x" * 3000, *range(20_000)]),
}


@pytest.mark.parametrize("name", LISTS)
async def test_a_body_that_is_json_is_one_text(
    durable: Store, database: Database, rows: Rows, name: str
) -> None:
    body = LISTS[name]
    event = rows.event(extra=f'{{"full_message":{wire(body)}}}', description=f"said: {body}")
    mail = rows.mail(payload=wire(body))
    receipt = await durable.post(rows.post(new=True, deliveries=(mail,), events=(event,)))
    assert database.query("SELECT text FROM task_texts") == [(body,)]
    assert len(body) < receipt.bytes < len(body) + 2000
    (found,) = await durable.waiting_mail(rows.alice, "t1")
    assert found.payload == wire(body)


async def test_a_commit_of_many_texts_keeps_few_of_them_apart(
    durable: Store, database: Database, rows: Rows
) -> None:
    many = [f"{number}" * 1200 for number in range(100, 200)]
    record = json.dumps({"items": many})
    await rows.begin(durable, response=record)
    ((count,),) = database.query("SELECT count(*) FROM task_texts")
    assert count == 32
    assert await durable.response(rows.alice, "t1") == record


async def test_other_commits_go_on_while_a_large_one_is_made_ready(
    durable: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, packed = threading.Event(), threading.Event(), packing._packed

    def slowly(post: Post) -> Any:
        begun.set()
        assert goes_on.wait(20)
        return packed(post)

    monkeypatch.setattr(packing, "_packed", slowly)
    mail = rows.mail(payload=wire("a" * 200_000))
    large = asyncio.create_task(durable.post(rows.post("large", new=True, deliveries=(mail,))))
    try:
        assert await asyncio.to_thread(begun.wait, 10)
        async with asyncio.timeout(10):
            await durable.post(rows.post("small", new=True))
        assert not large.done()
    finally:
        goes_on.set()
    await large
    assert {row.task_id for row in await durable.list_tasks(rows.alice)} == {"large", "small"}


@pytest.mark.parametrize("name", ["prose", "letters", "marks", "marks alone", "half marks"])
async def test_a_text_is_written_once(
    durable: Store, database: Database, rows: Rows, name: str
) -> None:
    text = TEXTS[name]
    post = rows.post(new=True, deliveries=(rows.mail(payload=wire(text)),))
    (seq,) = (await durable.post(post)).seqs
    receipt = await durable.commit_turn(a_turn(rows, seq, text))
    ((count,),) = database.query("SELECT count(*) FROM task_texts")
    assert count == 1
    records = {
        "messages": "payload",
        "task_events": "event_data",
        "history_entries": "entries",
        "task_responses": "response",
        "agent_histories": "history",
        "calls": "call",
    }
    for table, column in records.items():
        kind = "::text" if isinstance(database, PostgresDatabase) else ""
        longest = max(
            len(text)
            for (text,) in database.query(f"SELECT {column}{kind} FROM {table}")  # noqa: S608 - constants
        )
        assert longest < 1500, table
    size = len(text.encode())
    assert size < receipt.bytes < size + 12_000


async def test_an_event_knows_its_size(durable: Store, database: Database, rows: Rows) -> None:
    events = (
        rows.event(extra='{"a":1}', description="äö"),
        rows.event(extra=f'{{"full_message":{wire(PROSE)}}}'),
    )
    await rows.begin(durable, events=events)
    sizes = [size for (size,) in database.query("SELECT size FROM task_events ORDER BY seq")]
    assert sizes == [7 + 4, len(events[1].extra.encode())]


async def test_bytes_add_up_over_commits(store: Store, rows: Rows) -> None:
    first = await store.post(rows.post(deliveries=(rows.mail(payload=wire("one")),)))
    second = await store.post(rows.post(deliveries=(rows.mail(payload=wire("z" * 50_000)),)))
    third = await store.post(rows.post(deliveries=(rows.mail(payload=wire("two")),)))
    assert 0 < first.bytes < 1000
    assert 50_000 < second.bytes - first.bytes < 52_000
    assert 0 < third.bytes - second.bytes < 1000
