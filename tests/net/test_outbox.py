"""`OutboxSender`: order, retries, the circuit breaker, and that nothing is lost or told twice."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mail.core.interswarm import DeliveryOutcome
from mail.core.tasks import TaskState
from mail.db import open_store
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import OutboxChange, OutboxRow, Owner, TaskRow
from mail.errors import ShuttingDown, ToolError, UnknownTask
from mail.net.outbox import OutboxSender, PeerGateway, SendingSettings, Share
from mail.net.registry import SwarmRegistry
from mail.testing import LegacyPeer, LoopbackPeer
from tests.net.kit import INES, OWNER, WaitingMail, routing
from tests.support.times import a_while
from tests.support.waiting import until

FAST = SendingSettings(first_pause=0.02, longest_pause=0.2)


@asynccontextmanager
async def sending(
    folder: Path,
    store: WaitingMail,
    *peers: LoopbackPeer,
    settings: SendingSettings = FAST,
    settle: Any = None,
    share: Share | None = None,
) -> AsyncIterator[OutboxSender]:
    async with routing(folder, *peers) as router:
        registry = router.swarm_registry
        assert isinstance(registry, SwarmRegistry)
        parts = store, "alpha", registry, router, settle or store.settle, settings
        sender = OutboxSender(*parts, share=share)
        await sender.start()
        try:
            yield sender
        finally:
            await sender.stop()


class Held(LoopbackPeer):
    """A peer that takes mail in, and answers none before it may.

    Attributes:
        held: How many requests with mail came.
        answers: Set when they may be answered.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.held = 0
        self.answers = asyncio.Event()

    async def _answer(self, request: Any) -> Any:
        if request.method == "POST":
            self.held += 1
            await self.answers.wait()
        return await super()._answer(request)


def posted(peer: LoopbackPeer) -> list[str]:
    """Return the ids of the messages that a peer got, in order."""
    return [one.body["message"]["message_id"] for one in peer.requests if one.method == "POST"]


async def test_waiting_mail_is_delivered_and_settled(tmp_path: Path) -> None:
    store = WaitingMail()
    before = store.add("beta")
    async with LoopbackPeer(name="beta") as peer, sending(tmp_path, store, peer) as sender:
        await until(lambda: len(store.settled) == 1)
        after = store.add("beta", "other")
        sender.wake(["beta"])
        await until(lambda: len(store.settled) == 2)
    assert posted(peer) == [before.message_id, after.message_id]
    row, outcome, _ = store.settled[0]
    assert outcome == DeliveryOutcome("delivered", runner="swarm:alpha@beta")
    assert (row.id, row.attempts) == (before.id, 1)
    told = peer.requests[-1].body["message"]
    assert (told["auth_token"], told["metadata"]) == ("tok", {})
    assert told["task_contributors"] == [OWNER]
    assert peer.requests[-1].path == "/interswarm/forward"


async def test_mail_of_a_task_for_a_peer_goes_in_order_and_tasks_side_by_side(
    tmp_path: Path,
) -> None:
    """The first of each of four tasks is under way before any of them is answered."""
    store = WaitingMail()
    rows = [store.add("beta", f"task-{number // 10}") for number in range(40)]
    async with Held(name="beta") as peer, sending(tmp_path, store, peer) as sender:
        sender.wake(["beta"])
        await until(lambda: peer.held == 4)
        peer.answers.set()
        await until(lambda: len(store.settled) == 40)
    got = posted(peer)
    for number in range(4):
        due = [row.message_id for row in rows if row.task_id == f"task-{number}"]
        assert [one for one in got if one in due] == due
    assert len(got) == 40


async def test_a_peer_gets_only_so_much_at_once_and_others_do_not_wait(tmp_path: Path) -> None:
    store = WaitingMail()
    for number in range(600):
        store.add("slow", f"task-{number}")
    store.add("quick", "task")
    async with (
        Held(name="slow") as slow,
        LoopbackPeer(name="quick") as quick,
        sending(tmp_path, store, slow, quick, settings=replace(FAST, per_peer=3)),
    ):
        await until(lambda: len(posted(quick)) == 1 and slow.held == 3)
        await a_while(0.1)
        assert slow.held == 3
        slow.answers.set()


