"""``GET /metrics``: what Prometheus reads of a server, and who may."""

import asyncio
import logging
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mail import metrics
from mail.core.usage import Usage
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import OutboxRow, Owner, TaskRow
from mail.db.webhooks import WebhookRow
from mail.errors import StoreError
from mail.server.app import create_app
from mail.server.figures import to_text
from tests.server.kit import Script, Template, bearer, config, serving
from tests.support.prometheus import GRAFANA, asked, has_data, needed, prometheus, queries

TOKEN = "metrics-token-of-the-tests"
MODEL = "test/model"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
async def script() -> Script:
    """An agent whose calls cost something."""
    return Script(
        usage=Usage(
            prompt_tokens=80, completion_tokens=20, cached_tokens=5, reasoning_tokens=7, cost=0.25
        )
    )


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrapes see what is stored now."""
    monkeypatch.setattr("mail.server.state._FIGURES_SECONDS", 0.0)


async def scraped(client: httpx.AsyncClient) -> Samples:
    """Return the samples by name and labels."""
    answer = await client.get("/metrics", headers=bearer("admin"))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.text)
    samples = [sample for family in families for sample in family.samples]
    return {(one.name, frozenset(one.labels.items())): one.value for one in samples}


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


async def post(client: httpx.AsyncClient, body: str, **more: Any) -> httpx.Response:
    return await client.post("/message", json={"body": body, **more}, headers=bearer("alice"))


class Growth:
    """By how much samples have grown since a first look."""

    def __init__(self, before: Samples, now: Samples) -> None:
        self.before, self.now = before, now

    def of(self, name: str, **labels: str) -> float:
        place = key(name, **labels)
        return round(self.now.get(place, 0) - self.before.get(place, 0), 6)


async def test_a_message_is_counted_all_along_its_way(client: httpx.AsyncClient) -> None:
    before = await scraped(client)
    assert (await post(client, "hello")).status_code == 200
    growth = Growth(before, await scraped(client))
    assert growth.of("mail_http_requests_total", method="POST", route="/message", code="200") == 1
    assert growth.of("mail_http_request_seconds_count", route="/message") == 1
    assert growth.of("mail_http_request_seconds_bucket", route="/message", le="+Inf") == 1
    assert growth.of("mail_task_runs_total", outcome="completed") == 1
    assert growth.of("mail_task_run_seconds_count", outcome="completed") == 1
    assert growth.of("mail_turns_total", agent="supervisor", outcome="done") == 1
    assert growth.of("mail_model_call_seconds_count", model=MODEL) == 1
    told = {"prompt": 80, "completion": 20, "cached": 5, "reasoning": 7}
    for kind, tokens in told.items():
        assert growth.of("mail_model_tokens_total", model=MODEL, kind=kind) == tokens
    assert growth.of("mail_model_cost_dollars_total", model=MODEL) == 0.25
    assert growth.of("mail_store_seconds_count", operation="commit") >= 2
    assert growth.now[key("mail_info", swarm="test-swarm", version=_version())] == 1
    assert growth.now[key("mail_store_up")] == growth.now[key("mail_nodes")] == 1
    assert growth.now[key("mail_commits_refused_total")] >= 0


def _version() -> str:
    from mail.version import get_version

    return get_version()


async def test_failures_pauses_and_retries_are_told_apart(client: httpx.AsyncClient) -> None:
    before = await scraped(client)
    for body in ("fail", "busy"):
        await post(client, body)
    growth = Growth(before, await scraped(client))
    assert growth.of("mail_task_runs_total", outcome="failed") == 1
    assert growth.of("mail_task_runs_total", outcome="completed") == 1
    assert growth.of("mail_turns_total", agent="supervisor", outcome="failed") == 1
    assert growth.of("mail_model_retries_total", model="openai/gpt-5-mini", code="429") == 1


async def test_what_waits_is_counted_by_tier_and_age(
    client: httpx.AsyncClient, script: Script, store: MemoryStore
) -> None:
    waiting = asyncio.create_task(post(client, "hang", task_id="t-1"))
    await script.entered.wait()
    found = await scraped(client)
    (tier,) = {dict(labels)["tier"] for name, labels in found if name == "mail_queue_messages"}
    assert found[key("mail_queue_messages", tier=tier)] == 1
    assert 0 <= found[key("mail_queue_oldest_seconds", tier=tier)] < 100
    assert found[key("mail_tasks", state="running")] == 1
    assert found[key("mail_turns_in_progress")] == 1
    script.gate.set()
    await waiting
    found = await scraped(client)
    assert key("mail_queue_messages", tier=tier) not in found
    assert found[key("mail_tasks", state="running")] == 0


async def put_undelivered(store: MemoryStore) -> None:
    """Store mail for a peer and a message for the webhook, ten seconds old, which nobody takes."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000000+00:00", time.gmtime(time.time() - 10))
    later = "2100-01-01T00:00:00+00:00"
    alice = Owner("test-swarm", "user", "alice")
    task = TaskRow("lost", str(alice), (str(alice),), moment, "supervisor")
    mail = OutboxRow(
        *("lost", "neighbour", "m1", "supervisor", "request", "r1", "{}", moment),
        next_at=later,
    )
    told = WebhookRow("m1", "ended", "lost", str(alice), "{}", moment, next_at=later)
    await store.commit(Commit(owner=alice, task=task, new=True, outbox=(mail,), webhooks=(told,)))


