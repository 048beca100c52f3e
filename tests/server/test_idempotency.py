"""``Idempotency-Key``: whatever is repeated happens once, and is answered as it was at first."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import strategies as st

from mail.core.usage import Usage
from mail.db.memory import MemoryStore
from mail.db.records import IdempotencyRow, Owner
from mail.db.sqlite.driver import SQLiteStore
from mail.server.app import create_app
from mail.server.idempotency import fingerprint
from mail.server.routes.files import upload_file
from mail.server.routes.interswarm import post_interswarm_message
from mail.server.routes.mcp import mcp
from mail.server.routes.messages import message
from mail.server.routes.responses import create_response
from mail.testing import tool_calls
from tests.server.kit import TOKENS, Script, Template, bearer, config, frames, know, serving
from tests.support.sql import rows

ALICE = Owner("test-swarm", "user", "alice")
REPLAYED = "idempotency-replayed"


def keyed(key: str = "k-1", who: str = "alice") -> dict[str, str]:
    """Return the headers of a caller's request with a key."""
    return bearer(who) | {"Idempotency-Key": key}


async def post(
    client: httpx.AsyncClient, body: str, key: str = "k-1", who: str = "alice", **more: Any
) -> httpx.Response:
    """Post a message with a key."""
    return await client.post("/message", json={"body": body} | more, headers=keyed(key, who))


def same(first: httpx.Response, second: httpx.Response) -> bool:
    """Tell whether a repeat has the first answer, to the byte, and says that it is a repeat."""
    return (
        first.status_code == second.status_code
        and first.content == second.content
        and first.headers["content-type"] == second.headers["content-type"]
        and REPLAYED not in first.headers
        and second.headers[REPLAYED] == "true"
    )


def events(answer: httpx.Response) -> list[dict[str, str]]:
    """Return the events of a stream without its heartbeats."""
    return [frame for frame in frames(answer.text) if frame.get("event") != "ping"]


