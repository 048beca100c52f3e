"""How bodies are read: what they may cost, whom that is charged to, and who is served meanwhile."""

import asyncio
import difflib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from mail.auth.callers import Caller
from mail.config.server import LimitsConfig
from mail.db.memory import MemoryStore
from mail.server import intake, quotas
from mail.server.app import create_app
from mail.server.bodies import parse_object
from mail.server.errors import QuotaExceeded
from mail.server.quotas import Quotas
from tests.server.kit import Script, Template, bearer, config, serving
from tests.server.test_quotas import Clock, check_refused

ALICE, BOB = Caller("user", "alice"), Caller("user", "bob")
LONG = "x" * 4_000_000


async def post(client: httpx.AsyncClient, who: str = "alice", **body: Any) -> httpx.Response:
    return await client.post("/message", json=body, headers=bearer(who))


class Gate:
    """Holds up the parser, and counts who is in it."""

    def __init__(self, parse: Callable[..., Any]) -> None:
        self.parse = parse
        self.open = threading.Event()
        self.threads: list[threading.Thread] = []
        self.inside = 0
        self.most = 0

    def __call__(self, text: bytes, *args: Any, **options: Any) -> Any:
        self.threads.append(threading.current_thread())
        if threading.current_thread() is not threading.main_thread():
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.open.wait(20)
            self.inside -= 1
        return self.parse(text, *args, **options)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(parse_object)
    monkeypatch.setattr(intake, "parse_object", made)
    yield made
    made.open.set()


async def test_others_are_served_while_a_large_body_is_parsed(
    client: httpx.AsyncClient, gate: Gate
) -> None:
    large = [asyncio.create_task(post(client, body="Hello", ignored="x" * 70_000)) for _ in "123"]
    async with asyncio.timeout(10):
        while not gate.inside:
            await asyncio.sleep(0.005)
    for _ in range(3):
        assert (await post(client, "bob", body="Hello")).status_code == 200
    assert (await client.get("/whoami", headers=bearer("alice"))).status_code == 200
    assert [task.done() for task in large] == [False] * 3
    gate.open.set()
    assert [answer.status_code for answer in await asyncio.gather(*large)] == [200] * 3
    assert gate.most == 1


@pytest.mark.parametrize("field", ["entrypoint", "task_id", "subject", "msg_type", "resume_from"])
async def test_an_overlong_field_is_compared_with_nothing_and_not_repeated(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    compared: list[int] = []
    find = difflib.get_close_matches

    def counted(word: str, *args: Any, **options: Any) -> list[str]:
        compared.append(len(word))
        return find(word, *args, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    answer = await post(client, body="Hello", **{field: LONG})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == field
    assert len(answer.content) < 2000
    assert max(compared, default=0) <= 100


@pytest.mark.parametrize("inside", ["", "kwargs"])
async def test_an_overlong_field_name_costs_and_shows_little(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, inside: str
) -> None:
    name = {"entrypoin" * 100_000: 1}
    answer = await post(client, body="Hello", **({inside: name} if inside else name))
    assert answer.status_code == (400 if inside else 200)
    assert len(answer.content) < 2000
    assert len(caplog.text) < 5000


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"body": "é" * 600}, "body"),
        ({"message": "x" * 1001}, "body"),
        (
            {
                "task_id": "t",
                "resume_from": "breakpoint_tool_call",
                "kwargs": {"breakpoint_tool_call_result": [{"call_id": "c", "content": "x" * 999}]},
            },
            "kwargs.breakpoint_tool_call_result",
        ),
    ],
)
async def test_a_text_past_its_limit_is_400_and_names_the_setting(
    store: MemoryStore, template: Template, body: dict[str, Any], field: str
) -> None:
    app = create_app(config(max_message_bytes=1000), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        answer = await post(client, **body)
        fits = await post(client, body="x" * 1000)
        others = [
            await client.post("/v1/responses", json={"input": "x"} | asked, headers=bearer("alice"))
            for asked in (
                {"input": "x" * 1001},
                {"instructions": "x" * 1001},
                {"tools": [{"type": "function", "name": "f", "description": "x" * 1001}]},
            )
        ]
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == field
    assert "[server.limits] max_message_bytes" in answer.json()["detail"]
    place = "docs/files.md#texts-larger-than-a-message"
    assert f"({place})" in answer.json()["detail"]
    page, heading = place.split("#")
    text = (Path(__file__).parents[2] / page).read_text("utf-8").lower()
    assert f"## {heading.replace('-', ' ')}\n" in text
    assert fits.status_code == 200
    for other in others:
        assert other.status_code == 400
        assert "[server.limits] max_message_bytes" in other.json()["error"]["message"]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"body": "x", "ignored": [1] * 60_000}),
        json.dumps({"body": "x", "ignored": [[]] * 60_000}),
        json.dumps({"body": "x", "ignored": dict.fromkeys(map(str, range(60_000)))}),
        json.dumps({f"ignored {n}": n for n in range(60_000)}),
    ],
)
async def test_more_values_than_allowed_are_400(
    store: MemoryStore, template: Template, text: str
) -> None:
    app = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        for route in ("/message", "/v1/responses"):
            answer = await client.post(route, content=text, headers=bearer("alice"))
            assert answer.status_code == 400
            assert "more than 50000 values" in answer.json()["detail"]