async def test_each_peer_gets_its_mail_from_the_server_whose_duty_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.net.outbox._SHARED_SECONDS", 0.05)
    store, on_duty, told = WaitingMail(), {"beta": False}, list[str]()

    async def has(duty: str) -> bool:
        return on_duty.get(duty, True)

    share = Share(has, lambda: told.append("new mail"))
    for number in range(600):  # more than one look finds
        store.add("beta", f"task-{number}")
    store.add("gamma", "task")
    beta, gamma = LoopbackPeer(name="beta"), LoopbackPeer(name="gamma")
    async with beta, gamma, sending(tmp_path, store, beta, gamma, share=share) as sender:
        await until(lambda: len(posted(gamma)) == 1)
        sender.wake(["beta"])
        await until(lambda: told == ["new mail"])
        assert posted(beta) == []
        on_duty["beta"] = True  # the other server is gone, and nobody says so
        await until(lambda: len(store.settled) == 601)
    assert len(posted(beta)) == 600


async def test_mail_goes_back_to_a_peer_that_takes_part_by_now(tmp_path: Path) -> None:
    store = WaitingMail()
    task = TaskRow("trip", OWNER, (OWNER, "user:x@gamma"), "", "guide")
    store.task = task
    store.add("beta")
    async with LoopbackPeer(name="beta") as peer, sending(tmp_path, store, peer) as sender:
        await until(lambda: len(store.settled) == 1)
        store.task = task._replace(task_contributors=(*task.task_contributors, "swarm:alpha@beta"))
        store.add("beta")
        sender.wake(["beta"])
        await until(lambda: len(store.settled) == 2)
    first, second = (one for one in peer.requests if one.method == "POST")
    assert (first.path, second.path) == ("/interswarm/forward", "/interswarm/back")
    contributors = [OWNER, "user:x@gamma", "swarm:alpha@beta"]
    assert second.body["message"]["task_contributors"] == contributors


@pytest.mark.parametrize(
    ("named", "runner"),
    [
        ("swarm:alpha@beta", "swarm:alpha@beta"),
        ("user:bob@corp.example@beta", "user:bob@corp.example@beta"),
        ("swarm:alpha@gamma", ""),
        ("admin:root@alpha", ""),
        ("beta", ""),
        (7, ""),
    ],
)
async def test_only_a_contributor_of_the_peer_is_taken_from_its_receipt(
    tmp_path: Path, named: Any, runner: str
) -> None:
    class Peer(LoopbackPeer):
        def _answered(self, asked: Any) -> tuple[int, dict[str, Any]]:
            return 200, LoopbackPeer._answered(self, asked)[1] | {"local_runner": named}

    store = WaitingMail()
    async with Peer(name="beta") as peer, sending(tmp_path, store, peer):
        store.add("beta")
        await until_sent(store)
    assert store.settled[0][1].runner == runner


async def until_sent(store: WaitingMail) -> None:
    """Wait until all mail is settled for good."""
    await until(lambda: all(row.state == "dead" for row in store.rows.values()), 20)


class Refusing(LoopbackPeer):
    """A peer that answers mail with `refusal`, while it has one: a status and a detail."""

    refusal: tuple[int, str | None] | None = None
    code: str | None = None

    def _answered(self, asked: Any) -> tuple[int, dict[str, Any]]:
        if asked.method != "POST" or self.refusal is None:
            return LoopbackPeer._answered(self, asked)
        status, detail = self.refusal
        code = {} if self.code is None else {"code": self.code}
        return status, code | ({} if detail is None else {"detail": detail})


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (404, "unknown_task", "undeliverable"),
        (404, "something_else", "delayed"),
        (400, "misdirected", "delayed"),
        (400, "something_else", "undeliverable"),
    ],
)
async def test_the_code_of_a_refusal_goes_before_its_words(
    tmp_path: Path, status: int, code: str, outcome: str
) -> None:
    store = WaitingMail()
    async with Refusing(name="beta") as peer, sending(tmp_path, store, peer) as sender:
        peer.refusal, peer.code = (status, "in other words"), code
        store.add("beta")
        sender.wake(["beta"])
        await until(lambda: bool(store.outcomes()))
    assert store.outcomes()[0] == outcome


