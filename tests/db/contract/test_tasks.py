"""What every store must do with tasks and their mail: `mail.db.tasks.TaskVerbs`."""

import asyncio
from typing import Any, ClassVar

import pytest

from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.records import HistoryRow, JournalRow, MemoryRow, Owner
from mail.db.store import Store
from mail.errors import StoreConflict

Rows = Any
DONE = TaskState.COMPLETED


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
            handled='{"Ärztin":"read"}',
        )
        await store.commit(rows.post(task=task))
        assert await store.load_task(rows.alice, "t1") == task

    async def test_a_later_commit_replaces_the_row_whole(self, store: Store, rows: Rows) -> None:
        await store.commit(rows.post(task=rows.task(title="first", max_steps=3, awaited=True)))
        later = rows.task(
            state=TaskState.COMPLETED,
            task_owner="user:x@example",
            steps=2,
            usage='{"a":{}}',
            handled='{"a":"ignored"}',
        )
        await store.commit(rows.post(task=later))
        assert await store.load_task(rows.alice, "t1") == later

    async def test_new_refuses_a_task_that_exists(self, store: Store, rows: Rows) -> None:
        await rows.begin(store, new=True, events=(rows.event(),))
        with pytest.raises(StoreConflict):
            await store.commit(
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

    async def test_a_commit_does_not_bring_a_deleted_task_back(
        self, store: Store, rows: Rows
    ) -> None:
        ended = rows.task(state=TaskState.COMPLETED)
        await store.commit(rows.post(task=ended))
        await store.delete_task(rows.alice, "t1")
        with pytest.raises(StoreConflict, match="not there any more"):
            await store.commit(rows.post(task=ended, events=(rows.event(),)))
        assert await store.load_task(rows.alice, "t1") is None

    async def test_owners_do_not_share_task_ids(self, store: Store, rows: Rows) -> None:
        await rows.begin(store, new=True, events=(rows.event("tool_call"),))
        await rows.begin(store, new=True, owner=rows.bob, events=(rows.event(),))
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
            await store.commit(rows.post(owner=owner, task=task, new=True))
        titles = [await store.load_task(owner, "t1") for owner in owners]
        assert [row.title for row in titles if row] == [str(n) for n in range(len(owners))]

    async def test_listing_is_newest_first_by_creation(self, store: Store, rows: Rows) -> None:
        for task_id in ("c", "a", "b"):
            await store.commit(rows.post(task_id))
        await store.commit(rows.post("c", events=(rows.event(),)))
        await store.commit(rows.post("z", owner=rows.bob))
        listed = await store.list_tasks(rows.alice)
        assert [row.task_id for row in listed] == ["b", "a", "c"]

    async def test_the_tasks_of_all_owners_are_listed_by_creation(
        self, store: Store, rows: Rows
    ) -> None:
        made = [("t1", rows.alice), ("t1", rows.bob), ("t2", rows.alice), ("t3", rows.bob)]
        for task_id, owner in made:
            await store.commit(rows.post(task_id, owner=owner))
        other = rows.alice._replace(swarm="other")
        await store.commit(rows.post("t9", owner=other))
        newest = [(owner, task_id) for task_id, owner in reversed(made)]
        found = await store.swarm_tasks(rows.alice.swarm, 10)
        assert [(owner, row.task_id) for owner, row in found] == newest
        assert found[0][1] == await store.load_task(*newest[0])
        page = await store.swarm_tasks(rows.alice.swarm, 2, newest[0])
        assert [(owner, row.task_id) for owner, row in page] == newest[1:3]
        assert await store.swarm_tasks(rows.alice.swarm, 2, (rows.bob, "t2")) == []
        await store.commit(rows.post("t2", owner=rows.alice, task=rows.task("t2", state=DONE)))
        await store.delete_task(rows.alice, "t2")
        assert len(await store.swarm_tasks(rows.alice.swarm, 10)) == 3

    async def test_waiting_mail_is_counted_by_agent_and_tier(
        self, store: Store, rows: Rows
    ) -> None:
        seq = await rows.begin(store)
        await rows.begin(store, "t2")
        await rows.begin(store, owner=rows.bob)
        (one,) = await store.queue_lengths(rows.alice.swarm)
        delivery = (await store.waiting_mail(rows.alice, "t1"))[0]
        assert one == (delivery.recipient, delivery.tier, 3)
        assert await store.queue_lengths(rows.alice.swarm, rows.bob) == [one._replace(waiting=1)]
        await store.commit(rows.post(settled=(seq,)))
        assert await store.queue_lengths(rows.alice.swarm, rows.alice) == [one._replace(waiting=1)]
        assert await store.queue_lengths("other") == []

    async def test_listing_pages_with_limit_and_cursor(self, store: Store, rows: Rows) -> None:
        for number in range(5):
            await store.commit(rows.post(f"t{number}"))
        first = await store.list_tasks(rows.alice, limit=2)
        second = await store.list_tasks(rows.alice, limit=2, before=first[-1].task_id)
        third = await store.list_tasks(rows.alice, limit=2, before=second[-1].task_id)
        pages = [[row.task_id for row in page] for page in (first, second, third)]
        assert pages == [["t4", "t3"], ["t2", "t1"], ["t0"]]
        assert await store.list_tasks(rows.alice, before="t0") == []
        assert await store.list_tasks(rows.alice, before="nobody") == []

    async def test_listing_selects_states(self, store: Store, rows: Rows) -> None:
        for number, state in enumerate(TaskState):
            await store.commit(rows.post(task=rows.task(f"t{number}", state=state)))
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
        assert await store.owners("example") == await store.swarms() == []
        for owner in (*names, rows.bob, other):
            done = rows.task(state=TaskState.COMPLETED)
            await store.commit(rows.post(owner=owner, task=done))
        await store.commit(rows.post("t2", owner=rows.bob))
        assert await store.owners("example") == sorted([*names, rows.bob])
        assert await store.owners("other") == [other]
        assert await store.owners("exam") == []
        assert await store.swarms() == ["example", "other"]

    async def test_open_owners_have_a_task_that_runs_or_is_waited_for(
        self, store: Store, rows: Rows
    ) -> None:
        async def check(running: list[Owner], waiting: list[Owner]) -> None:
            assert await store.running_owners("example") == running
            assert await store.open_owners("example") == waiting

        both = [rows.alice, rows.bob]
        await store.commit(rows.post("t1"))
        await store.commit(rows.post("t2"))
        await store.commit(rows.post(owner=rows.bob))
        await store.commit(rows.post(owner=Owner("elsewhere", "user", "carol")))
        await check(both, both)
        await store.commit(rows.post(owner=rows.bob, task=rows.task(state=TaskState.PAUSED)))
        await store.commit(rows.post(task=rows.task("t2", state=TaskState.COMPLETED)))
        await check([rows.alice], [rows.alice])
        untold = rows.task(state=TaskState.PAUSED, awaited=True)
        await store.commit(rows.post(owner=rows.bob, task=untold))
        await check([rows.alice], both)
        await store.commit(rows.post(owner=rows.bob, task=rows.task(state=TaskState.PAUSED)))
        await store.commit(rows.post(task=rows.task(state=TaskState.CANCELLED)))
        await check([], [])
        await store.commit(rows.post("t2"))
        await check([rows.alice], [rows.alice])

    async def test_mail_that_was_set_aside_is_there_until_it_is_taken_back(
        self, store: Store, rows: Rows
    ) -> None:
        body = "a text that the store keeps apart " * 400
        mail = tuple(rows.mail(payload=f'{{"body":"{body}{n}"}}') for n in range(4))
        seqs = (await store.commit(rows.post(deliveries=mail))).seqs
        for seq in seqs[:3]:
            await store.commit(rows.turn(seq, dead=f"reason {seq}"))
        aside = await store.mail_aside(rows.alice, "t1")
        assert [(row.delivery.seq, row.reason) for row in aside] == [
            (seq, f"reason {seq}") for seq in seqs[:3]
        ]
        assert [row.delivery.payload for row in aside] == [each.payload for each in mail[:3]]
        assert await store.mail_aside(rows.alice, "t1", seqs[0], 1) == aside[1:2]
        assert await store.mail_aside(rows.bob, "t1") == []
        assert await store.mail_aside(rows.alice, "t2") == []

        for wrong in ((seqs[3],), (seqs[0], seqs[3]), (10**12,)):
            with pytest.raises(StoreConflict):
                await store.commit(rows.post(unset=wrong, deliveries=(rows.mail(),)))
        assert await store.mail_aside(rows.alice, "t1") == aside
        assert len(await store.waiting_mail(rows.alice, "t1")) == 1

        again = aside[1].delivery._replace(seq=0)
        await store.commit(rows.post(unset=(seqs[1],), deliveries=(again,)))
        assert await store.mail_aside(rows.alice, "t1") == [aside[0], aside[2]]
        assert [each.payload for each in await store.waiting_mail(rows.alice, "t1")] == [
            mail[3].payload,
            mail[1].payload,
        ]
        with pytest.raises(StoreConflict):
            await store.commit(rows.post(unset=(seqs[1],)))


class TestMail:
    async def test_every_field_round_trips(self, store: Store, rows: Rows) -> None:
        mail = rows.mail(
            recipient="weather", tier=3, interrupt=True, payload='{"ü": 1}', control="{}"
        )
        receipt = await store.commit(rows.post(deliveries=(mail,)))
        (read,) = await store.waiting_mail(rows.alice, "t1")
        assert (read.seq, read.attempts) == (receipt.seqs[0], 0)
        assert (read.task_id, read.recipient, read.tier) == ("t1", "weather", 3)
        assert (read.interrupt, read.payload, read.control) == (True, '{"ü": 1}', "{}")

    async def test_numbers_increase_over_all_tasks_and_owners(
        self, store: Store, rows: Rows
    ) -> None:
        pair = (rows.mail(), rows.mail())
        first = await store.commit(rows.post(deliveries=pair))
        second = await store.commit(rows.post(owner=rows.bob, deliveries=pair))
        third = await store.commit(rows.turn(first.seqs[0], deliveries=pair))
        numbers = [*first.seqs, *second.seqs, *third.seqs]
        assert len(numbers) == 6
        assert numbers == sorted(set(numbers))

    async def test_waiting_mail_is_ordered_by_tier_then_number(
        self, store: Store, rows: Rows
    ) -> None:
        mail = tuple(rows.mail(tier=tier, payload=str(n)) for n, tier in enumerate((5, 1, 3, 1)))
        await store.commit(rows.post(deliveries=mail))
        waiting = await store.waiting_mail(rows.alice, "t1")
        assert [m.payload for m in waiting] == ["1", "3", "2", "0"]
        everything = await store.all_mail(rows.alice, "t1")
        assert [m.payload for m in everything] == ["0", "1", "2", "3"]
        assert await store.waiting_mail(rows.bob, "t1") == []
        assert await store.all_mail(rows.bob, "t1") == []

    async def test_a_turn_consumes_its_delivery_and_posts_the_next(
        self, store: Store, rows: Rows
    ) -> None:
        seq = await rows.begin(store)
        receipt = await store.commit(rows.turn(seq, deliveries=(rows.mail(),)))
        waiting = await store.waiting_mail(rows.alice, "t1")
        assert tuple(m.seq for m in waiting) == receipt.seqs
        assert [m.seq for m in await store.all_mail(rows.alice, "t1")] == [seq, *receipt.seqs]

    @pytest.mark.parametrize("done", [True, False])
    async def test_a_consumed_delivery_conflicts_and_nothing_is_written(
        self, store: Store, rows: Rows, done: bool
    ) -> None:
        seq = await rows.begin(store)
        await store.commit(rows.turn(seq))
        late = rows.turn(
            seq,
            task=rows.task(title="late"),
            done=done,
            deliveries=(rows.mail(),),
            events=(rows.event(),),
            histories=(HistoryRow("supervisor", "[1]"),),
            journal=(JournalRow("reply", "done", "{}"),),
            calls=(CallRow(agent="a", call_id="c", call="{}", shown="{}"),),
            memories=(rows.memory("k"),),
            response="{}",
        )
        with pytest.raises(StoreConflict):
            await store.commit(late)
        assert await store.load_task(rows.alice, "t1") == rows.task()
        assert await store.waiting_mail(rows.alice, "t1") == []
        assert await store.events(rows.alice, "t1") == []
        assert await store.history(rows.alice, "t1", "supervisor") == []
        assert await store.journal(rows.alice, seq) == []
        assert await store.calls(rows.alice, "t1") == []
        assert await store.response(rows.alice, "t1") is None
        assert await store.memory_namespaces(rows.alice) == []

    async def test_a_turn_cannot_consume_mail_of_others(self, store: Store, rows: Rows) -> None:
        seq = await rows.begin(store)
        await rows.begin(store, "t2")
        await rows.begin(store, owner=rows.bob)
        for turn in (
            rows.turn(seq, "t2"),
            rows.turn(seq, owner=rows.bob),
            rows.turn(seq, "unknown"),
        ):
            with pytest.raises(StoreConflict):
                await store.commit(turn)
        assert await store.load_task(rows.alice, "unknown") is None
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t1")] == [seq]

    async def test_cancelling_drops_only_the_waiting_mail_of_the_task(
        self, store: Store, rows: Rows
    ) -> None:
        old = await rows.begin(store)
        other = await rows.begin(store, "t2")
        fresh = await rows.begin(store, cancel_mail=True)
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t1")] == [fresh]
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t2")] == [other]
        assert [m.seq for m in await store.all_mail(rows.alice, "t1")] == [old, fresh]
        with pytest.raises(StoreConflict):
            await store.commit(rows.turn(old))

    async def test_a_turn_may_end_its_own_delivery_and_cancel_the_rest(
        self, store: Store, rows: Rows
    ) -> None:
        seq = await rows.begin(store)
        rest = await rows.begin(store)
        ended = rows.task(state=TaskState.FAILED)
        await store.commit(rows.turn(seq, task=ended, cancel_mail=True))
        assert await store.waiting_mail(rows.alice, "t1") == []
        assert [m.seq for m in await store.all_mail(rows.alice, "t1")] == [seq, rest]

    async def test_a_commit_may_consume_further_mail_of_its_task(
        self, store: Store, rows: Rows
    ) -> None:
        row = JournalRow("reply", "done", "{}")
        seqs = [await rows.begin(store) for _ in range(4)]
        elsewhere = await rows.begin(store, "t2")
        await store.commit(rows.turn(seqs[1], done=False, journal=(row,)))
        await store.commit(rows.turn(seqs[0], settled=(seqs[1], elsewhere, 999)))
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t1")] == seqs[2:]
        assert await store.journal(rows.alice, seqs[1]) == []
        assert await store.begun(rows.alice, "t1") == []
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t2")] == [elsewhere]
        await store.commit(rows.post(settled=(seqs[0], seqs[2])))
        assert [m.seq for m in await store.waiting_mail(rows.alice, "t1")] == seqs[3:]
        assert [m.seq for m in await store.all_mail(rows.alice, "t1")] == seqs
        with pytest.raises(StoreConflict):
            await store.commit(rows.turn(seqs[2]))

    async def test_one_conflict_among_parallel_turns_fails_alone(
        self, store: Store, rows: Rows
    ) -> None:
        seqs = [await rows.begin(store, f"t{n}") for n in range(20)]
        await store.commit(rows.turn(seqs[7], "t7"))
        turns = [rows.turn(seq, f"t{n}", events=(rows.event(),)) for n, seq in enumerate(seqs)]
        results = await asyncio.gather(
            *(store.commit(turn) for turn in turns), return_exceptions=True
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
        commit = asyncio.create_task(store.commit(rows.post(events=(rows.event(),))))
        await asyncio.sleep(0)
        commit.cancel()
        await asyncio.wait([commit])
        await store.commit(rows.post("later"))
        assert len(await store.events(rows.alice, "t1")) == 1


class TestAttempts:
    async def test_a_claim_counts_and_a_release_takes_back(self, store: Store, rows: Rows) -> None:
        seq = await rows.begin(store)
        assert await store.count_attempt(rows.alice, seq) == 1
        assert await store.count_attempt(rows.alice, seq) == 2
        await store.uncount_attempt(rows.alice, seq)
        (mail,) = await store.waiting_mail(rows.alice, "t1")
        assert mail.attempts == 1

    async def test_only_the_owners_waiting_mail_can_be_claimed(
        self, store: Store, rows: Rows
    ) -> None:
        seq = await rows.begin(store)
        with pytest.raises(StoreConflict):
            await store.count_attempt(rows.bob, seq)
        await store.commit(rows.turn(seq))
        with pytest.raises(StoreConflict):
            await store.count_attempt(rows.alice, seq)


class TestJournal:
    async def test_rows_keep_their_order_and_the_last_state(self, store: Store, rows: Rows) -> None:
        seq = await rows.begin(store)
        steps = [
            (JournalRow("reply", "done", '{"text": "é"}'),),
            (JournalRow("call-2", "started", "{}"), JournalRow("call-1", "started", "{}")),
            (JournalRow("call-2", "done", "[1]"),),
        ]
        for journal in steps:
            await store.commit(rows.turn(seq, done=False, journal=journal))
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
        seq = await rows.begin(store)
        turn = rows.turn(seq, done=False, events=(rows.event("action_call"),))
        assert (await store.commit(turn)).first_event == 1
        assert [e.kind for e in await store.events(rows.alice, "t1")] == ["action_call"]

    async def test_the_end_of_the_turn_removes_it(self, store: Store, rows: Rows) -> None:
        first, second = await rows.begin(store), await rows.begin(store)
        row = JournalRow("reply", "done", "{}")
        for seq in (first, second):
            assert seq not in await store.begun(rows.alice, "t1")
            await store.commit(rows.turn(seq, done=False, journal=(row,)))
        assert await store.begun(rows.alice, "t1") == [first, second]
        await store.commit(rows.turn(first))
        assert await store.begun(rows.alice, "t1") == [second]
        assert await store.journal(rows.alice, first) == []
        assert await store.journal(rows.alice, second) == [row]


class TestWhatATaskKeeps:
    async def test_the_response_is_the_last_one(self, store: Store, rows: Rows) -> None:
        assert await store.response(rows.alice, "t1") is None
        await store.commit(rows.post(response='{"run": 1}'))
        await store.commit(rows.post())
        assert await store.response(rows.alice, "t1") == '{"run": 1}'
        await store.commit(rows.post(response='{"run": 2}'))
        assert await store.response(rows.alice, "t1") == '{"run": 2}'
        assert await store.response(rows.bob, "t1") is None

    async def test_text_with_nul_round_trips(self, store: Store, rows: Rows) -> None:
        task_id, agent, text = "t\0one", "age\0nt", '["x\0y"]'
        task = rows.task(task_id, title="a\0b")
        mail = rows.mail(task_id, recipient=agent, payload=text)
        history = HistoryRow(agent, text)
        event = rows.event(description="d\0e")
        await store.commit(
            rows.post(task=task, deliveries=(mail,), histories=(history,), events=(event,))
        )
        await store.commit(rows.post("t\0two"))
        assert await store.load_task(rows.alice, task_id) == task
        (read,) = await store.waiting_mail(rows.alice, task_id)
        assert (read.recipient, read.payload) == (agent, text)
        assert await store.history(rows.alice, task_id, agent) == [text]
        (logged,) = await store.events(rows.alice, task_id)
        assert logged.description == "d\0e"


class TestOddValues:
    TIMES: ClassVar = [
        "2026-01-01T10:00:00+00:00",
        "2026-01-01T10:00:00.000000+00:00",
        "2026-01-01T10:00:00.25+02:00",
        "2026-01-01T10:00:00+02:00",
        "2026-01-01T10:00:00.123456-05:30",
        "0001-01-01T00:00:00+05:00",
        "0001-01-01T00:00:00+00:00",
        "9999-12-31T23:59:59.999999-05:00",
        "9999-12-31T23:59:59.999999+00:00",
        "2026-01-01T10:00:00Z",
        "2026-01-01T10:00:00",
        "yesterday",
        "",
    ]

    async def test_times_come_back_as_they_were_written(self, store: Store, rows: Rows) -> None:
        for number, text in enumerate(self.TIMES):
            task = rows.task(f"t{number}", start_time=text)
            await store.commit(rows.post(task=task, events=(rows.event(timestamp=text),)))
            assert await store.load_task(rows.alice, f"t{number}") == task
            (event,) = await store.events(rows.alice, f"t{number}")
            assert event.timestamp == text

    async def test_control_signs_and_nul_round_trip_in_lists_too(
        self, store: Store, rows: Rows
    ) -> None:
        task = rows.task("a\x1a0\0", task_contributors=("x\0\x1a", "y\x1a1"), remote_swarms=("\0",))
        await store.commit(rows.post(task=task))
        assert await store.load_task(rows.alice, task.task_id) == task

    async def test_keys_may_be_longer_than_an_index_takes(self, store: Store, rows: Rows) -> None:
        long = "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(9000))
        memory = MemoryRow((long,), long, "{}", rows.now, rows.now)
        call = CallRow("a", long, "{}", "{}")
        (seq,) = (await store.commit(rows.post(deliveries=(rows.mail(),)))).seqs
        journal = (JournalRow(long, "started", "{}"),)
        for _ in range(2):
            turn = rows.turn(seq, done=False, journal=journal, calls=(call,), memories=(memory,))
            await store.commit(turn)
        assert await store.get_memory(rows.alice, (long,), long) == memory
        assert await store.journal(rows.alice, seq) == list(journal)
        assert await store.calls(rows.alice, "t1") == [call]


async def test_a_task_tells_how_much_there_is_of_it(store: Store, rows: Rows) -> None:
    mail = tuple(rows.mail(tier=tier) for tier in (4, 2, 4, 1))
    receipt = await store.commit(rows.post(deliveries=mail, events=(rows.event(),) * 3))
    await store.commit(rows.post("t2"))
    counts = await store.task_counts(rows.alice, ["t1", "t2", "none"])
    assert counts == {"t1": (3, 4), "t2": (0, 0)}
    await store.commit(rows.turn(receipt.seqs[0], events=(rows.event(),)))
    assert await store.task_counts(rows.alice, ["t1"]) == {"t1": (4, 3)}
    assert await store.task_counts(rows.bob, ["t1"]) == {}
    assert await store.task_counts(rows.alice, []) == {}


async def test_waiting_mail_is_read_page_by_page(store: Store, rows: Rows) -> None:
    mail = tuple(rows.mail(tier=tier) for tier in (4, 2, 4, 1))
    await store.commit(rows.post(deliveries=mail))
    whole = await store.waiting_mail(rows.alice, "t1")
    assert [row.tier for row in whole] == [1, 2, 4, 4]
    pages, last = [], None
    while page := await store.waiting_mail(rows.alice, "t1", last, 3):
        pages.append(page)
        last = page[-1]
    assert pages == [whole[:3], whole[3:]]
