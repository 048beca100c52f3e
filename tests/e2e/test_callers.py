"""Callers are strangers to one another, whatever they put in a query; and secrets stay secret."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.processes import PROVIDER_KEY, TOKENS, Place, place_of

pytestmark = pytest.mark.e2e

TASK = "plans/for tomorrow"
PATH = "/tasks/plans%2Ffor%20tomorrow"
QUERIES = (
    "",
    "raise_on_false=false",
    "role=admin&id=alice&user_id=alice",
    "debug=true&caller=alice",
)
RESULT = {"breakpoint_tool_call_result": "yes"}

Request = tuple[str, str, Mapping[str, Any] | None]

# Every way to name a task that should be there already.
TOUCHES: list[Request] = [
    ("GET", "/task", {"task_id": TASK}),
    ("GET", f"/task?task_id={PATH.removeprefix('/tasks/')}", None),
    ("GET", PATH, None),
    ("GET", f"{PATH}/events", None),
    ("GET", f"{PATH}/events?after=1", None),
    ("POST", f"{PATH}/cancel", None),
    ("GET", f"{PATH}/set-aside", None),
    ("POST", f"{PATH}/set-aside/1/retry", None),
    ("DELETE", f"{PATH}/set-aside/1", None),
    ("DELETE", PATH, None),
    ("DELETE", f"{PATH}?cancel=true", None),
    ("GET", "/tasks", None),
    ("GET", f"/tasks?limit=5&cursor={PATH.removeprefix('/tasks/')}", None),
    ("POST", "/message", {"body": "me too", "task_id": TASK, "resume_from": "user_response"}),
    (
        "POST",
        "/message",
        {"body": "", "task_id": TASK, "resume_from": "breakpoint_tool_call", "kwargs": RESULT},
    ),
    (
        "POST",
        "/message",
        {"body": "go", "task_id": TASK, "resume_from": "user_response", "stream": True},
    ),
]


def requests() -> Iterator[Request]:
    """Yield every touch with every query."""
    for method, path, body in TOUCHES:
        for query in QUERIES:
            join = "&" if "?" in path else "?"
            yield method, f"{path}{join}{query}" if query else path, body


async def everything(place: Place, who: str) -> list[tuple[int, dict[str, str], bytes]]:
    """Return the answers to all requests, byte for byte."""
    answers = []
    async with place.client(who) as client:
        for method, path, body in requests():
            answer = await client.request(method, path, json=body)
            each = ("date", "x-request-id")  # differ from answer to answer
            headers = {name: text for name, text in answer.headers.items() if name not in each}
            answers.append((answer.status_code, headers, answer.content))
    return answers


@pytest.mark.parametrize("stranger", ["bob", "root"])
async def test_a_strangers_task_looks_like_no_task(place: Place, stranger: str) -> None:
    await place.start()
    unknown = await everything(place, stranger)
    place.close_gate("model-lead")
    async with place.client() as alice:
        posting = asyncio.create_task(
            alice.post("/message", json={"body": "plan the day", "task_id": TASK})
        )
        async with asyncio.timeout(30):
            while not place.evidence.requests():
                await asyncio.sleep(0.01)
        assert await everything(place, stranger) == unknown  # while it runs
        place.open_gate("model-lead")
        answer = await posting
        assert answer.json()["response"] == "plan the day: north has 1 lines; south has 1 lines"
        before = (await alice.get("/tasks")).content
        assert await everything(place, stranger) == unknown  # when it is done
        assert (await alice.get("/tasks")).content == before
    place.evidence.check_log(TASK)
    statuses = {status for status, _, _ in unknown}
    assert statuses == {200, 400, 404}
    for (_, path, _), (status, _, body) in zip(requests(), unknown, strict=True):
        assert status == 404 or (path.startswith("/tasks?") or path == "/tasks"), path
        assert status in (400, 404) or json.loads(body) in ({}, {"tasks": {}, "next_cursor": None})


# --- secrets -----------------------------------------------------------------------------------

WRONG = "wrong-token-Nf61Rc28Yp90-of-nobody"


class Record:
    """Everything that the server said, to callers and to the disk."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.answers: list[bytes] = []
        self.statuses: list[int] = []

    async def ask(self, method: str, path: str, token: str, **options: Any) -> httpx.Response:
        """Send a request and keep its answer, headers included."""
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=self._place.url, timeout=20) as client:
            answer = await client.request(method, path, headers=headers, **options)
        self.answers += [answer.content, str(answer.headers.multi_items()).encode()]
        self.statuses.append(answer.status_code)
        return answer

    def check(self, secrets: list[str]) -> None:
        """Check that no secret is in any answer or file, not even half of it."""
        folder = self._place.folder
        files = [file for file in folder.rglob("*") if file.is_file()]
        ours = [file for file in files if not file.name.startswith("provider")]
        names = {file.name for file in ours}
        assert {"server.log", "mail.db"} <= names
        assert any(name.startswith("mail_") for name in names)
        for secret in secrets:
            half = secret[len(secret) // 4 : -len(secret) // 4].encode()
            for file in ours:
                assert half not in file.read_bytes(), (file.name, secret)
            for answer in self.answers:
                assert half not in answer, (answer, secret)


@pytest.mark.parametrize("use_proxy", [False, True], ids=["own-key", "callers-token"])
async def test_no_secret_is_written_or_told(tmp_path: Path, use_proxy: bool) -> None:
    token = TOKENS["alice"][1]
    key = token if use_proxy else PROVIDER_KEY
    refusals = [
        {"status": 401, "message": f"Incorrect API key provided: {key}. Yours is Bearer {key}"},
        {"status": 400, "message": f"bad request with headers {{'Authorization': 'Bearer {key}'}}"},
    ]
    async with place_of(tmp_path, *refusals, key=key) as place:
        record = Record(place)
        await place.start(use_proxy=use_proxy)
        for number, refusal in enumerate(refusals):
            answer = await record.ask("POST", "/message", token, json={"body": f"bad {number}"})
            assert answer.status_code == 502
            assert str(refusal["message"])[:12] in answer.json()["detail"]
        await converse(record, token)
        await go_wrong(record, token)
        await place.stop()
        record.check([token, TOKENS["bob"][1], TOKENS["root"][1], PROVIDER_KEY, WRONG])
        await place.start(use_proxy=use_proxy)
        await converse(record, token)
        await place.kill()
        record.check([token, TOKENS["bob"][1], TOKENS["root"][1], PROVIDER_KEY, WRONG])
        assert {200, 400, 401, 404, 413, 502} <= set(record.statuses)
        assert "Traceback" not in place.log


async def converse(record: Record, token: str) -> None:
    """Do what callers do."""
    job = {"body": "count the oaks", "show_events": True}
    assert (await record.ask("POST", "/message", token, json=job)).status_code == 200
    streamed = {"body": "count the elms", "stream": True, "stream_tokens": True}
    assert b"task_complete" in (await record.ask("POST", "/message", token, json=streamed)).content
    tasks = await record.ask("GET", "/tasks", token)
    for task_id in tasks.json():
        await record.ask("GET", f"/tasks/{task_id}/events", token)
    for path in ("/", "/health", "/whoami", "/status"):
        await record.ask("GET", path, token)
    await record.ask("POST", "/health", TOKENS["root"][1], json={"status": "fine"})


async def go_wrong(record: Record, token: str) -> None:
    """Do what callers do by mistake."""
    await record.ask("GET", "/tasks", WRONG)
    await record.ask("GET", "/tasks", f"{token} {token}")
    await record.ask("GET", "/tasks", token, params={"api_key": token, "token": WRONG})
    await record.ask("GET", "/tasks/nothing", TOKENS["bob"][1])
    await record.ask("POST", "/message", token, content=b'{"body": ')
    await record.ask("POST", "/message", token, json={"body": "x", "kwargs": {"token": token}})
    await record.ask("POST", "/message", token, json={"body": 5, "task_id": [token]})
    await record.ask("POST", "/message", token, content=b" " * (5 * 1024 * 1024))
    await record.ask("POST", "/nowhere", token)