@pytest.mark.parametrize(
    ("status", "detail", "remedy"),
    [
        (401, "unknown key", "SWARM_AUTH_TOKEN_BETA must be a token that was made on its side"),
        (403, "no registered swarm has the principal 'alpha'", "must have the swarm 'alpha' reg"),
        (403, "role 'user' is not allowed", "must have the swarm 'alpha' registered"),
        (404, "not found", "with enable_interswarm set to true"),
        (404, "the swarm 'beta' exchanges no mail with other swarms", "must serve that swarm"),
        (404, None, "must serve that swarm at the registered address"),
        (400, None, "must serve that swarm at the registered address"),
        (
            400,
            "invalid interswarm message: target_swarm: this server's swarm is 'x', not 'beta'",
            "must serve that swarm at the registered address",
        ),
        (400, "'alpha' is this server's own swarm; its mail takes no HTTP", "must serve"),
    ],
)
async def test_mail_waits_while_a_peer_is_set_up_wrongly(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    status: int,
    detail: str | None,
    remedy: str,
) -> None:
    store = WaitingMail()
    async with Refusing(name="beta") as peer, sending(tmp_path, store, peer) as sender:
        peer.refusal = status, detail
        rows = [store.add("beta"), store.add("beta"), store.add("beta", "other")]
        sender.wake(["beta"])
        await until(lambda: store.outcomes() == ["delayed"] * 2)
        reason = store.settled[0][1].reason
        assert reason.startswith(f"HTTP status code {status}, ") and (detail or "") in reason
        await until(lambda: len(posted(peer)) >= 6)
        peer.refusal = None
        await until_sent(store)
    assert store.outcomes() == ["delayed"] * 2 + ["delivered"] * 3
    assert posted(peer).index(rows[1].message_id) > posted(peer).index(rows[0].message_id)
    told = [one.getMessage() for one in caplog.records if remedy in one.getMessage()]
    assert len(told) == 1
    assert told[0].startswith(f"swarm 'beta' takes no mail, which waits: HTTP status code {status}")


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (400, "no agent 'supervisor' here"),
        (400, "parameter 'payload' is required"),
        (400, "task is not running"),
        (404, "task 'trip' not found"),
        (404, "no mail instance found for task with id trip"),
        (404, "no mail instance found for contributor: swarm:alpha@beta"),
        (409, "task 'trip' of swarm 'alpha' has another owner"),
        (413, None),
        (422, "payload: field required"),
    ],
)
async def test_what_is_wrong_with_the_mail_itself_is_told_at_once(
    tmp_path: Path, status: int, detail: str | None
) -> None:
    store = WaitingMail()
    async with Refusing(name="beta") as peer, sending(tmp_path, store, peer):
        peer.refusal = status, detail
        store.add("beta")
        await until_sent(store)
    assert store.outcomes() == ["undeliverable"]
    assert len(posted(peer)) == 1


async def test_a_first_failure_is_told_once_and_mail_arrives_in_the_end(tmp_path: Path) -> None:
    store = WaitingMail()
    async with LoopbackPeer(name="beta") as peer, sending(tmp_path, store, peer) as sender:
        peer.failing = 503
        rows = [store.add("beta"), store.add("beta")]
        sender.wake(["beta"])
        await until(lambda: len(posted(peer)) >= 4)
        row, outcome, _ = store.settled[0]
        assert outcome.state == "delayed"
        assert outcome.reason.startswith("HTTP status code 503, reason 'Service Unavailable'")
        assert (row.attempts, row.told) == (1, False)
        assert row.next_at > row.created_at
        assert store.outcomes() == ["delayed"]
        waiting = store.rows[rows[0].id]
        assert waiting.attempts >= 2
        assert waiting.last_error == outcome.reason
        peer.failing = None
        await until_sent(store)
    assert store.outcomes() == ["delayed", "delivered", "delivered"]
    ids = posted(peer)
    assert ids[-2:] == [row.message_id for row in rows]
    assert set(ids[:-2]) == {rows[0].message_id}


async def test_an_unknown_peer_may_be_registered_again(tmp_path: Path) -> None:
    store = WaitingMail()
    store.add("beta")
    async with LoopbackPeer(name="beta") as peer, routing(tmp_path) as router:
        registry = router.swarm_registry
        assert isinstance(registry, SwarmRegistry)
        sender = OutboxSender(store, "alpha", registry, router, store.settle, FAST)
        await sender.start()
        await until(lambda: len(store.settled) == 1)
        assert store.settled[0][1] == DeliveryOutcome("delayed", "unknown swarm endpoint: 'beta'")
        await registry.register_swarm("beta", peer.url)
        reason = "authentication token missing for swarm 'beta'"
        await until(lambda: store.rows[1].last_error == reason)
        await registry.register_swarm("beta", peer.url, "tok")
        await until_sent(store)
        await sender.stop()
    assert store.outcomes() == ["delayed", "delivered"]


