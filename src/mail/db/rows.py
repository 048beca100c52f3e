"""From columns to rows and back, the same for every store that keeps SQL."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.base import Delivery, MemoryRow, TaskRow, TokenRow

__all__ = [
    "as_deliveries",
    "as_event",
    "as_memory",
    "as_namespaces",
    "as_task",
    "as_token",
    "join_lists",
    "list_text",
    "namespace_range",
    "namespace_text",
    "tool_format",
]


def as_task(row: Iterable[Any]) -> TaskRow:
    """Make a task of its columns, in the order of `TaskRow` but for the defaults' own."""
    task_id, task_owner, contributors, start_time, entrypoint, state, remote_swarms, *rest = row
    steps, max_steps, awaited, finish_asked, title, usage = rest
    return TaskRow(
        task_id=task_id,
        task_owner=task_owner,
        task_contributors=tuple(json.loads(contributors)),
        start_time=start_time,
        entrypoint=entrypoint,
        state=TaskState(state),
        remote_swarms=tuple(json.loads(remote_swarms)),
        steps=steps,
        max_steps=max_steps,
        awaited=bool(awaited),
        finish_asked=bool(finish_asked),
        title=title,
        usage=usage,
    )


def as_deliveries(task_id: str, rows: Iterable[Any]) -> list[Delivery]:
    """Make deliveries of recipient, tier, interrupt, payload, control, seq and attempts."""
    return [
        Delivery(
            task_id=task_id,
            recipient=recipient,
            tier=tier,
            interrupt=bool(interrupt),
            payload=payload,
            control=control,
            seq=seq,
            attempts=attempts,
        )
        for recipient, tier, interrupt, payload, control, seq, attempts in rows
    ]


def as_event(task_id: str, row: Iterable[Any]) -> TaskEvent:
    """Make an event of event_type, created_at, seq, description and event_data."""
    kind, timestamp, seq, description, extra = row
    return TaskEvent(
        task_id=task_id,
        kind=kind,
        timestamp=timestamp,
        seq=seq,
        description=description,
        extra=json.loads(extra),
    )


def as_memory(row: Iterable[Any]) -> MemoryRow:
    """Make a memory of namespace, key, value, created_at and updated_at."""
    namespace, key, value, created_at, updated_at = row
    return MemoryRow(
        namespace=tuple(json.loads(namespace)),
        key=key,
        value=value,
        created_at=created_at,
        updated_at=updated_at,
    )


def as_namespaces(texts: Iterable[str]) -> list[tuple[str, ...]]:
    """Return namespaces, given as `namespace_text`, in order."""
    return sorted(tuple(json.loads(text)) for text in texts)


def as_token(row: Iterable[Any]) -> TokenRow:
    """Make a token of its columns in the order hash, role, id, created, label, expires, revoked."""
    token_hash, role, caller_id, created_at, label, expires_at, revoked_at = row
    return TokenRow(
        token_hash=token_hash,
        role=role,
        id=caller_id,
        created_at=created_at,
        label=label,
        expires_at=expires_at,
        revoked_at=revoked_at,
    )


def list_text(texts: Sequence[str]) -> str:
    """Return texts as a JSON list."""
    return json.dumps(texts) if texts else "[]"


def namespace_text(namespace: tuple[str, ...]) -> str:
    """Return a namespace as its key: a compact JSON list, in ASCII."""
    return json.dumps(namespace, separators=(",", ":"))


def namespace_range(prefix: tuple[str, ...]) -> tuple[str, str]:
    """Return between which keys (the second excluded) the namespaces with this prefix lie.

    Behind the prefix stands "," or "]" (or the first quote): all of them sort before "^".
    """
    start = namespace_text(prefix)[:-1]
    return start, start + "^"


_DECISIVE_ROLES: Final = frozenset({"assistant", "tool"})


def join_lists(lists: Iterable[str]) -> str:
    """Return JSON lists, given as text, as one list."""
    insides = (text.strip()[1:-1].strip() for text in lists)
    return f"[{','.join(inside for inside in insides if inside)}]"


def tool_format(lists: Sequence[str]) -> str | None:
    """Tell in which shape histories (JSON lists, as text) are kept.

    Returns:
        ``"completions"`` or ``"responses"`` by the first entry that an assistant or a tool wrote;
        None when there is none.
    """
    for text in lists:
        for entry in json.loads(text):
            shape = _shape(entry)
            if shape is not None:
                return shape
    return None


def _shape(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    if entry.get("type") is not None and entry.get("role") not in ("user", "system"):
        return "responses"
    return "completions" if entry.get("role") in _DECISIVE_ROLES else None
