"""Mail for other swarms, and what was taken of theirs: `mail.db.outbox.OutboxVerbs`."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from mail.core.tasks import TaskState
from mail.db.records import (
    HistoryRow,
    IdempotencyRow,
    InboxRow,
    OutboxChange,
    OutboxRow,
    Owner,
)
from mail.db.store import Store
from mail.errors import KeyTaken, MailTaken, StoreConflict, StoreError
from mail.testing.doubles import KillingStore, KillPoint
from tests.support.databases import Database

Rows = Any

EARLY: Final = "2026-01-01T10:00:00.000000+00:00"
LATER: Final = "2026-01-01T10:00:30.000000+00:00"
LATEST: Final = "2026-01-01T11:00:00.000000+00:00"
OTHER: Final = Owner("other", "user", "alice")


def mail(ref: str = "r1", peer: str = "beta", task_id: str = "t1", **changes: Any) -> OutboxRow:
    fields: dict[str, Any] = {
        "task_id": task_id,
        "peer": peer,
        "message_id": f"m-{ref}",
        "sender": "supervisor",
        "kind": "request",
        "ref": ref,
        "wrapper": f'{{"ref":"{ref}"}}',
        "created_at": EARLY,
    }
    return OutboxRow(**fields | changes)


def taken(message_id: str = "m1", peer: str = "beta", created_at: str = EARLY) -> InboxRow:
    return InboxRow(peer, message_id, f'{{"took":"{message_id}"}}', created_at)


async def send(store: Store, rows: Rows, *mails: OutboxRow, **changes: Any) -> list[OutboxRow]:
    """Commit mail for peers of its task, and return all that the task has."""
    task_id = mails[0].task_id
    owner = changes.pop("owner", rows.alice)
    await store.commit(rows.post(task_id, owner=owner, outbox=mails, **changes))
    return await store.task_outbox(owner, task_id)


def refs(found: list[OutboxRow]) -> list[str]:
    return [row.ref for row in found]


async def due(store: Store, now: str = EARLY, limit: int = 100, **which: Any) -> list[str]:
    return [row.ref for _, row in await store.due_outbox("example", now, limit, **which)]


async def left(store: Store, rows: Rows, **changes: Any) -> list[str]:
    """Commit to the task and return the mail for peers that it has then."""
    await store.commit(rows.post(**changes))
    return refs(await store.task_outbox(rows.alice, "t1"))


class TestSending:
    async def test_a_post_and_a_turn_leave_mail_as_it_was(self, store: Store, rows: Rows) -> None:
        odd = mail(
            "ä\0",
            sender="",
            kind="broadcast",
            wrapper='{"body": "\\u0000 \x1a0"}',
            state="dead",
            attempts=3,
            next_at=LATER,
            last_error="no answer",
            told=True,
        )
        seq = await rows.begin(store, outbox=(odd,))
        await store.commit(rows.turn(seq, done=False, outbox=(mail("r2"),)))
        await store.commit(rows.turn(seq, outbox=(mail("r3"), mail("r4"))))
        found = await store.task_outbox(rows.alice, "t1")
        assert [row._replace(id=0) for row in found] == [odd, mail("r2"), mail("r3"), mail("r4")]
        numbers = [row.id for row in found]
        assert numbers == sorted(set(numbers))
        assert numbers[0] > 0
        assert await store.task_outbox(rows.bob, "t1") == []
        assert await store.task_outbox(rows.alice, "t2") == []

    async def test_a_number_is_never_given_out_twice(self, store: Store, rows: Rows) -> None:
        (first,) = await send(store, rows, mail())
        await store.change_outbox([OutboxChange(first.id, "done")])
        (second,) = await send(store, rows, mail("r2"))
        assert second.id > first.id

    async def test_its_bytes_are_the_tasks(self, store: Store, rows: Rows) -> None:
        before = (await store.commit(rows.post())).bytes
        small = (await store.commit(rows.post(outbox=(mail(wrapper="{}"),)))).bytes
        large = (await store.commit(rows.post(outbox=(mail(wrapper='"' + "ä" * 500 + '"'),)))).bytes
        assert large - small == small - before + 1000
        assert (await store.stored_use(rows.alice)).bytes == large

    async def test_a_refused_commit_sends_nothing(self, store: Store, rows: Rows) -> None:
        seq = await rows.begin(store)
        await store.commit(rows.turn(seq))
        with pytest.raises(StoreConflict):
            await store.commit(rows.turn(seq, outbox=(mail(),)))
        with pytest.raises(StoreConflict):
            await store.commit(rows.post(new=True, outbox=(mail(),)))
        assert await store.list_outbox("example") == []


class TestHeads:
    async def test_of_each_task_and_peer_only_the_first_is_due(
        self, store: Store, rows: Rows
    ) -> None:
        await send(store, rows, mail("a1"), mail("a2"), mail("c1", "gamma"))
        await send(store, rows, mail("b1", task_id="t2"), mail("b2", task_id="t2"))
        await send(store, rows, mail("bob"), owner=rows.bob)
        await send(store, rows, mail("a3"))
        assert await due(store) == ["a1", "c1", "b1", "bob"]
        assert await due(store, limit=2) == ["a1", "c1"]
        assert await due(store, owner=rows.bob) == ["bob"]
        assert await due(store, owner=OTHER) == []
        found = await store.due_outbox("example", EARLY, 100)
        (alices,) = {owner for owner, row in found if row.ref != "bob"}
        assert alices == rows.alice
        assert found[0] == (rows.alice, (await store.task_outbox(rows.alice, "t1"))[0])

    async def test_mail_for_some_peers_can_be_left_out(self, store: Store, rows: Rows) -> None:
        await send(store, rows, mail("b1"), mail("b2", task_id="t2", told=True))
        await send(store, rows, mail("c1", "gamma", told=True), mail("d1", "delta"))
        await send(store, rows, mail("bob", told=True), owner=rows.bob)
        assert await due(store, without=["beta"]) == ["c1", "d1"]
        assert await due(store, without=["beta", "gamma", "nobody"]) == ["d1"]
        assert await due(store, untold=["beta", "gamma"]) == ["b1", "d1"]
        assert await due(store, without=["delta"], untold=["beta"]) == ["b1", "c1"]
        everywhere = {"owner": rows.bob, "untold": ["gamma"]}
        assert await due(store, **everywhere, without=["delta"]) == ["bob"]
        assert await due(store, **everywhere, without=["beta"]) == []

    async def test_other_swarms_mail_is_not_due(self, store: Store, rows: Rows) -> None:
        await send(store, rows, mail("theirs"), owner=OTHER)
        assert await due(store) == []
        assert await store.next_outbox("example") is None
        assert await store.list_outbox("example") == []
        assert [row.ref for _, row in await store.list_outbox("other")] == ["theirs"]

    async def test_what_has_to_wait_holds_up_what_is_behind_it(
        self, store: Store, rows: Rows
    ) -> None:
        first, _, _ = await send(store, rows, mail("a1"), mail("a2"), mail("c1", "gamma"))
        await store.change_outbox([OutboxChange(first.id, "waiting", 1, LATER, "no answer")])
        assert await due(store) == ["c1"]
        assert await store.next_outbox("example") == ""
        assert await store.next_outbox("example", "") == LATER
        assert await due(store, LATER) == ["a1", "c1"]

    async def test_the_next_time_is_that_of_the_earliest_first_one(
        self, store: Store, rows: Rows
    ) -> None:
        assert await store.next_outbox("example") is None
        found = await send(store, rows, mail("a1"), mail("a2"), mail("c1", "gamma"))
        a1, a2, c1 = (row.id for row in found)
        await store.change_outbox(
            [OutboxChange(a1, "waiting", 1, LATEST), OutboxChange(c1, "waiting", 1, LATER)]
        )
        assert await store.next_outbox("example") == LATER
        assert await store.next_outbox("example", LATER) == LATEST
        await store.change_outbox([OutboxChange(c1, "delivered")])
        assert await store.next_outbox("example") == LATEST
        await store.change_outbox([OutboxChange(a1, "dead"), OutboxChange(a2, "done")])
        assert await store.next_outbox("example") is None

    @pytest.mark.parametrize("state", ["dead", "delivered", "done"])
    async def test_only_waiting_mail_holds_up_what_is_behind_it(
        self, store: Store, rows: Rows, state: Any
    ) -> None:
        first, _ = await send(store, rows, mail("a1"), mail("a2"))
        await store.change_outbox([OutboxChange(first.id, state)])
        assert await due(store) == ["a2"]

    async def test_retried_mail_is_first_again(self, store: Store, rows: Rows) -> None:
        first, second = await send(store, rows, mail("a1"), mail("a2"))
        change = OutboxChange(first.id, "dead", 7, LATEST, "refused", told=True)
        await store.change_outbox([change, OutboxChange(second.id, "delivered")])
        assert not await store.retry_outbox("other", first.id)
        assert not await store.retry_outbox("example", second.id)
        assert not await store.retry_outbox("example", second.id + 1)
        assert await due(store) == []
        assert await store.retry_outbox("example", first.id)
        again = (await store.task_outbox(rows.alice, "t1"))[0]
        assert again._replace(created_at=first.created_at) == first
        age = datetime.now(UTC) - datetime.fromisoformat(again.created_at)
        assert age < timedelta(minutes=5)  # it is not too old to be tried
        assert await due(store) == ["a1"]

    async def test_waiting_mail_can_be_tried_at_once(self, store: Store, rows: Rows) -> None:
        (first,) = await send(store, rows, mail())
        await store.change_outbox([OutboxChange(first.id, "waiting", 5, LATEST, "no", told=True)])
        assert await store.retry_outbox("example", first.id)
        (again,) = await store.task_outbox(rows.alice, "t1")
        assert again._replace(created_at=first.created_at) == first


class TestChanges:
    async def test_a_commit_and_a_change_of_its_own_do_the_same(
        self, store: Store, rows: Rows
    ) -> None:
        first, second, third = await send(store, rows, mail("r1"), mail("r2"), mail("r3"))
        changes = (
            OutboxChange(first.id, "waiting", 2, LATER, "no answer", told=True),
            OutboxChange(second.id, "done"),
            OutboxChange(99999, "dead"),
            OutboxChange(99999, "done"),
        )
        await store.commit(rows.post(outbox_changes=changes))
        told = first._replace(attempts=2, next_at=LATER, last_error="no answer", told=True)
        assert await store.task_outbox(rows.alice, "t1") == [told, third]
        await store.change_outbox(
            [OutboxChange(third.id, "done"), OutboxChange(first.id, "dead", 3, "", "refused")]
        )
        dead = first._replace(state="dead", attempts=3, last_error="refused")
        assert await store.task_outbox(rows.alice, "t1") == [dead]
        await store.change_outbox([])

    async def test_a_commit_changes_the_mail_of_its_task_only(
        self, store: Store, rows: Rows
    ) -> None:
        (mine,) = await send(store, rows, mail())
        (bobs,) = await send(store, rows, mail(), owner=rows.bob)
        changes = (OutboxChange(mine.id, "done"), OutboxChange(mine.id, "dead"))
        for owner in (rows.bob, OTHER):
            await store.commit(
                rows.post(
                    owner=owner,
                    outbox_changes=changes,
                    answered=(("beta", "r1"),) if owner == OTHER else (),
                    close_requests=owner == OTHER,
                )
            )
        assert await store.task_outbox(rows.alice, "t1") == [mine]
        assert await store.task_outbox(rows.bob, "t1") == [bobs]

    async def test_an_answer_removes_the_request_whatever_its_state(
        self, store: Store, rows: Rows
    ) -> None:
        await send(
            store,
            rows,
            mail("r1"),
            mail("r2", state="delivered"),
            mail("r3", state="dead"),
            mail("r1", "gamma"),
            mail("r4"),
            mail("r2", kind="response"),
        )
        answered = (("beta", "r1"), ("beta", "r2"), ("beta", "r3"), ("beta", "unknown"))
        await store.commit(rows.post(answered=answered))
        found = await store.task_outbox(rows.alice, "t1")
        assert [(row.peer, row.ref, row.kind) for row in found] == [
            ("gamma", "r1", "request"),
            ("beta", "r4", "request"),
            ("beta", "r2", "response"),
        ]

    async def test_closing_keeps_dead_requests_and_all_other_mail(
        self, store: Store, rows: Rows
    ) -> None:
        await send(
            store,
            rows,
            mail("r1"),
            mail("r2", state="delivered"),
            mail("r3", state="dead"),
            mail("r4", kind="broadcast"),
            mail("r5", kind="response"),
        )
        assert await left(store, rows, close_requests=True) == ["r3", "r4", "r5"]

    async def test_changes_come_first_and_new_mail_last(self, store: Store, rows: Rows) -> None:
        dead, first, second = await send(store, rows, mail("r1"), mail("r2"), mail("r3"))
        seq = await rows.begin(store)
        turn = rows.turn(
            seq,
            outbox_changes=(
                OutboxChange(dead.id, "dead"),
                OutboxChange(first.id, "delivered"),
                OutboxChange(second.id + 1, "done"),
            ),
            answered=(("beta", "new1"),),
            close_requests=True,
            outbox=(mail("new1"), mail("new2")),
        )
        await store.commit(turn)
        found = await store.task_outbox(rows.alice, "t1")
        assert [(row.ref, row.state) for row in found] == [
            ("r1", "dead"),
            ("new1", "waiting"),
            ("new2", "waiting"),
        ]

    async def test_a_refused_turn_changes_nothing(self, store: Store, rows: Rows) -> None:
        before = await send(store, rows, mail("r1"), mail("r2"))
        seq = await rows.begin(store)
        await store.commit(rows.turn(seq))
        with pytest.raises(StoreConflict):
            await store.commit(
                rows.turn(
                    seq,
                    outbox_changes=(OutboxChange(before[0].id, "done"),),
                    answered=(("beta", "r2"),),
                    close_requests=True,
                )
            )
        assert await store.task_outbox(rows.alice, "t1") == before


class TestPages:
    async def test_mail_is_listed_in_pages_by_peer(self, store: Store, rows: Rows) -> None:
        await send(store, rows, mail("a1"), mail("a2", state="delivered"))
        await send(store, rows, mail("b1", "gamma"), mail("b2", state="dead"), owner=rows.bob)
        page = await store.list_outbox("example", limit=3)
        assert [(owner, row.ref) for owner, row in page] == [
            (rows.alice, "a1"),
            (rows.alice, "a2"),
            (rows.bob, "b1"),
        ]
        rest = await store.list_outbox("example", after=page[-1][1].id)
        assert [row.ref for _, row in rest] == ["b2"]
        of_beta = await store.list_outbox("example", peer="beta", after=page[0][1].id)
        assert [row.ref for _, row in of_beta] == ["a2", "b2"]
        assert await store.list_outbox("example", peer="unknown") == []


class TestUnanswered:
    async def test_delivered_requests_that_are_old_come_in_pages(
        self, store: Store, rows: Rows
    ) -> None:
        sent = await send(
            store, rows, *(mail(f"r{n}") for n in range(4)), mail("new", created_at=LATEST)
        )
        changes = [OutboxChange(row.id, "delivered") for row in sent if row.ref != "r1"]
        await store.change_outbox([*changes, OutboxChange(sent[2].id, "dead")])
        theirs = await send(store, rows, mail("bobs", state="delivered"), owner=rows.bob)
        await send(store, rows, mail("other", state="delivered"), owner=OTHER)

        async def old(before: str, after: int = 0, limit: int = 9, **which: Any) -> list[str]:
            found = await store.unanswered_outbox("example", before, after, limit, **which)
            return [f"{owner.id} {row.ref}" for owner, row in found]

        assert await old(LATER) == ["alice r0", "alice r3", "bob bobs"]
        assert await old(EARLY) == []
        assert await old(LATER, limit=1) == ["alice r0"]
        assert await old(LATER, after=sent[0].id) == ["alice r3", "bob bobs"]
        assert await old(LATER, after=theirs[0].id) == []
        assert await old(LATER, owner=rows.bob) == ["bob bobs"]


class TestInbox:
    async def test_mail_is_taken_once_for_a_swarm(self, store: Store, rows: Rows) -> None:
        assert await store.find_inbox("example", "beta", "m1") is None
        await store.commit(rows.post(new=True, inbox=taken()))
        assert await store.find_inbox("example", "beta", "m1") == taken().receipt
        seq = await rows.begin(store, "t2")
        before = await store.load_task(rows.alice, "t2")
        repeated = rows.post(
            "t2",
            task=rows.task("t2", state=TaskState.FAILED),
            inbox=taken()._replace(receipt="{}"),
            deliveries=(rows.mail("t2"),),
            events=(rows.event(),),
            outbox=(mail(task_id="t2"),),
        )
        with pytest.raises(MailTaken):
            await store.commit(repeated)
        turn = rows.turn(seq, "t2", inbox=taken(), outbox=(mail(task_id="t2"),))
        with pytest.raises(MailTaken):
            await store.commit(turn)
        assert await store.load_task(rows.alice, "t2") == before
        assert [row.seq for row in await store.waiting_mail(rows.alice, "t2")] == [seq]
        assert await store.events(rows.alice, "t2") == []
        assert await store.list_outbox("example") == []
        assert await store.find_inbox("example", "beta", "m1") == taken().receipt

    async def test_it_tells_swarms_peers_and_messages_apart(self, store: Store, rows: Rows) -> None:
        seq = await rows.begin(store)
        await store.commit(rows.turn(seq, done=False, inbox=taken()))
        await store.commit(rows.post(inbox=taken("m2")))
        await store.commit(rows.post(inbox=taken(peer="gamma")))
        await store.commit(rows.post(owner=OTHER, inbox=taken()))
        for owner in (rows.alice, rows.bob):  # it is the swarm's, whosever task it is
            with pytest.raises(MailTaken):
                await store.commit(rows.post(owner=owner, inbox=taken()))
        assert await store.find_inbox("other", "beta", "m1") == taken().receipt
        assert await store.find_inbox("other", "beta", "m2") is None

    async def test_repeated_mail_that_opens_a_task_is_told_as_repeated(
        self, store: Store, rows: Rows
    ) -> None:
        once = IdempotencyRow("k1", "f" * 64, EARLY, "t1")
        post = rows.post(new=True, once=once, inbox=taken())
        await store.commit(post)
        with pytest.raises(MailTaken):
            await store.commit(post)

    async def test_a_commit_that_fails_otherwise_takes_no_mail(
        self, store: Store, rows: Rows
    ) -> None:
        once = IdempotencyRow("k1", "f" * 64, EARLY, "t1")
        await store.commit(rows.post(once=once))
        with pytest.raises(KeyTaken):
            await store.commit(rows.post(once=once, inbox=taken()))
        with pytest.raises(StoreConflict):
            await store.commit(rows.post(new=True, inbox=taken()))
        with pytest.raises(StoreConflict):
            await store.commit(rows.turn(12345, inbox=taken()))
        assert await store.find_inbox("example", "beta", "m1") is None

    async def test_of_the_same_mail_at_the_same_time_one_is_taken(
        self, store: Store, rows: Rows
    ) -> None:
        await store.commit(rows.post())
        posts = [rows.post(inbox=taken(), deliveries=(rows.mail(),)) for _ in range(10)]
        done = await asyncio.gather(*map(store.commit, posts), return_exceptions=True)
        assert sum(isinstance(one, MailTaken) for one in done) == 9
        assert len(await store.waiting_mail(rows.alice, "t1")) == 1

    async def test_the_oldest_are_forgotten_first(self, store: Store, rows: Rows) -> None:
        for message_id, moment in (("m1", LATER), ("m2", EARLY), ("m3", LATEST)):
            await store.commit(rows.post(inbox=taken(message_id, created_at=moment)))
        assert await store.drop_aged("inbox", EARLY, 10) == 0
        assert await store.drop_aged("inbox", LATEST, 1) == 1
        assert await store.find_inbox("example", "beta", "m2") is None
        assert await store.find_inbox("example", "beta", "m1") is not None
        assert await store.drop_aged("inbox", LATEST, 10) == 1
        assert await store.find_inbox("example", "beta", "m3") is not None
        await store.commit(rows.post(inbox=taken("m1")))


class TestLargeTexts:
    BODY: Final = "as large as life " * 1000

    def letter(self, ref: str = "r1", **changes: Any) -> OutboxRow:
        return mail(ref, wrapper=f'{{"body": "{self.BODY}", "ref": "{ref}"}}', **changes)

    async def test_it_is_stored_once_and_read_everywhere(
        self, durable: Store, database: Database, rows: Rows
    ) -> None:
        history = (HistoryRow("supervisor", f'["{self.BODY}"]'),)
        outbox = (self.letter(), self.letter("r2", peer="gamma"))
        receipt = await durable.commit(rows.post(histories=history, outbox=outbox))
        assert database.query("SELECT text FROM task_texts") == [(self.BODY,)]
        assert len(self.BODY) < receipt.bytes < 1.2 * len(self.BODY)
        ((longest,),) = database.query("SELECT max(length(wrapper)) FROM outbox")
        assert longest < 200
        found = await durable.task_outbox(rows.alice, "t1")
        assert [row._replace(id=0) for row in found] == list(outbox)
        pairs = [(rows.alice, row) for row in found]
        assert await durable.due_outbox("example", EARLY, 10) == pairs
        assert await durable.list_outbox("example") == pairs


class TestDeletion:
    async def test_mail_of_a_deleted_task_is_gone_at_once(self, store: Store, rows: Rows) -> None:
        done = rows.task(state=TaskState.COMPLETED)
        (mine,) = await send(store, rows, mail(), task=done, inbox=taken())
        await send(store, rows, mail("bob"), owner=rows.bob)
        await store.delete_task(rows.alice, "t1")
        assert await due(store) == ["bob"]
        assert [row.ref for _, row in await store.list_outbox("example")] == ["bob"]
        assert await store.task_outbox(rows.alice, "t1") == []
        assert not await store.retry_outbox("example", mine.id)
        await store.change_outbox([OutboxChange(mine.id, "waiting")])
        while await store.purge():
            pass
        await send(store, rows, mail("again"), new=True)
        assert await due(store) == ["bob", "again"]
        assert await store.find_inbox("example", "beta", "m1") == taken().receipt

    async def test_what_the_runtime_wrote_is_still_sent(self, store: Store, rows: Rows) -> None:
        last = mail("end", sender="", kind="response", wrapper='{"a":"' + "x" * 50_000 + '"}')
        given = mail("first"), last, mail("dead", sender="", state="dead")
        _, end, _ = await send(store, rows, *given, task=rows.task(state=TaskState.COMPLETED))
        await store.delete_task(rows.alice, "t1")
        await send(store, rows, mail("again"), new=True)  # another task of the same id
        while await store.purge():
            pass
        grave = Owner.of_deleted("example")
        [(owner, found), _] = await store.due_outbox("example", EARLY, 100)
        assert owner == grave
        assert found == end._replace(task_id=found.task_id)
        assert [row.ref for _, row in await store.list_outbox("example")] == ["end", "again"]
        assert await store.due_outbox("example", EARLY, 9, owner=grave) == [(grave, found)]
        assert await store.due_outbox("other", EARLY, 9) == []
        assert await store.load_task(grave, found.task_id) is not None
        assert await store.owners("example") == [rows.alice]
        await store.change_outbox([OutboxChange(end.id, "waiting", 1, LATER, "no", True)])
        assert await due(store) == ["again"]
        assert await due(store, LATER) == ["end", "again"]
        assert await store.retry_outbox("example", end.id)
        assert not await store.retry_outbox("other", end.id)
        assert await due(store) == ["end", "again"]
        await store.change_outbox([OutboxChange(end.id, "done")])
        assert await due(store) == ["again"]
        while await store.purge():
            pass
        assert await store.load_task(grave, found.task_id) is None


class TestReopening:
    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_a_commit_is_there_as_a_whole_or_not_at_all(
        self, durable: Store, database: Database, rows: Rows, when: Any
    ) -> None:
        seq = await rows.begin(durable, outbox=(mail("old1"), mail("old2", state="delivered")))
        old1, old2 = await durable.task_outbox(rows.alice, "t1")

        def die() -> None:
            raise StoreError("the process is dead")

        dying = KillingStore(durable, KillPoint(when, lambda post: True, die=die))
        turn = rows.turn(
            seq,
            events=(rows.event(),),
            inbox=taken(),
            outbox_changes=(OutboxChange(old1.id, "done"),),
            answered=(("beta", "old2"),),
            outbox=(mail("new"),),
        )
        with pytest.raises(StoreError, match="dead"):
            await dying.commit(turn)
        await durable.close()
        second = database.store()
        await second.open()
        found = await second.task_outbox(rows.alice, "t1")
        receipt = await second.find_inbox("example", "beta", "m1")
        waiting = await second.waiting_mail(rows.alice, "t1")
        if when == "before":
            assert (found, receipt, len(waiting)) == ([old1, old2], None, 1)
        else:
            assert (refs(found), receipt, waiting) == (["new"], taken().receipt, [])
        await second.close()

    async def test_a_unit_that_fails_late_leaves_nothing(self, durable: Store, rows: Rows) -> None:
        """Mail that the database refuses takes the whole commit with it."""
        found = await send(durable, rows, mail("old"))
        bad = rows.post(
            inbox=taken(),
            events=(rows.event(),),
            close_requests=True,
            outbox=(mail("new"), mail("bad", sender="\ud800")),
        )
        with pytest.raises(StoreError):
            await durable.commit(bad)
        assert await durable.task_outbox(rows.alice, "t1") == found
        assert await durable.find_inbox("example", "beta", "m1") is None
        assert await durable.events(rows.alice, "t1") == []
