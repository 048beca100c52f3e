"""What every store must do; the text of `mail.db.base` as tests."""

import asyncio
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.base import (
    CallRow,
    HistoryRow,
    IdempotencyRow,
    JournalRow,
    MemoryRow,
    Owner,
    Store,
    TokenRow,
)
from mail.db.memory import MemoryStore
from mail.errors import KeyTaken, StoreConflict

Rows = Any


async def begin(store: Store, rows: Rows, task_id: str = "t1", **changes: Any) -> int:
    """Post a task with one delivery and return the delivery's number."""
    receipt = await store.post(rows.post(task_id, deliveries=(rows.mail(task_id),), **changes))
    return receipt.seqs[0]


class TestTasks:
    async def test_an_unknown_task_is_none(self, store: Store, rows: Rows) -> None:
        assert await store.load_task(rows.alice, "t1") is None

    async def test_every_field_round_trips(self, store: Store, rows: Rows) -> None:
        task = rows.task(
            task_contributors=("user:alice@example", "agent:weather@example"),
            remote_swarms=("beta", "alpha"),
            state=TaskState.PAUSED,
            steps=7,
            max_steps=15,
            awaited=True,
            finish_asked=True,
            title="Wetter in Zürich",
            usage='{"Ärztin":{"calls":1,"cost":0.25}}',
        )
        await store.post(rows.post(task=task))
        assert await store.load_task(rows.alice, "t1") == task

    async def test_a_later_commit_replaces_the_row_whole(self, store: Store, rows: Rows) -> None:
        await store.post(rows.post(task=rows.task(title="first", max_steps=3, awaited=True)))
        later = rows.task(
            state=TaskState.COMPLETED, task_owner="user:x@example", steps=2, usage='{"a":{}}'
        )
        await store.post(rows.post(task=later))
        assert await store.load_task(rows.alice, "t1") == later

    async def test_new_refuses_a_task_that_exists(self, store: Store, rows: Rows) -> None:
        await begin(store, rows, new=True, events=(rows.event(),))
        with pytest.raises(StoreConflict):
            await store.post(
                rows.post(
                    task=rows.task(title="second"),
                    new=True,
                    deliveries=(rows.mail(),),
                    events=(rows.event(),),
                )
            )
        assert await store.load_task(rows.alice, "t1") == rows.task()
        assert len(await store.all_mail(rows.alice, "t1")) == 1
        assert len(await store.events(rows.alice, "t1")) == 1

    async def test_owners_do_not_share_task_ids(self, store: Store, rows: Rows) -> None:
        await begin(store, rows, new=True, events=(rows.event("tool_call"),))
        await begin(store, rows, new=True, owner=rows.bob, events=(rows.event(),))
        assert [e.kind for e in await store.events(rows.alice, "t1")] == ["tool_call"]
        assert [e.kind for e in await store.events(rows.bob, "t1")] == ["new_message"]
        assert await store.load_task(Owner("other", "user", "alice"), "t1") is None

    async def test_owners_with_separators_in_their_ids_stay_apart(
        self, store: Store, rows: Rows
    ) -> None:
        owners = [
            Owner("s", "user", "a@s"),
            Owner("s", "user", "a"),
            Owner("s@s", "user", "a"),
            Owner("s", "user:a", ""),
            Owner("s", "user", "a\0b"),
            Owner("s", "user", "a\0c"),
            Owner("s", "user", "a%"),
        ]
        for number, owner in enumerate(owners):
            task = rows.task(title=str(number))
            await store.post(rows.post(owner=owner, task=task, new=True))
        titles = [await store.load_task(owner, "t1") for owner in owners]
        assert [row.title for row in titles if row] == [str(n) for n in range(len(owners))]

    async def test_listing_is_newest_first_by_creation(self, store: Store, rows: Rows) -> None:
        for task_id in ("c", "a", "b"):
            await store.post(rows.post(task_id))
        await store.post(rows.post("c", events=(rows.event(),)))
        await store.post(rows.post("z", owner=rows.bob))
        listed = await store.list_tasks(rows.alice)
        assert [row.task_id for row in listed] == ["b", "a", "c"]

    async def test_listing_pages_with_limit_and_cursor(self, store: Store, rows: Rows) -> None:
        for number in range(5):
            await store.post(rows.post(f"t{number}"))
        first = await store.list_tasks(rows.alice, limit=2)
        second = await store.list_tasks(rows.alice, limit=2, before=first[-1].task_id)
        third = await store.list_tasks(rows.alice, limit=2, before=second[-1].task_id)
        pages = [[row.task_id for row in page] for page in (first, second, third)]
        assert pages == [["t4", "t3"], ["t2", "t1"], ["t0"]]
        assert await store.list_tasks(rows.alice, before="t0") == []
        assert await store.list_tasks(rows.alice, before="nobody") == []

    async def test_listing_selects_states(self, store: Store, rows: Rows) -> None:
        for number, state in enumerate(TaskState):
            await store.post(rows.post(task=rows.task(f"t{number}", state=state)))
        running = await store.list_tasks(rows.alice, states=[TaskState.RUNNING])
        ended = (TaskState.COMPLETED, TaskState.FAILED)
        assert [row.state for row in running] == [TaskState.RUNNING]
        found = await store.list_tasks(rows.alice, states=ended)
        assert [row.state for row in found] == [TaskState.FAILED, TaskState.COMPLETED]
        after = await store.list_tasks(rows.alice, states=ended, before=found[0].task_id, limit=5)
        assert [row.state for row in after] == [TaskState.COMPLETED]

    async def test_owners_have_a_task_whatever_became_of_it(self, store: Store, rows: Rows) -> None:
        other = rows.bob._replace(swarm="other")
        names = [rows.alice._replace(id=name) for name in ("zoë", "Zoe", "ada", "a b", "_")]
        assert await store.owners("example") == []
        for owner in (*names, rows.bob, other):
            done = rows.task(state=TaskState.COMPLETED)
            await store.post(rows.post(owner=owner, task=done))
        await store.post(rows.post("t2", owner=rows.bob))
        assert await store.owners("example") == sorted([*names, rows.bob])
        assert await store.owners("other") == [other]
        assert await store.owners("exam") == []

    async def test_open_owners_have_a_running_task(self, store: Store, rows: Rows) -> None:
        await store.post(rows.post("t1"))
        await store.post(rows.post("t2"))
        await store.post(rows.post(owner=rows.bob))
        await store.post(rows.post(owner=Owner("elsewhere", "user", "carol")))
        assert sorted(await store.open_owners("example")) == [rows.alice, rows.bob]
        await store.post(rows.post(owner=rows.bob, task=rows.task(state=TaskState.PAUSED)))
        await store.post(rows.post(task=rows.task("t2", state=TaskState.COMPLETED)))
        assert await store.open_owners("example") == [rows.alice]
        untold = rows.task(state=TaskState.PAUSED, awaited=True)
        await store.post(rows.post(owner=rows.bob, task=untold))
        assert sorted(await store.open_owners("example")) == [rows.alice, rows.bob]
        await store.post(rows.post(owner=rows.bob, task=rows.task(state=TaskState.PAUSED)))
        await store.post(rows.post(task=rows.task(state=TaskState.CANCELLED)))
        assert await store.open_owners("example") == []