def test_what_stands_in_texts_is_no_value() -> None:
    value = {"body": '1,2,[],{},\\",\\\\' * 10_000, "\\": ["\\", '"', "\\\\"]}
    assert parse_object(json.dumps(value).encode(), 20) == value


def test_bytes_are_counted_against_their_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(quotas, "BODY_BURST", 5000)
    shares = Quotas(LimitsConfig(body_rate=1000.0), clock)
    assert [shares.body_bytes(ALICE, 4000) for _ in range(2)] == [0.0, 0.0]
    with pytest.raises(QuotaExceeded, match=r"\[server.limits\] body_rate$") as caught:
        shares.body_bytes(ALICE, 1)
    assert caught.value.retry_after == 4  # 3000 bytes too many were sent
    assert shares.body_bytes(BOB, 4000) == 0.0
    clock.now += 2.5
    assert shares.body_bytes(ALICE, 100) == pytest.approx(0.501)
    shares.owe_bytes(BOB, 8000)
    with pytest.raises(QuotaExceeded):
        shares.body_bytes(BOB, 1)


def test_a_body_larger_than_the_burst_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "BODY_BURST", 10)
    usual = Quotas(LimitsConfig(), Clock())
    usual.body_bytes(ALICE, 2**25)
    with pytest.raises(QuotaExceeded, match=r"more than 8,388,608 bytes of request bodies a sec"):
        usual.body_bytes(ALICE, 1)
    shares = Quotas(LimitsConfig(body_rate=1000.0), Clock())
    assert shares.body_bytes(ALICE, 4_000_000) == 0.0


