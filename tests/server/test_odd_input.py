"""What a fuzzer sends: every answer is a clean one, in the one error shape or a success."""

import json
import logging

import httpx
import pytest

from mail.logs.setup import JSONFormatter
from mail.redaction import beginning
from tests.server.kit import bearer


async def post(client: httpx.AsyncClient, text: str, **headers: str) -> httpx.Response:
    return await client.post("/message", content=text, headers=bearer("alice") | headers)


@pytest.mark.parametrize(
    "value",
    [
        "1e400",
        "-1e400",
        "1E+999",
        "9" * 400 + ".0",
        "[" + ",".join(["9" * 4000] * 900) + "]",
        "0." + "9" * 101,
        '[{"call_id": "a", "content": 1e400}]',
    ],
)
async def test_numbers_that_no_float_holds_are_refused(
    client: httpx.AsyncClient, value: str
) -> None:
    answer = await post(client, f'{{"body": "x", "unknown": {value}}}')
    assert answer.status_code == 400
    assert "too large" in answer.json()["detail"] or "out of range" in answer.json()["detail"]


@pytest.mark.parametrize("value", ["1e4000", "9" * 300])
async def test_digits_in_text_are_no_numbers(client: httpx.AsyncClient, value: str) -> None:
    answer = await post(client, json.dumps({"body": value}))
    assert answer.json()["response"] == f"You said: {value}"


@pytest.mark.parametrize("steps", ["5", "5.0", "5e0", "9" * 100])
async def test_whole_numbers_may_be_written_in_every_way(
    client: httpx.AsyncClient, steps: str
) -> None:
    answer = await post(client, f'{{"body": "hello", "kwargs": {{"max_steps": {steps}}}}}')
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "nonsense", ""])
async def test_json_is_taken_under_any_content_type(client: httpx.AsyncClient, kind: str) -> None:
    answer = await post(client, '{"body": "hello"}', **{"Content-Type": kind})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "target",
    [
        "/tasks/%00",
        "/tasks/a%00b/events",
        "/task?task_id=%00",
        "/task?task_id=",
        "/task",
        "/tasks?cursor=%00",
        "/tasks?cursor=",
        f"/tasks?cursor={'x' * 300}",
        "/tasks?limit=",
        "/tasks?limit=1e3",
        "/tasks?limit=999999999999999999999999",
        "/tasks?limit=0&limit=1001",
        "/tasks/t?limit=1001",
        "/task?task_id=t&after=-1",
    ],
)
async def test_odd_paths_and_queries_are_refused(client: httpx.AsyncClient, target: str) -> None:
    answer = await client.get(target, headers=bearer("alice"))
    assert answer.status_code == 400, answer.text
    assert {"detail", "errors"} == answer.json().keys()


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/tasks/%FF%FE", 404),
        ("/tasks/%ED%A0%80", 404),
        ("/tasks/a?x=%00&x&=&&y=%FF", 404),
        ("/task?task_id=a&task_id=b", 404),
        ("/tasks?limit=5&limit=6&nonsense", 200),
        ("/whoami?raise_on_false=false", 200),
        ("/tasks/", 400),
        ("/Tasks", 404),
        ("/tasks/%2e%2e", 404),
        ("/tasks/a%0A", 404),
        ("/tasks/a/events%0A", 404),
    ],
)
async def test_odd_paths_and_queries_that_mean_something(
    client: httpx.AsyncClient, target: str, status: int
) -> None:
    answer = await client.get(target, headers=bearer("alice"))
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/" + "a" * 8000),
        ("GET", "/tasks/" + "%F0%9F%98%80" * 600),
        ("GET", "/tasks?" + "&".join(f"{n}{'z' * 70}=1" for n in range(99))),
        ("GET", "/tasks/" + "%01" * 1200 + "?zzzzzz=1"),
        ("POST", "/interswarm/" + "a" * 8000),
        ("A" * 8000, "/tasks"),
    ],
    ids=["path", "encoded", "parameters", "control", "audited", "method"],
)
async def test_an_odd_request_costs_a_few_hundred_bytes_of_log(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, method: str, target: str
) -> None:
    with caplog.at_level(logging.INFO, "mail.server"):
        await client.request(method, target, headers=bearer("alice"))
    lines = [JSONFormatter().format(record) for record in caplog.records]
    assert lines
    assert sum(map(len, lines)) < 1024


async def test_the_names_of_unknown_fields_make_a_short_line(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {f"{n}{chr(0x1F600) * 60}": 1 for n in range(1000)}
    await post(client, json.dumps({"body": "x", **fields}))
    [line] = [record for record in caplog.records if "unknown fields" in record.getMessage()]
    assert len(JSONFormatter().format(line)) < 1024


def test_a_secret_at_the_end_of_what_is_shown_is_hidden() -> None:
    token = "mail_eDvr3Wo7Za9cV7zEtfkS9XbiBBcCVRVKJAAeD7cY6P8"
    for before in range(200, 260):
        shown = beginning("x" * before + " " + token + " " + "y" * 500)
        assert "eDvr" not in shown
        assert len(shown) < 300