class TestEvents:
    async def test_numbers_are_contiguous_within_a_task(self, store: Store, rows: Rows) -> None:
        receipts = []
        for count in (2, 0, 1):
            receipts.append(await store.post(rows.post(events=(rows.event(),) * count)))
            await store.post(rows.post("other", events=(rows.event(),) * 2))
        assert [receipt.first_event for receipt in receipts] == [1, 3, 3]
        assert [event.seq for event in await store.events(rows.alice, "t1")] == [1, 2, 3]
        assert [event.seq for event in await store.events(rows.alice, "other")] == [*range(1, 7)]

    async def test_every_field_round_trips(self, store: Store, rows: Rows) -> None:
        row = rows.event("tool_call", description="höhere [/red]\n", extra='{"a": [1, null]}')
        await store.post(rows.post(events=(row,)))
        (event,) = await store.events(rows.alice, "t1")
        assert (event.task_id, event.kind, event.timestamp) == ("t1", "tool_call", rows.now)
        assert (event.description, event.extra) == ("höhere [/red]\n", {"a": [1, None]})

    async def test_reading_after_a_number_with_a_limit(self, store: Store, rows: Rows) -> None:
        await store.post(rows.post(events=(rows.event(),) * 6))
        numbers = [e.seq for e in await store.events(rows.alice, "t1", after=2, limit=3)]
        assert numbers == [3, 4, 5]
        assert [e.seq for e in await store.events(rows.alice, "t1", after=4)] == [5, 6]
        assert await store.events(rows.alice, "t1", after=6) == []
        assert await store.events(rows.bob, "t1") == []

    async def test_the_latest_time_is_the_greatest_of_the_newest(
        self, store: Store, rows: Rows
    ) -> None:
        assert await store.latest_time(rows.alice, "t1") == ""
        times = [f"2026-01-01T12:00:00.{number:06}+00:00" for number in (1, 3, 2)]
        events = tuple(rows.event()._replace(timestamp=time) for time in times)
        await store.post(rows.post(events=events))
        await store.post(rows.post("other", events=(rows.event(),)))
        assert await store.latest_time(rows.alice, "t1") == times[1]
        assert await store.latest_time(rows.bob, "t1") == ""

    async def test_a_refused_commit_leaves_no_gap(self, store: Store, rows: Rows) -> None:
        seq = await begin(store, rows, events=(rows.event(),))
        with pytest.raises(StoreConflict):
            await store.commit_turn(rows.turn(seq + 100, events=(rows.event(),) * 3))
        receipt = await store.commit_turn(rows.turn(seq, events=(rows.event(),)))
        assert receipt.first_event == 2
        assert [event.seq for event in await store.events(rows.alice, "t1")] == [1, 2]

    async def test_parallel_commits_number_without_gap_or_double(
        self, store: Store, rows: Rows
    ) -> None:
        posts = [rows.post(events=(rows.event(),) * (n % 3 + 1)) for n in range(200)]
        receipts = await asyncio.gather(*(store.post(post) for post in posts))
        taken = [
            number
            for post, receipt in zip(posts, receipts, strict=True)
            for number in range(receipt.first_event, receipt.first_event + len(post.events))
        ]
        assert taken == [*range(1, len(taken) + 1)]
        assert [event.seq for event in await store.events(rows.alice, "t1")] == taken


