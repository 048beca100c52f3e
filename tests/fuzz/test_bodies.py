"""JSON of every shape, on the routes that take the most: refused with a reason, or answered."""

import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, response_create_params

from mail.net.types import PostMessageResponse
from tests.fuzz.effort import bounded
from tests.fuzz.target import Target
from tests.server.contract import Error
from tests.server.kit import bearer, frames
from tests.support.shapes import misfits

pytestmark = pytest.mark.e2e

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
st.register_type_strategy(object, JSON)
ASKED = st.from_type(response_create_params.ResponseCreateParamsNonStreaming)
WORDS = ["body", "message", "ask", "task_id", "t-1", "supervisor", "user_response", "request"]
TEXT = st.sampled_from(["", " ", *WORDS, "\x00", "\u2028", "x" * 2000]) | st.text(max_size=20)
MESSAGES = st.fixed_dictionaries(
    {"body": TEXT},
    optional={
        "subject": TEXT | JSON,
        "message": TEXT | JSON,
        "msg_type": st.sampled_from(["request", "response", "broadcast", "interrupt"]) | JSON,
        "entrypoint": st.sampled_from(["supervisor", " ", "", "Supervisor"]) | TEXT | JSON,
        "task_id": st.sampled_from(["t-1", "t/2", "events", "\u2028"]) | TEXT | JSON,
        "resume_from": st.sampled_from(["user_response", "breakpoint_tool_call"]) | JSON,
        "show_events": st.booleans() | JSON,
        "stream_tokens": st.booleans() | JSON,
        "kwargs": JSON
        | st.fixed_dictionaries(
            {},
            optional={
                "max_steps": st.integers() | JSON,
                "timeout": st.floats() | JSON,
                "breakpoint_tool_caller": TEXT,
                "breakpoint_tool_call_result": JSON,
            },
        ),
    },
)


@pytest.fixture(scope="module")
def http(shot: Target) -> Iterator[httpx.Client]:
    """A client, as Alice."""
    with httpx.Client(base_url=shot.url, headers=bearer("alice"), timeout=20) as client:
        yield client


@pytest.fixture(scope="module")
def log(http: httpx.Client) -> str:
    """The path of the events of a task."""
    assert post(http, "/message", {"body": "hello", "task_id": "log"}).status_code == 200
    return "/tasks/log/events"


def plain(value: Any) -> Any:
    """Return a value as JSON has it; the SDK's types allow any iterable for a list."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return [plain(item) for item in value] if isinstance(value, Iterable) else str(value)


def post(http: httpx.Client, path: str, body: Any) -> httpx.Response:
    """Post JSON, with whatever escapes make it plain ASCII."""
    return http.post(path, content=json.dumps(body).encode())


def check_refused(answer: httpx.Response) -> None:
    """Check an error: a foreseen status, and a reason in the documented shape."""
    assert answer.status_code in (400, 404, 409, 504), answer.text
    found = answer.json()
    found.pop("task_id", None)
    assert found.pop("code", "unknown_task") == "unknown_task"  # no mail of a swarm comes here
    if "error" in found:
        assert set(found) == {"error", "detail"}
    else:
        assert misfits(found, Error) == []
    assert found["detail"]


@bounded(60)
@given(st.just({}) | st.just({"input": "hello"}), ASKED)
def test_what_the_sdk_can_say_is_answered_or_refused(
    http: httpx.Client, sure: dict[str, Any], asked: Any
) -> None:
    answer = post(http, "/v1/responses", plain(asked) | sure)
    if answer.status_code == 200:
        Response.model_validate(answer.json())
    else:
        check_refused(answer)


@bounded(40)
@given(st.dictionaries(st.sampled_from(["input", "tools", "tool_choice", "kwargs", "text"]), JSON))
def test_what_no_sdk_says_is_answered_or_refused(http: httpx.Client, asked: Any) -> None:
    answer = post(http, "/responses", asked)
    if answer.status_code == 200:
        Response.model_validate(answer.json())
    else:
        check_refused(answer)


@bounded(80)
@given(MESSAGES)
def test_messages_are_answered_or_refused(http: httpx.Client, message: Any) -> None:
    answer = post(http, "/message", message)
    if answer.status_code == 200:
        assert misfits(answer.json(), PostMessageResponse) == []
    else:
        check_refused(answer)


@bounded(30)
@given(MESSAGES)
def test_streams_end_with_their_run(http: httpx.Client, message: Any) -> None:
    answer = post(http, "/message", {**message, "stream": True})
    if answer.status_code == 200:
        assert frames(answer.text)[-1]["event"] in ("task_complete", "task_error")
    else:
        check_refused(answer)


@bounded(60)
@given(st.binary(max_size=30) | st.integers().map(lambda n: str(n).encode()), st.text(max_size=10))
def test_any_place_in_a_log_is_one_or_refused(
    http: httpx.Client, log: str, last: bytes, after: str
) -> None:
    header = last.translate(None, bytes([*range(32), 127])).strip()
    for headers, params in (({b"Last-Event-ID": header}, {}), ({}, {"after": after})):
        answer = http.get(log, headers=headers, params=params)
        if answer.status_code == 200:
            assert all(int(frame["id"]) > 0 for frame in frames(answer.text))
        else:
            check_refused(answer)


@bounded(60)
@given(
    st.sampled_from(
        [
            *("/tasks/{}", "/tasks/{}/events", "/tasks/{}/cancel", "/task?task_id={}", "/{}"),
            *("/tasks?cursor={}", "/tasks?limit={}", "/v1/responses/{}", "/responses/{}/cancel"),
        ]
    ),
    TEXT | st.binary(max_size=20),
    st.sampled_from(["GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"]),
)
def test_any_name_of_anything_is_known_or_not(
    http: httpx.Client, path: str, name: str | bytes, method: str
) -> None:
    text = name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name
    answer = http.request(method, path.format(quote(text, safe="")))
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400 and method != "HEAD":
        assert answer.json()["detail"]


def test_the_server_came_through(shot: Target) -> None:
    shot.check_alive()