async def test_a_peer_says_when_to_come_again(tmp_path: Path) -> None:
    store = WaitingMail()
    async with LoopbackPeer(name="beta") as peer, sending(tmp_path, store, peer) as sender:
        began = time.monotonic()
        peer.failing, peer.headers = 429, {"Retry-After": "2"}
        for number in range(3):
            store.add("beta", f"task-{number}")
        sender.wake(["beta"])
        await until(lambda: store.outcomes().count("delayed") == 3)
        attempts = len(posted(peer))
        peer.failing, peer.headers = None, {}
        store.add("beta", "new")
        sender.wake(["beta"])
        await until(lambda: store.outcomes().count("delayed") == 4)
        assert len(posted(peer)) == attempts
        await until_sent(store)
        assert 1.5 < time.monotonic() - began < 15
    assert store.outcomes().count("delivered") == 4


async def test_a_peer_that_fails_gets_one_probe_at_a_time(tmp_path: Path) -> None:
    settings = SendingSettings(first_pause=0.4, longest_pause=0.4)
    store = WaitingMail()
    async with (
        LoopbackPeer(name="beta") as peer,
        sending(tmp_path, store, peer, settings=settings) as sender,
    ):
        peer.failing = 500
        for number in range(20):
            store.add("beta", f"task-{number}")
        sender.wake(["beta"])
        await until(lambda: store.outcomes().count("delayed") == 20)
        burst = len(posted(peer))
        peer.delay = 0.1
        await asyncio.sleep(1.5)
        probes = len(posted(peer)) - burst
        assert 1 <= probes <= 15
        assert store.outcomes().count("delayed") == 20
        late = store.add("beta", "late")  # told without an attempt, unless it is the next probe
        sender.wake(["beta"])
        await until(lambda: store.outcomes().count("delayed") == 21, 5)
        peer.failing, peer.delay = None, 0.0
        await until_sent(store)
    assert store.outcomes().count("delivered") == 21
    assert posted(peer).count(late.message_id) <= 2


async def test_mail_that_always_fails_is_not_every_probe(tmp_path: Path) -> None:
    class Picky(LoopbackPeer):
        def _answered(self, asked: Any) -> tuple[int, dict[str, Any]]:
            body = asked.body or {}
            if "bad" in str(body.get("message", {}).get("payload")):
                return 500, {"detail": "no"}
            return LoopbackPeer._answered(self, asked)

    store = WaitingMail()
    for number in range(8):
        store.add("beta", f"bad-{number}")
    async with Picky(name="beta") as peer, sending(tmp_path, store, peer) as sender:
        await until(lambda: len(posted(peer)) > 12)
        store.add("beta", "good")
        sender.wake(["beta"])
        await until(lambda: "delivered" in store.outcomes())
    assert store.outcomes().count("delivered") == 1


async def test_a_hint_that_a_peer_answers_ends_the_pause(tmp_path: Path) -> None:
    settings = SendingSettings(first_pause=1e6, longest_pause=1e6)
    store = WaitingMail()
    async with (
        LoopbackPeer(name="beta") as peer,
        sending(tmp_path, store, peer, settings=settings) as sender,
    ):
        peer.failing = 503
        for number in range(6):
            store.add("beta", f"task-{number}")
        sender.wake(["beta"])
        await until(lambda: store.outcomes().count("delayed") == 6)
        peer.failing = None
        store.add("beta", "late")
        sender.wake(["beta"])
        await until(lambda: store.outcomes().count("delayed") == 7)
        late = store.settled[-1][1]
        assert late.reason.removeprefix(late.own_reason) == ": told to fail"
        sender.heard_from("gamma")
        sender.heard_from("beta")
        await until(lambda: store.outcomes().count("delivered") == 1)
        await a_while(0.2)  # it looks once more when mail has been delivered
        store.add("beta", "later")
        looks = store.looks
        sender.heard_from("beta")  # nothing is held back any more
        await asyncio.sleep(0.1)
        assert store.looks == looks
        sender.probe(["beta"])
        await until(lambda: store.outcomes().count("delivered") == 2)