class TestMail:
    async def test_every_field_round_trips(self, store: Store, rows: Rows) -> None:
        mail = rows.mail(
            recipient="weather", tier=3, interrupt=True, payload='{"ü": 1}', control="{}"
        )
        receipt = await store.post(rows.post(deliveries=(mail,)))
        (read,) = await store.waiting_mail(rows.alice, "t1")
        assert (read.seq, read.attempts) == (receipt.seqs[0], 0)
        assert (read.task_id, read.recipient, read.tier) == ("t1", "weather", 3)
        assert (read.interrupt, read.payload, read.control) == (True, '{"ü": 1}', "{}")

    async def test_numbers_increase_over_all_tasks_and_owners(
        self, store: Store, rows: Rows
    ) -> None:
        pair = (rows.mail(), rows.mail())
        first = await store.post(rows.post(deliveries=pair))
        second = await store.post(rows.post(owner=rows.bob, deliveries=pair))
        third = await store.commit_turn(rows.turn(first.seqs[0], deliveries=pair))
        numbers = [*first.seqs, *second.seqs, *third.seqs]
        assert len(numbers) == 6
        assert numbers == sorted(set(numbers))

    async def test_waiting_mail_is_ordered_by_tier_then_number(
        self, store: Store, rows: Rows
    ) -> None:
        mail = tuple(rows.mail(tier=tier, payload=str(n)) for n, tier in enumerate((5, 1, 3, 1)))
        await store.post(rows.post(deliveries=mail))
        waiting = await store.waiting_mail(rows.alice, "t1")
        assert [m.payload for m in waiting] == ["1", "3", "2", "0"]
        everything = await store.all_mail(rows.alice, "t1")
        assert [m.payload for m in everything] == ["0", "1", "2", "3"]
        assert await store.waiting_mail(rows.bob, "t1") == []
        assert await store.all_mail(rows.bob, "t1") == []

    async def test_a_turn_consumes_its_delivery_and_posts_the_next(
        self, store: Store, rows: Rows
    ) -> None:
        seq = await begin(store, rows)
        receipt = await store.commit_turn(rows.turn(seq, deliveries=(rows.mail(),)))
        waiting = await store.waiting_mail(rows.alice, "t1")
        assert tuple(m.seq for m in waiting) == receipt.seqs
        assert [m.seq for m in await store.all_mail(rows.alice, "t1")] == [seq, *receipt.seqs]

    @pytest.mark.parametrize("done", [True, False])
    async def test_a_consumed_delivery_conflicts_and_nothing_is_written(
        self, store: Store, rows: Rows, done: bool
    ) -> None:
        seq = await begin(store, rows)
        await store.commit_turn(rows.turn(seq))
        late = rows.turn(
            seq,
            task=rows.task(title="late"),
            done=done,
            deliveries=(rows.mail(),),
            events=(rows.event(),),
            histories=(HistoryRow("supervisor", "[1]"),),
            journal=(JournalRow("reply", "done", "{}"),),
            calls=(CallRow(agent="a", call_id="c", call="{}", shown="{}"),),
            memories=(memory(rows, "k"),),
            response="{}",
        )
        with pytest.raises(StoreConflict):
            await store.commit_turn(late)
        assert await store.load_task(rows.alice, "t1") == rows.task()
        assert await store.waiting_mail(rows.alice, "t1") == []
        assert await store.events(rows.alice, "t1") == []
        assert await store.history(rows.alice, "t1", "supervisor") == []
        assert await store.journal(rows.alice, seq) == []
        assert await store.calls(rows.alice, "t1") == []
        assert await store.response(rows.alice, "t1") is None
        assert await store.memory_namespaces(rows.alice) == []

    async def test_a_turn_cannot_consume_mail_of_others(self, store: Store, rows: Rows) -> None:
        seq = await begin(store, rows)
        await begin(store, rows, "t2")
        await begin(store, rows, owner=rows.bob)
        for turn in (
            rows.turn(seq, "t2"),
            rows.turn(seq, owner=rows.bob),
            rows.turn(seq, "unknown"),
        ):
            with pytest.raises(StoreConflict):
                await store.commit_turn(turn)
        assert await store.load_task(rows.alice, "unknown") is None
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t1")] == [seq]

    async def test_dead_mail_is_put_aside(self, store: Store, rows: Rows) -> None:
        seq = await begin(store, rows)
        await store.commit_turn(rows.turn(seq, dead="five attempts"))
        assert await store.waiting_mail(rows.alice, "t1") == []
        assert [m.seq for m in await store.all_mail(rows.alice, "t1")] == [seq]
        with pytest.raises(StoreConflict):
            await store.commit_turn(rows.turn(seq))

    async def test_cancelling_drops_only_the_waiting_mail_of_the_task(
        self, store: Store, rows: Rows
    ) -> None:
        old = await begin(store, rows)
        other = await begin(store, rows, "t2")
        fresh = await begin(store, rows, cancel_mail=True)
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t1")] == [fresh]
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t2")] == [other]
        assert [m.seq for m in await store.all_mail(rows.alice, "t1")] == [old, fresh]
        with pytest.raises(StoreConflict):
            await store.commit_turn(rows.turn(old))

    async def test_a_turn_may_end_its_own_delivery_and_cancel_the_rest(
        self, store: Store, rows: Rows
    ) -> None:
        seq = await begin(store, rows)
        rest = await begin(store, rows)
        ended = rows.task(state=TaskState.FAILED)
        await store.commit_turn(rows.turn(seq, task=ended, cancel_mail=True))
        assert await store.waiting_mail(rows.alice, "t1") == []
        assert [m.seq for m in await store.all_mail(rows.alice, "t1")] == [seq, rest]

    async def test_a_commit_may_consume_further_mail_of_its_task(
        self, store: Store, rows: Rows
    ) -> None:
        row = JournalRow("reply", "done", "{}")
        seqs = [await begin(store, rows) for _ in range(4)]
        elsewhere = await begin(store, rows, "t2")
        await store.commit_turn(rows.turn(seqs[1], done=False, journal=(row,)))
        await store.commit_turn(rows.turn(seqs[0], settled=(seqs[1], elsewhere, 999)))
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t1")] == seqs[2:]
        assert await store.journal(rows.alice, seqs[1]) == []
        assert await store.begun(rows.alice, "t1") == []
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t2")] == [elsewhere]
        await store.post(rows.post(settled=(seqs[0], seqs[2])))
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t1")] == seqs[3:]
        assert [m.seq for m in await store.all_mail(rows.alice, "t1")] == seqs
        with pytest.raises(StoreConflict):
            await store.commit_turn(rows.turn(seqs[2]))

    async def test_one_conflict_among_parallel_turns_fails_alone(
        self, store: Store, rows: Rows
    ) -> None:
        seqs = [await begin(store, rows, f"t{n}") for n in range(20)]
        await store.commit_turn(rows.turn(seqs[7], "t7"))
        turns = [rows.turn(seq, f"t{n}", events=(rows.event(),)) for n, seq in enumerate(seqs)]
        results = await asyncio.gather(
            *(store.commit_turn(turn) for turn in turns), return_exceptions=True
        )
        failed = [n for n, result in enumerate(results) if isinstance(result, BaseException)]
        assert failed == [7]
        assert isinstance(results[7], StoreConflict)
        for number in range(20):
            expected = 0 if number == 7 else 1
            assert len(await store.events(rows.alice, f"t{number}")) == expected

    async def test_a_cancelled_caller_does_not_undo_its_commit(
        self, store: Store, rows: Rows
    ) -> None:
        commit = asyncio.create_task(store.post(rows.post(events=(rows.event(),))))
        await asyncio.sleep(0)
        commit.cancel()
        await asyncio.wait([commit])
        await store.post(rows.post("later"))
        assert len(await store.events(rows.alice, "t1")) == 1


