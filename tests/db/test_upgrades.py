"""Databases of earlier schemas: what is in them is read and continued as it was."""

import json
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import asyncpg

from mail.core.approvals import ALLOWS
from mail.core.render import xml_text
from mail.core.tasks import TaskState
from mail.db.calls import CallFilter
from mail.db.migrate import migrate, packaged_migrations
from mail.db.postgres.driver import PostgresStore
from mail.db.postgres.migrate import migrate as migrate_postgres
from mail.db.records import HistoryRow, JournalRow, Owner
from mail.db.store import Store
from mail.services.approvals import approval_record
from tests.db.contract.test_texts import arguments, wire
from tests.support.databases import Database, PostgresDatabase, SQLiteDatabase

LONG: Final = "old " * 5000
ODD: Final = f'{{"body": "@text{{p:{"0" * 32}}} @text{{=}} {LONG}"}}'
OLD_ROWS: Final = (
    "INSERT INTO tasks ({key}, task_id, swarm_name, caller_role, caller_id, task_owner, start_time,"
    " created_at, updated_at, state, is_running, entrypoint, steps, awaited, finish_asked,"
    " next_event) VALUES (7, 't1', 'example', 'user', 'alice', 'user:alice@example', '2026-01-01',"
    " '2026-01-01', '2026-01-01', 'running', {true}, 'supervisor', 0, {false}, {false}, 2)",
    "INSERT INTO messages (task, recipient, tier, interrupt, state, payload)"
    " VALUES (7, 'supervisor', 2, {false}, 'ready', '{odd}')",
    "INSERT INTO task_events (task_id, swarm_name, caller_role, caller_id, event_type, event_data,"
    " event_id, created_at, task, seq, description) VALUES ('t1', 'example', 'user', 'alice',"
    " 'new_message', '{odd}', '1', '2026-01-01', 7, 1, '@text{{=}}')",
    "INSERT INTO history_entries (task, agent, entries) VALUES (7, 'supervisor', '[{odd}]')",
)


async def fill(database: Database, version: int, rows: Iterable[str]) -> None:
    """Give an empty database an earlier schema, and rows."""
    if isinstance(database, PostgresDatabase):
        connection = await asyncpg.connect(database.url)
        await migrate_postgres(connection, packaged_migrations("postgresql")[:version])
        for row in rows:
            await connection.execute(row)
        await connection.close()
        return
    assert isinstance(database, SQLiteDatabase)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as file:
        migrate(file, packaged_migrations()[:version])
        for row in rows:
            file.execute(row)


@asynccontextmanager
async def upgraded(database: Database) -> AsyncIterator[Store]:
    """Upgrade the database by a store that owns it."""
    is_postgres = isinstance(database, PostgresDatabase)
    store = PostgresStore(database.url) if is_postgres else database.store()
    await store.open()
    yield store
    await store.close()


async def old_database(database: Database) -> None:
    """Give a database the schema before large texts, with a task in it."""
    if isinstance(database, PostgresDatabase):
        words = {"key": "key", "true": "TRUE", "false": "FALSE", "odd": ODD}
        await fill(database, 3, [row.format(**words) for row in OLD_ROWS])
    else:
        words = {"key": "id", "true": "1", "false": "0", "odd": ODD}
        await fill(database, 4, [row.format(**words) for row in OLD_ROWS])


async def test_old_rows_are_read_and_continued(database: Database, rows: Any) -> None:
    await old_database(database)
    async with upgraded(database) as store:
        (mail,) = await store.waiting_mail(rows.alice, "t1")
        (event,) = await store.events(rows.alice, "t1")
        assert mail.payload == ODD
        assert event.description == "@text{=}"
        assert event.extra["body"].endswith(LONG)
        assert await store.history(rows.alice, "t1", "supervisor") == [f"[{ODD}]"]
        ((before,),) = database.query("SELECT bytes FROM tasks")
        assert before == 4 * len(ODD) + len("[][]@text{=}")
        receipt = await store.commit(
            rows.turn(
                mail.seq,
                task=rows.task(state=TaskState.COMPLETED),
                histories=(HistoryRow("supervisor", f'["{LONG}"]'),),
                snapshot=True,
            )
        )
        assert len(LONG) < receipt.bytes - before < len(LONG) + 1000
        assert await store.history(rows.alice, "t1", "supervisor") == [f"[{ODD}]", f'["{LONG}"]']