async def test_a_peer_whose_health_returns_is_tried_at_once(tmp_path: Path) -> None:
    settings = SendingSettings(first_pause=1e6, longest_pause=1e6)
    store = WaitingMail()
    async with LoopbackPeer(name="beta") as peer, routing(tmp_path, peer) as router:
        registry = router.swarm_registry
        assert isinstance(registry, SwarmRegistry)
        registry.health_check_interval = 0.05
        await registry.start_health_checks()
        sender = OutboxSender(store, "alpha", registry, router, store.settle, settings)
        await sender.start()
        peer.failing = 503
        for number in range(8):
            store.add("beta", f"task-{number}")
        sender.wake(["beta"])
        await until(lambda: store.outcomes().count("delayed") == 8)
        await until(lambda: not registry.endpoints["beta"]["is_active"])
        store.add("beta", "late")
        sender.wake(["beta"])
        await until(lambda: store.outcomes().count("delayed") == 9)
        peer.failing = None
        await until(lambda: "delivered" in store.outcomes())
        await sender.stop()
        await registry.stop_health_checks()


async def test_an_agent_is_told_within_seconds_of_a_peer_that_hangs(tmp_path: Path) -> None:
    store = WaitingMail()
    async with Held(name="beta") as peer, sending(tmp_path, store, peer):
        store.add("beta", "trip")
        await until(lambda: store.outcomes() == ["delayed"], 20)
        peer.answers.set()
        await until(lambda: store.outcomes() == ["delayed", "delivered"])
    assert len(posted(peer)) == 1


async def test_old_mail_is_given_up_with_the_reason(tmp_path: Path) -> None:
    settings = replace(FAST, give_up_after=3600)
    store = WaitingMail()
    old = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    async with (
        LoopbackPeer(name="beta") as peer,
        sending(tmp_path, store, peer, settings=settings) as sender,
    ):
        peer.failing = 503
        for number in range(8):
            store.add("beta", f"task-{number}", created_at=old, told=True)
        sender.wake(["beta"])
        await until_sent(store)
    assert store.outcomes() == ["undeliverable"] * 8
    reason = store.settled[0][1].reason
    assert reason.startswith(
        "not delivered within 60 minutes; the last attempt: HTTP status code 503"
    )


async def test_old_mail_gets_a_last_attempt(tmp_path: Path) -> None:
    store = WaitingMail()
    old = (datetime.now(UTC) - timedelta(days=3)).isoformat()
    store.add("beta", created_at=old)
    async with LoopbackPeer(name="beta") as peer, sending(tmp_path, store, peer):
        await until_sent(store)
    assert store.outcomes() == ["delivered"]


@pytest.mark.parametrize(
    ("status", "age"), [(503, 0), (503, 3), (422, 0)], ids=["waits", "too old", "refused"]
)
async def test_a_retry_outlives_the_attempt_that_is_under_way(
    tmp_path: Path, status: int, age: int
) -> None:
    """What an attempt that began before comes to neither puts the mail off nor gives it up."""

    class Mended(LoopbackPeer):
        def _answered(self, asked: Any) -> tuple[int, dict[str, Any]]:
            if asked.method == "POST" and len(posted(self)) == 1:
                return status, {"detail": "no"}
            return super()._answered(asked)

    settings = SendingSettings(first_pause=1e6, longest_pause=1e6)
    store = WaitingMail()
    old = (datetime.now(UTC) - timedelta(days=age, seconds=1)).isoformat()
    async with (
        Mended(name="beta") as peer,
        sending(tmp_path, store, peer, settings=settings) as sender,
    ):
        peer.delay = 0.2
        mail = store.add("beta", created_at=old, told=True)
        sender.wake(["beta"])
        await until(lambda: len(posted(peer)) == 1)
        assert await store.retry_outbox("alpha", mail.id)
        await until_sent(store)
    assert store.outcomes() == ["delivered"]
    assert len(posted(peer)) == 2