class TestMessages:
    async def test_a_repeat_has_the_first_answer_and_runs_nothing(
        self, client: httpx.AsyncClient, script: Script, store: MemoryStore
    ) -> None:
        first = await post(client, "hello", show_events=True)
        assert first.json()["events"]
        again = [await post(client, "hello", show_events=True) for _ in range(2)]
        assert all(same(first, answer) for answer in again)
        assert script.calls == 1
        assert len(await store.list_tasks(ALICE)) == 1

    async def test_a_later_run_of_the_task_changes_nothing(self, client: httpx.AsyncClient) -> None:
        first = await post(client, "one", task_id="t", show_events=True)
        later = await post(client, "two", "k-2", task_id="t", show_events=True)
        assert len(later.json()["events"]) > len(first.json()["events"])
        assert same(first, await post(client, "one", task_id="t", show_events=True))
        assert same(later, await post(client, "two", "k-2", task_id="t", show_events=True))

    async def test_without_a_key_each_message_counts(
        self, client: httpx.AsyncClient, script: Script, store: MemoryStore
    ) -> None:
        for _ in range(2):
            answer = await client.post("/message", json={"body": "hi"}, headers=bearer("alice"))
            assert REPLAYED not in answer.headers
        assert script.calls == 2
        assert await rows(store, "SELECT key FROM idempotency") == []

    async def test_many_at_once_make_one_run(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        answers = await asyncio.gather(*(post(client, "hello") for _ in range(9)))
        assert script.calls == 1
        assert len({answer.content for answer in answers}) == 1
        assert sum(REPLAYED in answer.headers for answer in answers) == 8

    async def test_order_and_space_make_no_other_request(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        headers = keyed() | {"Content-Type": "application/json"}
        texts = ['{"body":"h\\u0069", "subject" : "s"}', '\n{"subject":"s","body":"hi"} ']
        for text in texts:
            answer = await client.post("/message", content=text, headers=headers)
            assert answer.json()["response"] == "You said: hi"
        assert script.calls == 1

    @pytest.mark.parametrize("more", [{"subject": "other"}, {"stream": True}, {"task_id": "t"}])
    async def test_another_body_is_refused(
        self, client: httpx.AsyncClient, script: Script, more: dict[str, Any]
    ) -> None:
        await post(client, "hello")
        answer = await post(client, "hello", **more)
        assert answer.status_code == 409
        assert "a different request" in answer.json()["detail"]
        assert script.calls == 1

    async def test_another_path_is_refused(self, client: httpx.AsyncClient) -> None:
        task_id = (await post(client, "hello")).json()["task_id"]
        answer = await client.post(f"/tasks/{task_id}/cancel", headers=keyed())
        assert answer.status_code == 409

    async def test_a_key_is_its_callers_own(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        answers = [await post(client, who, who=who) for who in ("alice", "bob", "admin")]
        said = [answer.json()["response"] for answer in answers]
        assert said == ["You said: alice", "You said: bob", "You said: admin"]
        assert script.calls == 3

    @pytest.mark.parametrize("key", ["", "two words", "k" * 256, "schl\xfcssel", "tab\there"])
    async def test_what_is_no_key_is_refused(
        self, client: httpx.AsyncClient, script: Script, key: str
    ) -> None:
        headers = bearer("alice") | {"Idempotency-Key": key.encode("latin-1")}
        answer = await client.post("/message", json={"body": "x"}, headers=headers)  # type: ignore[arg-type]
        assert answer.status_code == 400
        assert "Idempotency-Key" in answer.json()["detail"]
        assert script.calls == 0

    async def test_two_keys_are_none(self, client: httpx.AsyncClient) -> None:
        headers = [*keyed().items(), ("Idempotency-Key", "k-2")]
        answer = await client.post("/message", json={"body": "x"}, headers=headers)
        assert answer.status_code == 400

    async def test_every_visible_sign_may_be_in_a_key(self, client: httpx.AsyncClient) -> None:
        key = "".join(map(chr, range(0x21, 0x7F))) * 2
        first = await post(client, "x", key)
        assert same(first, await post(client, "x", key))

    async def test_what_was_refused_is_judged_anew(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        for body in ({"body": ""}, {"body": "x", "entrypoint": "nobody"}):
            answer = await client.post("/message", json=body, headers=keyed())
            assert answer.status_code == 400
        resume = {"resume_from": "user_response", "task_id": "t"}
        assert (await post(client, "x", **resume)).status_code == 404
        assert (await post(client, "x", task_id="t")).status_code == 200
        assert (await post(client, "x", "k-2", **resume)).status_code == 200
        assert script.calls == 2

    async def test_a_failed_run_fails_again_without_running(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        first = await post(client, "fail")
        assert first.status_code == 502
        assert same(first, await post(client, "fail"))
        assert script.calls == 1

    async def test_a_used_up_budget_is_told_again(self, store: MemoryStore) -> None:
        template: Any = Template(Script(usage=Usage(total_tokens=100)))
        limited = config()
        limited = limited.model_copy(
            update={"settings": limited.settings.model_copy(update={"task_token_limit": 150})}
        )
        async with serving(create_app(limited, template=template, store=store)) as client:
            first = await post(client, "waste")
            assert first.status_code == 402
            assert same(first, await post(client, "waste"))

    async def test_a_cancelled_run_stays_cancelled(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        running = asyncio.create_task(post(client, "hang", task_id="t"))
        await script.entered.wait()
        await client.post("/tasks/t/cancel", headers=bearer("alice"))
        first = await running
        assert first.json()["status"] == "cancelled"
        assert same(first, await post(client, "hang", task_id="t"))


class TestRunning:
    async def test_a_repeat_waits_and_takes_no_second_place(
        self, store: MemoryStore, script: Script
    ) -> None:
        template: Any = Template(script)
        limits = config(max_running_tasks=0, max_queued_tasks=1)
        app = create_app(limits, template=template, store=store)
        async with serving(app) as client:
            first = asyncio.create_task(post(client, "hang"))
            await script.entered.wait()
            repeats = {asyncio.create_task(post(client, "hang")) for _ in range(3)}
            assert (await post(client, "other", "k-2")).status_code == 429
            script.gate.set()
            whole = await first
            assert all(same(whole, answer) for answer in await asyncio.gather(*repeats))
            assert (await post(client, "other", "k-2")).status_code == 200

    async def test_a_repeat_has_its_own_patience(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        hurry = {"kwargs": {"timeout": 0.05}}
        first, second = [await post(client, "hang", **hurry) for _ in range(2)]
        assert (first.status_code, second.status_code) == (504, 504)
        assert first.json()["task_id"] == second.json()["task_id"]
        script.gate.set()
        while (third := await post(client, "hang", **hurry)).status_code == 504:
            pass
        assert third.json()["response"] == "You said: hang"
        assert script.calls == 1

    async def test_each_message_of_a_task_keeps_its_own_end(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        asked = {"task_id": "t", "show_events": True}
        one = asyncio.create_task(post(client, "hang one", "k-1", **asked))
        await script.entered.wait()
        two = asyncio.create_task(post(client, "two", "k-2", **asked))
        while len(await _logged(client, "t")) < 2:
            await asyncio.sleep(0.005)
        script.gate.set()
        first, second = await one, await two
        said = [answer.json()["response"] for answer in (first, second)]
        assert said == ["You said: hang one", "You said: two"]
        assert same(first, await post(client, "hang one", "k-1", **asked))
        assert same(second, await post(client, "two", "k-2", **asked))
        ends = [e["data"] for e in second.json()["events"] if e["event"] == "task_complete"]
        assert [len(end.get("unanswered", ())) for end in ends] == [1, 0]

    @pytest.mark.parametrize("named", [{}, {"task_id": "t"}], ids=["new task", "same task"])
    async def test_who_lost_a_race_between_processes_follows_the_winner(
        self,
        script: Script,
        store: MemoryStore,
        monkeypatch: pytest.MonkeyPatch,
        named: dict[str, str],
    ) -> None:
        find, blind = store.find_key, iter([True])

        async def find_late(owner: Owner, key: str) -> IdempotencyRow | None:
            found = await find(owner, key)
            return None if found is not None and next(blind, False) else found

        monkeypatch.setattr(store, "find_key", find_late)
        template: Any = Template(script)
        async with serving(create_app(config(), template=template, store=store)) as client:
            first = await post(client, "hello", **named)
            assert same(first, await post(client, "hello", **named))
            assert script.calls == 1
            [task] = await store.list_tasks(ALICE)
            assert task.state == "completed"
            more = await post(client, "more", "k-2", task_id=task.task_id)
            assert more.json()["response"] == "You said: more"


async def _logged(client: httpx.AsyncClient, task_id: str) -> list[Any]:
    task = (await client.get(f"/tasks/{task_id}", headers=bearer("alice"))).json()
    return [event for event in task["events"] if event["event"] == "new_message"]


class TestStreams:
    async def test_a_repeat_has_the_same_events(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        first = await post(client, "hello", stream=True)
        second = await post(client, "hello", stream=True)
        assert same(first, second)
        ids = [int(event["id"]) for event in events(second)]
        assert ids == list(range(1, len(ids) + 1))
        assert events(second)[-1]["event"] == "task_complete"
        assert script.calls == 1

    async def test_a_later_run_has_its_own_events(self, client: httpx.AsyncClient) -> None:
        await post(client, "one", "k-0", task_id="t")
        first = await post(client, "two", stream=True, task_id="t")
        await post(client, "three", "k-2", task_id="t")
        assert int(events(first)[0]["id"]) > 1
        assert same(first, await post(client, "two", stream=True, task_id="t"))

    async def test_a_running_one_is_followed(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        first = asyncio.create_task(post(client, "hang", stream=True, task_id="t"))
        await script.entered.wait()
        second = asyncio.create_task(post(client, "hang", stream=True, task_id="t"))
        script.gate.set()
        assert events(await first) == events(await second)
        assert script.calls == 1

    async def test_it_goes_on_after_the_last_event_that_was_seen(
        self, client: httpx.AsyncClient
    ) -> None:
        body = {"body": "hello", "stream": True}
        whole = events(await client.post("/message", json=body, headers=keyed()))
        for seen in range(len(whole) + 1):
            last = {"Last-Event-ID": str(seen)}
            rest = await client.post("/message", json=body, headers=keyed() | last)
            assert [e["id"] for e in events(rest)] == [e["id"] for e in whole[seen:]]
            assert [e["data"] for e in events(rest)] == [e["data"] for e in whole[seen:]]
        wrong = {"Last-Event-ID": "x"}
        refused = await client.post("/message", json=body, headers=keyed() | wrong)
        assert refused.status_code == 400

    async def test_repeats_count_as_streams(self, store: MemoryStore, script: Script) -> None:
        template: Any = Template(script)
        app = create_app(config(max_streams=1), template=template, store=store)
        async with serving(app) as client:
            first = asyncio.create_task(post(client, "hang", stream=True))
            await script.entered.wait()
            assert (await post(client, "hang", stream=True)).status_code == 429
            script.gate.set()
            await first


class TestBreakpoints:
    async def test_a_pause_and_a_resume_are_told_again(self, store: MemoryStore) -> None:
        async def consult(messages: list[dict[str, Any]], tool_choice: Any) -> Any:
            results = [m["content"] for m in messages if m.get("role") == "tool"]
            if results:
                done = ("task_complete", {"finish_message": results[-1]})
                return None, tool_calls(done, prefix="done")
            asked = {"target": "supervisor", "subject": "s", "body": "b"}
            return None, tool_calls(("send_interrupt", asked), prefix="ask")

        template: Any = Template(consult, breakpoint_tools=["send_interrupt"])  # type: ignore[arg-type]
        resume = {
            "task_id": "t",
            "resume_from": "breakpoint_tool_call",
            "kwargs": {"breakpoint_tool_call_result": "yes"},
        }
        async with serving(create_app(config(), template=template, store=store)) as client:
            paused = await post(client, "ask", "k-1", task_id="t")
            assert paused.json()["status"] == "paused"
            assert same(paused, await post(client, "ask", "k-1", task_id="t"))
            done = await post(client, "", "k-2", **resume)
            assert done.json()["response"] == "yes"
            assert same(done, await post(client, "", "k-2", **resume))
            assert same(paused, await post(client, "ask", "k-1", task_id="t"))
            assert (await post(client, "", "k-3", **resume)).status_code == 409


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    """A database that knows the callers."""
    await know(f"sqlite:///{tmp_path}/mail.db")
    return tmp_path / "mail.db"


@asynccontextmanager
async def served(path: Path, script: Script) -> AsyncIterator[tuple[httpx.AsyncClient, FastAPI]]:
    """Serve a swarm over the database, and close it."""
    store = SQLiteStore(path)
    await store.open()
    template: Any = Template(script)
    app = create_app(config(shutdown_grace=0.05), template=template, store=store)
    async with serving(app) as client:
        yield client, app
    await store.close()


class TestRestart:
    async def test_a_restart_forgets_nothing(self, database: Path) -> None:
        script = Script()
        answers = []
        for _ in range(2):
            async with served(database, script) as (client, _):
                answers.append(
                    [
                        await post(client, "hello", show_events=True),
                        await post(client, "hello", "k-2", stream=True),
                        await post(client, "fail", "k-3"),
                        await client.post("/health", json={"status": "fine"}, headers=_admin()),
                    ]
                )
        assert all(same(*pair) for pair in zip(*answers, strict=True))
        assert script.calls == 3

    async def test_a_run_that_a_restart_interrupts_answers_its_repeat(self, database: Path) -> None:
        before, after = Script(), Script()
        async with served(database, before) as (client, app):
            first = asyncio.create_task(post(client, "hang", task_id="t"))
            await before.entered.wait()
            app.state.mail.begin_drain()
            assert (await first).status_code == 503
        after.gate.set()
        async with served(database, after) as (client, _):
            again = await post(client, "hang", task_id="t")
            assert again.json()["response"] == "You said: hang"
            assert again.headers[REPLAYED] == "true"
            received = await _logged(client, "t")
        assert len(received) == 2  # the message, and the answer
        assert after.calls == 1


def _admin() -> dict[str, str]:
    return keyed("k-h", "admin")


class TestOtherRoutes:
    async def test_every_post_knows_keys(self, store: MemoryStore, template: Template) -> None:
        debug = config().model_copy(update={"debug": True})
        app = create_app(debug, template=template, store=store)  # type: ignore[arg-type]
        routes = [r for r in app.routes if isinstance(r, APIRoute) and "POST" in r.methods]
        assert {"/message", "/responses", "/auth/login"} <= {route.path for route in routes}
        for route in routes:
            known = getattr(route.endpoint, "answers_once", False)
            # The requests that MCP tools make have keys of their own.
            own = (message, create_response, post_interswarm_message, mcp, upload_file)
            assert known or route.endpoint in own, route.path

    async def test_the_kept_answer_is_given_again(self, client: httpx.AsyncClient) -> None:
        async def set_health(status: str, key: str) -> httpx.Response:
            headers = keyed(key, "admin")
            return await client.post("/health", json={"status": status}, headers=headers)

        first = await set_health("fine", "k-1")
        assert (await set_health("poor", "k-2")).json()["status"] == "poor"
        assert same(first, await set_health("fine", "k-1"))
        assert (await client.get("/health")).json()["status"] == "poor"
        assert (await set_health("worse", "k-1")).status_code == 409
        assert (await set_health("", "k-3")).status_code == 400
        assert (await set_health("good", "k-3")).json()["status"] == "good"

    async def test_a_cancellation_is_told_again(
        self, client: httpx.AsyncClient, script: Script
    ) -> None:
        running = asyncio.create_task(
            client.post("/message", json={"body": "hang", "task_id": "t"}, headers=bearer("alice"))
        )
        await script.entered.wait()
        url = "/tasks/t/cancel"
        answers = await asyncio.gather(*(client.post(url, headers=keyed()) for _ in range(5)))
        await running
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        assert sum(REPLAYED in answer.headers for answer in answers) == 4

    async def test_keys_of_cancellations_hold_no_copies_of_the_log(
        self, client: httpx.AsyncClient, store: MemoryStore
    ) -> None:
        body = {"body": "x" * 100_000, "task_id": "t"}
        await client.post("/message", json=body, headers=bearer("alice"))
        url = "/tasks/t/cancel"
        first = await client.post(url, headers=keyed())
        assert first.json()["status"] == "completed"
        await client.post("/message", json=body, headers=bearer("alice"))
        assert same(first, await client.post(url, headers=keyed()))
        row = await store.find_key(ALICE, "k-1")
        assert first.json()["events"] == []
        assert len(str(row)) < 3000

    async def test_a_very_long_answer_is_not_kept(
        self, client: httpx.AsyncClient, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.server.idempotency.LARGEST_KEPT", 10)

        async def set_health(status: str) -> httpx.Response:
            headers = keyed("k-1", "admin")
            return await client.post("/health", json={"status": status}, headers=headers)

        answers = [await set_health("fine") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        row = await store.find_key(Owner("", "admin", "root"), "k-1")
        assert row is not None
        assert row.answer is None
        assert (await set_health("other")).status_code == 409

    async def test_a_login_keeps_no_secret(
        self, client: httpx.AsyncClient, store: MemoryStore
    ) -> None:
        answers = [await client.post("/auth/login", headers=keyed()) for _ in range(2)]
        assert [answer.json() for answer in answers] == [{"token": TOKENS["alice"]}] * 2
        row = await store.find_key(ALICE, "k-1")
        assert row is not None
        assert TOKENS["alice"] not in str(row)
        other = await client.post("/auth/login", json={"other": 1}, headers=keyed())
        assert other.status_code == 409


async def test_old_keys_are_forgotten_at_the_start(store: MemoryStore, template: Template) -> None:
    for key, days in (("old", 8), ("new", 0)):
        made = (datetime.now(UTC) - timedelta(days=days)).isoformat()
        await store.put_key(ALICE, IdempotencyRow(key, "f", made))
    app = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app):
        while await store.find_key(ALICE, "old") is not None:
            await asyncio.sleep(0.005)
        assert await store.find_key(ALICE, "new") is not None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def shown(value: Any, **style: Any) -> bytes:
    return json.dumps(value, **style).encode()


def test_odd_bodies_have_fingerprints() -> None:
    bodies = [b"", b"1e400", b"[" * 100_000, b"9" * 10_000, b'"\\ud800"', b"NaN", b"{"]
    assert len({fingerprint("POST", "/p\udcff", body) for body in bodies}) == len(bodies)
