"""The documented tables, as every database must show them to whoever reads them beside a server."""

import json
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.records import HistoryRow
from mail.db.store import Store
from tests.support.databases import Database

Rows = Any


class TestTasks:
    async def test_a_task_shows_its_documented_state(
        self, database: Database, durable: Store, rows: Rows
    ) -> None:
        state = "SELECT is_running, completed, created_at, start_time FROM tasks"
        await durable.commit(rows.post(events=(rows.event(extra='{"a": 1}'),), response='{"b": 1}'))
        (before,) = database.query(state)
        await durable.commit(rows.post(task=rows.task(state=TaskState.COMPLETED)))
        (after,) = database.query(state)
        assert (before[:2], after[:2]) == ((True, False), (False, True))
        assert before[2:] == after[2:]
        ((contributors,),) = database.query("SELECT task_contributors FROM tasks")
        assert json.loads(contributors) == ["user:alice@example"]
        (event,) = database.query("SELECT event_type, event_data, event_id FROM task_events")
        assert event == ("new_message", '{"a": 1}', "1")
        owned = "SELECT task_id, swarm_name, caller_role, caller_id, response FROM task_responses"
        ((*owner, response),) = database.query(owned)
        assert (owner, json.loads(response)) == (["t1", *rows.alice], {"b": 1})

    async def test_dead_mail_keeps_its_reason(
        self, database: Database, durable: Store, rows: Rows
    ) -> None:
        seq = (await durable.commit(rows.post(deliveries=(rows.mail(),)))).seqs[0]
        await durable.commit(rows.turn(seq, dead="five attempts"))
        assert database.query("SELECT state, reason FROM messages") == [("dead", "five attempts")]


class TestSnapshots:
    async def test_a_snapshot_holds_the_whole_history_once(
        self, database: Database, durable: Store, rows: Rows
    ) -> None:
        def entry(text: str) -> dict[str, str]:
            return {"role": "assistant", "content": text}

        async def add(*texts: str, snapshot: bool) -> None:
            added = tuple(HistoryRow("supervisor", json.dumps([entry(t)])) for t in texts)
            await durable.commit(rows.post(histories=added, snapshot=snapshot))

        await add("a", "b", snapshot=False)
        assert database.query("SELECT * FROM agent_histories") == []
        await add("c", snapshot=True)
        await add(snapshot=True)
        await add("d", snapshot=False)
        await add("é", snapshot=True)
        (row,) = database.query(
            "SELECT swarm_name, caller_role, caller_id, tool_format, task_id, agent_name, history "
            "FROM agent_histories",
        )
        assert row[:6] == (*rows.alice, "completions", "t1", "supervisor")
        assert json.loads(row[6]) == [entry(text) for text in ("a", "b", "c", "d", "é")]

    @pytest.mark.parametrize(
        ("entries", "expected"),
        [
            ('[{"role": "user", "content": "q"}, {"role": "tool"}]', "completions"),
            ('[{"role": "user"}, {"type": "function_call", "name": "f"}]', "responses"),
            ('[{"role": "user"}, {"type": "message", "role": "assistant"}]', "responses"),
            ('[{"role": "user", "content": "only"}]', "completions"),
            (" [ ] ", "completions"),
        ],
    )
    async def test_a_snapshot_tells_the_shape_of_the_history(
        self, database: Database, durable: Store, rows: Rows, entries: str, expected: str
    ) -> None:
        await durable.commit(rows.post(histories=(HistoryRow("a", entries),), snapshot=True))
        ((shape, history),) = database.query("SELECT tool_format, history FROM agent_histories")
        assert shape == expected
        assert json.loads(history) == json.loads(entries)

    async def test_an_addition_without_a_shape_keeps_the_one_told_before(
        self, database: Database, durable: Store, rows: Rows
    ) -> None:
        shapes = []
        for entries in ('[{"role": "user"}]', '[{"type": "function_call", "name": "f"}]', "[]"):
            await durable.commit(rows.post(histories=(HistoryRow("a", entries),), snapshot=True))
            ((shape,),) = database.query("SELECT tool_format FROM agent_histories")
            shapes.append(shape)
        assert shapes == ["completions", "responses", "responses"]
