"""What callers store: their shares, deleting tasks, and deletion by age."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from mail.config.server import RetentionConfig
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.desk import DeskPost, LetterFilter, LetterRow, PageRow
from mail.db.memory import MemoryStore
from mail.db.records import IdempotencyRow, InboxRow, Owner, StoredUse, TaskRow
from mail.server.app import create_app
from mail.server.errors import StorageFull
from mail.server.retention import FIRST_STEP, HOURLY_STEP, Retention
from mail.server.storage import StorageShares
from tests.server.kit import Script, Template, bearer, config, serving
from tests.support.sql import change

ALICE, BOB = (Owner("test-swarm", "user", name) for name in ("alice", "bob"))


class Counting:
    """A store that says what it is told to say, and counts the questions."""

    def __init__(self) -> None:
        self.use = StoredUse(0, 0, 0)
        self.asked = 0

    async def stored_use(self, owner: Owner) -> StoredUse:
        self.asked += 1
        return self.use


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def shares(store: Any, clock: Clock | None = None, most: int = 100) -> StorageShares:
    return StorageShares(store.stored_use, most, now=clock or Clock())


class TestShares:
    async def test_who_deletes_at_another_server_goes_on_after_a_second(self) -> None:
        store, clock = Counting(), Clock()
        store.use = StoredUse(100, 3, 3)
        given = shares(store, clock)
        with pytest.raises(StorageFull):
            await given.admit(ALICE)
        store.use = StoredUse(0, 0, 0)
        clock.now += 1.1
        await given.admit(ALICE)

    async def test_an_answer_to_a_paused_task_has_a_reserve_and_so_have_tasks_that_run(
        self,
    ) -> None:
        store = Counting()
        store.use = StoredUse(150, 1, 1)
        given = shares(store)
        await given.admit(ALICE, resumes=True)
        assert given.refusal(ALICE) is None
        given.wrote(ALICE, 50)
        store.use = StoredUse(200, 1, 1)
        with pytest.raises(StorageFull):
            await given.admit(ALICE, resumes=True)
        assert "max_stored_bytes" in (given.refusal(ALICE) or "")
        assert given.refusal(BOB) is None

    async def test_zero_lifts_the_limit_and_asks_nothing(self) -> None:
        store = Counting()
        store.use = StoredUse(10**12, 10**6, 10**6)
        given = shares(store, most=0)
        await given.admit(ALICE)
        assert given.refusal(ALICE) is None
        assert store.asked == 0


def app_with(store: MemoryStore, template: Template | None = None, **limits: Any) -> Any:
    settings, template = config(shutdown_grace=0.2, **limits), template or Template()
    return create_app(settings, template=template, store=store)  # type: ignore[arg-type]


async def post(client: httpx.AsyncClient, body: str, who: str = "alice", **more: Any) -> Any:
    return await client.post("/message", json={"body": body} | more, headers=bearer(who))


class TestOverHTTP:
    async def test_a_caller_over_its_share_deletes_and_goes_on(self, store: MemoryStore) -> None:
        async with serving(app_with(store, max_stored_bytes=25_000)) as client:
            assert (await post(client, "x" * 20_000, task_id="large")).status_code == 200
        async with serving(app_with(store, max_stored_bytes=25_000)) as client:
            refused = await post(client, "more")
            assert refused.status_code == 507
            assert "max_stored_bytes" in refused.json()["detail"]
            assert (await post(client, "more", "bob")).status_code == 200
            gone = await client.delete("/tasks/large", headers=bearer("alice"))
            assert gone.status_code == 204
            assert (await post(client, "more")).status_code == 200

    async def test_the_tasks_of_a_caller_who_has_none_open_are_not_looked_for(
        self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked, look = list[Owner](), store.list_tasks

        async def counted(owner: Owner, **more: Any) -> Any:
            looked.append(owner)
            return await look(owner, **more)

        monkeypatch.setattr(store, "list_tasks", counted)
        async with serving(app_with(store)) as client:
            assert (await post(client, "hello")).status_code == 200
        async with serving(app_with(store)) as client:  # it has only a task that has ended
            assert (await post(client, "hello")).status_code == 200
            assert looked == []
            assert (await post(client, "hello", "bob")).status_code == 200
        async with serving(app_with(store, max_stored_bytes=0)) as client:
            assert (await post(client, "hello")).status_code == 200
            assert looked == [ALICE]

    async def test_responses_count_and_are_deleted_by_themselves(self, store: MemoryStore) -> None:
        asked = {"input": "x" * 5_000, "model": "any"}
        async with serving(app_with(store)) as client:
            made = await client.post("/v1/responses", json=asked, headers=bearer("alice"))
            task = made.json()["task_id"]
            gone = await client.delete(f"/tasks/{task}", headers=bearer("alice"))
            assert gone.status_code == 204
        left = (await store.stored_use(ALICE)).bytes
        async with serving(app_with(store, max_stored_bytes=left)) as client:
            refused = await post(client, "more")
            assert refused.status_code == 507
            assert "DELETE /v1/responses/{response_id}" in refused.json()["detail"]
            path = f"/v1/responses/{made.json()['id']}"
            assert (await client.delete(path, headers=bearer("alice"))).status_code == 200
            assert (await post(client, "more")).status_code == 200

    async def test_idempotency_keys_fill_the_callers_share_and_no_more(
        self, store: MemoryStore
    ) -> None:
        async with serving(app_with(store, max_stored_bytes=20_000)) as client:
            assert (await post(client, "hello", task_id="t")).status_code == 200
            for number in range(60):
                headers = bearer("alice") | {"Idempotency-Key": f"key-{number}-{'k' * 200}"}
                path = "/auth/login" if number % 2 else "/tasks/t/cancel"
                assert (await client.post(path, headers=headers)).status_code == 200
            status = (await client.get("/status", headers=bearer("alice"))).json()["storage"]
            assert 20_000 <= status["bytes"] < 22_000
            refused = await post(client, "more")
            assert refused.status_code == 507
            assert "idempotency keys (which go after a week)" in refused.json()["detail"]
            assert await store.find_key(ALICE, f"key-0-{'k' * 200}") is not None
            assert await store.find_key(ALICE, f"key-59-{'k' * 200}") is None
            assert (await post(client, "more", "bob")).status_code == 200

    async def test_keys_of_messages_count_with_the_commit_and_after_deletion(
        self, store: MemoryStore
    ) -> None:
        app = app_with(store, max_stored_bytes=2**20)
        async with serving(app) as client:
            assert (await post(client, "first", task_id="t0")).status_code == 200
            counted = app.state.mail.shares._accounts[ALICE]
            before = (await store.stored_use(ALICE)).bytes
            for number in range(10):
                headers = bearer("alice") | {"Idempotency-Key": f"{number}{'k' * 200}"}
                body = {"body": "hello", "task_id": f"k{number}"}
                answer = await client.post("/message", json=body, headers=headers)
                assert answer.status_code == 200
            taken = (await store.stored_use(ALICE)).bytes
            assert counted.bytes == taken > before + 10 * 700
            for number in range(10):
                gone = await client.delete(f"/tasks/k{number}", headers=bearer("alice"))
                assert gone.status_code == 204
            status = (await client.get("/status", headers=bearer("alice"))).json()["storage"]
            assert status["bytes"] == (await store.stored_use(ALICE)).bytes < taken
            assert status["bytes"] - before == 10 * (300 + 2 * 201)  # a repeat is a 410 still

    async def test_versions_of_memories_fill_the_callers_share(self, store: MemoryStore) -> None:
        async with serving(app_with(store, max_stored_bytes=90_000)) as client:

            async def remember(who: str = "alice") -> int:
                text = {"value": "x" * 16_000}
                return (await client.put("/memories/m", json=text, headers=bearer(who))).status_code

            assert [await remember() for _ in range(6)] == [200, 200, 200, 200, 200, 507]
            assert await remember("bob") == 200
            gone = await client.delete("/memories/m", headers=bearer("alice"))
            assert gone.status_code == 204
            assert await remember() == 200

    async def test_what_agents_store_counts_with_the_next_message(self, store: MemoryStore) -> None:
        async with serving(app_with(store, max_stored_bytes=90_000)) as client:
            found = [
                (await post(client, "x" * 4_000, task_id=f"t{number}")).status_code
                for number in range(40)
            ]
        taken = (await store.stored_use(ALICE)).bytes
        one = taken / found.count(200)
        assert one > 3 * 4_000  # much more than the requests' bytes
        assert found.count(200) < 20
        assert set(found[found.count(200) :]) == {507}
        assert taken < 100_000 + 2 * one

    async def test_tasks_that_run_stop_at_twice_the_share(self, store: MemoryStore) -> None:
        async with serving(app_with(store, max_stored_bytes=10_000)) as client:
            answer = await post(client, "x" * 20_000, task_id="t")
            assert answer.status_code == 402
            assert "max_stored_bytes" in answer.json()["detail"]
            task = await client.get("/tasks/t", headers=bearer("alice"))
            assert task.json()["status"] == "failed"

    async def test_a_task_over_its_bytes_fails_and_says_why(
        self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.server.swarm._TASK_BYTES", 5_000)
        async with serving(app_with(store)) as client:
            answer = await post(client, "x" * 6_000, task_id="t")
            assert answer.status_code == 402
            assert "the records of the task take" in answer.json()["detail"]
            task = await client.get("/tasks/t", headers=bearer("alice"))
            assert task.json()["status"] == "failed"

    async def test_status_tells_what_a_caller_stores(self, client: httpx.AsyncClient) -> None:
        await post(client, "x" * 5_000)
        status = (await client.get("/status", headers=bearer("alice"))).json()["storage"]
        assert status["bytes"] > 5_000
        assert (status["tasks"], status["open_tasks"]) == (1, 0)
        assert status["max_bytes"] == 2**30

    async def test_status_goes_through_no_tasks(
        self, app: FastAPI, client: httpx.AsyncClient, store: MemoryStore
    ) -> None:
        asked: list[str] = []
        app.state.mail.shares._now = Clock()
        for verb in ("stored_use", "list_tasks", "open_owners"):
            kept = getattr(store, verb)

            async def noted(*given: Any, _verb: str = verb, _kept: Any = kept, **more: Any) -> Any:
                asked.append(_verb)
                return await _kept(*given, **more)

            setattr(store, verb, noted)
        app.state.mail.shares._stored = store.stored_use
        for _ in range(20):
            assert (await client.get("/status", headers=bearer("alice"))).status_code == 200
        assert asked == ["stored_use"]


class TestDeletion:
    async def test_a_task_is_gone_and_another_callers_is_not(
        self, client: httpx.AsyncClient, store: MemoryStore
    ) -> None:
        for who in ("alice", "bob"):
            await post(client, "hello", who, task_id="a/b")
        answer = await client.delete("/tasks/a%2Fb", headers=bearer("alice"))
        assert (answer.status_code, answer.content) == (204, b"")
        unknown = await client.delete("/tasks/a%2Fb", headers=bearer("alice"))
        never = await client.get("/tasks/a%2Fb", headers=bearer("alice"))
        assert unknown.status_code == never.status_code == 404
        assert unknown.json() == never.json()
        assert await store.stored_use(ALICE) == StoredUse(0, 0, 0)
        assert (await client.get("/tasks/a/b", headers=bearer("bob"))).status_code == 200

    async def test_a_running_task_is_refused_unless_it_may_be_cancelled(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        answer = await post(client, "hang", task_id="t", stream=False, kwargs={"timeout": 0.05})
        assert answer.status_code == 504
        refused = await client.delete("/tasks/t", headers=bearer("alice"))
        assert refused.status_code == 409
        assert "cancel=true" in refused.json()["detail"]
        gone = await client.delete("/tasks/t?cancel=true", headers=bearer("alice"))
        assert gone.status_code == 204
        assert (await client.get("/tasks/t", headers=bearer("alice"))).status_code == 404
        assert (await post(client, "hello", task_id="t")).status_code == 200

    async def test_a_repeat_of_its_request_is_410_and_starts_nothing(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        headers = bearer("alice") | {"Idempotency-Key": "k"}
        body = {"body": "hello", "task_id": "t"}
        assert (await client.post("/message", json=body, headers=headers)).status_code == 200
        await client.delete("/tasks/t", headers=bearer("alice"))
        repeat = await client.post("/message", json=body, headers=headers)
        assert repeat.status_code == 410
        assert "new key" in repeat.json()["detail"]
        assert script.calls == 1


START = datetime(2026, 1, 1, tzinfo=UTC)
NO_CLOCK = datetime(1970, 1, 1, tzinfo=UTC)


class Wall:
    """A wall clock that is set by hand."""

    now = START

    def __call__(self) -> datetime:
        return self.now


def retention(store: Any, wall: Wall, days: float | None = 30.0, **more: Any) -> Retention:
    options: dict[str, Any] = {"is_busy": lambda owner, task_id: False} | more
    return Retention(
        store=store,
        swarm=lambda: "test-swarm",
        key_hours=168.0,
        task_days=days,
        now=wall,
        **options,
    )


async def put_keys(store: Any, wall: Wall, count: int) -> None:
    for number in range(count):
        made = (wall.now - timedelta(hours=number)).isoformat()
        await store.put_key(ALICE, IdempotencyRow(f"k{number}", "f", made))


async def keys_left(store: Any, count: int) -> int:
    found = [await store.find_key(ALICE, f"k{number}") for number in range(count)]
    return sum(row is not None for row in found)


async def put_tasks(store: MemoryStore, wall: Wall, ages: dict[str, int]) -> None:
    """Store ended tasks that were last changed so many days ago."""
    for task_id, days in ages.items():
        state = TaskState.PAUSED if "paused" in task_id else TaskState.COMPLETED
        row = TaskRow(task_id, "user:alice@test-swarm", (), wall.now.isoformat(), "supervisor")
        await store.commit(Commit(owner=ALICE, task=row._replace(state=state), new=True))
        changed = (wall.now - timedelta(days=days)).isoformat()
        await change(store, "UPDATE tasks SET updated_at = $1 WHERE task_id = $2", changed, task_id)


async def put_letters(
    store: MemoryStore, wall: Wall, ages: dict[str, int], unread: Collection[str] = ()
) -> None:
    """Store letters that were written so many days ago, and show bob all but some."""
    letters = tuple(
        LetterRow(
            name, "ann", ("bob",), "direct", "x", (wall.now - timedelta(days=days)).isoformat()
        )
        for name, days in ages.items()
    )
    await store.post_letters(DeskPost(swarm="test-swarm", letters=letters))
    seen = [name for name in ages if name not in unread]
    await store.show_letters("test-swarm", "bob", seen, wall.now.isoformat())


async def letters_left(store: MemoryStore) -> set[str]:
    found = await store.letters("test-swarm", "bob", LetterFilter(), limit=1000)
    return {row.letter_id for row, _ in found}


async def tasks_left(store: Any) -> set[str]:
    return {row.task_id for row in await store.list_tasks(ALICE)}


class TestAge:
    async def test_only_old_ended_tasks_go(self, store: MemoryStore) -> None:
        wall = Wall()
        await put_tasks(store, wall, {"now": 0, "new": 29, "old": 31, "paused": 99, "busy": 99})
        sweeps = retention(store, wall, is_busy=lambda owner, task_id: task_id == "busy")
        await sweeps.sweep(FIRST_STEP)
        assert await tasks_left(store) == {"now", "new", "paused", "busy"}

    async def test_tasks_that_cannot_go_yet_hold_up_no_others(self, store: MemoryStore) -> None:
        wall = Wall()
        ages = {f"busy{n}": 99 for n in range(120)} | {f"old{n}": 99 for n in range(60)}
        await put_tasks(store, wall, ages | {"now": 0})
        sweeps = retention(store, wall, is_busy=lambda owner, task_id: "busy" in task_id)
        await sweeps.sweep(FIRST_STEP)
        left = await tasks_left(store)
        assert not any("old" in task_id for task_id in left)
        assert len(left) == 121

    async def test_receipts_of_peers_mail_go_after_a_week(self, store: MemoryStore) -> None:
        wall = Wall()
        task = TaskRow("t1", "user:alice@test-swarm", (), wall.now.isoformat(), "supervisor")
        for hours in (0, 167, *range(169, 1200)):
            made = (wall.now - timedelta(hours=hours)).isoformat()
            mail = InboxRow("beta", f"m{hours}", "{}", made)
            await store.commit(Commit(owner=ALICE, task=task, new=not hours, inbox=mail))
        await retention(store, wall, None).sweep(FIRST_STEP)
        left = [
            hours
            for hours in range(1200)
            if await store.find_inbox("test-swarm", "beta", f"m{hours}") is not None
        ]
        assert left == [0, 167]

    async def test_nothing_goes_unless_it_is_configured(self, store: MemoryStore) -> None:
        assert RetentionConfig() == RetentionConfig(tasks_days=None, letters_days=None)
        wall = Wall()
        await put_tasks(store, wall, {"old": 9999})
        await put_letters(store, wall, {"old": 9999})
        await retention(store, wall, None).sweep(FIRST_STEP)
        assert await tasks_left(store) == {"old"}
        assert await letters_left(store) == {"old"}

    async def test_letters_go_that_all_have_seen(self, store: MemoryStore) -> None:
        wall = Wall()
        old = {f"old{number}": 31 for number in range(450)}
        ages = {"now": 0, "new": 29, "unread": 99, **old}
        await put_letters(store, wall, ages, unread={"unread"})
        await retention(store, wall, None, letter_days=30.0).sweep(FIRST_STEP)
        assert await letters_left(store) == {"now", "new", "unread"}

    async def test_many_unread_letters_do_not_hide_those_behind_them(
        self, store: MemoryStore
    ) -> None:
        wall = Wall()
        unread = {f"unread{number}": 99 for number in range(450)}
        await put_letters(store, wall, {**unread, "now": 0, "old": 31}, unread=set(unread))
        await retention(store, wall, None, letter_days=30.0).sweep(FIRST_STEP)
        assert await letters_left(store) == {"now", *unread}

    async def test_pages_of_letters_go_with_the_keys(self, store: MemoryStore) -> None:
        wall = Wall()
        for hours in (0, 167, *range(169, 1200)):
            page = PageRow(f"r{hours}", (), (wall.now - timedelta(hours=hours)).isoformat())
            await store.show_letters("test-swarm", f"bob{hours % 2}", (), page.created_at, page)
        await retention(store, wall, None).sweep(FIRST_STEP)
        found = [
            await store.find_page("test-swarm", f"bob{each % 2}", f"r{each}")
            for each in range(1200)
        ]
        assert [page.request_id for page in found if page] == ["r0", "r167"]

    async def test_a_clock_that_jumps_ahead_deletes_little(
        self, store: MemoryStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        wall = Wall()
        await put_keys(store, wall, 168)
        await put_tasks(store, wall, {f"t{days}": days for days in range(30)})
        sweeps = retention(store, wall)
        await sweeps.sweep(FIRST_STEP)
        assert (await keys_left(store, 168), len(await tasks_left(store))) == (168, 30)
        wall.now = START + timedelta(days=3650)
        caplog.clear()
        await sweeps.sweep(HOURLY_STEP)
        assert (await keys_left(store, 168), len(await tasks_left(store))) == (167, 30)
        assert "check the clock" in caplog.text
        for _ in range(5):  # a server that starts again and again
            await retention(store, wall).sweep(FIRST_STEP)
        assert await keys_left(store, 168) == 162
        wall.now = START + timedelta(hours=1)
        for _ in range(3):
            await sweeps.sweep(HOURLY_STEP)
        assert await store.sweep_moment("keys") == wall.now.isoformat()
        assert (await keys_left(store, 168), len(await tasks_left(store))) == (162, 30)

    @pytest.mark.parametrize("filled", [False, True])
    async def test_a_clock_that_is_years_behind_at_first_holds_nothing_up(
        self, store: MemoryStore, filled: bool
    ) -> None:
        wall = Wall()
        if filled:
            await put_keys(store, wall, 504)
        wall.now = NO_CLOCK
        sweeps = retention(store, wall)
        await store.put_key(ALICE, IdempotencyRow("early", "f", wall.now.isoformat()))
        await sweeps.sweep(FIRST_STEP)
        wall.now = START
        if not filled:
            await put_keys(store, wall, 504)
        for hour in range(700):
            wall.now = START + timedelta(hours=hour)
            await sweeps.sweep(HOURLY_STEP)
        assert await keys_left(store, 504) == 0
        assert await store.find_key(ALICE, "early") is None
        assert await store.sweep_moment("keys") == wall.now.isoformat()

    async def test_a_stored_time_that_is_years_behind_catches_up(self, store: MemoryStore) -> None:
        wall = Wall()
        await put_keys(store, wall, 168)
        await put_tasks(store, wall, {"t0": 0, "t1": 1, "t2": 2})
        await put_letters(store, wall, {"now": 0, "unread": 9, "old": 4}, unread={"unread"})
        for name in ("keys", "inbox", "tasks:test-swarm", "letters:test-swarm"):
            await store.put_sweep_moment(name, NO_CLOCK.isoformat())
        sweeps = retention(store, wall, 3.0, letter_days=3.0)
        await sweeps.sweep(FIRST_STEP)
        assert (await keys_left(store, 168), len(await tasks_left(store))) == (168, 3)
        assert await letters_left(store) == {"now", "unread", "old"}
        for hour in range(200):
            wall.now = START + timedelta(hours=hour)
            await sweeps.sweep(HOURLY_STEP)
        assert (await keys_left(store, 168), await tasks_left(store)) == (0, set())
        assert await letters_left(store) == {"unread"}

    async def test_what_is_fresh_stays_if_the_clock_is_ahead_from_the_start(
        self, store: MemoryStore
    ) -> None:
        wall = Wall()
        await put_keys(store, wall, 168)
        await put_tasks(store, wall, {f"t{days}": days for days in range(30)})
        await put_letters(store, wall, {f"l{days}": days for days in range(30)})
        wall.now = START + timedelta(days=3650)
        await retention(store, wall, letter_days=30.0).sweep(FIRST_STEP)
        assert (await keys_left(store, 168), len(await tasks_left(store))) == (168, 30)
        assert len(await letters_left(store)) == 30

    async def test_a_clock_that_goes_right_is_followed(self, store: MemoryStore) -> None:
        wall = Wall()
        await put_keys(store, wall, 168)
        sweeps = retention(store, wall)
        for hour in range(100):
            wall.now = START + timedelta(hours=hour)
            await sweeps.sweep(HOURLY_STEP)
        assert await keys_left(store, 168) == 168 - 98

    async def test_a_failing_store_does_not_end_the_sweeps(self, store: MemoryStore) -> None:
        from mail.errors import StoreError

        class Failing:
            def __getattr__(self, name: str) -> Any:
                async def fail(*args: Any) -> None:
                    raise StoreError("away")

                return fail

        await retention(Failing(), Wall()).sweep(FIRST_STEP)

    async def test_a_server_deletes_old_tasks_when_it_starts(self, store: MemoryStore) -> None:
        wall = Wall()
        wall.now = datetime.now(UTC)
        await put_tasks(store, wall, {"new": 0, "old": 2})
        settings = config().model_copy(update={"retention": RetentionConfig(tasks_days=1)})
        app = create_app(settings, template=Template(), store=store)  # type: ignore[arg-type]
        async with serving(app) as client:
            for _ in range(500):
                listed = (await client.get("/tasks", headers=bearer("alice"))).json()
                if set(listed) == {"new"}:
                    break
            assert set(listed) == {"new"}