async def test_requests_without_an_answer_are_closed_after_a_time(tmp_path: Path) -> None:
    """Also those of an earlier process; one that cannot be closed now does not keep others back."""
    store = WaitingMail()
    old = (datetime.now(UTC) - timedelta(days=6)).isoformat()
    older = (datetime.now(UTC) - timedelta(days=8)).isoformat()
    store.add("beta", created_at=old, state="delivered")
    closed: list[tuple[int, DeliveryOutcome]] = []

    async def settle(owner: Owner, row: OutboxRow, outcome: DeliveryOutcome) -> None:
        if row.task_id == "away":
            raise ShuttingDown
        if outcome.state == "unanswered":
            del store.rows[row.id]
        closed.append((row.id, outcome))

    store.add("beta", "away", created_at=older, state="delivered")
    late = store.add("beta", created_at=older, state="delivered")
    async with LoopbackPeer(name="beta") as peer:
        async with sending(tmp_path, store, peer, settle=settle):
            await until(lambda: len(closed) == 1)
        reason = "no answer came within 7 days"
        assert closed == [(late.id, DeliveryOutcome("unanswered", reason))]
        soon = replace(FAST, answer_within=0.3)
        del store.rows[1]
        async with sending(tmp_path, store, peer, settle=settle, settings=soon):
            made = store.add("beta", "new", state="delivered")
            await until(lambda: len(closed) == 2)
            assert closed[1][0] == made.id
            age = datetime.now(UTC) - datetime.fromisoformat(made.created_at)
            assert age >= timedelta(seconds=0.3)
    assert posted(peer) == []


async def test_what_came_of_an_attempt_is_committed_however_long_that_takes(
    tmp_path: Path,
) -> None:
    store = WaitingMail()
    async with LoopbackPeer(name="beta") as peer, sending(tmp_path, store, peer) as sender:
        await asyncio.sleep(0.05)
        peer.delay = 0.1
        store.add("beta")
        sender.wake(["beta"])
        await until(lambda: len(posted(peer)) == 1)
        store.broken = True
        store.add("beta")
        await asyncio.sleep(0.6)
        assert store.settled == []
        store.broken = False
        await until_sent(store)
    assert len(posted(peer)) == 2
    assert store.outcomes() == ["delivered", "delivered"]


async def test_what_cannot_be_committed_yet_takes_no_room(tmp_path: Path) -> None:
    store = WaitingMail()
    refused = 0

    async def settle(owner: Owner, row: OutboxRow, outcome: DeliveryOutcome) -> None:
        nonlocal refused
        if row.task_id.startswith("away") and refused < 1000:
            refused += 1
            raise ShuttingDown
        await store.settle(owner, row, outcome)

    settings = replace(FAST, per_peer=2, at_once=2)
    for number in range(6):
        store.add("beta", f"away-{number}")
    store.add("beta", "here")
    async with (
        LoopbackPeer(name="beta") as peer,
        sending(tmp_path, store, peer, settings=settings, settle=settle) as sender,
    ):
        await until(lambda: store.outcomes() == ["delivered"])
        assert refused >= 6
        refused = 1000
        await until_sent(store)
        await until(lambda: not sender._flights)
        assert (sender._grounded, sender._in_the_air) == (set(), 0)
    assert len(posted(peer)) == 7


@pytest.mark.parametrize("status", [503, 422])
async def test_the_words_of_a_peer_are_told_apart_from_the_reason(
    tmp_path: Path, status: int
) -> None:
    """Of mail that is refused, that is put off, and that is given up."""
    settings = SendingSettings(first_pause=0.01, longest_pause=0.01, give_up_after=0.5)
    store = WaitingMail()
    async with (
        LoopbackPeer(name="beta") as peer,
        sending(tmp_path, store, peer, settings=settings) as sender,
    ):
        peer.failing = status
        for number in range(8):
            store.add("beta", f"task-{number}")
        sender.wake(["beta"])
        await until(lambda: store.outcomes().count("undeliverable") >= 2)
        await until_sent(store)
    for _, outcome, _ in store.settled:
        assert "told to fail" in outcome.reason
        assert "told to fail" not in outcome.own_reason
        assert len(outcome.own_reason) > 20


async def test_mail_of_a_deleted_task_is_forgotten(tmp_path: Path) -> None:
    store = WaitingMail()

    async def settle(owner: Owner, row: Any, outcome: DeliveryOutcome) -> None:
        del store.rows[row.id]
        raise UnknownTask(row.task_id)

    async with (
        LoopbackPeer(name="beta") as peer,
        sending(tmp_path, store, peer, settle=settle) as sender,
    ):
        store.add("beta")
        store.add("beta")
        sender.wake(["beta"])
        await until(lambda: len(posted(peer)) == 2)
        await until_sent(store)