OLD_THREADS: Final = """
INSERT INTO desk_threads (swarm_name, thread_id, title, creator, created_at) VALUES
    ('office', 'a', 't', 'ann', '2026-01-01'), ('office', 'b', 't', 'ann', '2026-01-01'),
    ('office', 'c', 't', 'ann', '2026-01-01');
INSERT INTO desk_members (swarm_name, thread_id, name, joined_at, added_by) VALUES
    ('office', 'a', 'ann', '2026-01-01', 'ann'), ('office', 'b', 'ann', '2026-01-01', 'ann'),
    ('office', 'c', 'ann', '2026-01-02', 'ann');
INSERT INTO desk_letters (swarm_name, letter_id, sender, kind, created_at, latest, payer, size,
    thread_id, reply_to, file_id, urgent, wants_ack, task_owner, task_id, subject, recipients, body)
VALUES
    ('office', 'a3', 'ann', 'thread', '2026-01-03', '2026-01-03', 'ann', 1,
        'a', '', '', {false}, {false}, '', '', '', '[]', 'x'),
    ('office', 'b4', 'ann', 'thread', '2026-01-04', '2026-01-04', 'ann', 1,
        'b', '', '', {false}, {false}, '', '', '', '[]', 'x'),
    ('office', 'a5', 'ann', 'thread', '2026-01-05', '2026-01-05', 'ann', 1,
        'a', '', '', {false}, {false}, '', '', '', '[]', 'x');
"""


async def test_threads_from_before_are_listed_by_their_newest_letters(database: Database) -> None:
    false = "FALSE" if isinstance(database, PostgresDatabase) else "0"
    threads = [text for text in OLD_THREADS.format(false=false).split(";") if text.strip()]
    await fill(database, 17, threads)
    async with upgraded(database) as store:
        listed = await store.list_threads("office", "ann")
    assert [(row.thread_id, row.active_at) for row in listed] == [
        ("a", "2026-01-05"),
        ("b", "2026-01-04"),
        ("c", "2026-01-02"),
    ]


# What the version before references wrote of a turn in which a text is repeated in every way.
MARKED: Final = json.loads((Path(__file__).parent / "old_texts.json").read_text("utf-8"))
TEXT: Final = MARKED["text"]
TRUTHS: Final = ("interrupt", "is_running", "completed", "awaited", "finish_asked", "told")


def marked_rows(*, postgres: bool) -> list[str]:
    """Return the statements that write the rows."""

    def literal(column: str, value: object) -> str:
        if value is None or isinstance(value, int):
            truth = postgres and column in TRUTHS
            return "NULL" if value is None else str(bool(value) if truth else value)
        return f"'{str(value).replace(chr(39), chr(39) * 2)}'"

    statements = []
    for table, rows in MARKED["tables"].items():
        for row in rows:
            values = {**row}
            if table == "task_texts":
                values["text"] = TEXT
            if postgres:
                number = values.pop("id", None)
                values |= {"key": number} if table == "tasks" else {}
                values.pop("seq" if table == "messages" else "id", None)
                if table == "task_responses":
                    values["response_text"] = values["response"]
            columns = ", ".join(values)
            written = ", ".join(literal(*item) for item in values.items())
            statements.append(f"INSERT INTO {table} ({columns}) VALUES ({written})")  # noqa: S608
    return statements


def marked_history(*, ascii_only: bool) -> list[Any]:
    asked = {"function": {"arguments": arguments(TEXT, ascii_only=ascii_only)}}
    return [
        {"role": "user", "content": f"<body>{xml_text(TEXT)}</body>"},
        {"role": "assistant", "tool_calls": [{"id": "c1", **asked}]},
        {"role": "tool", "content": f"SUCCESS:\n{TEXT}"},
    ]


async def test_references_of_the_version_before_are_read(database: Database, rows: Any) -> None:
    postgres = isinstance(database, PostgresDatabase)
    await fill(database, 19, marked_rows(postgres=postgres))
    sizes = [row["size"] for row in MARKED["tables"]["task_events"]]
    async with upgraded(database) as store:
        mail = await store.all_mail(rows.alice, "t1")
        assert [row.payload for row in mail] == [wire(TEXT)] * 3
        short = await store.all_mail(rows.alice, "t1", whole=False)
        assert max(len(row.payload) for row in short) < 200
        assert await store.journal(rows.alice, mail[1].seq) == [
            JournalRow("reply", "done", wire(TEXT)),
            JournalRow("c2", "done", " {}"),
        ]
        events = await store.events(rows.alice, "t1")
        assert [(event.description, event.extra) for event in events] == [
            ("", {"tool_args": {"message": TEXT}}),
            (f"said: {TEXT}", {"full_message": json.loads(wire(TEXT))}),
            ("@text{=}", {"a": "@text{"}),
        ]
        assert [event.size for event in events] == sizes
        assert await store.response(rows.alice, "t1") == wire(TEXT)
        for agent, ascii_only in (("supervisor", False), ("weather", True)):
            first, *_ = await store.history(rows.alice, "t1", agent)
            assert json.loads(first) == marked_history(ascii_only=ascii_only)
        assert (await store.history(rows.alice, "t1", "supervisor"))[1:] == ['["@text{=}"]']
        calls = await store.calls(rows.alice, "t1")
        assert [row.answer for row in calls] == [TEXT, TEXT]
        assert calls[0].call == arguments(TEXT, ascii_only=False)
        assert calls[0].shown == wire(TEXT)
        (peer,) = await store.task_outbox(rows.alice, "t1")
        assert peer.wrapper == wire(TEXT)


