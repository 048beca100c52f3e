"""Calls of a runtime's doors that another process makes, because it has the task.

Such a call is stored. The process that has the task makes it, as if it had come there, and stores
the answer; whoever asked waits for that. When the task is nobody's any more, they take the call
back and make it themselves.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from mail.db.records import Owner
from mail.db.store import Store
from mail.errors import MAILError, StoreError, TaskElsewhere

Door = TypeVar("Door", bound=Callable[..., Any])

_SECONDS: Final = 30.0
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.2

_NOT_THERE: Final = ("TaskElsewhere", "ClaimLost")

_CALLS: Final[dict[str, Callable[..., Any]]] = {}


def relayed(method: Door) -> Door:
    """Let other processes call a method of a door; its parameters and its result say how."""
    _CALLS[method.__qualname__] = method
    return method


@dataclass(frozen=True, slots=True)
class Relay:
    """The way to the processes that have tasks of an owner."""

    store: Store
    owner: Owner

    async def call(self, kind: str, task_id: str, *args: object, **kwargs: object) -> Any:
        """Have a call made where the task is, and return or raise what came of it.

        Raises:
            NotRelayed: they do not have the task any more.
            TaskElsewhere: there was no answer in time; it may still be made.
        """
        arguments, answer = _shape(kind)
        bound = inspect.signature(_CALLS[kind]).bind(None, *args, **kwargs)
        bound.apply_defaults()
        values = tuple(bound.arguments.values())[1:]
        text = arguments.dump_json(values).decode()
        number = await self.store.relay(self.owner, task_id, kind, text)
        self.store.driver.tell("relay")
        if number is None:
            raise NotRelayed
        failure, *result = from_json(await self._answered(number, task_id))
        await self.store.forget_relayed(number)
        if failure is not None and failure[0] in _NOT_THERE:
            raise NotRelayed
        if failure is not None:
            raise _failure(*failure)
        return answer.validate_python(result[0])

    async def _answered(self, number: int, task_id: str) -> str:
        pause, until = _FIRST_PAUSE, asyncio.get_running_loop().time() + _SECONDS
        while True:
            answer = await self.store.relayed_answer(number)
            if answer is not None:
                return answer
            if await self.store.withdraw_relayed(number):
                raise NotRelayed
            if asyncio.get_running_loop().time() > until:
                raise TaskElsewhere(task_id)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)


class NotRelayed(MAILError):
    """The process that had the task has it no more, and has done nothing."""


async def make_call(doors: Mapping[str, object], kind: str, arguments: str) -> str:
    """Make a call that another process has asked for; return what came of it as JSON."""
    method = _CALLS.get(kind)
    door = doors.get(kind.partition(".")[0])
    if method is None or door is None:
        return told(StoreError("another version of the server has the task; try again later"))
    shape, answer = _shape(kind)
    names = list(inspect.signature(method).parameters)[1:]
    try:
        given = dict(zip(names, shape.validate_json(arguments), strict=True))
        making: Awaitable[Any] = getattr(door, method.__name__)(**given)
        result = await making
    except MAILError as error:
        return told(error)
    return to_json([None, answer.dump_python(result, mode="json")]).decode()


@cache
def _shape(kind: str) -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    """Return what reads and writes the arguments of a call, and its result."""
    hints = get_type_hints(_CALLS[kind])
    result = hints.pop("return")
    arguments: Any = tuple[tuple(hints.values())]  # type: ignore[misc]
    return TypeAdapter(arguments), TypeAdapter(result)


def told(error: MAILError) -> str:
    """Return an error as JSON, as what came of a call."""
    return to_json([[type(error).__name__, error.args, vars(error)]], fallback=str).decode()


def _failure(name: str, args: list[Any], more: dict[str, Any]) -> MAILError:
    """Make an error that another process has raised."""
    kind = _errors().get(name, MAILError)
    error = kind.__new__(kind, *args)
    vars(error).update(more)
    return error


def _errors() -> dict[str, type[MAILError]]:
    found, left = {"MAILError": MAILError}, [MAILError]
    while left:
        below = left.pop().__subclasses__()
        found |= {each.__name__: each for each in below}
        left += below
    return found
