"""What a route gets by declaring itself: a description, a caller, a checked body."""

from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from mail.errors import ConfigError, UnknownTask
from mail.server.bodies import RequestBody
from mail.server.deps import PUBLIC, Administrator, Person
from mail.server.openapi import OpenAPIDocument, errors
from mail.server.routing import MAILRouter
from tests.server.kit import bearer, serving


class NoteIn(RequestBody):
    """A note."""

    text: Annotated[str, Field(min_length=1, description="What to note.")]
    pinned: Annotated[bool | None, Field(description="Keep it on top.")] = None


class NoteOut(TypedDict):
    """A stored note."""

    text: str
    by: str


def notes() -> MAILRouter:
    """The routes that somebody adds."""
    router = MAILRouter("notes")

    @router.post("/notes", responses=errors(404))
    async def add_note(body: NoteIn, caller: Person) -> NoteOut:
        """Store a note.

        It is kept for a day.
        """
        if body.text == "nowhere":
            raise UnknownTask("nowhere")
        return {"text": body.text, "by": caller.id}

    return router


async def test_an_application_with_routes_may_be_mounted() -> None:
    router = MAILRouter("notes")

    @router.get("/notes/{note}/text", dependencies=[Depends(PUBLIC)])
    async def text(note: str) -> str:
        """Read a note."""
        return note

    inner, outer = FastAPI(), FastAPI()
    inner.include_router(router)
    outer.mount("/of/notes", inner)
    for app, prefix in ((inner, ""), (outer, "/of/notes")):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            assert (await client.get(f"{prefix}/notes/7/text")).json() == "7"
            assert (await client.get(f"{prefix}/note/7/text")).status_code == 404
            assert (await client.get("/not/notes/7/text")).status_code == 404


def test_a_route_is_described_by_its_signature_and_docstring() -> None:
    document = OpenAPIDocument([notes()]).content
    said = document["paths"]["/notes"]["post"]
    assert (said["operationId"], said["tags"]) == ("add_note", ["notes"])
    assert said["summary"] == "Store a note"
    assert said["description"] == "For `admin` and `user`. It is kept for a day."
    assert said["x-mail-roles"] == ["admin", "user"]
    assert said["security"] == [{"bearer": []}]
    of_a_post = {"400", "408", "409", "413"}
    of_a_caller = {"401", "403", "429", "503"}
    of_all = {"200", "404", "414", "415", "431", "500"}
    assert set(said["responses"]) == of_all | of_a_post | of_a_caller
    schema = document["components"]["schemas"]["NoteIn"]
    assert schema["properties"]["text"]["description"] == "What to note."
    assert schema["required"] == ["text"]


@pytest.mark.parametrize(
    ("who", "body", "status", "detail"),
    [
        ("nobody", b"{", 401, "no API key provided"),
        ("swarm", b"{", 403, "invalid role: this requires admin or user"),
        ("alice", b"{", 400, "not valid JSON"),
        ("alice", b'{"text": 5}', 400, "invalid request: text: must be a string"),
        ("alice", b'{"text": "x", "pined": true}', 400, "Did you mean 'pinned'?"),
        ("alice", b'{"pinned": true}', 400, "invalid request: text: is missing"),
        ("alice", b'{"text": "nowhere"}', 404, "task 'nowhere' not found"),
    ],
)
async def test_who_calls_is_settled_before_the_body_is_looked_at(
    app: FastAPI, who: str, body: bytes, status: int, detail: str
) -> None:
    app.router.routes.extend(notes().routes)
    async with serving(app) as client:
        headers = {} if who == "nobody" else bearer(who)
        answer = await client.post("/notes", content=body, headers=headers)
    assert answer.status_code == status
    assert detail in answer.json()["detail"]


async def test_a_body_is_json_and_the_answer_has_its_declared_shape(app: FastAPI) -> None:
    app.router.routes.extend(notes().routes)
    async with serving(app) as client:
        form = {"Content-Type": "application/x-www-form-urlencoded"}  # what `curl -d` says
        answer = await client.post(
            "/notes", content=b'{"text": "milk"}', headers=bearer("alice") | form
        )
    assert answer.json() == {"text": "milk", "by": "alice"}


def test_a_route_that_nobody_may_call_is_refused() -> None:
    async def forgotten() -> None: ...

    with pytest.raises(ConfigError, match="'/forgotten' declares no audience"):
        MAILRouter().get("/forgotten")(forgotten)


def test_a_body_of_another_kind_is_refused() -> None:
    class Plain(BaseModel):
        text: str

    async def lax(body: Plain, caller: Administrator) -> None: ...

    async def loose(body: dict[str, Any]) -> None: ...

    with pytest.raises(ConfigError, match="must be a RequestBody"):
        MAILRouter().post("/lax")(lax)
    with pytest.raises(ConfigError, match="must be a RequestBody"):
        MAILRouter().post("/loose", dependencies=[Depends(PUBLIC)])(loose)


async def test_the_document_of_the_server_is_that_of_its_own_routes_only(
    app: FastAPI, client: httpx.AsyncClient
) -> None:
    app.router.routes.extend(notes().routes)
    assert "/notes" not in (await client.get("/openapi.json")).json()["paths"]