async def test_texts_of_the_version_before_are_continued(database: Database, rows: Any) -> None:
    await fill(database, 19, marked_rows(postgres=isinstance(database, PostgresDatabase)))
    before = MARKED["tables"]["tasks"][0]["bytes"]
    (text,) = MARKED["tables"]["task_texts"]
    async with upgraded(database) as store:
        answer = (HistoryRow("supervisor", json.dumps([TEXT])),)
        receipt = await store.commit(rows.post(new=False, histories=answer, snapshot=True))
        assert receipt.bytes - before < 1000
        assert (await store.history(rows.alice, "t1", "supervisor"))[2:] == [answer[0].entries]
    assert database.query("SELECT hash FROM task_texts") == [(text["hash"],)]
    snapshots = database.query("SELECT CAST(history AS TEXT) FROM agent_histories")
    assert all(text["hash"] in found and "@text{x" not in found for (found,) in snapshots)


OLD_STATES: Final = {
    # call id: answer of the call; status, decision and who answered of its approval
    "open": ("", "open", "", ""),
    "accepted": ("", "accepted", '{"type": "accept", "args": null}', "user:alice"),
    "edited": ("done", "edited", '{"type": "edit", "args": {"args": {"x": 2}}}', "user:alice"),
    "responded": ("no", "responded", '{"type": "response", "args": "no"}', "admin:root"),
    "cancelled": ("not run", "cancelled", "", ""),
    "expired": ("denied", "expired", '{"type": "response", "args": "denied"}', ""),
    "older": ("", "", "", ""),
    "older, answered": ("yes", "", "", ""),
    "wait": ("", "", "", ""),
}


CONFIG: Final = json.dumps(dict.fromkeys(ALLOWS.values(), True))
OLD_CALL: Final = (
    "INSERT INTO calls (task, agent, call_id, call, shown, answer)"
    " VALUES (7, 'clerk', '{name}', '{{}}', '{shown}', nullif('{answer}', ''))"
)
OLD_APPROVAL: Final = (
    "INSERT INTO approvals (task, approval_id, agent, call_id, kind, status, created_at, request,"
    " config, approvers, description, expires_at, answer, answered_by, answered_at, change)"
    " VALUES (7, 'a{number}', 'clerk', '{name}', 'approval', '{status}', '2026-01-0{number}',"
    " '{{}}', '{config}', '\nowner\n', 'Look', '', nullif('{decision}', ''), '{who}', '', {number})"
)


def old_calls(key: str, true: str, false: str) -> Iterator[str]:
    """Yield statements that add a paused task with a call in each state."""
    yield OLD_ROWS[0].format(key=key, true=true, false=false)
    for number, (name, (answer, *asked)) in enumerate(OLD_STATES.items(), 1):
        shown = f'{{"name": "send", "arguments": "{{}}", "call_id": "{name}"}}'
        yield OLD_CALL.format(name=name, shown="" if name == "wait" else shown, answer=answer)
        status, decision, who = asked
        if status:
            words = {"name": name, "status": status, "decision": decision, "who": who}
            yield OLD_APPROVAL.format(number=number, config=CONFIG, **words)
    yield "UPDATE approval_counter SET value = 9"


async def test_calls_and_what_people_were_asked_about_them_become_one(database: Database) -> None:
    is_postgres = isinstance(database, PostgresDatabase)
    words = ("key", "TRUE", "FALSE") if is_postgres else ("key", "1", "0")
    await fill(database, 19 if is_postgres else 20, old_calls(*words))
    owner = Owner("example", "user", "alice")
    async with upgraded(database) as store:
        calls = {row.call_id: row for row in await store.calls(owner, "t1")}
        asked = [row.call_id for row in await store.open_calls(owner, "t1")]
        found, _ = await store.held_calls(CallFilter(owner), 9)
        changed, _ = await store.held_calls(CallFilter(owner, after=1), 9)
        assert await store.last_call_change() == 9
    assert asked == ["open", "older"]
    assert [name for name, row in calls.items() if row.is_decided] == ["accepted"]
    assert {name: row.answer or "" for name, row in calls.items()} == {
        name: answer for name, (answer, *_) in OLD_STATES.items()
    }
    assert calls["wait"].is_wait and not any(row.is_wait for row in list(calls.values())[:-1])
    assert calls["older, answered"].status == "responded"
    listed = [name for name, (_, status, *_) in OLD_STATES.items() if status]
    assert [each.row.call_id for each in found] == listed[::-1]
    assert [each.row.call_id for each in changed] == listed[1:]
    records = {each.row.call_id: approval_record(each) for each in found}
    answers = {name: json.loads(text or "null") for name, (_, _, text, _) in OLD_STATES.items()}
    for number, name in enumerate(listed):
        record = records[name]
        assert (record["approval_id"], record["status"]) == (f"a{number + 1}", OLD_STATES[name][1])
        assert record["answer"] == answers[name]
        assert (record["answered_by"] or "") == OLD_STATES[name][3]
        assert record["created_at"] == f"2026-01-0{number + 1}"
        assert record["action_request"] == {"action": "send", "args": {}}
        assert (record["description"], record["approvers"]) == ("Look", ["owner"])
