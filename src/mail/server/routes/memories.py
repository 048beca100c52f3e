"""The caller's named memories. What an administrator sees here are an administrator's own."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Path
from pydantic import BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from mail.auth.callers import Caller
from mail.core.approvals import MEMORY_NAME
from mail.db.preferences import FeedbackRow, VersionRow
from mail.errors import ProtocolError
from mail.net.types import (
    GetMemoriesResponse,
    LearningState,
    MemoryDetails,
    MemoryFeedback,
    MemoryRecord,
    MemoryVersion,
)
from mail.server.answers import json_texts, large_answer
from mail.server.bodies import RequestBody, whole
from mail.server.deps import State, TaskOwner
from mail.server.openapi import errors
from mail.server.routing import MAILRouter
from mail.server.state import ServerState, owner_of
from mail.services.preferences import (
    MAX_MEMORY_BYTES,
    Memories,
    Memory,
    MemoryView,
    check_memory_text,
)

router = MAILRouter("memories")

_OFF: Final = (
    "no model is configured ([server.memory] model), and the entrypoint asks none; feedback waits"
)

_COPIES: Final = 2
"""A text is stored as the memory's and as that of its newest version."""

_NO_CONTROLS: Final = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*$"

MemoryName = Annotated[
    str,
    Path(
        description="The name: 1 to 64 ASCII letters, digits, `_` and `-`; the first one is a "
        "letter or digit.",
        examples=["response_preferences"],
        json_schema_extra={"pattern": f"^{MEMORY_NAME.pattern}$"},
    ),
]


def _one_text(schema: dict[str, Any]) -> None:
    """Say in JSON Schema that a memory gets one text."""
    schema["oneOf"] = [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
        for name in ("value", "restore")
    ]


class MemoryIn(RequestBody):
    """A new text of a memory, or the number of an earlier version."""

    model_config = ConfigDict(json_schema_extra=_one_text)

    value: Annotated[
        Annotated[
            str,  # `check_memory_text` counts bytes
            Field(json_schema_extra={"maxLength": MAX_MEMORY_BYTES, "pattern": _NO_CONTROLS}),
        ]
        | None,
        Field(
            description="The text, at most 16,384 bytes, without control characters other than "
            "tabs and line ends. Either this or `restore`.",
            examples=["Be brief."],
        ),
    ] = None
    restore: Annotated[
        Annotated[int, Field(ge=0, lt=2**53), BeforeValidator(whole)] | None,
        Field(description="The version whose text it gets again; 0 is the swarm's default."),
    ] = None
    expected_version: Annotated[
        Annotated[int, Field(ge=0, lt=2**53), BeforeValidator(whole)] | None,
        Field(description="The newest version that the caller knows; with another one it is 409."),
    ] = None


@router.get("/memories", response_model=GetMemoriesResponse)
async def get_memories(request: Request, state: State, caller: TaskOwner) -> Response:
    """List the caller's named memories, and those that the swarm declares."""
    memories = state.memories_of(caller)

    async def listed() -> GetMemoriesResponse:
        records = [_record(memory) for memory in await memories.listed()]
        return {"memories": records, "learning": _learning(state)}

    return await _sent(request, state, caller, listed)


@router.get("/memories/{name}", response_model=MemoryDetails, responses=errors(404))
async def get_memory(
    request: Request, state: State, caller: TaskOwner, name: MemoryName
) -> Response:
    """Return a memory with its versions and the feedback on it."""
    return await _sent(request, state, caller, partial(_shown, state.memories_of(caller), name))


@router.put(
    "/memories/{name}", response_model=MemoryDetails, responses=errors(400, 404, 408, 409, 413, 507)
)
async def put_memory(
    request: Request, state: State, caller: TaskOwner, name: MemoryName, body: MemoryIn
) -> Response:
    """Give a memory another text, or that of an earlier version. It need not be there before."""
    if (body.value is None) == (body.restore is None):
        raise ProtocolError("either 'value' or 'restore' is needed, and not both")
    memories, owner = state.memories_of(caller), owner_of(state, caller)
    text = "" if body.value is None else check_memory_text(body.value)
    await state.shares.admit(owner)
    if body.restore is not None:
        written = await memories.restore(name, body.restore, body.expected_version)
    else:
        written = await memories.write(name, text, body.expected_version)
    state.shares.wrote(owner, len(written.value.encode()) * _COPIES)
    return await _sent(request, state, caller, partial(_shown, memories, name))


@router.delete("/memories/{name}", status_code=204, responses=errors(404, 409))
async def delete_memory(state: State, caller: TaskOwner, name: MemoryName) -> Response:
    """Remove a memory with its versions and feedback; the swarm's default counts again."""
    await state.memories_of(caller).delete(name)
    state.shares.forget(owner_of(state, caller))
    return Response(status_code=204)


async def _sent(
    request: Request, state: ServerState, caller: Caller, read: Callable[[], Awaitable[object]]
) -> Response:
    """Answer with what is read, in one of the caller's places for large answers."""

    async def texts() -> AsyncGenerator[str, None]:
        async for text in json_texts(await read()):
            yield text

    return await large_answer(request, state.quotas.places(caller), texts())


async def _shown(memories: Memories, name: str) -> MemoryDetails:
    return _details(await memories.view(name))


def _learning(state: ServerState) -> LearningState:
    enabled = state.learning.propose is not None
    return {"enabled": enabled, "reason": None if enabled else _OFF}


def _record(memory: Memory) -> MemoryRecord:
    source = memory.updated_by
    return {
        "name": memory.name,
        "value": memory.value,
        "is_default": memory.is_default,
        "version": memory.version,
        "updated_at": memory.updated_at,
        "updated_by": None if source == "deleted" else source,
        "waiting": memory.waiting,
    }


def _details(view: MemoryView) -> MemoryDetails:
    return {
        **_record(view.memory),
        "versions": [_version(row) for row in view.versions],
        "feedback": [_feedback(row) for row in view.feedback],
    }


def _version(row: VersionRow) -> MemoryVersion:
    return {
        "version": row.version,
        "value": row.value,
        "created_at": row.created_at,
        "source": "person" if row.source == "deleted" else row.source,
        "approval_id": row.approval_id or None,
        "task_id": row.task_id or None,
    }


def _feedback(row: FeedbackRow) -> MemoryFeedback:
    return {
        "approval_id": row.approval_id,
        "task_id": row.task_id,
        "type": row.type,
        "action": row.action,
        "status": row.state,
        "reason": row.reason,
        "attempts": row.attempts,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "rejections": json.loads(row.rejections),
    }