async def test_last_words_of_a_deleted_task_are_sent(tmp_path: Path) -> None:
    """Nobody hears of their delay, of their arrival, or of a peer that refuses them."""
    store = MemoryStore()
    asked: list[Any] = []

    async def settle(*given: Any) -> None:
        asked.append(given)

    made = WaitingMail()
    rows = [made.add(peer)._replace(sender="", id=0) for peer in ("beta", "gamma")]
    done = TaskRow("trip", OWNER, (OWNER,), "", "guide", state=TaskState.COMPLETED)
    async with LoopbackPeer(name="beta") as beta, LoopbackPeer(name="gamma") as gamma:
        async with sending(tmp_path, store, beta, gamma, settle=settle) as sender:  # type: ignore[arg-type]
            beta.failing, gamma.failing = 503, 422
            await store.commit(Commit(owner=INES, task=done, new=True, outbox=tuple(rows)))
            await store.delete_task(INES, "trip")
            sender.wake(["beta", "gamma"])
            await until(lambda: bool(posted(beta) and posted(gamma)))
            async with asyncio.timeout(10):
                while any(not row.attempts for _, row in await store.list_outbox("alpha")):
                    await asyncio.sleep(0.01)  # else the first attempt may still succeed
            beta.failing = None
            async with asyncio.timeout(10):
                while await store.list_outbox("alpha"):
                    await asyncio.sleep(0.01)
        assert len(posted(beta)) >= 2
        assert len(posted(gamma)) == 1
    assert asked == []


async def test_stopping_takes_seconds_at_most_and_loses_nothing(tmp_path: Path) -> None:
    store = WaitingMail()
    async with LoopbackPeer(name="beta") as peer, routing(tmp_path, peer) as router:
        registry = router.swarm_registry
        assert isinstance(registry, SwarmRegistry)
        peer.delay = 60
        for number in range(3):
            store.add("beta", f"task-{number}")
        sender = OutboxSender(store, "alpha", registry, router, store.settle, FAST)
        await sender.start()
        await until(lambda: len(posted(peer)) == 3)
        began = time.monotonic()
        await sender.stop()
        await sender.stop()
        assert time.monotonic() - began < 20
        assert "delivered" not in store.outcomes()
        peer.delay = 0
        await sender.start()
        await until_sent(store)
        await sender.stop()
    assert store.outcomes().count("delivered") == 3


async def test_a_repeated_forward_to_1_3_6_counts_as_delivered(tmp_path: Path) -> None:
    store = WaitingMail()
    async with LegacyPeer(name="beta", callers={"tok": "alpha"}) as peer:
        row = store.add("beta")
        async with sending(tmp_path, store, peer) as sender:
            await until_sent(store)
            store.rows[row.id] = row  # what came of it was not committed
            sender.wake(["beta"])
            await until(lambda: len(store.settled) == 2)
    assert [one.runner for _, one, _ in store.settled] == ["swarm:alpha@beta"] * 2
    assert len(peer.taken) == 1


async def test_tokens_are_in_no_log_and_no_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = WaitingMail()
    caplog.set_level("DEBUG")
    async with LoopbackPeer(name="beta") as peer, routing(tmp_path) as router:
        registry = router.swarm_registry
        assert isinstance(registry, SwarmRegistry)
        await registry.register_swarm("beta", peer.url, "hush-hush-0123456789")
        sender = OutboxSender(store, "alpha", registry, router, store.settle, FAST)
        await sender.start()
        peer.failing = 500
        store.add("beta")
        sender.wake(["beta"])
        await until(lambda: store.rows[1].attempts > 2)
        peer.failing = 422
        await until_sent(store)
        await sender.stop()
    assert store.outcomes() == ["delayed", "undeliverable"]
    assert "hush-hush" not in caplog.text
    assert "hush-hush" not in str(store.settled) + str(store.rows)