class TestAttempts:
    async def test_a_claim_counts_and_a_release_takes_back(self, store: Store, rows: Rows) -> None:
        seq = await begin(store, rows)
        assert await store.claim(rows.alice, seq) == 1
        assert await store.claim(rows.alice, seq) == 2
        await store.release(rows.alice, seq)
        (mail,) = await store.waiting_mail(rows.alice, "t1")
        assert mail.attempts == 1

    async def test_only_the_owners_waiting_mail_can_be_claimed(
        self, store: Store, rows: Rows
    ) -> None:
        seq = await begin(store, rows)
        with pytest.raises(StoreConflict):
            await store.claim(rows.bob, seq)
        await store.commit_turn(rows.turn(seq))
        with pytest.raises(StoreConflict):
            await store.claim(rows.alice, seq)


class TestJournal:
    async def test_rows_keep_their_order_and_the_last_state(self, store: Store, rows: Rows) -> None:
        seq = await begin(store, rows)
        steps = [
            (JournalRow("reply", "done", '{"text": "é"}'),),
            (JournalRow("call-2", "started", "{}"), JournalRow("call-1", "started", "{}")),
            (JournalRow("call-2", "done", "[1]"),),
        ]
        for journal in steps:
            await store.commit_turn(rows.turn(seq, done=False, journal=journal))
        assert await store.journal(rows.alice, seq) == [
            JournalRow("reply", "done", '{"text": "é"}'),
            JournalRow("call-2", "done", "[1]"),
            JournalRow("call-1", "started", "{}"),
        ]
        assert await store.journal(rows.bob, seq) == []
        assert await store.begun(rows.alice, "t1") == [seq]
        assert await store.begun(rows.bob, "t1") == []
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t1")] == [seq]

    async def test_a_journal_commit_carries_its_events(self, store: Store, rows: Rows) -> None:
        seq = await begin(store, rows)
        turn = rows.turn(seq, done=False, events=(rows.event("action_call"),))
        assert (await store.commit_turn(turn)).first_event == 1
        assert [e.kind for e in await store.events(rows.alice, "t1")] == ["action_call"]

    async def test_the_end_of_the_turn_removes_it(self, store: Store, rows: Rows) -> None:
        first, second = await begin(store, rows), await begin(store, rows)
        row = JournalRow("reply", "done", "{}")
        for seq in (first, second):
            assert seq not in await store.begun(rows.alice, "t1")
            await store.commit_turn(rows.turn(seq, done=False, journal=(row,)))
        assert await store.begun(rows.alice, "t1") == [first, second]
        await store.commit_turn(rows.turn(first))
        assert await store.begun(rows.alice, "t1") == [second]
        assert await store.journal(rows.alice, first) == []
        assert await store.journal(rows.alice, second) == [row]