async def test_what_others_have_not_taken_has_its_age(
    client: httpx.AsyncClient, store: MemoryStore
) -> None:
    await put_undelivered(store)
    found = await scraped(client)
    for name, labels in (("outbox", {"peer": "neighbour"}), ("webhook", {})):
        assert found[key(f"mail_{name}_messages", **labels, state="waiting")] == 1
        assert found[key(f"mail_{name}_oldest_seconds", **labels, state="waiting")] >= 9


async def test_no_client_makes_labels_of_its_own(client: httpx.AsyncClient) -> None:
    before = await scraped(client)
    for number in range(5):
        await client.get(f"/nowhere/{number}")
        await client.get(f"/tasks/{number}", headers=bearer("alice"))
        await client.request("DELETE", f"/message/{number}")
    await client.request("PROPFIND", "/message")
    new = (await scraped(client)).keys() - before.keys()
    labels = {place for _, labels in new for place in labels}
    assert {value for name, value in labels if name == "route"} <= {"none", "/tasks/{task_id}"}
    methods = {value for name, value in labels if name == "method"}
    assert methods <= {"GET", "DELETE", metrics.OTHER}


def test_a_metric_has_a_largest_number_of_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_SERIES", 3)
    counter = metrics.Counter("mail_x_total", "Some.", "model")
    seconds = metrics.Histogram("mail_x_seconds", "Some.", "model", bounds=(1, 2))
    for number in range(9):
        counter.add(f"model-{number}")
        seconds.observe(1.5, f"model-{number}")
    assert counter.values == {("model-0",): 1, ("model-1",): 1, ("model-2",): 1, ("other",): 6}
    assert seconds.series["other",] == [0, 6, 0, 9.0]
    counter.add("m" * 10_000)
    assert max(len(label) for (label,) in counter.values) == len("model-0")


def test_figures_of_workers_that_share_a_port_have_their_node() -> None:
    for node in ("", "3fa1"):
        text = to_text("test-swarm", 2, None, node).decode()
        samples = [one for each in text_string_to_metric_families(text) for one in each.samples]
        labels = {one.name: one.labels for one in samples}
        assert ("node" in labels["mail_turns_in_progress"]) == bool(node)
        assert labels["mail_task_claims_total"].get("node", "") == node
        assert labels["mail_store_up"] == {}


