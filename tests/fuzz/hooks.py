"""What schemathesis has to know of the served swarm, and a check that it does not have.

Loaded by the ``schemathesis`` command, through ``SCHEMATHESIS_HOOKS``. ``FUZZ_ROLE`` is the role of
the run's token; empty without one. ``FUZZ_DEFINITION`` is a swarm that can be loaded: this process
loads nothing of the server.

A request that fits the document must not be answered with 400. Some facts are of a place and a
time and cannot be in the document, so requests that are to fit get them from here: which agents
there are, what can be built into another swarm, which tasks the caller has (a cursor
names one), which wait for results, and which versions of a memory are kept. Requests that are to be
refused stay as they are.
"""

import os
import uuid
from typing import Any

import requests
import schemathesis

from mail.core.suggest import did_you_mean

ROLE = os.environ.get("FUZZ_ROLE", "")
ENTRYPOINT = "supervisor"
PATIENCE = 20.0
_FRAMING = frozenset({"content-length", "transfer-encoding"})
"""What a request is sent by: with others it is no HTTP; ``test_raw.py`` tries that."""
_EDGE = frozenset({405, 414, 431})
"""Answered before anybody asks who calls."""


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Fill in what only this server knows."""
    _leave_framing(case)
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if isinstance(case.body, dict):
        _complete(case)
    if case.operation.path == "/approvals/{approval_id}":
        _know_the_call(case)
    cursor = (case.query or {}).get("cursor")
    if cursor is not None and not _is_task(case, str(cursor)):
        del case.query["cursor"]


def _complete(case: Any) -> None:
    """Fill in a body that is an object."""
    _leave_out_misspelt(case.body, _schema_of(case), case.operation.schema.raw_schema)
    if case.operation.path == "/message":
        _know_the_swarm(case.body)
    if case.operation.path == "/v1/responses":
        known = {name: case.body[name] for name in ("model", "stream") if name in case.body}
        case.body = {"input": "hello", **known}  # OpenAI's reference says what an input may be
    if case.operation.path == "/swarms/load":
        case.body["json"] = os.environ["FUZZ_DEFINITION"]
    if case.operation.path in ("/swarms", "/swarms/register"):
        # Whether a server answers there cannot be in the document; `tests.fuzz.server` has one.
        names = {"name": f"swarm-{len(case.body['name']) % 9}", "base_url": "http://peer.example"}
        case.body |= names | {"metadata": None, "auth_token": None, "volatile": True}
        case.body["public_key"] = None  # nor can which keys there are
        if "Idempotency-Key" in (case.headers or {}):  # a repeated key creates nothing
            case.headers["Idempotency-Key"] = str(uuid.uuid4())
    if case.operation.path == "/tokens" and case.body.get("role") == "agent":
        case.body["id"] = "editor" if case.body.get("participant") else "north"
    if case.operation.path == "/memories/{name}":
        _know_the_memory(case)
    if case.operation.path == "/interswarm/message":
        case.body["targets"] = [ENTRYPOINT]  # which agents there are is not in the document
    if case.operation.path == "/swarms/discover":
        case.body["discovery_urls"] = ["http://peer.example"]


def _leave_framing(case: Any) -> None:
    for name in [name for name in case.headers or {} if name.lower() in _FRAMING]:
        del case.headers[name]


def _schema_of(case: Any) -> dict[str, Any]:
    content = case.operation.definition.raw["requestBody"]["content"]
    schema: dict[str, Any] = content[case.media_type]["schema"]
    return schema


def _leave_out_misspelt(
    value: dict[str, Any], schema: dict[str, Any], document: dict[str, Any]
) -> None:
    """Leave out fields that the server takes for misspelt: names of other objects are among them.

    The document allows unknown fields, and a schema cannot say which names are too close.
    """
    choices = [_referenced(choice, document) for choice in schema.get("anyOf", [schema])]
    known = next((choice["properties"] for choice in choices if "properties" in choice), {})
    for name in [name for name in value if name not in known and did_you_mean(name, known)]:
        del value[name]
    for name, part in known.items():
        if isinstance(value.get(name), dict):
            _leave_out_misspelt(value[name], part, document)


def _referenced(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = document["components"]["schemas"][name] if name else schema
    return found


def _know_the_swarm(body: dict[str, Any]) -> None:
    if isinstance(body.get("entrypoint"), str) and body["entrypoint"].strip():
        body["entrypoint"] = ENTRYPOINT
    if body.get("resume_from") == "breakpoint_tool_call":
        body["task_id"] = f"waits for nothing {uuid.uuid4()}"  # 404; no task waits for these
    options = body.get("kwargs")
    if isinstance(options, dict) and options.get("timeout"):
        options["timeout"] = max(options["timeout"], PATIENCE)  # or it is 504, rightly


def _know_the_memory(case: Any) -> None:
    """Write a few memories, since a caller has not many, and restore one that is not there: 404."""
    name = case.path_parameters["name"]
    known = case.body.get("restore") is None
    case.path_parameters["name"] = f"memory-{len(name) % 9}" if known else f"no-{uuid.uuid4()}"


def _know_the_call(case: Any) -> None:
    """Answer real calls with what all of them take, and others, which are 404, in any way."""
    answer = case.body[0] if isinstance(case.body, list) and case.body else case.body
    if not isinstance(answer, dict) or answer.get("type") != "response":
        case.path_parameters["approval_id"] = f"no-{uuid.uuid4()}"


def _is_task(case: Any, task_id: str) -> bool:
    base = case.operation.base_url or ""
    headers = {"Authorization": os.environ.get("FUZZ_AUTHORIZATION", "")}
    query = {"task_id": task_id}
    return requests.get(f"{base}/task", query, headers=headers, timeout=10).status_code == 200


@schemathesis.check
def only_the_right_roles(ctx: Any, response: Any, case: Any) -> None:
    """Strangers get 401 and wrong roles 403, whatever else is wrong with their request."""
    roles = case.operation.definition.raw["x-mail-roles"]
    if not roles or ROLE in roles or case.method.upper() != case.operation.method.upper():
        return
    # A known caller's token may have been damaged or left out, and it may ask too often.
    expected = {401, 403, 429} if ROLE else {401}
    if "%0A" in response.request.url:
        expected |= {404}  # no path has a line break, so there is no such route
    if "content-encoding" in response.request.headers:
        expected |= {415}  # bodies are not unpacked, whoever sends them
    assert response.status_code in {*expected, *_EDGE}, f"{expected} expected: {response.text}"