class TestWhatATaskKeeps:
    async def test_histories_append_per_task_and_agent(self, store: Store, rows: Rows) -> None:
        seq = await begin(store, rows, histories=(HistoryRow("supervisor", '["a"]'),))
        both = (HistoryRow("supervisor", '["b"]'), HistoryRow("weather", '["w"]'))
        await store.commit_turn(rows.turn(seq, histories=both))
        await store.post(rows.post("t2", histories=(HistoryRow("supervisor", '["x"]'),)))
        assert await store.history(rows.alice, "t1", "supervisor") == ['["a"]', '["b"]']
        assert await store.history(rows.alice, "t1", "weather") == ['["w"]']
        assert await store.history(rows.bob, "t1", "supervisor") == []

    async def test_calls_keep_the_order_of_their_first_commit(
        self, store: Store, rows: Rows
    ) -> None:
        def call(agent: str, call_id: str, answer: str | None = None) -> CallRow:
            shown = f'{{"id": "{call_id}"}}'
            control = f'["resume", "{agent}"]'
            return CallRow(agent, call_id, "{}", shown, answer=answer, control=control)

        await store.post(rows.post(calls=(call("b", "2"), call("a", "1"))))
        await store.post(rows.post(calls=(call("a", "2"), call("b", "2", "42"))))
        assert await store.calls(rows.alice, "t1") == [
            call("b", "2", "42"),
            call("a", "1"),
            call("a", "2"),
        ]
        assert await store.calls(rows.bob, "t1") == []

    async def test_the_response_is_the_last_one(self, store: Store, rows: Rows) -> None:
        assert await store.response(rows.alice, "t1") is None
        await store.post(rows.post(response='{"run": 1}'))
        await store.post(rows.post())
        assert await store.response(rows.alice, "t1") == '{"run": 1}'
        await store.post(rows.post(response='{"run": 2}'))
        assert await store.response(rows.alice, "t1") == '{"run": 2}'
        assert await store.response(rows.bob, "t1") is None

    async def test_a_snapshot_changes_nothing_that_is_read(self, store: Store, rows: Rows) -> None:
        history = (HistoryRow("supervisor", '[{"role": "user"}]'),)
        await store.post(rows.post(histories=history, snapshot=True))
        await store.post(rows.post(histories=history, snapshot=True))
        assert await store.history(rows.alice, "t1", "supervisor") == ['[{"role": "user"}]'] * 2

    async def test_text_with_nul_round_trips(self, store: Store, rows: Rows) -> None:
        task_id, agent, text = "t\0one", "age\0nt", '["x\0y"]'
        task = rows.task(task_id, title="a\0b")
        mail = rows.mail(task_id, recipient=agent, payload=text)
        history = HistoryRow(agent, text)
        event = rows.event(description="d\0e")
        await store.post(
            rows.post(task=task, deliveries=(mail,), histories=(history,), events=(event,))
        )
        await store.post(rows.post("t\0two"))
        assert await store.load_task(rows.alice, task_id) == task
        (read,) = await store.waiting_mail(rows.alice, task_id)
        assert (read.recipient, read.payload) == (agent, text)
        assert await store.history(rows.alice, task_id, agent) == [text]
        (logged,) = await store.events(rows.alice, task_id)
        assert logged.description == "d\0e"