async def test_administrators_and_the_token_for_metrics_may_read_them(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"Authorization": f"Bearer {TOKEN}"}
    for headers, status in ((own, 401), ({}, 401), (bearer("alice"), 403), (bearer("admin"), 200)):
        assert (await client.get("/metrics", headers=headers)).status_code == status
    monkeypatch.setenv("MAIL_METRICS_TOKEN", TOKEN)
    assert (await client.get("/metrics", headers=own)).status_code == 200
    assert (await client.get("/metrics", headers=bearer("alice"))).status_code == 403
    wrong = {"Authorization": f"Bearer {TOKEN}é".encode()}
    assert (await client.get("/metrics", headers=wrong)).status_code == 401
    for path in ("/whoami", "/status", "/admin/tasks"):
        assert (await client.get(path, headers=own)).status_code == 401


async def test_they_are_there_while_the_store_is_not(
    client: httpx.AsyncClient, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: Any) -> Any:
        raise StoreError("disk full")

    monkeypatch.setattr(store, "figures", down)
    found = await scraped(client)
    assert found[key("mail_store_up")] == 0
    assert "mail_nodes" not in {name for name, _ in found}
    assert key("mail_turns_in_progress") in found


async def test_a_run_that_ends_has_one_line_in_the_log(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mail.core.runtime.run_figures"):
        await post(client, "one", task_id="t-1")
        await post(client, "two", task_id="t-1")
        await post(client, "fail", task_id="t-2")
    lines = [line for line in caplog.records if line.getMessage() == "task finished"]
    known = [vars(line) for line in lines]
    assert [(each["task_id"], each["outcome"]) for each in known] == [
        ("t-1", "completed"),
        ("t-1", "completed"),
        ("t-2", "failed"),
    ]
    names = ["agents", "turns", "model_calls", "prompt_tokens", "completion_tokens", "cost"]
    assert [known[1][name] for name in names] == [1, 1, 1, 80, 20, 0.25]
    assert all(0 <= each["seconds"] < 100 for each in known)
    assert {line.levelno for line in lines} == {logging.INFO}


# --- deploy/grafana -------------------------------------------------------------------------------

SILENT = ("code=~", "mail_task_claims", "[24h]")
"""Parts of expressions that need not have data: nothing has failed, and a day is long."""


@pytest.fixture
async def served(
    store: MemoryStore, script: Script, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A server with a token for Prometheus."""
    monkeypatch.setenv("MAIL_METRICS_TOKEN", TOKEN)
    template = Template(script)
    async with serving(create_app(config(), template=template, store=store)) as client:  # type: ignore[arg-type]
        yield client


async def test_prometheus_takes_the_configuration_the_alerts_and_each_query_of_the_dashboard(
    served: httpx.AsyncClient, script: Script, store: MemoryStore, tmp_path: Path
) -> None:
    checked = [needed("promtool"), "check", "rules", str(GRAFANA / "alerts.yml")]
    await asyncio.to_thread(subprocess.run, checked, check=True, capture_output=True)
    await put_undelivered(store)
    address = str(served.base_url).removeprefix("http://").rstrip("/")
    waiting = asyncio.create_task(post(served, "hang"))
    await script.entered.wait()
    async with AsyncExitStack() as stack:
        stack.callback(script.gate.set)
        started = prometheus(tmp_path, address, token=TOKEN)
        url = await asyncio.to_thread(stack.enter_context, started)
        async with httpx.AsyncClient(base_url=url) as http, asyncio.timeout(120):
            missing = set(queries())
            while missing:  # counts need two looks; work goes on meanwhile
                for body in ("hello", "busy", "fail"):
                    await post(served, body)
                missing = {query for query in missing if not await has_data(http, query)}
                missing = {each for each in missing if not any(part in each for part in SILENT)}
                await asyncio.sleep(0.1)
            (target,) = (await asked(http, "targets"))["activeTargets"]
            assert target["health"] == "up" and target["labels"]["job"] == "mail"
            (group,) = (await asked(http, "rules"))["groups"]
            assert len(group["rules"]) == 12
            assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
    await waiting