async def test_the_gateway_refuses_what_cannot_be_sent(tmp_path: Path) -> None:
    store = WaitingMail()
    async with (
        LoopbackPeer(name="weather") as peer,
        LoopbackPeer(name="zoo") as zoo,
        routing(tmp_path, peer) as router,
    ):
        registry = router.swarm_registry
        assert isinstance(registry, SwarmRegistry)
        sender = OutboxSender(store, "alpha", registry, router, store.settle, FAST)
        gateway = PeerGateway()
        gateway.registry = registry
        gateway.begin(sender, router)
        gateway.check("weather")
        with pytest.raises(ToolError, match=r"^unknown swarm 'wether'\. Did you mean 'weather'\?$"):
            gateway.check("wether")
        await registry.register_swarm("zoo", zoo.url)
        with pytest.raises(ToolError, match=r"^authentication token missing for swarm 'zoo'$"):
            gateway.check("zoo")
        assert gateway.swarms() == ["weather", "zoo"]
        registry.endpoints["zoo"]["is_active"] = False
        assert gateway.swarms() == ["weather"]
        gateway.check("weather")
        peer.swarms = [peer.swarm_entry(swarm_name="new", base_url=zoo.url)]
        zoo.name = "new"
        found, problems = await gateway.discover([peer.url, "http://127.0.0.1:9"])
        assert found == ["new"]
        assert problems == ["http://127.0.0.1:9: the connection failed"]
        await sender.start()
        await until(lambda: store.looks == 1)
        store.add("weather")
        gateway.wake(["weather"])
        await until_sent(store)
        await sender.stop()
    assert INES.swarm == "alpha"


class Flaky(LoopbackPeer):
    """A peer that refuses a third of the mail, and forgets to say that it has another third."""

    dice = random.Random(7)

    def _answered(self, asked: Any) -> tuple[int, dict[str, Any]]:
        cast = self.dice.random()
        if asked.method == "POST" and cast < 0.33:
            self.requests[:] = [one for one in self.requests if one is not asked]
            return 503, {"detail": "busy"}
        answer = LoopbackPeer._answered(self, asked)
        return (500, {"detail": "lost"}) if asked.method == "POST" and cast > 0.66 else answer


async def test_a_store_and_peers_that_fail_lose_nothing_and_keep_the_order(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/mail.db")
    await store.open()
    tasks = {name: TaskRow(name, OWNER, (OWNER,), "", "guide") for name in ("t1", "t2", "t3")}
    outcomes: list[tuple[int, str]] = []

    async def settle(owner: Owner, row: OutboxRow, outcome: DeliveryOutcome) -> None:
        done = outcome.state == "delivered"
        told = (row.attempts, row.next_at, outcome.reason, True)
        change = OutboxChange(row.id, "done" if done else "waiting", *told)
        await store.commit(Commit(owner=owner, task=tasks[row.task_id], outbox_changes=(change,)))
        outcomes.append((row.id, outcome.state))

    sent: dict[tuple[str, str], list[str]] = {}
    async with (
        Flaky(name="beta") as beta,
        Flaky(name="gamma") as gamma,
        routing(tmp_path, beta, gamma) as router,
    ):
        registry = router.swarm_registry
        assert isinstance(registry, SwarmRegistry)
        made = WaitingMail()
        sender = OutboxSender(store, "alpha", registry, router, settle, FAST)
        await sender.start()
        for number in range(60):
            task, peer = f"t{number % 3 + 1}", ("beta", "gamma")[number % 2]
            row = made.add(peer, task)
            sent.setdefault((task, peer), []).append(row.message_id)
            await store.commit(Commit(INES, tasks[task], number < 3, outbox=(row,)))
            sender.wake([peer])
            if number == 30:  # as after a restart
                await sender.stop()
                sender = OutboxSender(store, "alpha", registry, router, settle, FAST)
                await sender.start()
        async with asyncio.timeout(60):
            while await store.next_outbox("alpha") is not None:
                await asyncio.sleep(0.02)
        await sender.stop()
    delivered = [number for number, state in outcomes if state == "delivered"]
    assert sorted(delivered) == list(range(1, 61))
    delayed = [number for number, state in outcomes if state == "delayed"]
    assert len(set(delayed)) == len(delayed) > 0
    for (task, name), ids in sent.items():
        peer = beta if name == "beta" else gamma
        got = [
            one.body["message"]["message_id"]
            for one in peer.requests
            if one.method == "POST" and one.body["message"]["payload"]["task_id"] == task
        ]
        assert list(dict.fromkeys(got)) == ids  # repeated at most, never out of order
    await store.close()