def memory(
    rows: Rows,
    key: str,
    value: str = "{}",
    *,
    namespace: tuple[str, ...] = ("notes",),
    age: int = 0,
) -> MemoryRow:
    """Make a memory; a greater ``age`` is older."""
    at = f"2026-01-{28 - age:02d}T10:00:00+00:00"
    return MemoryRow(namespace=namespace, key=key, value=value, created_at=at, updated_at=at)


class TestMemories:
    async def search(self, store: Store, rows: Rows, *args: Any, **kwargs: Any) -> list[str]:
        return [row.key for row in await store.search_memories(rows.alice, *args, **kwargs)]

    async def test_they_are_replaced_by_namespace_and_key(self, store: Store, rows: Rows) -> None:
        old, new = memory(rows, "k", '"old"', age=2), memory(rows, "k", '"new"', age=1)
        other = memory(rows, "k", '"other"', namespace=("notes", "deep"))
        await store.put_memories(rows.alice, [old, other])
        await store.put_memories(rows.alice, [new])
        assert await store.get_memory(rows.alice, ("notes",), "k") == new
        assert await store.get_memory(rows.alice, ("notes", "deep"), "k") == other
        assert await store.get_memory(rows.alice, ("notes",), "missing") is None
        assert await store.get_memory(rows.bob, ("notes",), "k") is None

    async def test_deleting_is_quiet_about_what_is_not_there(
        self, store: Store, rows: Rows
    ) -> None:
        await store.put_memories(rows.alice, [memory(rows, "k")])
        await store.delete_memory(rows.bob, ("notes",), "k")
        assert await store.get_memory(rows.alice, ("notes",), "k") is not None
        await store.delete_memory(rows.alice, ("notes",), "k")
        await store.delete_memory(rows.alice, ("notes",), "k")
        assert await store.get_memory(rows.alice, ("notes",), "k") is None

    async def test_commits_write_them_too(self, store: Store, rows: Rows) -> None:
        seq = await begin(store, rows, memories=(memory(rows, "posted"),))
        await store.commit_turn(rows.turn(seq, memories=(memory(rows, "turned", age=1),)))
        assert await self.search(store, rows, ("notes",)) == ["posted", "turned"]

    async def test_a_prefix_matches_whole_parts_only(self, store: Store, rows: Rows) -> None:
        spaces = [("a",), ("a", "b"), ("ab",), ('a"', "b"), ("a,b",), ("a]",), ("ä", "b"), ("a^",)]
        await store.put_memories(
            rows.alice, [memory(rows, repr(space), namespace=space) for space in spaces]
        )
        assert sorted(await self.search(store, rows, ("a",))) == ["('a', 'b')", "('a',)"]
        assert await self.search(store, rows, ("ä",)) == ["('ä', 'b')"]
        assert len(await self.search(store, rows, (), limit=100)) == len(spaces)
        assert await store.memory_namespaces(rows.alice) == sorted(spaces)
        assert await store.memory_namespaces(rows.bob) == []

    async def test_without_a_query_the_newest_come_first_in_pages(
        self, store: Store, rows: Rows
    ) -> None:
        await store.put_memories(rows.alice, [memory(rows, f"k{n}", age=n) for n in (3, 0, 2, 1)])
        assert await self.search(store, rows, ("notes",)) == ["k0", "k1", "k2", "k3"]
        assert await self.search(store, rows, ("notes",), limit=2, offset=1) == ["k1", "k2"]
        assert await self.search(store, rows, ("notes",), "  ") == ["k0", "k1", "k2", "k3"]

    async def test_a_query_ranks_by_different_words_then_age(
        self, store: Store, rows: Rows
    ) -> None:
        values = {
            "none": '"cloud"',
            "one-new": '"rain rain rain"',
            "one-old": '"wind"',
            "two": '"Rain and WIND"',
        }
        await store.put_memories(
            rows.alice, [memory(rows, k, v, age=n) for n, (k, v) in enumerate(values.items())]
        )
        ranked = ["two", "one-new", "one-old"]
        assert await self.search(store, rows, ("notes",), "rain wind RAIN") == ranked
        assert await self.search(store, rows, ("notes",), "wind rain", limit=1, offset=1) == [
            "one-new"
        ]

    async def test_case_is_ignored_beyond_ascii(self, store: Store, rows: Rows) -> None:
        await store.put_memories(
            rows.alice, [memory(rows, "de", '"Äpfel STRASSE"'), memory(rows, "ru", '"ПОГОДА"')]
        )
        assert await self.search(store, rows, ("notes",), "äPFEL") == ["de"]
        assert await self.search(store, rows, ("notes",), "straße") == ["de"]
        assert await self.search(store, rows, ("notes",), "(Straße)?!") == ["de"]
        assert await self.search(store, rows, ("notes",), "погода") == ["ru"]

    async def test_wildcards_are_ordinary_characters(self, store: Store, rows: Rows) -> None:
        await store.put_memories(
            rows.alice,
            [memory(rows, "percent", '"100% sure"'), memory(rows, "plain", '"100 a_b"', age=1)],
        )
        assert await self.search(store, rows, ("notes",), "0%") == ["percent"]
        assert await self.search(store, rows, ("notes",), "a_b") == ["plain"]
        assert await self.search(store, rows, ("notes",), "_00") == []
        assert await self.search(store, rows, ("notes",), "*") == []