@pytest.mark.parametrize("declared", [True, False])
async def test_bytes_past_the_rate_are_429_before_they_are_parsed(
    store: MemoryStore,
    template: Template,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    declared: bool,
) -> None:
    async def pieces() -> Any:
        yield text

    monkeypatch.setattr(quotas, "PATIENCE_SECONDS", 0.0)
    gate.open.set()
    text = json.dumps({"body": "Hello", "ignored": "x" * 30_000}).encode()
    monkeypatch.setattr(quotas, "BODY_BURST", 40_000)
    app = create_app(config(body_rate=10.0), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        answers = [
            await client.post(
                "/message", content=text if declared else pieces(), headers=bearer("alice")
            )
            for _ in range(3)
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        check_refused(answers[-1])
        assert "raise [server.limits] body_rate" in answers[-1].json()["detail"]
        assert len(gate.threads) == 2
        assert (await post(client, "bob", body="Hello")).status_code == 200
        assert (await client.get("/whoami", headers=bearer("alice"))).status_code == 200


class Where:
    """Notes in which threads a function is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.threads: list[threading.Thread] = []
        self.call = getattr(module, name)
        monkeypatch.setattr(module, name, self)

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.threads.append(threading.current_thread())
        return self.call(*args, **options)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [10, 70_000])
async def test_an_answer_to_a_call_is_made_of_a_large_body_in_a_thread(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, size: int, chunked: bool
) -> None:
    async def pieces() -> Any:
        yield text

    where = Where(monkeypatch, intake, "check_names")
    text = json.dumps([{"type": "response", "args": "x" * size}]).encode()
    answer = await client.post(
        "/approvals/x", content=pieces() if chunked else text, headers=bearer("alice")
    )
    assert answer.status_code == 404
    [thread] = where.threads
    assert (thread is threading.main_thread()) == (size < 60_000)


@pytest.mark.parametrize("route", ["/message", "/v1/responses"])
async def test_a_message_in_chunks_counts_while_it_arrives_like_any_other(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    async def pieces() -> Any:
        yield text[:30]
        yield text[30:]

    counted: list[int] = []

    def noted(quotas: Quotas, caller: Any, size: int) -> None:
        counted[-1] += size
        take(quotas, caller, size)

    take, begin = Quotas.owe_bytes, Quotas.body_bytes

    def begun(quotas: Quotas, caller: Any, size: int) -> float:
        counted.append(size)
        return begin(quotas, caller, size)

    monkeypatch.setattr(Quotas, "body_bytes", begun)
    monkeypatch.setattr(Quotas, "owe_bytes", noted)
    text = json.dumps({"body": "Hello", "input": "Hello", "ignored": "x" * 1000}).encode()
    for content in (text, pieces()):
        answer = await client.post(route, content=content, headers=bearer("alice"))
        assert answer.status_code == 200
    assert counted == [len(text)] * 2


async def test_what_came_of_a_body_in_chunks_counts_though_the_body_is_refused(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pieces() -> Any:
        for _ in range(10):
            yield b"x" * 5_000

    monkeypatch.setattr(quotas, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(quotas, "BODY_BURST", 20_000)
    limits = {"body_rate": 1.0, "max_body_bytes": 40_000}
    app = create_app(config(**limits), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        refused = await client.post("/message", content=pieces(), headers=bearer("alice"))
        assert refused.status_code == 413
        assert (await post(client, body="Hello")).status_code == 429
        assert (await post(client, "bob", body="Hello")).status_code == 200


MANY = 2_000


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("who", "route", "body", "field"),
    [
        ("editor", "/threads", {"title": "t", "participants": [1] * MANY}, "participants.0"),
        ("editor", "/messages", {"content": "t", "recipient_ids": [1] * MANY}, "recipient_ids.0"),
        ("alice", "/interswarm/message", {"body": "t", "targets": [1] * MANY}, "targets"),
        (
            "alice",
            "/interswarm/message",
            {"body": "t", "targets": ["a@b"], "user_tokens": {f"{n}": 1 for n in range(MANY)}},
            "user_tokens",
        ),
        ("admin", "/swarms/discover", {"discovery_urls": [1] * MANY}, "discovery_urls"),
    ],
)
async def test_of_thousands_of_wrong_entries_the_first_is_told(
    store: MemoryStore,
    template: Template,
    who: str,
    route: str,
    body: dict[str, Any],
    field: str,
    keyed: bool,
) -> None:
    template.enable_interswarm = True
    template.participants = [{"name": "editor", "description": "writes"}]
    app = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        headers = bearer(who) | ({"Idempotency-Key": "k"} if keyed else {})
        answer = await client.post(route, json=body, headers=headers)
    assert answer.status_code == 400
    [problem] = answer.json()["errors"]
    assert problem["field"].startswith(field)


def served(store: MemoryStore, script: Script, **limits: Any) -> FastAPI:
    return create_app(config(**limits), template=Template(script), store=store)  # type: ignore[arg-type]


class TestInFlight:
    """Large requests of one caller that are in progress, and messages that agents still have."""

    @pytest.fixture(autouse=True)
    def few_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mail.server.intake.MAX_INFLIGHT", 150_000)
        monkeypatch.setattr("mail.server.quotas.MAX_INFLIGHT", 150_000)

    @pytest.fixture
    def script(self) -> Script:
        return Script()

    async def test_a_large_one_waits_for_room_and_small_ones_do_not(
        self, store: MemoryStore, script: Script
    ) -> None:
        app = served(store, script)
        async with serving(app) as client:
            first = asyncio.create_task(post(client, body="hang " + "x" * 90_000))
            await script.entered.wait()
            second = asyncio.create_task(post(client, body="x" * 90_000))
            small = [(await post(client, body="Hello.")).status_code for _ in range(3)]
            theirs = await post(client, "bob", body="x" * 90_000)
            assert small == [200] * 3 and theirs.status_code == 200
            assert script.calls == 5 and not second.done()
            script.gate.set()
            assert [(await each).status_code for each in (first, second)] == [200, 200]

    async def test_one_without_room_for_long_is_429(
        self, store: MemoryStore, script: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.server.intake.BODY_SECONDS", 0.2)
        app = served(store, script)
        async with serving(app) as client:
            first = asyncio.create_task(post(client, body="hang " + "x" * 90_000))
            await script.entered.wait()
            refused = await post(client, body="x" * 90_000)
            check_refused(refused)
            assert "bytes of large requests" in refused.json()["detail"]
            script.gate.set()
            assert (await first).status_code == 200
            assert (await post(client, body="x" * 90_000)).status_code == 200

    async def test_what_a_caller_has_left_behind_counts_until_it_is_done(
        self, store: MemoryStore, script: Script, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.server.intake.BODY_SECONDS", 0.2)
        app = served(store, script)
        async with serving(app) as client:
            left = {"Prefer": "respond-async", **bearer("alice")}
            body = {"body": "hang " + "x" * 90_000}
            assert (await client.post("/message", json=body, headers=left)).status_code == 202
            await script.entered.wait()
            refused = await post(client, body="x" * 90_000)
            check_refused(refused)
            assert "bytes of large requests" in refused.json()["detail"]
            script.gate.set()
            while app.state.mail.large_mail(ALICE):
                await asyncio.sleep(0.001)
            assert (await post(client, body="x" * 90_000)).status_code == 200
