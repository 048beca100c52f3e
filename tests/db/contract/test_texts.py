"""Large texts: whatever a commit brings comes back as it was, and durable stores write it once."""

import asyncio
import json
import random
import threading
from typing import Any

import pytest
from pydantic_core import to_json

from mail.core.addresses import create_agent_address, create_user_address
from mail.core.render import render_mail
from mail.core.tasks import TaskState
from mail.db import commit
from mail.db.calls import CallRow
from mail.db.commit import Commit
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


def incoming(text: str) -> dict[str, str]:
    """Return a message as a history has it."""
    sender, to = create_user_address("alice"), create_agent_address("supervisor")
    return render_mail("2026-01-01T10:00:00+00:00", sender, [to], "s", text)


def history(text: str, *, ascii_only: bool = False) -> str:
    call = {"id": "c1", "function": {"arguments": arguments(text, ascii_only=ascii_only)}}
    return to_json(
        [
            incoming(text),
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
    (seq,) = (await store.commit(post)).seqs
    turn = a_turn(rows, seq, text)
    await store.commit(turn)
    assert await everything(store, rows.alice) == expected(rows, turn, text)


@pytest.mark.parametrize("name", TEXTS)
async def test_who_wrote_to_whom_is_read_without_the_texts(
    durable: Store, rows: Rows, name: str
) -> None:
    mail = rows.mail(payload=wire(TEXTS[name]))
    await durable.commit(rows.post(new=True, deliveries=(mail, mail)))
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
    await store.commit(rows.turn(seq, done=False, journal=facts))
    assert await store.journal(rows.alice, seq) == list(facts)
    assert await store.journal(rows.bob, seq) == []


async def test_equal_texts_of_two_callers_are_apart(store: Store, rows: Rows) -> None:
    for owner in (rows.alice, rows.bob):
        await rows.begin(store, owner=owner, response=wire(PROSE))
    assert await store.response(rows.bob, "t1") == wire(PROSE)


async def test_a_hash_that_somebody_writes_is_a_text_like_others(
    durable: Store, database: Database, rows: Rows
) -> None:
    await rows.begin(durable, "t1", owner=rows.bob, response=wire("secret " * 1000))
    ((found,),) = database.query("SELECT hash FROM task_texts")
    for guessed in (found, f"{found} " + "x" * 9000, f" @text{{p:{found}}}"):
        await rows.begin(durable, owner=rows.alice, response=wire(guessed))
        assert await durable.response(rows.alice, "t1") == wire(guessed)


LONG = "z" * 5000
ODD = {
    "a space first": " " + wire(LONG),
    "spaces between": json.dumps({"a": [LONG, {"b": LONG}]}, indent=1),
    "keys": json.dumps({LONG: f'"{LONG}', "a": LONG}),
    "a key twice": f'{{"a": "{LONG}", "a": "{LONG}"}}',
    "needless escapes": f'["{LONG}", "\\u0061\\/{LONG}", "{LONG}"]',
    "an end that begins": json.dumps(["y" * 3000 + "z" * 100, "y" * 3000, "z" * 3000]),
    "numbers": f'[1.0, 1e400, 12345678901234567890123, NaN, -0, "{LONG}"]',
    "an odd pair": f'["\\ud83d\\ude00", "{LONG}"]',
    "half a pair": f'["\\ud83d", "{LONG}"]',
    "no JSON": f'["{LONG}"',
    "a text": json.dumps(LONG),
    "deep": "[" * 400 + f'"{LONG}"' + "]" * 400,
    "mail in mail": to_json(incoming(incoming(LONG)["content"])).decode(),
    "odd mail": to_json(f"\n<incoming_message>\n<body>{LONG}&quot;\r</body>").decode(),
    "no mail": to_json(f"\n<incoming_message>\n</body>{LONG}<body>").decode(),
}


@pytest.mark.parametrize("name", ODD)
async def test_whatever_record_comes_back_as_it_was(store: Store, rows: Rows, name: str) -> None:
    history = (HistoryRow("supervisor", ODD[name]),)
    await store.commit(rows.post(deliveries=(rows.mail(payload=ODD[name]),), histories=history))
    (found,) = await store.waiting_mail(rows.alice, "t1")
    assert found.payload == ODD[name]
    assert await store.history(rows.alice, "t1", "supervisor") == [ODD[name]]


LISTS = {
    "many texts": json.dumps([f"{number}" * 1200 for number in range(100, 150)]),
    "a text among numbers": json.dumps(["x" * 3000, *range(20_000)]),
}


@pytest.mark.parametrize("name", LISTS)
async def test_a_body_that_is_json_is_kept_once(
    durable: Store, database: Database, rows: Rows, name: str
) -> None:
    body = LISTS[name]
    event = rows.event(extra=f'{{"full_message":{wire(body)}}}', description=body)
    mail = rows.mail(payload=wire(body))
    receipt = await durable.commit(rows.post(new=True, deliveries=(mail,), events=(event,)))
    ((kept,),) = database.query("SELECT sum(length(text)) FROM task_texts")
    assert 0.9 * len(body) < kept <= len(body)
    assert len(body) < receipt.bytes < 1.1 * len(body)
    (found,) = await durable.waiting_mail(rows.alice, "t1")
    assert found.payload == wire(body)


async def test_a_commit_has_as_many_texts_as_it_likes(
    durable: Store, database: Database, rows: Rows
) -> None:
    many = [f"{number}" * 1200 for number in range(100, 200)]
    record = json.dumps({"items": many})
    for extra in ({}, {"response": record}):
        event = rows.event(extra=record)
        await durable.commit(rows.post(events=(event,), **extra))
        ((count,),) = database.query("SELECT count(*) FROM task_texts")
        assert count == 100
    assert await durable.response(rows.alice, "t1") == record


RECORDS = {
    "messages": "payload",
    "task_events": "event_data",
    "history_entries": "entries",
    "task_responses": "response",
    "agent_histories": "history",
    "calls": "call",
}


async def test_other_commits_go_on_while_a_large_one_is_made_ready(
    durable: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, lifted = threading.Event(), threading.Event(), commit.lifted

    def slowly(post: Commit) -> commit.ShortCommit:
        if post.task.task_id == "large":
            begun.set()
            assert goes_on.wait(20)
        return lifted(post)

    monkeypatch.setattr(commit, "lifted", slowly)
    mail = rows.mail(payload=wire("a" * 200_000))
    large = asyncio.create_task(durable.commit(rows.post("large", new=True, deliveries=(mail,))))
    try:
        assert await asyncio.to_thread(begun.wait, 10)
        async with asyncio.timeout(10):
            await durable.commit(rows.post("small", new=True))
        assert not large.done()
    finally:
        goes_on.set()
    await large
    assert {row.task_id for row in await durable.list_tasks(rows.alice)} == {"large", "small"}


async def test_large_commits_are_written_one_at_a_time_and_small_ones_in_between(
    durable: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, goes_on = list[str](), asyncio.Event()
    transaction = durable.driver.transaction

    async def noted(verb: Any) -> Any:
        written.append(verb.args[0].task.task_id)
        if written[-1].startswith("large"):
            await goes_on.wait()
        return await transaction(verb)

    monkeypatch.setattr(durable.driver, "transaction", noted)
    mail = rows.mail(payload=wire("a" * 200_000))
    large = [
        asyncio.create_task(durable.commit(rows.post(f"large-{n}", new=True, deliveries=(mail,))))
        for n in range(3)
    ]
    async with asyncio.timeout(20):
        while not written:
            await asyncio.sleep(0.005)
        await durable.commit(rows.post("small", new=True))
        assert written == ["large-0", "small"]
        goes_on.set()
        await asyncio.gather(*large)
    assert written == ["large-0", "small", "large-1", "large-2"]


@pytest.mark.parametrize("name", ["prose", "letters", "marks", "marks alone", "half marks"])
async def test_a_text_is_written_once(
    durable: Store, database: Database, rows: Rows, name: str
) -> None:
    text = TEXTS[name]
    post = rows.post(new=True, deliveries=(rows.mail(payload=wire(text)),))
    (seq,) = (await durable.commit(post)).seqs
    receipt = await durable.commit(a_turn(rows, seq, text))
    stored = {found for (found,) in database.query("SELECT text FROM task_texts")}
    made = {text, f"said: {text}", f"SUCCESS:\n{text}"}
    assert stored == made
    for table, column in RECORDS.items():
        kind = "::text" if isinstance(database, PostgresDatabase) else ""
        longest = max(
            len(text)
            for (text,) in database.query(f"SELECT {column}{kind} FROM {table}")  # noqa: S608 - constants
        )
        assert longest < 1500, table
    size = sum(len(found.encode()) for found in made)
    assert size < receipt.bytes < size + 12_000


WRITTEN = (
    ("messages", "payload"),
    ("task_events", "event_data"),
    ("task_events", "description"),
    ("history_entries", "entries"),
    ("agent_histories", "history"),
    ("task_responses", "response"),
    ("task_texts", "text"),
)
SENT = {
    "prose": PROSE * 20,
    "what XML escapes": "<&>" * 50_000,
    "what JSON escapes": '"\n\\' * 50_000,
    "controls": "\x01" * 50_000,
    "umlauts": "äöü" * 50_000,
}


@pytest.mark.parametrize("name", SENT)
async def test_it_takes_at_most_three_times_what_was_sent(
    durable: Store, database: Database, rows: Rows, name: str
) -> None:
    """A user asks three agents, one of which answers with the question."""
    body = SENT[name]
    message, asked = wire(body), to_json({"finish_message": body}).decode()
    event = rows.event(extra=f'{{"full_message":{message}}}')
    agents = ("supervisor", "weather", "news")
    mail = tuple(rows.mail(recipient=agent, payload=message) for agent in agents)
    seqs = (await durable.commit(rows.post(new=True, deliveries=mail, events=(event,)))).seqs
    call = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"arguments": asked}}]}
    for seq, agent in zip(seqs, agents, strict=True):
        entries = [incoming(body), *([call] if agent == "news" else [])]
        history = HistoryRow(agent, to_json(entries).decode())
        turn = rows.turn(seq, histories=(history,), snapshot=True)
        if agent == "news":
            turn.response = message
            turn.events = (rows.event("tool_call", extra=f'{{"tool_args":{asked}}}'), event)
        receipt = await durable.commit(turn)
    assert receipt.bytes <= 3 * len(message.encode())
    taken = 0
    for table, column in WRITTEN:
        texts = database.query(f"SELECT CAST({column} AS TEXT) FROM {table}")  # noqa: S608 - constants
        taken += sum(len(text.encode()) for (text,) in texts)
    assert taken <= 3 * len(message.encode())
    for agent in agents:
        (found,) = await durable.history(rows.alice, "t1", agent)
        assert json.loads(found)[0] == incoming(body)


async def test_an_event_knows_its_size(durable: Store, database: Database, rows: Rows) -> None:
    events = (
        rows.event(extra='{"a":1}', description="äö"),
        rows.event(extra=f'{{"full_message":{wire(PROSE)}}}'),
    )
    await rows.begin(durable, events=events)
    sizes = [size for (size,) in database.query("SELECT size FROM task_events ORDER BY seq")]
    assert sizes == [7 + 4, len(events[1].extra.encode())]


async def test_bytes_add_up_over_commits(store: Store, rows: Rows) -> None:
    first = await store.commit(rows.post(deliveries=(rows.mail(payload=wire("one")),)))
    second = await store.commit(rows.post(deliveries=(rows.mail(payload=wire("z" * 50_000)),)))
    third = await store.commit(rows.post(deliveries=(rows.mail(payload=wire("two")),)))
    assert 0 < first.bytes < 1000
    assert 50_000 < second.bytes - first.bytes < 52_000
    assert 0 < third.bytes - second.bytes < 1000