class TestTokens:
    async def test_they_are_found_by_hash_and_replaced(self, store: Store, rows: Rows) -> None:
        token = TokenRow(
            token_hash="ab" * 32,
            role="user",
            id="alice",
            created_at=rows.now,
            label="laptop",
            expires_at="2027-01-01T00:00:00+00:00",
        )
        await store.put_token(token)
        assert await store.find_token(token.token_hash) == token
        assert await store.find_token("cd" * 32) is None
        revoked = TokenRow(
            token_hash=token.token_hash,
            role="user",
            id="alice",
            created_at=rows.now,
            revoked_at=rows.now,
        )
        await store.put_token(revoked)
        assert await store.find_token(token.token_hash) == revoked
        assert await store.list_tokens() == [revoked]

    async def test_they_are_listed_oldest_first(self, store: Store, rows: Rows) -> None:
        for day in (3, 1, 2):
            at = f"2026-01-0{day}T00:00:00+00:00"
            await store.put_token(
                TokenRow(token_hash=f"h{day}", role="user", id="alice", created_at=at)
            )
        assert [token.token_hash for token in await store.list_tokens()] == ["h1", "h2", "h3"]


class TestLifetime:
    async def test_opening_twice_is_harmless(self, store: Store, rows: Rows) -> None:
        await store.post(rows.post())
        await asyncio.gather(store.open(), store.open())
        assert await store.load_task(rows.alice, "t1") == rows.task()

    async def test_closing_twice_is_harmless(self, store: Store, rows: Rows) -> None:
        await store.close()
        await store.close()

    async def test_closing_waits_for_what_was_handed_in(self, store: Store, rows: Rows) -> None:
        posts = [asyncio.create_task(store.post(rows.post(f"t{n}"))) for n in range(100)]
        await asyncio.sleep(0)
        await store.close()
        assert len(await asyncio.gather(*posts)) == 100


def once(key: str = "k1", **changes: Any) -> IdempotencyRow:
    """Return a key's row as a route hands it in."""
    made = IdempotencyRow(key, fingerprint="f" * 64, created_at="2026-01-01T10:00:00+00:00")
    return made._replace(**changes)


class TestIdempotencyKeys:
    async def test_a_key_comes_with_the_commit_and_names_its_first_event(
        self, store: Store, rows: Rows
    ) -> None:
        assert await store.find_key(rows.alice, "k1") is None
        await begin(store, rows, events=(rows.event(), rows.event()))
        row = once(task_id="t1", message_id="m1", answer='{"id":"résp"}')
        receipt = await store.post(rows.post(events=(rows.event(),), once=row))
        assert receipt.first_event == 3
        assert await store.find_key(rows.alice, "k1") == row._replace(first_event=3)

    async def test_a_taken_key_leaves_nothing_of_the_commit(self, store: Store, rows: Rows) -> None:
        await begin(store, rows, events=(rows.event(),), once=once(task_id="t1"))
        for task_id in ("t1", "t2"):
            again = rows.post(
                task=rows.task(task_id, title="again"),
                deliveries=(rows.mail(task_id),),
                events=(rows.event(),),
                memories=(MemoryRow(("a",), "k", "1", rows.now, rows.now),),
                once=once(task_id=task_id, fingerprint="0" * 64),
            )
            with pytest.raises(KeyTaken):
                await store.post(again)
        assert await store.load_task(rows.alice, "t1") == rows.task()
        assert await store.load_task(rows.alice, "t2") is None
        assert len(await store.all_mail(rows.alice, "t1")) == 1
        assert len(await store.events(rows.alice, "t1")) == 1
        assert await store.get_memory(rows.alice, ("a",), "k") is None
        assert await store.find_key(rows.alice, "k1") == once(task_id="t1", first_event=1)

    async def test_of_many_commits_with_one_key_one_is_made(self, store: Store, rows: Rows) -> None:
        posts = [rows.post(f"t{n}", new=True, once=once(task_id=f"t{n}")) for n in range(20)]
        results = await asyncio.gather(*(store.post(p) for p in posts), return_exceptions=True)
        assert sum(isinstance(result, KeyTaken) for result in results) == len(posts) - 1
        [made] = await store.list_tasks(rows.alice)
        found = await store.find_key(rows.alice, "k1")
        assert found is not None
        assert found.task_id == made.task_id

    async def test_owners_do_not_share_keys(self, store: Store, rows: Rows) -> None:
        await store.put_key(rows.alice, once(fingerprint="a"))
        await store.put_key(rows.bob, once(fingerprint="b"))
        await store.post(rows.post(owner=Owner("other", "user", "alice"), once=once()))
        found = [await store.find_key(owner, "k1") for owner in (rows.alice, rows.bob)]
        assert found == [once(fingerprint="a"), once(fingerprint="b")]

    async def test_a_key_is_put_once(self, store: Store, rows: Rows) -> None:
        await store.put_key(rows.alice, once(answer='{"status":200}'))
        with pytest.raises(KeyTaken):
            await store.put_key(rows.alice, once(answer="{}"))
        with pytest.raises(KeyTaken):
            await store.post(rows.post(once=once()))
        assert await store.find_key(rows.alice, "k1") == once(answer='{"status":200}')
        assert await store.find_key(rows.alice, "K1") is None

    async def test_old_keys_go_and_the_oldest_first(self, store: Store, rows: Rows) -> None:
        for hour in (12, 10, 11, 13):
            row = once(f"k{hour}", created_at=f"2026-01-01T{hour}:00:00+00:00")
            await store.put_key(rows.bob if hour % 2 else rows.alice, row)
        await begin(store, rows, once=once("early", created_at="2026-01-01T09:00:00+00:00"))
        assert await store.drop_keys("2026-01-01T13:00:00+00:00", 2) == 2
        assert await store.find_key(rows.alice, "early") is None
        assert await store.find_key(rows.alice, "k10") is None
        assert await store.find_key(rows.bob, "k11") is not None
        assert await store.drop_keys("2026-01-01T13:00:00+00:00", 10) == 2
        assert await store.drop_keys("2026-01-01T13:00:00+00:00", 10) == 0
        assert await store.find_key(rows.bob, "k13") is not None
        assert await store.load_task(rows.alice, "t1") is not None
        await store.put_key(rows.alice, once("early"))


class TestForgettingKeys:
    async def test_memory_forgets_the_keys_of_forgotten_tasks(self, rows: Rows) -> None:
        store = MemoryStore(keep_finished=2)
        done = TaskState.COMPLETED
        for n in range(4):
            made = rows.post(task=rows.task(f"t{n}", state=done), once=once(f"k{n}"))
            made.once = made.once._replace(task_id=f"t{n}")
            await store.post(made)
            await store.put_key(rows.alice, once(f"loose{n}"))
        found = [
            [(await store.find_key(rows.alice, f"{kind}{n}")) is not None for n in range(4)]
            for kind in ("k", "loose")
        ]
        assert found == [[False, False, True, True]] * 2
